//! Stochastic depth.

use zoo_graph::{GraphError, TensorType, ValueId, formula::Formula, ops, ops::DeviceName};

use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Sets whole samples to zero at random in training and scales the others by 1/(1 - rate); identity in evaluation
    /// (stochastic depth, arXiv 1603.09382; torchvision's StochasticDepth in mode `row`).
    pub struct DropPath {
        /// Share of samples set to zero.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub rate: f64,
    }
}

impl Word for DropPath {
    const MODULE: Module = Module::Function;
    const CHANCE: Option<&'static str> = Some("rate");

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let stream = at.stream();
        if !at.left_to_chance() || self.rate == 0.0 {
            return Ok(x);
        }
        let mut shape = vec![1; at.rank(x)];
        shape[0] = at.shape(x)[0];
        let ty = TensorType::plain(shape, at.graph().ty(x).dtype);
        let ones = at.add_part("ones", ops::Fill { value: 1.0, ty }, &[])?;
        let kept = at.add_part("kept", ops::Dropout { rate: self.rate, stream }, &[ones])?;
        at.formula(Formula::define(0, |[x, kept]| [x * kept]), DeviceName::new("Mul", "MulGrad"), &[x, kept])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let (rate, row) = (Code::number(at.real("rate", self.rate)), Code::text("\"row\""));
        let training = vec![rate.clone(), row.clone(), Code::text("self.training")];
        at.either(Code::call("StochasticDepth", vec![rate, row]), Code::applied("stochastic_depth", at.x(), training))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(format!("drop_path {}", self.rate)).into()
    }
}
