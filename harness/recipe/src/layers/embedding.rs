//! Rows of a table by their numbers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, Init, ValueId, VariableRole, init::NormalInit, ops};

use super::{Description, Module, Step, Word, Work};
use crate::lower::Builder;
use crate::schema::Size;

/// A learned row for each index: `[T]` token ids to `[T, size]` (PyTorch's Embedding). Parameter `weight`, `[rows,
/// size]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Number of rows: of tokens in the vocabulary.
    pub rows: Size,
    /// Numbers in a row.
    pub size: Size,
    /// How the parameter starts.
    #[serde(default = "standard")]
    pub init: Init,
}

/// What PyTorch gives embeddings.
fn standard() -> Init {
    Init::Normal(NormalInit { std: 1.0 })
}

impl Word for Embedding {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let table = at.parameter("weight", VariableRole::Weight, &[self.rows.0, self.size.0], &self.init)?;
        at.add(ops::Gather::BY_OPERAND, &[table, x])
    }

    fn describe(&self) -> Description<'_> {
        Step::new(Work::Dense, "embedding").into()
    }
}
