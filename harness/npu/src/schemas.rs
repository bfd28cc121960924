//! JSON Schemas of the files that this crate reads, for editors.

use crate::{Device, Host, Throughput, study::Study};
use serde_json::Value;
use zoo_recipe::document_schema;

/// The schema of `recipes/devices/*.yaml`.
pub fn device_schema() -> Value {
    document_schema::<Device<String>>("zoo device")
}

/// The schema of `recipes/hosts/*.yaml`.
pub fn host_schema() -> Value {
    document_schema::<Host>("zoo host")
}

/// The schema of `recipes/studies/*.yaml`.
pub fn study_schema() -> Value {
    document_schema::<Study>("zoo study")
}

/// The schema of throughput files.
pub fn throughput_schema() -> Value {
    document_schema::<Throughput>("zoo throughput")
}
