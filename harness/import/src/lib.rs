//! From the trace of a PyTorch network to a recipe.

mod attention;
mod error;
mod functions;
mod joins;
mod operation;
mod read;
mod structure;
mod trace;
mod view;
mod word;

pub use error::{ImportError, Refusal};
pub use trace::{FORMAT, MAX_BYTES, Trace};
