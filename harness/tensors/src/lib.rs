//! Untrusted files of named tensors: safetensors, NumPy's `.npy` and `.npz`, files of `torch.save`, and MindSpore
//! checkpoints.
//!
//! Nothing in them is executed: a pickle is interpreted one instruction at a time and can only describe tensors.
//! Readers use at most a small multiple of the file size as memory.
//!
//! ```
//! use zoo_tensors::{Array, ElementType, npy};
//!
//! let array = Array { dtype: ElementType::F32, shape: vec![2], values: vec![1.0, -2.0] };
//! assert_eq!(npy::parse(&npy::encode(&array))?, array);
//! # Ok::<(), String>(())
//! ```

mod array;
pub mod ckpt;
pub mod dictionary;
pub mod format;
pub mod npy;
pub mod npz;
mod pickle;
pub mod pth;
pub mod safetensors;
mod write_pth;

pub use array::{Array, ElementType};
pub use write_pth::{encode as encode_pth, encode_one as encode_pth_tensor};

use std::{io, path::PathBuf};
use thiserror::Error;

/// A file of tensors that cannot be read.
#[derive(Debug, Error)]
pub enum TensorsError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file does not follow its format, or is truncated.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
}
