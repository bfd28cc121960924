//! A training whose loss stays at that of guessing.

use zoo_recipe::{LABEL, Recipe};
use zoo_train::event::StepDone;

/// Steps at more than half of the highest learning rate until a network should be better than guessing ...
const PATIENCE: usize = 500;

/// ... or until the end of the first epoch, if it has so many.
const LEAST: usize = 200;

/// Steps whose mean loss is compared, because the loss of a single batch varies.
const WINDOW: usize = 50;

/// How much less than the loss of guessing a mean loss is at most if nothing was learned, relative to it: what is left
/// of the variation. A slow start is soon below.
const BELOW: f64 = 0.003;

/// How much more it is at most: a loss above that is another fault.
const ABOVE: f64 = 0.02;

/// Watches the cross entropy of a classifier at the beginning of its training.
///
/// The best answer that ignores the sample gives each of `C` equally frequent classes the probability `1/C`. Its cross
/// entropy is `ln C`, with label smoothing and mixed labels too. A network that stays there has constant outputs.
pub(super) struct Stuck {
    /// Loss of guessing.
    guessing: f64,
    classes: usize,
    peak: f64,
    losses: Vec<f64>,
}

impl Stuck {
    /// For a training whose loss is one cross entropy over the classes of the model, and whose network starts from
    /// initial values.
    pub(super) fn watch(recipe: &Recipe) -> Option<Self> {
        let entropy = recipe.loss.softmax_cross_entropy.as_ref()?;
        let classes = recipe.model.classes;
        if classes < 2 || entropy.label != LABEL || recipe.train.init_from.is_some() {
            return None;
        }
        let guessing = entropy.weight * (classes as f64).ln();
        Some(Self { guessing, classes, peak: recipe.schedule.peak_lr(), losses: Vec::new() })
    }

    /// The warning after a step, once, if there is reason for one.
    pub(super) fn after(&mut self, done: &StepDone) -> Option<String> {
        let told = self.losses.len() > PATIENCE;
        if told || !done.components.is_empty() || !done.loss.is_finite() || done.lr < 0.5 * self.peak {
            return None;
        }
        self.losses.push(done.loss);
        let judged = self.losses.len() == PATIENCE || done.epoch >= 1.0 && self.losses.len() >= LEAST;
        if !judged {
            return None;
        }
        let last = &self.losses[self.losses.len() - WINDOW..];
        let mean = last.iter().sum::<f64>() / WINDOW as f64;
        // A network that was better once is left alone.
        self.losses.resize(PATIENCE + 1, 0.0);
        (1.0 - BELOW..1.0 + ABOVE).contains(&(mean / self.guessing)).then(|| {
            let Self { guessing, classes, .. } = self;
            format!(
                "after {} steps the loss is still that of guessing one of {classes} classes ({mean:.3}; {guessing:.3}): \
                 nothing has been learned. Is the learning rate {} right for this optimizer, are the initial weights \
                 large enough, do the labels belong to the samples?",
                done.step, done.lr
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said in a training of 10 classes with these losses, one epoch of them; by step.
    fn said(losses: impl Iterator<Item = f64>, per_epoch: u64) -> Vec<(u64, String)> {
        let mut stuck = Stuck { guessing: 10f64.ln(), classes: 10, peak: 0.1, losses: Vec::new() };
        let step = |(step, loss): (u64, f64)| StepDone {
            step,
            epoch: step as f64 / per_epoch as f64,
            loss,
            components: Vec::new(),
            lr: if step < 10 { 0.01 } else { 0.1 },
            gradient_norm: None,
            loss_scale: None,
            skipped: false,
            images_per_s: 1.0,
            seconds: 1.0,
        };
        (1..).zip(losses).map(step).filter_map(|done| Some((done.step, stuck.after(&done)?))).collect()
    }

    #[test]
    fn a_loss_that_stays_is_told_once() {
        let noise = |step: u64| 2.303 + 0.02 * if step.is_multiple_of(2) { 1.0 } else { -1.0 };
        let told = said((1..3000).map(noise), 250);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].0, 250);
        assert!(told[0].1.contains("guessing one of 10 classes (2.303; 2.303)"), "{told:?}");
        // Of a long epoch, after the warm-up of 9 steps and the patience.
        assert_eq!(said((1..3000).map(noise), 100_000)[0].0, 509);
    }

    #[test]
    fn a_loss_that_falls_or_explodes_is_not() {
        assert!(said((1..3000).map(|step| 2.303 * f64::exp(-f64::from(step) / 2000.0)), 250).is_empty());
        assert!(said((1..3000).map(|_| 2.6), 250).is_empty());
        // A slow start: by 1 % in the first epoch.
        assert!(said((1..3000).map(|step| 2.303 - 1e-4 * f64::from(step)), 250).is_empty());
        assert!(said((1..190).map(|_| 2.303), 20).is_empty());
    }
}
