//! Margins cut off.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::lower::Builder;
use crate::schema::Size;
/// Cuts the same margin off all four sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crop {
    /// Rows and columns that go, on each side.
    pub margin: Size,
    /// Only of maps narrower than this; wider ones stay whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrower_than: Option<Size>,
}

impl Word for Crop {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([n, c, h, w]) = at.shape(x).nchw() else {
            return Err(at.refuse(format!("no height and width in {}", at.shape(x))));
        };
        if self.narrower_than.is_some_and(|limit| w >= limit.0) {
            return Ok(x);
        }
        let margin = self.margin.0;
        let left = |size: usize| size.checked_sub(2 * margin).filter(|size| *size > 0);
        let (Some(oh), Some(ow)) = (left(h), left(w)) else {
            return Err(at.refuse(format!("a margin of {margin} leaves nothing of {h}x{w}")));
        };
        at.add(ops::Slice { start: vec![0, 0, margin, margin], size: vec![n, c, oh, ow] }, &[x])
    }

    fn describe(&self) -> Description<'_> {
        Step::new(Work::Size, format!("crop {}", self.margin.0)).into()
    }
}
