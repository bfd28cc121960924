//! Local response normalisation.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Local response normalisation across channels (AlexNet, NIPS 2012, section 3.3): x / (k + alpha/size * sum of
    /// squares over `size` adjacent channels)^beta (PyTorch's LocalResponseNorm; alpha in the paper is alpha/size
    /// here).
    pub struct Lrn {
        /// Number of adjacent channels.
        pub size: Size,
        /// Weight of the sum of squares.
        #[schemars(range(min = 0))]
        pub alpha: f64 = 1e-4,
        /// Exponent.
        #[schemars(range(min = 0))]
        pub beta: f64 = 0.75,
        /// Added to the sum.
        #[schemars(range(min = 0))]
        pub k: f64 = 1.0,
    }
}

impl Word for Lrn {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::Lrn { size: self.size.0, alpha: self.alpha, beta: self.beta, k: self.k }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut arguments = vec![Code::number(at.size("size", self.size.0))];
        for (key, value, usual) in [("alpha", self.alpha, 1e-4), ("beta", self.beta, 0.75), ("k", self.k, 1.0)] {
            if value != usual || at.is_written(key) {
                arguments.push(Code::named(key, Code::number(at.real(key, value))));
            }
        }
        at.either(
            Code::call("nn.LocalResponseNorm", arguments.clone()),
            Code::applied("functional.local_response_norm", at.x(), arguments),
        )
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(format!("lrn {}", self.size.0)).into()
    }
}
