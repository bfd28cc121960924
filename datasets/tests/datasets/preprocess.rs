//! Decoding, resizing, cropping and normalising against Pillow's and torchvision's results in `golden/preprocess`.

use std::fs;
use std::path::PathBuf;

use safetensors::SafeTensors;
use serde_json::Value;
use zoo_datasets::hash::sample_positions;
use zoo_datasets::transforms::shorter_side;
use zoo_datasets::{Image, Normalize, Pipeline, Rng, image};
use zoo_settings::{CenterCrop, Filter, ImageSize, Resize, Step};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../golden/preprocess")
}

/// The golden's entries whose key starts with `prefix`, and its tensors.
fn entries(prefix: &str, check: impl Fn(&Value, &SafeTensors<'_>)) {
    let manifest: Value = serde_json::from_slice(&fs::read(folder().join("preprocess.json")).unwrap()).unwrap();
    let data = fs::read(folder().join("preprocess.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&data).unwrap();
    let entries = manifest["entries"].as_array().unwrap().iter();
    let matching: Vec<&Value> = entries.filter(|entry| entry["key"].as_str().unwrap().starts_with(prefix)).collect();
    assert!(!matching.is_empty(), "no entry {prefix}*");
    matching.into_iter().for_each(|entry| check(entry, &tensors));
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().unwrap()
}

fn pair(entry: &Value, field: &str) -> (usize, usize) {
    let at = |i: usize| entry[field][i].as_u64().unwrap() as usize;
    (at(0), at(1))
}

fn decode(entry: &Value) -> Image {
    image::decode(&fs::read(folder().join(text(entry, "file"))).unwrap()).unwrap()
}

fn pipeline(entry: &Value) -> Pipeline {
    let filter = match text(entry, "mode") {
        "bilinear" => Filter::Bilinear,
        "bicubic" => Filter::Bicubic,
        other => panic!("unknown mode {other}"),
    };
    let side = |field: &str| entry[field].as_u64().unwrap() as usize;
    let steps = vec![
        Step::Resize(Resize { shorter: side("resize"), filter }),
        Step::CenterCrop(CenterCrop { size: ImageSize::Square(side("crop")) }),
    ];
    Pipeline::new(steps, Normalize::IMAGENET).unwrap()
}

#[test]
fn decoded_pixels_are_identical() {
    entries("decoded/", |entry, tensors| {
        let key = text(entry, "key");
        let image = decode(entry);
        let size = (entry["width"].as_u64().unwrap() as usize, entry["height"].as_u64().unwrap() as usize);
        assert_eq!((image.width(), image.height()), size, "{key}");
        let samples = tensors.tensor(key).unwrap();
        let found: Vec<u8> = sample_positions(key, image.pixels().len(), samples.data().len())
            .map(|position| image.pixels()[position])
            .collect();
        assert_eq!(found, samples.data(), "{key}");
        for (channel, mean) in entry["channel_mean"].as_array().unwrap().iter().enumerate() {
            let sum: u64 = image.pixels().iter().skip(channel).step_by(3).map(|&v| u64::from(v)).sum();
            let found = sum as f64 / image.size().area() as f64;
            assert!((found - mean.as_f64().unwrap()).abs() < 1e-9, "{key}: channel {channel} has mean {found}");
        }
    });
}

#[test]
fn resized_and_cropped_pixels_are_identical() {
    entries("crop/", |entry, tensors| {
        let key = text(entry, "key");
        let image = decode(entry);
        let resize = entry["resize"].as_u64().unwrap() as usize;
        let target = shorter_side(resize, image.size());
        assert_eq!((target.width, target.height), pair(entry, "resized_wh"), "{key}");
        let found = pipeline(entry).apply(&image, &mut Rng::new(0, 0, 0));
        assert!(found.pixels() == tensors.tensor(key).unwrap().data(), "{key}: pixels differ");
    });
}

#[test]
fn a_decoded_region_gives_the_same_crop() {
    entries("crop/", |entry, tensors| {
        let key = text(entry, "key");
        let bytes = fs::read(folder().join(text(entry, "file"))).unwrap();
        let plan = pipeline(entry).plan(image::encoded_size(&bytes).unwrap(), &mut Rng::new(0, 0, 0));
        let found = plan.run(image::decode_region(&bytes, plan.region()).unwrap());
        assert!(found.pixels() == tensors.tensor(key).unwrap().data(), "{key}: pixels differ");
    });
}

#[test]
fn normalised_values_are_identical() {
    entries("crop/", |entry, tensors| {
        let key = text(entry, "normalized_key");
        let pipeline = pipeline(entry);
        let crop = pipeline.apply(&decode(entry), &mut Rng::new(0, 0, 0));
        let mut values = vec![0.0; crop.pixels().len()];
        pipeline.normalize().apply(&crop, &mut values);
        let tensor = tensors.tensor(key).unwrap();
        let (samples, rest) = tensor.data().as_chunks::<4>();
        assert!(rest.is_empty());
        for (position, sample) in sample_positions(key, values.len(), samples.len()).zip(samples) {
            assert_eq!(values[position], f32::from_le_bytes(*sample), "{key}: element {position}");
        }
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / values.len() as f64;
        // The golden's statistics were summed in f32.
        assert!((mean - entry["normalized_mean"].as_f64().unwrap()).abs() < 1e-6, "{key}: mean {mean}");
        let std = entry["normalized_std"].as_f64().unwrap();
        assert!((variance.sqrt() - std).abs() < 1e-5, "{key}: deviation {}", variance.sqrt());
    });
}
