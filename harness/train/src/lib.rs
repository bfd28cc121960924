//! Training: the loop around the step.
//!
//! A [`Trainer`] runs the [`Step`](zoo_engine::Step) of the recipe (the same as the golden check) over the batches of a
//! [`Job`], evaluates the held-out set, writes [`Checkpoint`]s for bit-identical resumption, and sends events to
//! [`Listener`]s. The files of a run ([`RunFolder`]: event log, TensorBoard, report, result) are such listeners; the
//! progress bar of the command is another. [`Session`] is the step without the loop, for callers with their own batches
//! and learning rates.
//!
//! ```
//! use zoo_train::Launch;
//!
//! // The settings with which a run was started are stored in its folder, and can be printed as a command.
//! let sets = vec!["train.epochs=1".to_owned()];
//! let launch = Launch { recipe: "resnet50".to_owned(), profile: Some("mini".to_owned()), sets, ..Launch::default() };
//! assert_eq!(launch.command(), "zoo run resnet50 --profile mini --set train.epochs=1");
//! ```

pub mod checkpoint;
pub mod convergence;
pub mod culprit;
pub mod elsewhere;
mod environment;
mod error;
mod evaluate;
pub mod event;
mod event_log;
mod gradient_norm;
mod inputs;
mod job;
mod launch;
mod lookahead;
mod loss_scale;
pub mod memory;
mod network;
pub mod prepared;
mod record;
pub mod report;
mod run_folder;
mod session;
pub mod tensorboard;
mod timetable;
mod trainer;
pub mod weights;
mod whiten;

pub use checkpoint::{Checkpoint, CheckpointError, CheckpointStore};
pub use environment::Environment;
pub use error::{RunsError, TrainError};
pub use evaluate::{Evaluator, continue_text, evaluate, trivial_answers};
pub use event::{Event, GoldenVerdict, HOST, ListenError, Listener, RunResult};
pub use event_log::EventLog;
pub use job::{Job, SimulatedDevice};
pub use launch::{Launch, quoted};
pub use loss_scale::LossScale;
pub use record::{RunEnd, RunRecord};
pub use run_folder::{Resumed, RunFiles, RunFolder, rewrite_report, served_report};
pub use session::Session;
pub use timetable::{Position, Timetable};
pub use trainer::{Outcome, Trainer};
pub use weights::Weights;
