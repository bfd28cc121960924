//! Adaptive average pooling.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::lower::Builder;
use crate::schema::Pair;

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
        at.add(ops::AdaptiveAvgPool { out: self.out.0 }, &[x])
    }

    fn describe(&self) -> Description<'_> {
        Step::new(Work::Size, format!("adaptive_avg_pool {}", self.out)).into()
    }
}
