//! Learned positions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, init::NormalInit, ops};

use super::{Description, Module, Step, Word};
use crate::lower::{Builder, Gives};
use crate::schema::Size;

/// Adds a learned row to each token of `[T, E]` by its place: an Embedding of the places 0, 1, ..., which is the module
/// that goldens know. Parameter `weight`, `[rows, E]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Positions {
    /// Number of rows: the most tokens that a sample may have.
    pub rows: Size,
    /// How the parameter starts.
    #[serde(default = "standard")]
    pub init: Init,
}

/// What PyTorch gives embeddings.
fn standard() -> Init {
    Init::Normal(NormalInit { std: 1.0 })
}

impl Word for Positions {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [_, t, e] = at.tokens(x)?;
        if t > self.rows.0 {
            return Err(at.refuse(format!("{t} tokens, but only {} positions: increase `rows`", self.rows.0)));
        }
        let table = at.parameter("weight", VariableRole::Weight, &[self.rows.0, e], &self.init)?;
        let cut = ops::Slice { start: vec![0, 0], size: vec![t, e] };
        let rows = if t < self.rows.0 { at.add_part("rows", cut, &[table])? } else { table };
        at.gives(Gives::Value(rows));
        at.unnamed(Formula::define(0, |[x, rows]| [x + rows]), &[x, rows])
    }

    fn describe(&self) -> Description<'_> {
        Step::riding("positions").into()
    }
}
