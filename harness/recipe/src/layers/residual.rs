//! Sum of two branches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::{Body, Description, Module, Word};
use crate::diagnostic::Diagnostic;
use crate::emit::{At, Code, Var};
use crate::lower::Builder;
use crate::resolve::Place;
/// Sum of two branches of the same input: main(x) + shortcut(x).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Residual {
    /// The main branch.
    #[schemars(length(min = 1))]
    pub main: Body,
    /// The shortcut branch; the identity if absent or if all its layers are disabled.
    #[serde(default, skip_serializing_if = "Body::is_empty")]
    pub shortcut: Body,
}

impl Word for Residual {
    const MODULE: Module = Module::Container;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        at.layers("main", &mut self.main);
        at.layers("shortcut", &mut self.shortcut);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let main = at.body(&self.main, x)?;
        let shortcut = at.body(&self.shortcut, x)?;
        at.add_part("add", ops::Add, &[main, shortcut])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.inside(|inner, x| {
            let main = inner.row(&self.main, x)?;
            let shortcut = inner.row(&self.shortcut, x)?;
            let sum = if shortcut == x { [shortcut, main] } else { [main, shortcut] };
            Ok(inner.function_like(Code::operation(sum[0], "+", sum[1]), main))
        })
    }

    fn describe(&self) -> Description<'_> {
        let lanes = vec![self.main.layers.as_slice(), &self.shortcut.layers];
        Description::Branches { lanes, text: "residual add", join: "add" }
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        vec![&mut self.main, &mut self.shortcut]
    }
}
