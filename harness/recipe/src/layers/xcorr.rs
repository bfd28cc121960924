//! Correlation of two values.

use zoo_graph::{GraphError, ValueId, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Depth-wise cross-correlation with a tap, without padding: each channel of the current value with the same
    /// channel of the same sample of the tap (arXiv 1812.05050, section 3.1).
    pub struct Xcorr {
        /// Tap that is used as the kernel.
        pub kernel: String,
    }
}

/// In Python.
const CORRELATION: &str = r#"
def depthwise_correlation(x: Tensor, kernel: Tensor) -> Tensor:
    """Each channel of each sample with the same channel of `kernel` as its filter (arXiv 1812.05050, section 3.1)."""
    maps = x.flatten(0, 1).unsqueeze(0)
    filters = kernel.flatten(0, 1).unsqueeze(1)
    return functional.conv2d(maps, filters, groups=maps.shape[1]).unflatten(1, x.shape[:2]).squeeze(0)
"#;

impl Word for Xcorr {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.kernel = at.tap("kernel", &self.kernel)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let kernel = at.tapped(&self.kernel)?;
        at.add(ops::DepthwiseCorrelation, &[x, kernel])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.helper(CORRELATION);
        let kernel = Code::value(at.tap(&self.kernel));
        Ok(at.function(Code::applied("depthwise_correlation", at.x(), vec![kernel])))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::reading("xcorr", &self.kernel).into()
    }
}
