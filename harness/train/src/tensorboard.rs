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

use prost::Message;
use zoo_graph::Graph;

use crate::event::{Event, ListenError, Listener};
use message::{Content, Entry, Image, Metadata, Plugin, SessionLog, Shape, Summary, Tensor, Value};

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
        board.write(0, Content::FileVersion("brain.Event:2".to_owned()))?;
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
        self.summary(step, images.iter().map(|(tag, file)| (tag.clone(), image(file))))
    }

    /// Writes the graph of the training step.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn graph(&mut self, graph: &Graph) -> Result<(), ListenError> {
        self.write(0, Content::Graph(graph::definition(graph).encode_to_vec()))
    }

    fn summary(&mut self, step: u64, values: impl Iterator<Item = (String, Value)>) -> Result<(), ListenError> {
        let entry = |(tag, value)| Entry { tag, value: Some(value), metadata: None };
        self.write(step, Content::Summary(Summary { value: values.map(entry).collect() }))
    }

    fn write(&mut self, step: u64, content: Content) -> Result<(), ListenError> {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let record = message::Event { wall_time: wall_time(), step, content: Some(content) };
        self.file
            .write_all(&tfrecord::frame(&record.encode_to_vec()))
            .map_err(|source: io::Error| ListenError { path: self.path.clone(), source })
    }
}

impl Listener for TensorBoard {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        match event {
            Event::Started(started) => {
                let first = started.resumed_at.map_or(0, |step| step + 1);
                self.write(first, Content::SessionLog(SessionLog { status: 1 }))?;
                let settings = hparams::session_start(started, wall_time());
                self.write(0, for_hparams(settings.encode_to_vec()))
            }
            Event::Step(step) => {
                let own = [("loss", step.loss), ("learning_rate", step.lr), ("images_per_s", step.images_per_s)];
                let norm = step.gradient_norm.map(|norm| ("gradient_norm", norm));
                let components = step.components.iter().map(|(name, value)| (name.as_str(), *value));
                let scalars = own.into_iter().chain(norm).chain(components);
                self.summary(step.step, scalars.map(|(name, value)| scalar(format!("train/{name}"), value)))
            }
            Event::Evaluated(evaluated) => {
                let loss = evaluated.loss.map(|loss| scalar("val/loss".to_owned(), loss));
                let scores = evaluated.scores.iter().map(|it| scalar(format!("val/{}", it.metric), it.value));
                self.summary(evaluated.step, loss.into_iter().chain(scores))
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

fn scalar(tag: String, value: f64) -> (String, Value) {
    (tag, Value::Scalar(value as f32))
}

/// A PNG file in colour. Its width and height are those of its header (RFC 2083, section 4.1.1); zeros for other files.
fn image(file: &[u8]) -> Value {
    let number = |at: usize| file.get(at..at + 4).and_then(|bytes| Some(i32::from_be_bytes(bytes.try_into().ok()?)));
    let [width, height] = [16, 20].map(|at| number(at).unwrap_or_default());
    Value::Image(Image { height, width, channels: 3, file: file.to_vec() })
}

/// Settings for the plugin `hparams`, with a dummy scalar, because readers require a value.
fn for_hparams(content: Vec<u8>) -> Content {
    let plugin = Plugin { name: "hparams".to_owned(), content };
    let entry = Entry {
        tag: "_hparams_/session_start_info".to_owned(),
        value: Some(Value::Tensor(Tensor { dtype: 1, shape: Some(Shape {}) })),
        metadata: Some(Metadata { plugin: Some(plugin) }),
    };
    Content::Summary(Summary { value: vec![entry] })
}

fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests;
