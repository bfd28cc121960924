//! A learned slope of negative numbers.

use zoo_graph::{
    GraphError, Init, ValueId, VariableRole,
    formula::Formula,
    ops::{DeviceName, Reshape},
};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x, and for negative x a learned slope times x (arXiv 1502.01852; PyTorch's PReLU): one slope for each channel,
    /// the first axis of a sample, or one for all.
    pub struct Prelu {
        /// Whether all channels have one slope.
        pub shared: bool = false,
        /// Initial value of every slope.
        pub start: f64 = 0.25,
    }
}

impl Word for Prelu {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let channels = if self.shared { 1 } else { at.shape(x).get(1).copied().unwrap_or(1) };
        let slope = at.parameter("weight", VariableRole::Weight, &[channels], &Init::Constant(self.start))?;
        let seen: Vec<usize> = std::iter::once(channels).chain((2..at.rank(x)).map(|_| 1)).collect();
        let slope = at.add_part("slope", Reshape { shape: seen.into() }, &[slope])?;
        let formula = Formula::define(0, |[x, slope]| [x.greater(0.0).select(x, slope * x)]);
        at.formula(formula, DeviceName::new("PRelu", "PReluGrad"), &[x, slope])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut arguments = Vec::new();
        if !self.shared {
            arguments.push(Code::number(at.extent(1)));
        }
        if self.start != 0.25 || at.is_written("start") {
            arguments.push(Code::named("init", Code::number(at.real("start", self.start))));
        }
        at.module(Code::call("nn.PReLU", arguments))
    }
}
