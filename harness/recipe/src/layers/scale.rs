//! Multiplies by a number.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word};
use crate::lower::Builder;

zoo_settings::settings! {
    /// Multiplies by a number.
    pub struct Scale {
        /// The number.
        pub by: f64,
    }
}

impl Word for Scale {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::Scale { factor: self.by }, &[x])
    }

    fn describe(&self) -> Description<'_> {
        Step::riding(format!("scale {}", self.by)).into()
    }
}
