//! From maps to tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::lower::Builder;

/// `[C, H, W]` to `[H*W, C]`: each pixel, row by row, as a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tokens {}

impl Word for Tokens {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([n, c, h, w]) = at.shape(x).nchw() else {
            return Err(at.refuse(format!("tokens are made of [C, H, W], this value has {} axes", at.rank(x))));
        };
        let flat = at.add_part("flat", ops::Reshape { shape: [n, c, h * w].into() }, &[x])?;
        at.transposed("tokens", &[0, 2, 1], flat)
    }

    fn describe(&self) -> Description<'_> {
        Step::new(Work::Size, "tokens").into()
    }
}
