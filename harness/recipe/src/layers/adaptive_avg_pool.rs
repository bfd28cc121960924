//! Adaptive average pooling.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work, window};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Pair;

zoo_settings::settings! {
    /// Mean of windows that are chosen to give the output a certain size (PyTorch's AdaptiveAvgPool2d).
    pub struct AdaptiveAvgPool {
        /// Height and width of the output.
        pub out: Pair,
    }
}

impl Word for AdaptiveAvgPool {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        window::pooled(at, ops::AdaptiveAvgPool { out: self.out.0 }, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let out = window::pair(at, "out", self.out);
        let module = window::named(at, "nn.AdaptiveAvgPool2d", "nn.AdaptiveAvgPool1d");
        let function = window::named(at, "functional.adaptive_avg_pool2d", "functional.adaptive_avg_pool1d");
        at.either(Code::call(module, vec![out.clone()]), Code::applied(function, at.x(), vec![out]))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, format!("adaptive_avg_pool {}", self.out)).into()
    }
}
