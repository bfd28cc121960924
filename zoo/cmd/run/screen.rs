//! Shows a training on the terminal.

use super::stuck::Stuck;
use crate::console::Console;
use crate::evaluating::Evaluating;
use crate::numbers::Seconds;
use crate::progress::{Bar, Progress};
use std::path::PathBuf;
use tracing::{debug, info, warn};
use zoo_tasks::Sight;
use zoo_train::event::{Evaluated, StepDone};
use zoo_train::{Event, ListenError, Listener};

/// Shows a training: a progress bar on a terminal, and a line per evaluation; or every event as a line of JSON.
pub(super) struct Screen<'a> {
    progress: Progress,
    json: Option<&'a mut Console>,
    bar: Option<Bar>,
    evaluating: Evaluating,
    stuck: Option<Stuck>,
    /// Exponential moving average of the loss over the last steps.
    loss: Option<f64>,
    lr: f64,
}

/// Weight of the newest step in the displayed loss.
const NEWEST: f64 = 0.1;

impl<'a> Screen<'a> {
    /// A display without events. `json` receives the events if given; `stuck` is told the losses.
    pub(super) fn new(progress: &Progress, json: Option<&'a mut Console>, stuck: Option<Stuck>) -> Self {
        let evaluating = Evaluating::new(progress);
        Self { progress: progress.clone(), json, bar: None, evaluating, stuck, loss: None, lr: 0.0 }
    }

    /// Processes earlier events of a resumed training, so that the smoothed loss continues.
    pub(super) fn recall(&mut self, events: &[Event]) {
        events.iter().for_each(|event| {
            if let Event::Step(done) = event {
                self.smooth(done);
            }
        });
    }

    /// Updates the smoothed loss with a step. A step without loss, which was skipped, is left out.
    fn smooth(&mut self, done: &StepDone) {
        if done.loss.is_finite() {
            self.loss = Some(self.loss.map_or(done.loss, |loss| loss + NEWEST * (done.loss - loss)));
        }
        self.lr = done.lr;
    }

    fn step(&mut self, done: &StepDone) {
        self.smooth(done);
        if let Some(warning) = self.stuck.as_mut().and_then(|stuck| stuck.after(done)) {
            warn!("{warning}");
        }
        debug!("step {}  loss {:.4}  lr {:.3e}", done.step, done.loss, done.lr);
        if let Some(bar) = &self.bar {
            bar.position(done.step);
            let loss = self.loss.unwrap_or(done.loss);
            bar.message(format!("loss {loss:.3}  lr {:.2e}  {:.0} images/s", done.lr, done.images_per_s));
        }
    }

    fn evaluated(&self, evaluated: &Evaluated) {
        let scores: Vec<String> = evaluated.scores.iter().map(ToString::to_string).collect();
        let loss = self.loss.map(|loss| format!("  loss {loss:.3}  lr {:.2e}", self.lr)).unwrap_or_default();
        let (epoch, time) = (evaluated.epoch, Seconds(evaluated.seconds));
        let entropy = evaluated.loss.map(|loss| format!(", cross entropy {loss:.3}")).unwrap_or_default();
        info!("epoch {epoch:.1}{loss}  held out: {}{entropy}  {time}", scores.join(", "));
    }
}

impl Listener for Screen<'_> {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        match event {
            Event::Started(started) => {
                let bar = self.progress.bar(started.steps);
                bar.position(started.resumed_at.unwrap_or(0));
                self.bar = Some(bar);
            }
            Event::Step(done) => self.step(done),
            Event::Evaluated(evaluated) => {
                self.evaluating.end();
                self.evaluated(evaluated);
            }
            Event::Checkpointed { step, path } => debug!("checkpoint of step {step}: {}", path.display()),
            Event::Interrupted { .. } | Event::Failed { .. } | Event::Result(_) => self.bar = None,
            Event::Golden(_) | Event::Device(_) | Event::Cost(_) | Event::Memory(_) | Event::Verdict(_) => {}
        }
        match &mut self.json {
            Some(console) => {
                console.json(event).map_err(|source| ListenError { path: PathBuf::from("stdout"), source })
            }
            None => Ok(()),
        }
    }

    fn see(&mut self, sight: &Sight<'_>) {
        self.evaluating.see(sight);
    }
}
