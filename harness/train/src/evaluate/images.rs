//! Classes of images.

use std::sync::atomic::{AtomicBool, Ordering};
use zoo_datasets::{Batch, Loader};
use zoo_recipe::schema::Metric;

use super::{Evaluation, Sight, Witness, network::Network};
use crate::{
    TrainError,
    metrics::{Classified, CrossEntropy, Meter, TopK},
};

/// Top-1, top-5 and cross entropy of all images of the loader.
pub(super) fn evaluate(
    network: &mut Network<'_>,
    loader: &Loader,
    of: usize,
    cancel: &AtomicBool,
    witness: &mut Witness<'_>,
) -> Result<Option<Evaluation>, TrainError> {
    let (mut loss, mut top1, mut top5) = (CrossEntropy::default(), TopK::new(1), TopK::new(5));
    let image = network.inputs().next().map(|(name, _)| name.to_owned());
    let image = image.ok_or_else(|| TrainError::Mismatch("the network has no input".into()))?;
    let mut samples = 0;
    for batch in loader.epoch(0, 0)? {
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Batch { images, labels, n } = batch?;
        if n == 0 {
            continue;
        }
        let outputs = network.run(n, vec![(&image, images)])?;
        let (_, logits) = outputs.first().ok_or_else(|| TrainError::Mismatch("the network has no output".into()))?;
        let logits = logits.doubles()?;
        for (logits, &label) in logits.chunks_exact(logits.len() / n).zip(&labels) {
            let sample = Classified { logits, label };
            let meters: [&mut dyn Meter<Classified<'_>>; 3] = [&mut loss, &mut top1, &mut top5];
            meters.into_iter().for_each(|meter| meter.add(&sample));
        }
        samples += n as u64;
        witness(&Sight::Progress { what: "samples", done: samples as usize, of });
    }
    if samples == 0 {
        return Err(TrainError::NothingEvaluated);
    }
    let scores = vec![top1.score(Metric::Top1), top5.score(Metric::Top5)];
    Ok(Some(Evaluation { samples, loss: Some(loss.value()), scores }))
}
