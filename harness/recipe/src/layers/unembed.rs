//! Scores of all rows of a table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::lower::Builder;
use crate::resolve::Place;

/// The product of `[T, E]` with the table of an embedding above: a score for each of its rows (tied weights, arXiv
/// 1608.05859). In PyTorch it is a Linear without a bias that shares its weight with the Embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unembed {
    /// Name of the embedding.
    pub table: String,
}

impl Word for Unembed {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.table = at.module_name("table", &self.table)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let name = format!("{}.weight", self.table);
        let Some(table) = at.graph().find_variable(&name) else {
            return Err(at.refuse(format!("there is no parameter `{name}` above")));
        };
        let table = at.graph().variable(table).value;
        at.add(ops::MatMul { transpose_a: false, transpose_b: true }, &[x, table])
    }

    fn describe(&self) -> Description<'_> {
        Step::new(Work::Dense, format!("unembed {}", self.table)).into()
    }
}
