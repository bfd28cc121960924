//! Fuzz targets, as functions of bytes: [`files`] of what needs no tensors, [`tensors`] of what does.
//!
//! The functions terminate for all inputs, with a result or with an error that names the file. The tests of the command
//! replay all findings through the same functions.

pub mod files;
#[cfg(feature = "tensors")]
pub mod tensors;
pub mod yaml;
