//! Merges adjacent pixels.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Number, Var};
use crate::values::Pair;

zoo_settings::settings! {
    /// `[H, W, C]` to `[H/2, W/2, 4C]`: adjacent pixels are merged into one, with their channels concatenated column by
    /// column (patch merging of Swin, arXiv 2103.14030). A map with an odd size is padded with zeros at the bottom and
    /// on the right.
    pub struct MergePatches {
        /// Number of pixels to merge, vertically and horizontally.
        pub size: Pair = Pair([2, 2]),
    }
}

/// In Python.
const MERGE: &str = r#"
def merge_patches(x: Tensor, down: int, across: int) -> Tensor:
    """`[H, W, C]`: adjacent pixels become one, their channels column by column (arXiv 2103.14030)."""
    x = functional.pad(x, (0, 0, 0, -x.shape[2] % across, 0, -x.shape[1] % down))
    x = x.unflatten(2, (-1, across)).unflatten(1, (-1, down))
    return x.permute(0, 1, 3, 4, 2, 5).flatten(3)
"#;

impl Word for MergePatches {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([n, height, width, c]) = at.shape(x).nchw() else {
            return Err(at.refuse(format!("expected [H, W, C] to merge patches; this value has {} axes", at.rank(x))));
        };
        let [down, across] = self.size.0;
        let (rows, columns) = (height.div_ceil(down), width.div_ceil(across));
        let after = vec![0, rows * down - height, columns * across - width, 0];
        let whole = after.iter().all(|filled| *filled == 0);
        let x = if whole { x } else { at.add_part("fill_up", ops::Pad { before: vec![0; 4], after }, &[x])? };
        let apart = ops::Reshape { shape: [n, rows, down, columns, across, c].into() };
        let apart = at.add_part("apart", apart, &[x])?;
        let together = at.transposed("together", &[0, 1, 3, 4, 2, 5], apart)?;
        at.add_part("merged", ops::Reshape { shape: [n, rows, columns, across * down * c].into() }, &[together])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.helper(MERGE);
        let Pair([down, across]) = self.size;
        let size = vec![Code::count(down), Code::count(across)];
        let channels = at.last().times(&Number::count(down * across));
        channels.into_iter().for_each(|channels| at.gives(channels));
        at.pure(Code::applied("merge_patches", at.x(), size))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, format!("merge {}", self.size)).into()
    }
}
