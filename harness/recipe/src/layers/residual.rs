//! Sum of two branches.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Sum of two branches of the same input: main(x) + shortcut(x). Axes of one element are
    /// repeated.
    pub struct Residual {
        /// The main branch.
        #[schemars(length(min = 1))]
        pub main: Body,
        /// The shortcut branch; the identity if absent or if all its layers are disabled.
        #[serde(skip_serializing_if = "Body::is_empty")]
        pub shortcut: Body = Body::default(),
    }
}

impl Word for Residual {
    const MODULE: Module = Module::Container;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        at.layers("main", &mut self.main);
        at.layers("shortcut", &mut self.shortcut);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let main = self.main.lower(at, x)?;
        let shortcut = self.shortcut.lower(at, x)?;
        at.broadcast(Some("add"), ops::Add, Formula::define(0, |[x, other]| [x + other]), [main, shortcut])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.inside(|inner, x| {
            let main = self.main.emit(inner, x)?;
            let shortcut = self.shortcut.emit(inner, x)?;
            let sum = if shortcut == x { [shortcut, main] } else { [main, shortcut] };
            Ok(inner.function_like(Code::operation(sum[0], "+", sum[1]), main))
        })
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let lanes = vec![self.main.layers.as_slice(), &self.shortcut.layers];
        Description::Branches { lanes, text: "residual add", join: "add" }
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        vec![&mut self.main, &mut self.shortcut]
    }
}
