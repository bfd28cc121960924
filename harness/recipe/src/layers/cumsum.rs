//! Sums of the elements so far.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Count;

zoo_settings::settings! {
    /// Sums along an axis: each element becomes the sum of the elements up to and including its own (PyTorch's cumsum).
    pub struct Cumsum {
        /// The axis, from 0, without the batch.
        pub axis: Count = Count::default(),
        /// Whether the sums start at the end of the axis.
        pub reverse: bool = false,
    }
}

impl Word for Cumsum {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        if self.axis.0 + 1 >= at.rank(x) {
            return Err(at.refuse(format!("there is no axis {} in {}", self.axis.0, at.shape(x))));
        }
        at.add(ops::Cumsum { axis: self.axis.0 + 1, reverse: self.reverse }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let axis = self.axis.0 + 1;
        let text = match self.reverse {
            true => format!(".flip({axis}).cumsum({axis}).flip({axis})"),
            false => format!(".cumsum({axis})"),
        };
        at.pure(Code::of(at.x(), text))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(if self.reverse { "cumsum reverse" } else { "cumsum" }).into()
    }
}
