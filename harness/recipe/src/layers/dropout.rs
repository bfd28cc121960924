//! Dropout.

use zoo_graph::{GraphError, TensorType, ValueId, formula::Formula, ops, ops::DeviceName};

use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::lints::Lints;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Sets elements to zero at random in training and scales the others by 1/(1 - rate); identity in evaluation.
    pub struct Dropout {
        /// Share of elements set to zero (1 minus the keep probability of TensorFlow).
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub rate: f64,
        /// Whether a channel of `[C, H, W]` is dropped as a whole (PyTorch's Dropout2d).
        pub channels: bool = false,
    }
}

impl Word for Dropout {
    const MODULE: Module = Module::Function;
    const CHANCE: Option<&'static str> = Some("rate");

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let stream = at.stream();
        if !at.left_to_chance() || self.rate == 0.0 {
            return Ok(x);
        }
        let dropout = ops::Dropout { rate: self.rate, stream };
        if !self.channels {
            return at.add(dropout, &[x]);
        }
        let mut shape = at.shape(x).to_vec();
        shape.iter_mut().skip(2).for_each(|extent| *extent = 1);
        let ty = TensorType::plain(shape, at.graph().ty(x).dtype);
        let ones = at.add_part("ones", ops::Fill { value: 1.0, ty }, &[])?;
        let kept = at.add_part("kept", dropout, &[ones])?;
        at.formula(Formula::define(0, |[x, kept]| [x * kept]), DeviceName::new("Mul", "MulGrad"), &[x, kept])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let rate = Code::number(at.real("rate", self.rate));
        let training = vec![rate.clone(), Code::text("self.training")];
        let [class, function] = match self.channels {
            true => ["nn.Dropout2d", "functional.dropout2d"],
            false => ["nn.Dropout", "functional.dropout"],
        };
        at.either(Code::call(class, vec![rate]), Code::applied(function, at.x(), training))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(format!("dropout {}", self.rate)).into()
    }

    fn lint(&self, lints: &mut Lints<'_>) {
        if self.rate > 0.8 {
            let message = format!("rate {} is the share of elements that are dropped", self.rate);
            lints.warn("rate", message, "TensorFlow 1 specifies the share that is kept");
        }
    }
}
