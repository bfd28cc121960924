//! Shifts elements along axes with wrap-around.

use zoo_graph::{GraphError, Phase, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Shifts the elements of each sample along its axes with wrap-around (PyTorch's roll): `- roll: {by: [-3, -3]}`
    /// moves rows and columns of `[H, W, C]` by three towards the front.
    pub struct Roll {
        /// Shift per axis, from the first axis after the batch; negative values shift towards the front.
        #[schemars(length(min = 1, max = 8), inner(range(min = -2147483648, max = 2147483647)))]
        pub by: Vec<i32>,
    }
}

impl Word for Roll {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let extents = at.shape(x).get(1..).unwrap_or_default().to_vec();
        if self.by.len() > extents.len() {
            let message = format!("cannot shift {} axes of a sample with {}", self.by.len(), extents.len());
            return Err(at.refuse(message));
        }
        (1..).zip(extents.iter().zip(&self.by)).try_fold(x, |x, (axis, (extent, by))| {
            let by = i64::from(*by).rem_euclid(*extent as i64);
            rolled(at, &format!("axis_{axis}"), axis, by as usize, x)
        })
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let shifts = self.by.iter().map(|by| Code::text(by.to_string())).collect();
        let axes = (1..=self.by.len()).map(Code::count).collect();
        let arguments = vec![Code::tuple(shifts), Code::tuple(axes)];
        at.pure(Code::applied("torch.roll", at.x(), arguments))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let by: Vec<String> = self.by.iter().map(i32::to_string).collect();
        Step::new(Work::Size, format!("roll {}", by.join(" "))).into()
    }
}

/// A value moved by so many places, fewer than there are, towards the end of an axis.
pub(super) fn rolled(
    at: &mut Builder<'_, '_>,
    part: &str,
    axis: usize,
    by: usize,
    x: ValueId,
) -> Result<ValueId, GraphError> {
    if by == 0 {
        return Ok(x);
    }
    let sizes = vec![at.shape(x)[axis] - by, by];
    let mut parts = at.add_parts(&format!("{part}_parts"), Phase::Forward, ops::Split { axis, sizes }, &[x])?;
    parts.reverse();
    at.add_part(part, ops::Concat { axis }, &parts)
}
