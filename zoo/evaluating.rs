//! The progress of an evaluation.

use crate::progress::{Bar, Progress};
use zoo_tasks::Sight;

/// A progress bar for the evaluation of held-out samples.
pub struct Evaluating {
    progress: Progress,
    bar: Option<(&'static str, Bar)>,
}

impl Evaluating {
    /// A display before the first evaluation.
    pub fn new(progress: &Progress) -> Self {
        Self { progress: progress.clone(), bar: None }
    }

    /// Updates the bar; samples and frames have separate bars.
    pub fn see(&mut self, sight: &Sight<'_>) {
        let Sight::Progress { what, done, of } = sight else { return };
        if self.bar.as_ref().is_none_or(|(of_what, _)| of_what != what) {
            self.end();
            let bar = self.progress.bar(*of as u64);
            bar.message(format!("{what} evaluated"));
            self.bar = Some((what, bar));
        }
        if let Some((_, bar)) = &self.bar {
            bar.position(*done as u64);
        }
    }

    /// Removes the bar.
    pub fn end(&mut self) {
        self.bar = None;
    }
}
