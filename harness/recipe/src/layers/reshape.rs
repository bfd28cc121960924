//! Changes the shape.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Changes the shape of each sample, in row-major order: `- reshape: {to: [64, 49]}`.
    pub struct Reshape {
        /// The shape, without the batch.
        #[schemars(length(min = 1, max = 8))]
        pub to: Vec<Size>,
    }
}

impl Word for Reshape {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let batch = at.shape(x).first().copied().unwrap_or(1);
        let shape: Vec<usize> = std::iter::once(batch).chain(self.to.iter().map(|extent| extent.0)).collect();
        at.add(ops::Reshape { shape: shape.into() }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let to =
            self.to.iter().enumerate().map(|(index, extent)| Code::number(at.size(&format!("to[{index}]"), extent.0)));
        let shape = std::iter::once(Code::text("-1")).chain(to).collect();
        at.pure(Code::method(at.x(), "reshape", shape))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let extents: Vec<String> = self.to.iter().map(|extent| extent.0.to_string()).collect();
        Step::new(Work::Size, format!("reshape {}", extents.join("x"))).into()
    }
}
