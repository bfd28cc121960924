//! Data sets on disk.

mod cifar10;
mod folder;
mod root;
mod text_folder;
mod text_lines;

pub use cifar10::Cifar10;
pub use folder::ImageFolder;
pub use root::{Layout, Root, open_root};
pub use text_folder::{TextFolder, TextPart};
pub use text_lines::{LineError, TextFormat, parse_text_regions};
