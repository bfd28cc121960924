//! The negative logarithm of the probability of the true class.

use zoo_graph::{GraphError, formula::Formula};

use super::formula::class_numbers;
use super::{Code, Diagnostic, Judged, LossTerm, Terms};
use crate::builder::{LABEL, LOGITS};

term! {
    /// Minus the logarithm of the probability of the true class, mean over samples or tokens, for a network that gives
    /// the logarithms of probabilities, `[K]` or `[T, K]` (PyTorch's NLLLoss behind `log_softmax`).
    pub struct Nll called "nll" {
        /// Output of the model, if the model names its outputs.
        pub prediction?: String,
    }
}

impl LossTerm for Nll {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(self.prediction.as_deref().unwrap_or(LOGITS))?;
        let shape = at.shape(prediction).clone();
        let last = shape.len().saturating_sub(1);
        if shape.nchw().is_some() {
            return Err(at.refuse(format!("needs classes along the last axis; this prediction is {shape}")));
        }
        let label = class_numbers(at, &self.name, &shape, at.ignored())?;
        let chosen = Formula::define(0, |[x, label]| [label.equal(x.coordinate(last)).select(-x, 0.0)]);
        let rows = shape.numel() / shape.last().copied().unwrap_or(1).max(1);
        at.sum_term((&self.name, self.weight), chosen, &[prediction, label], rows)
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let (prediction, shape) = at.output(self.prediction.as_deref().unwrap_or(LOGITS))?;
        let (rows, labels) = if shape.len() > 2 { (".flatten(0, -2)", ".flatten()") } else { ("", "") };
        let operands = [format!("{prediction}{rows}"), format!("batch[\"{LABEL}\"]{labels}")];
        at.term(&self.name, self.weight, Code::call("functional.nll_loss", operands.map(Code::text).to_vec()));
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        self.prediction.as_deref()
    }
}
