//! Sources, readers, transforms and targets.

mod box_folder;
mod decode;
mod detection;
mod generated;
mod geometry;
mod label_folder;
mod loader;
mod photographs;
mod preprocess;
mod readers;
mod text_detect;
mod text_folder;
mod text_scenes;
mod text_targets;
mod tracking;
mod trajectory;
mod transforms;
