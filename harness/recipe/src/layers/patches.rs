//! Extracts windows as maps.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work, window};
use crate::lower::Builder;
use crate::schema::{Padding, Pair};

zoo_settings::settings! {
    /// Extracts windows of a map as a batch of maps (PyTorch's unfold, TensorFlow's extract_image_patches): all windows
    /// of the first sample, row by row, then those of the next.
    pub struct Patches {
        /// Size of the window.
        pub kernel: Pair,
        /// Step of the window.
        pub stride: Pair = Pair::ones(),
        /// Zeros around the image.
        pub pad: Padding = Padding::default(),
    }
}

impl Word for Patches {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::ExtractPatches { window: window::window(self.kernel, self.stride, self.pad) }, &[x])
    }

    fn describe(&self) -> Description<'_> {
        let window = window::text(self.kernel, self.stride, self.pad, Pair::ONES);
        Step::new(Work::Size, format!("patches {window}")).into()
    }
}
