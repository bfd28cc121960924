//! Files of profilers: what ran in a measured training step, when and for how long.
//!
//! One reader per format: Ascend's `kernel_details.csv`, `op_summary_*.csv`, `step_trace_time.csv`,
//! `communication.json` and `trace_view.json` (torch_npu and MindSpore write the same ones), and PyTorch's Chrome
//! trace. All are read once, from start to end; what is kept grows with the number of kernels, never with the size of
//! the text. Columns differ between versions: a [`Recording`] says which ones its file lacks, and nothing is guessed.
//! The crate knows no graph and no device.

mod axis;
mod columns;
mod communication;
mod csv;
mod error;
mod events;
mod host;
mod kernel_details;
mod marks;
mod names;
mod op_summary;
mod open;
mod pytorch;
mod recording;
mod scope;
mod step_times;
mod time;
mod timeline;
mod trace_view;

pub use communication::Collective;
pub use error::MeasuredError;
pub use marks::{AVERAGE, CLIP, LOSS, UPDATE};
pub use names::{Name, Names};
pub use open::open;
pub use recording::{Format, Gap, GapKind, Kernel, Part, Recording, Step, Unit};
pub use step_times::StepTimes;
pub use time::Nanos;
