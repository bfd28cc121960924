//! Top-1, top-5 and cross entropy.

use std::sync::atomic::{AtomicBool, Ordering};

use zoo_datasets::{Batch, Loader};
use zoo_recipe::schema::Metric;

use crate::{
    Evaluation, EvaluationError, Field, HeldOut, Network, Sight, Witness,
    evaluation::first_input,
    metrics::{Classified, CrossEntropy, Meter, TopK},
};

/// All held-out images with their classes, in order.
pub(super) struct HeldOutImages(pub Loader);

impl HeldOut for HeldOutImages {
    fn evaluate(
        &self,
        network: &mut dyn Network,
        cancel: &AtomicBool,
        witness: &mut Witness<'_>,
    ) -> Result<Option<Evaluation>, EvaluationError> {
        let Self(loader) = self;
        let of = loader.dataset().len();
        let (mut loss, mut top1, mut top5) = (CrossEntropy::default(), TopK::new(1), TopK::new(5));
        let image = first_input(network)?.name;
        let mut samples = 0;
        for batch in loader.epoch(0, 0)? {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let Batch { images, labels, n } = batch?;
            if n == 0 {
                continue;
            }
            let outputs = network.run(n, vec![Field::real(&image, images)])?;
            let logits =
                outputs.first().ok_or_else(|| EvaluationError::Mismatch("the network has no output".into()))?;
            let logits: Vec<f64> = logits.values.iter().copied().map(f64::from).collect();
            for (logits, &label) in logits.chunks_exact(logits.len() / n).zip(&labels) {
                let sample = Classified { logits, label };
                let meters: [&mut dyn Meter<Classified<'_>>; 3] = [&mut loss, &mut top1, &mut top5];
                meters.into_iter().for_each(|meter| meter.add(&sample));
            }
            samples += n as u64;
            witness(&Sight::Progress { what: "samples", done: samples as usize, of });
        }
        if samples == 0 {
            return Err(EvaluationError::NothingEvaluated);
        }
        let scores = vec![top1.score(Metric::Top1), top5.score(Metric::Top5)];
        Ok(Some(Evaluation { samples, loss: Some(loss.value()), scores }))
    }
}
