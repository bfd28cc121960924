//! The Gaussian error linear unit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use zoo_graph::formula::{Expression, Formula};
use zoo_graph::{GraphError, ValueId, ops::DeviceName};

use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x times the cumulative distribution function of the normal distribution (arXiv 1606.08415; PyTorch's GELU).
    pub struct Gelu {
        /// How the distribution function is computed.
        pub approximate: Approximation = Approximation::default(),
    }
}

/// How the distribution function of GELU is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approximation {
    /// By the error function.
    #[default]
    None,
    /// 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), as in GPT-2.
    Tanh,
}

impl Approximation {
    /// GELU of a number.
    pub(super) fn gelu(self, x: Expression<'_>) -> Expression<'_> {
        match self {
            Self::None => x * 0.5 * (1.0 + (x * FRAC_1_SQRT_2).erf()),
            Self::Tanh => {
                let inner = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (x + 0.044715 * (x * x * x));
                0.5 * x * (1.0 + inner.tanh())
            }
        }
    }
}

impl Word for Gelu {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [self.approximate.gelu(x)]);
        at.formula(formula, DeviceName::new("Gelu", "GeluGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let more = match self.approximate {
            Approximation::None => Vec::new(),
            Approximation::Tanh => vec![Code::text("approximate=\"tanh\"")],
        };
        at.either(Code::call("nn.GELU", more.clone()), Code::applied("functional.gelu", at.x(), more))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(match self.approximate {
            Approximation::None => "gelu",
            Approximation::Tanh => "gelu tanh",
        })
        .into()
    }
}
