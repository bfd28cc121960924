//! Global average pooling.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work, window};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Mean over height and width: `[C, H, W]` to `[C, 1, 1]`, and `[C, L]` to `[C, 1]`.
    pub struct GlobalAvgPool {}
}

impl Word for GlobalAvgPool {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        window::pooled(at, ops::AdaptiveAvgPool { out: [1, 1] }, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let module = window::named(at, "nn.AdaptiveAvgPool2d(1)", "nn.AdaptiveAvgPool1d(1)");
        let function = window::named(at, "functional.adaptive_avg_pool2d", "functional.adaptive_avg_pool1d");
        at.either(Code::text(module), Code::applied(function, at.x(), vec![Code::text("1")]))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, "global_avg_pool").into()
    }
}
