//! Rearranges channels into pixels.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// `[C*r*r, H, W]` to `[C, H*r, W*r]`: the channels of a block become the pixels of a square (arXiv 1609.05158;
    /// PyTorch's PixelShuffle).
    pub struct PixelShuffle {
        /// The factor r for height and width.
        pub by: Size,
    }
}

impl Word for PixelShuffle {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let (shape, r) = (at.shape(x).clone(), self.by.0);
        let [n, c, h, w] = shape[..] else {
            return Err(at.refuse(format!("expected [C, H, W], found {shape}")));
        };
        if !c.is_multiple_of(r * r) {
            return Err(at.refuse(format!("{c} channels are not a multiple of {r} x {r}")));
        }
        let channels = c / (r * r);
        let x = at.add_part("split", ops::Reshape { shape: [n, channels, r, r, h, w].into() }, &[x])?;
        let x = at.transposed("squares", &[0, 1, 4, 2, 5, 3], x)?;
        at.add(ops::Reshape { shape: [n, channels, h * r, w * r].into() }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let by = vec![Code::number(at.size("by", self.by.0))];
        at.either(Code::call("nn.PixelShuffle", by.clone()), Code::applied("functional.pixel_shuffle", at.x(), by))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, format!("pixel_shuffle {}", self.by.0)).into()
    }
}
