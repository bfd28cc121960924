//! Permutes axes.

use zoo_graph::{GraphError, ValueId};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Permutes the axes of each sample (PyTorch's permute, without the batch): `- permute: {order: [1, 2, 0]}` turns
    /// `[C, H, W]` into `[H, W, C]`.
    pub struct Permute {
        /// For each axis of the result, the original axis, counted from 0.
        #[schemars(length(min = 1, max = 8))]
        pub order: Vec<usize>,
    }
}

impl Word for Permute {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let order: Vec<usize> = std::iter::once(0).chain(self.order.iter().map(|axis| axis + 1)).collect();
        at.transposed("permute", &order, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let order = std::iter::once(0).chain(self.order.iter().map(|axis| axis + 1)).map(Code::count);
        at.pure(Code::method(at.x(), "permute", order.collect()))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let order: Vec<String> = self.order.iter().map(usize::to_string).collect();
        Step::new(Work::Size, format!("permute {}", order.join(" "))).into()
    }
}
