//! Padding as a separate operator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::lower::Builder;
use crate::schema::Padding;

/// Padding as a separate operator. zoo can fold zeros into the following convolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Rows and columns around the image.
    pub size: Padding,
    /// What they contain.
    #[serde(default, skip_serializing_if = "PadMode::is_zeros")]
    pub mode: PadMode,
}

/// What padding contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PadMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The image, mirrored at its edge rows and columns, which are not repeated (PyTorch's ReflectionPad2d).
    Reflect,
}

impl PadMode {
    fn is_zeros(&self) -> bool {
        *self == Self::Zeros
    }
}

impl fmt::Display for PadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zeros => "zeros",
            Self::Reflect => "reflect",
        })
    }
}

impl Word for Pad {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [top, bottom, left, right] = self.size.0;
        match self.mode {
            PadMode::Zeros => {
                at.add(ops::Pad { before: vec![0, 0, top, left], after: vec![0, 0, bottom, right] }, &[x])
            }
            PadMode::Reflect => {
                let x = mirrored(at, "rows", 2, [top, bottom], x)?;
                mirrored(at, "columns", 3, [left, right], x)
            }
        }
    }

    fn describe(&self) -> Description<'_> {
        let mode = if self.mode.is_zeros() { String::new() } else { format!(" {}", self.mode) };
        Step::new(Work::Size, format!("pad {}{mode}", self.size)).into()
    }
}

/// A map with so many places before and after those of an axis, mirrored at the first and at the last one.
fn mirrored(
    at: &mut Builder<'_, '_>,
    part: &str,
    axis: usize,
    [before, after]: [usize; 2],
    x: ValueId,
) -> Result<ValueId, GraphError> {
    let shape = at.shape(x).to_vec();
    let extent = shape.get(axis).copied().unwrap_or(0);
    if before.max(after) >= extent.max(1) {
        let message =
            format!("cannot mirror {} of {extent} {part}: the edge itself is not repeated", before.max(after));
        return Err(at.refuse(message));
    }
    if before + after == 0 {
        return Ok(x);
    }
    let place = |at: &mut Builder<'_, '_>, place: usize| {
        let (mut start, mut size) = (vec![0; shape.len()], shape.clone());
        (start[axis], size[axis]) = (place, 1);
        at.add_part(&format!("{part}_{place}"), ops::Slice { start, size }, &[x])
    };
    let mut places = Vec::with_capacity(before + 1 + after);
    for distance in (1..=before).rev() {
        places.push(place(at, distance)?);
    }
    places.push(x);
    for distance in 1..=after {
        places.push(place(at, extent - 1 - distance)?);
    }
    at.add_part(part, ops::Concat { axis }, &places)
}
