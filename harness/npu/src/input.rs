//! The input pipeline: how long the host takes for the samples of one step.
//!
//! A process decodes and transforms the samples of one device; all processes of a server share its cores. Rates are
//! those of 224x224 pixels; the share of the work that grows with the image is scaled by its pixels.

use crate::{compile::normalization, device::Device, units::Seconds};
use serde::Serialize;
use zoo_recipe::{
    Recipe,
    schema::{NormalizePlace, Source},
};

/// The input side of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Input {
    /// Time of the pipeline for the samples of one step.
    pub pipeline: Seconds,
    /// Time of copying them to the device.
    pub copy: Seconds,
    /// What limits the pipeline: `process`, `server`, or nothing.
    pub limit: &'static str,
}

/// Pixels of the images that rates are given for.
const PIXELS: f64 = 224.0 * 224.0;

/// Bytes of an index.
const INDEX: f64 = 4.0;

/// The input side of a step of `batch` images on each of `devices`.
pub fn input(recipe: &Recipe, device: &Device, batch: usize, devices: usize) -> Input {
    let options = &recipe.npu.input;
    let images = batch as f64;
    // Levels of bytes if the device normalises, f32 otherwise.
    let width = if options.normalize == NormalizePlace::Device { 1.0 } else { 4.0 };
    let bytes = recipe.model.inputs.values().map(|input| {
        let numbers: f64 = input.extents().iter().map(|extent| extent.0 as f64).product();
        images * numbers * input.image().map_or(INDEX, |_| width)
    });
    let bytes: f64 = bytes.sum();
    let host = &device.host;
    let copy = Seconds(host.copy_us.value * 1e-6 + bytes / (host.link_gb_per_s.value * 1e9));
    if !options.enabled {
        return Input { pipeline: Seconds::ZERO, copy: Seconds::ZERO, limit: "none" };
    }
    let pixels: f64 =
        recipe.model.inputs.values().filter_map(|input| input.image()).map(|[_, h, w]| (h * w) as f64).sum();
    let decode = match recipe.data.source {
        Source::Characters(_)
        | Source::Cifar10(_)
        | Source::TextScenes(_)
        | Source::Shapes(_)
        | Source::Videos(_)
        | Source::TextFile(_)
        | Source::Sentences(_) => 0.0,
        Source::ImageFolder(_)
        | Source::ClassFolders(_)
        | Source::TextFolder(_)
        | Source::LabelMaps(_)
        | Source::Crop511(_)
        | Source::FrameFolder(_) => host.decode_share.value,
    };
    let off_loaded = options.normalize == NormalizePlace::Device && normalization(recipe).is_some();
    let normalize = if off_loaded { host.normalize_share.value } else { 0.0 };
    let work = decode + (1.0 - host.decode_share.value - normalize) * pixels / PIXELS;
    let process = options.images_per_s.unwrap_or(host.process_images_per_s.value) / work;
    let in_server = devices.min(device.links.devices_per_server.value as usize).max(1) as f64;
    let own = host.pipelines.iter().find(|pipeline| pipeline.recipe == recipe.name);
    let rate = own.map_or(&host.server_images_per_s, |pipeline| &pipeline.server_images_per_s);
    let server = rate.value / work / in_server;
    let limit = if process <= server { "process" } else { "server" };
    Input { pipeline: Seconds(images / process.min(server)), copy, limit }
}
