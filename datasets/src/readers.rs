//! Data sets on disk.

mod box_folder;
mod cifar10;
mod class_order;
mod coco;
mod crop511;
mod folder;
mod foreign;
mod frames;
mod idx;
mod label_folder;
mod label_pairs;
mod layout;
mod masks;
mod outlines;
mod parts;
mod root;
mod stems;
mod text_folder;
mod text_lines;
mod voc;

pub use box_folder::BoxFolder;
pub use cifar10::Cifar10;
pub use crop511::Crop511;
pub use folder::{ImageFolder, read_image};
pub use frames::FrameFolders;
pub use idx::IdxImages;
pub use label_folder::LabelFolder;
pub use parts::Part;
pub use root::{Layout, Root, open_class_folders, open_divided, open_root};
pub use text_folder::TextFolder;
pub use text_lines::{LineError, parse_text_regions};
