//! Scalars, images, settings and the graph for TensorBoard.
//!
//! ```
//! use zoo_train::tensorboard::TensorBoard;
//!
//! let folder = tempfile::tempdir()?;
//! let mut board = TensorBoard::create(folder.path())?;
//! board.images(0, &[])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod graph;
mod hparams;
mod message;
mod tfrecord;

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use zoo_graph::Graph;

use crate::event::{Event, ListenError, Listener};
use message::Content;

/// Writes `events.out.tfevents.*` files.
///
/// Tags: `train/loss`, `train/<component of the loss>`, `train/learning_rate`, `train/gradient_norm`,
/// `train/images_per_s`, `val/loss`, `val/top1`, ... by the number of steps done; `worst/0`, ... are pictures of the
/// worst predictions of an evaluation. Settings are those of the plugin `hparams`. Each run of a training has its own
/// file, which tells readers to drop the entries of older files from its first step on.
pub struct TensorBoard {
    path: PathBuf,
    file: File,
}

impl TensorBoard {
    /// Creates a new file in `folder`.
    ///
    /// # Errors
    /// A folder or file that cannot be created.
    pub fn create(folder: &Path) -> Result<Self, ListenError> {
        fs::create_dir_all(folder).map_err(ListenError::at(folder))?;
        let seconds = wall_time() as u64;
        // Readers read files in the order of their names; two runs may start in the same second.
        let earlier = fs::read_dir(folder).map_err(ListenError::at(folder))?.count();
        let path = folder.join(format!("events.out.tfevents.{seconds:010}.zoo.{earlier:04}"));
        let file = File::create_new(&path).map_err(ListenError::at(&path))?;
        let mut board = Self { path, file };
        board.write(0, &Content::FileVersion("brain.Event:2"))?;
        Ok(board)
    }

    /// Writes PNG files by tag.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn images(&mut self, step: u64, images: &[(String, Vec<u8>)]) -> Result<(), ListenError> {
        if images.is_empty() {
            return Ok(());
        }
        self.write(step, &Content::Images(images))
    }

    /// Writes the graph of the training step.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn graph(&mut self, graph: &Graph) -> Result<(), ListenError> {
        self.write(0, &Content::Graph(&graph::definition(graph)))
    }

    fn write(&mut self, step: u64, content: &Content<'_>) -> Result<(), ListenError> {
        let record = message::event(wall_time(), i64::try_from(step).unwrap_or(i64::MAX), content);
        self.file
            .write_all(&tfrecord::frame(&record))
            .map_err(|source: io::Error| ListenError { path: self.path.clone(), source })
    }
}

impl Listener for TensorBoard {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        match event {
            Event::Started(started) => {
                self.write(started.resumed_at.map_or(0, |step| step + 1), &Content::SessionStart)?;
                self.write(0, &Content::Settings(&hparams::session_start(started, wall_time())))
            }
            Event::Step(step) => {
                let tags: Vec<String> = step.components.iter().map(|(name, _)| format!("train/{name}")).collect();
                let mut scalars = vec![
                    ("train/loss", step.loss as f32),
                    ("train/learning_rate", step.lr as f32),
                    ("train/images_per_s", step.images_per_s as f32),
                ];
                scalars.extend(step.gradient_norm.map(|norm| ("train/gradient_norm", norm as f32)));
                scalars.extend(tags.iter().map(String::as_str).zip(step.components.iter().map(|(_, v)| *v as f32)));
                self.write(step.step, &Content::Scalars(&scalars))
            }
            Event::Evaluated(evaluated) => {
                let tags: Vec<String> = evaluated.scores.iter().map(|score| format!("val/{}", score.metric)).collect();
                let mut scalars: Vec<(&str, f32)> =
                    evaluated.loss.iter().map(|loss| ("val/loss", *loss as f32)).collect();
                scalars.extend(tags.iter().map(String::as_str).zip(evaluated.scores.iter().map(|s| s.value as f32)));
                self.write(evaluated.step, &Content::Scalars(&scalars))
            }
            Event::Golden(_)
            | Event::Device(_)
            | Event::Cost(_)
            | Event::Memory(_)
            | Event::Checkpointed { .. }
            | Event::Interrupted { .. }
            | Event::Failed { .. }
            | Event::Result(_)
            | Event::Verdict(_) => Ok(()),
        }
    }
}

fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests;
