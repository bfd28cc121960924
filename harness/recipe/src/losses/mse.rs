//! Mean squared error.

use zoo_graph::{GraphError, formula::Formula};

use super::{Code, Diagnostic, Judged, LossTerm, Terms};

term! {
    /// Mean of the squared differences of all elements (PyTorch's MSELoss).
    pub struct Mse called "mse" {
        /// Output of the model, if the model names its outputs.
        pub prediction?: String,
        /// Input of the step, in the shape of the output; for an autoencoder, the input of the model.
        pub target: String = "target".into(),
    }
}

impl LossTerm for Mse {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let squares = Formula::define(0, |[p, target]| [(p - target).square()]);
        at.mean_term((&self.name, self.weight), self.prediction.as_deref(), &self.target, squares)
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let operands = at.compared(self.prediction.as_deref(), &self.target)?;
        at.term(&self.name, self.weight, Code::call("functional.mse_loss", operands));
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        self.prediction.as_deref()
    }
}
