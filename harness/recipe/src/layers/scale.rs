//! Multiplies by a number.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};

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

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let by = at.real("by", self.by);
        let pieces = vec![Piece::Value(at.x(), Binding::Product), Piece::Text(" * ".into()), Piece::Factor(by)];
        at.pure(Code { pieces, binding: Binding::Product })
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(format!("scale {}", self.by)).into()
    }
}
