//! Log-softmax over pairs of channels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word};
use crate::lower::Builder;

/// Logarithm of the softmax over pairs of channels: `[2A, H, W]`, which is `[2, A, H, W]`, to `[A, H, W, 2]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairLogSoftmax {}

impl Word for PairLogSoftmax {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::PairLogSoftmax, &[x])
    }

    fn describe(&self) -> Description<'_> {
        Step::riding("pair_log_softmax").into()
    }
}
