//! Padding as a separate operator.

use zoo_graph::{GraphError, ValueId, ops};
use zoo_settings::PadMode;

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Padding;

zoo_settings::settings! {
    /// Padding as a separate operator. zoo can fold zeros into the following convolution.
    pub struct Pad {
        /// Rows and columns around the image.
        pub size: Padding,
        /// What they contain.
        #[serde(skip_serializing_if = "PadMode::is_zeros")]
        pub mode: PadMode = PadMode::default(),
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
                if at.shape(x).len() != 4 {
                    return Err(at.refuse(format!("expected [C, H, W], found {}", at.shape(x))));
                }
                let x = mirrored(at, "rows", 2, [top, bottom], x)?;
                mirrored(at, "columns", 3, [left, right], x)
            }
        }
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let [top, bottom, left, right] = self.size.0;
        let sides = Code::tuple([left, right, top, bottom].map(Code::count).to_vec());
        match self.mode {
            PadMode::Zeros => at.either(
                Code::call("nn.ZeroPad2d", vec![sides.clone()]),
                Code::applied("functional.pad", at.x(), vec![sides]),
            ),
            PadMode::Reflect => at.either(
                Code::call("nn.ReflectionPad2d", vec![sides.clone()]),
                Code::applied("functional.pad", at.x(), vec![sides, Code::text("mode=\"reflect\"")]),
            ),
        }
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let mode = match self.mode {
            PadMode::Zeros => "",
            PadMode::Reflect => " reflect",
        };
        Step::new(Work::Size, format!("pad {}{mode}", self.size)).into()
    }
}

/// A map with so many places added before and after those of an axis, mirrored at its first and last place.
fn mirrored(
    at: &mut Builder<'_, '_>,
    part: &str,
    axis: usize,
    [before, after]: [usize; 2],
    x: ValueId,
) -> Result<ValueId, GraphError> {
    let shape = at.shape(x).to_vec();
    let (extent, most) = (shape[axis], shape[axis].saturating_sub(1));
    if before.max(after) > most {
        let message = format!("{extent} {part} can be mirrored by {most} at most, not by {}", before.max(after));
        return Err(at.refuse(message));
    }
    if before + after == 0 {
        return Ok(x);
    }
    let mut place = |side: &str, place: usize| {
        let (mut start, mut size) = (vec![0; shape.len()], shape.clone());
        (start[axis], size[axis]) = (place, 1);
        at.add_part(&format!("{part}_{side}_{place}"), ops::Slice { start, size }, &[x])
    };
    let first = (1..=before).rev().map(|distance| place("before", distance)).collect::<Result<Vec<_>, _>>()?;
    let last = (1..=after).map(|distance| place("after", extent - 1 - distance)).collect::<Result<Vec<_>, _>>()?;
    let places: Vec<ValueId> = first.into_iter().chain([x]).chain(last).collect();
    at.add_part(part, ops::Concat { axis }, &places)
}
