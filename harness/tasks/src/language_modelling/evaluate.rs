//! Cross entropy per character, and derived metrics.

use std::sync::atomic::{AtomicBool, Ordering};

use zoo_datasets::{SampleLoader, Samples, language::ConsecutiveWindows};

use crate::{
    Evaluation, EvaluationError, Field, HeldOut, Network, Sight, Witness,
    metrics::{Classified, CrossEntropy, Meter, bits_per_character, perplexity},
};

/// All held-out windows.
pub(super) struct HeldOutText {
    pub loader: SampleLoader<ConsecutiveWindows>,
    /// Name of the input for the characters.
    pub input: String,
    /// Size of the vocabulary.
    pub classes: usize,
}

impl HeldOut for HeldOutText {
    fn evaluate(
        &self,
        network: &mut dyn Network,
        cancel: &AtomicBool,
        witness: &mut Witness<'_>,
    ) -> Result<Option<Evaluation>, EvaluationError> {
        let of = self.loader.samples().len();
        let (mut loss, mut samples) = (CrossEntropy::default(), 0);
        for windows in self.loader.epoch(0, 0)? {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let windows = windows?;
            let tokens: Vec<u32> = windows.iter().flat_map(|window| window.tokens.iter().copied()).collect();
            let next: Vec<u32> = windows.iter().flat_map(|window| window.next.iter().copied()).collect();
            let outputs = network.run(windows.len(), vec![Field::index(&self.input, tokens)])?;
            let logits = outputs.first().map(|output| output.values.as_slice()).unwrap_or_default();
            if logits.len() != next.len() * self.classes {
                let (found, expected) = (logits.len(), next.len());
                let message = format!("{found} logits for {expected} characters out of {}", self.classes);
                return Err(EvaluationError::Mismatch(message));
            }
            for (logits, &label) in logits.chunks_exact(self.classes).zip(&next) {
                let logits: Vec<f64> = logits.iter().copied().map(f64::from).collect();
                loss.add(&Classified { logits: &logits, label });
            }
            samples += windows.len();
            witness(&Sight::Progress { what: "samples", done: samples, of });
        }
        if samples == 0 {
            return Err(EvaluationError::NothingEvaluated);
        }
        let loss = loss.value();
        let scores = vec![perplexity(loss), bits_per_character(loss)];
        Ok(Some(Evaluation { samples: samples as u64, loss: Some(loss), scores }))
    }
}
