//! Global average pooling.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Mean over height and width: `[C, H, W]` to `[C, 1, 1]`.
    pub struct GlobalAvgPool {}
}

impl Word for GlobalAvgPool {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::AdaptiveAvgPool { out: [1, 1] }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(
            Code::text("nn.AdaptiveAvgPool2d(1)"),
            Code::applied("functional.adaptive_avg_pool2d", at.x(), vec![Code::text("1")]),
        )
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, "global_avg_pool").into()
    }
}
