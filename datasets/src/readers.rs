//! Data sets on disk.

mod cifar10;
mod folder;
mod root;

pub use cifar10::Cifar10;
pub use folder::ImageFolder;
pub use root::{Layout, Root, open_root};
