//! Padding as a separate operator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::lower::Builder;
use crate::schema::Padding;
/// Zero padding as a separate operator, which zoo can fold into the following convolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Zeros around the image.
    pub size: Padding,
}

impl Word for Pad {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [top, bottom, left, right] = self.size.0;
        at.add(ops::Pad { before: vec![0, 0, top, left], after: vec![0, 0, bottom, right] }, &[x])
    }

    fn describe(&self) -> Description<'_> {
        Step::new(Work::Size, format!("pad {}", self.size)).into()
    }
}
