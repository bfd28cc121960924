//! Multiplies a value by a function of it.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x * body(x), where the result of the body is broadcast: a squeeze-and-excite module is a gate (arXiv
    /// 1709.01507).
    pub struct Gate {
        /// The layers that compute the factor.
        #[schemars(length(min = 1))]
        pub body: Body,
    }
}

impl Word for Gate {
    const MODULE: Module = Module::Container;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        at.layers("body", &mut self.body);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let factor = self.body.lower(at, x)?;
        let formula = Formula::define(0, |[x, factor]| [x * factor]);
        at.formula_part("mul", formula, DeviceName::new("Mul", "MulGrad"), &[x, factor])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.inside(|inner, x| {
            let factor = self.body.emit(inner, x)?;
            Ok(inner.function_like(Code::operation(x, "*", factor), x))
        })
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Branches { lanes: vec![&[], &self.body.layers], text: "gate mul", join: "mul" }
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        vec![&mut self.body]
    }
}
