//! Leaky ReLU.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x where x > 0, else slope * x (PyTorch's LeakyReLU).
    pub struct LeakyRelu {
        /// Slope below zero.
        pub slope: f64 = 0.01,
    }
}

impl Word for LeakyRelu {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [x.greater(0.0).select(x, x * self.slope)]);
        at.formula(formula, DeviceName::new("LeakyRelu", "LeakyReluGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let slope = Code::number(at.real("slope", self.slope));
        at.either(
            Code::call("nn.LeakyReLU", vec![slope.clone()]),
            Code::applied("functional.leaky_relu", at.x(), vec![slope]),
        )
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(format!("leaky_relu {}", self.slope)).into()
    }
}
