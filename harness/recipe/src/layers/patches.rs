//! Extracts windows as maps.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work, window};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Padding, Pair};

zoo_settings::settings! {
    /// Extracts windows of a map as a batch of maps (PyTorch's unfold, TensorFlow's extract_image_patches): all windows
    /// of the first sample, row by row, then those of the next.
    pub struct Patches {
        /// Size of the window.
        pub kernel: Pair,
        /// Step of the window.
        pub stride: Pair = Pair::ONES,
        /// Zeros around the image.
        pub pad: Padding = Padding::default(),
    }
}

/// In Python.
const PATCHES: &str = r#"
def extract_patches(
    x: Tensor,
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
) -> Tensor:
    """Windows of each map as maps: all of the first sample, row by row, then those of the next."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    windows = functional.unfold(x, (height, width), stride=stride, padding=padding)
    return windows.transpose(1, 2).reshape(-1, x.shape[1], height, width)
"#;

impl Word for Patches {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::ExtractPatches { window: window::window(self.kernel, self.stride, self.pad) }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.helper(PATCHES);
        let x = window::padded(at, self.pad, "");
        let mut arguments = vec![window::pair(at, "kernel", self.kernel)];
        arguments.extend(window::options(at, self.stride, self.pad, Pair::ONES));
        at.pure(Code::applied("extract_patches", x, arguments))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let window = window::text(self.kernel, self.stride, self.pad, Pair::ONES);
        Step::new(Work::Size, format!("patches {window}")).into()
    }
}
