//! Correlation of two values.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word};
use crate::lower::Builder;
use crate::resolve::Place;

zoo_settings::settings! {
    /// Depth-wise cross-correlation with a tap, without padding: each channel of the current value with the same
    /// channel of the same sample of the tap (arXiv 1812.05050, section 3.1).
    pub struct Xcorr {
        /// Tap that is used as the kernel.
        pub kernel: String,
    }
}

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

    fn describe(&self) -> Description<'_> {
        Step::reading("xcorr", &self.kernel).into()
    }
}
