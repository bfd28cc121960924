//! Average pooling.

use zoo_graph::{GraphError, ValueId, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work, window};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Padding, Pair};

zoo_settings::settings! {
    /// Mean of each window. `[C, L]` is an image of height 1: `kernel: [1, 3]`.
    pub struct AvgPool {
        /// Size of the window.
        pub kernel: Pair,
        /// Step of the window; by default the size of the window.
        pub stride?: Pair,
        /// Zeros around the image.
        pub pad: Padding = Padding::default(),
        /// Round the output size up instead of down.
        pub ceil_mode: bool = false,
        /// Whether padding is included in the divisor (PyTorch: yes, TensorFlow: no).
        pub count_include_pad: bool = true,
    }
}

impl Word for AvgPool {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        window::check(self.kernel, self.pad, at);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let stride = self.stride.unwrap_or(self.kernel);
        let window = ops::Window { ceil: self.ceil_mode, ..window::window(self.kernel, stride, self.pad) };
        window::pooled(at, ops::AvgPool { window, count_include_pad: self.count_include_pad }, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        if !self.count_include_pad && !window::is_symmetric(self.pad) {
            return Err(at.refuse("nn.AvgPool2d pads as much before as behind"));
        }
        let x = window::padded(at, self.pad, "");
        let mut arguments = vec![window::pair(at, "kernel", self.kernel)];
        arguments.extend(window::options(at, self.stride.unwrap_or(self.kernel), self.pad, self.kernel));
        if self.ceil_mode {
            arguments.push(Code::text("ceil_mode=True"));
        }
        if !self.count_include_pad {
            arguments.push(Code::text("count_include_pad=False"));
        }
        let module = window::named(at, "nn.AvgPool2d", "nn.AvgPool1d");
        let function = window::named(at, "functional.avg_pool2d", "functional.avg_pool1d");
        at.either_on(x, module, function, arguments)
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let window = window::text(self.kernel, self.stride.unwrap_or(self.kernel), self.pad, self.kernel);
        Step::new(Work::Size, format!("avg_pool {window}")).into()
    }
}
