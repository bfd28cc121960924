//! Maximum pooling.

use zoo_graph::{GraphError, ValueId, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work, window};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Padding, Pair};

zoo_settings::settings! {
    /// Maximum of each window; positions outside the image are ignored. `[C, L]` is an image of height 1:
    /// `kernel: [1, 3]`.
    pub struct MaxPool {
        /// Size of the window.
        pub kernel: Pair,
        /// Step of the window; by default the size of the window.
        pub stride?: Pair,
        /// Rows and columns around the image, never the maximum.
        pub pad: Padding = Padding::default(),
        /// Round the output size up instead of down.
        pub ceil_mode: bool = false,
    }
}

impl Word for MaxPool {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        window::check(self.kernel, self.pad, at);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let stride = self.stride.unwrap_or(self.kernel);
        let window = ops::Window { ceil: self.ceil_mode, ..window::window(self.kernel, stride, self.pad) };
        window::pooled(at, ops::MaxPool { window }, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let x = window::padded(at, self.pad, ", value=-torch.inf");
        let mut arguments = vec![window::pair(at, "kernel", self.kernel)];
        arguments.extend(window::options(at, self.stride.unwrap_or(self.kernel), self.pad, self.kernel));
        if self.ceil_mode {
            arguments.push(Code::text("ceil_mode=True"));
        }
        let module = window::named(at, "nn.MaxPool2d", "nn.MaxPool1d");
        let function = window::named(at, "functional.max_pool2d", "functional.max_pool1d");
        at.either_on(x, module, function, arguments)
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let window = window::text(self.kernel, self.stride.unwrap_or(self.kernel), self.pad, self.kernel);
        Step::new(Work::Size, format!("max_pool {window}")).into()
    }
}
