//! The documented order and pixels of the golden trajectory, from the image files.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use serde_json::Value;
use zoo_datasets::hash::hash_order;
use zoo_datasets::transforms::{Filter, resize};
use zoo_datasets::{Dataset, ImageFolder, OnError, Size};

#[test]
#[ignore = "needs ../shared"]
fn order_labels_and_pixels_are_the_goldens() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let (reference, data) = (shared.join("reference"), shared.join("data/cifar10/train"));
    let golden: Value = serde_json::from_slice(&fs::read(reference.join("trajectory.json")).unwrap()).unwrap();
    let bytes = fs::read(reference.join("trajectory.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let (pixels, pixels64) = (tensors.tensor("pixels").unwrap(), tensors.tensor("pixels64").unwrap());

    let set = ImageFolder::open(&data, OnError::Fail).unwrap();
    let order = hash_order(set.len());
    let files = golden["files"].as_array().unwrap();
    assert!(!files.is_empty());
    for (number, (file, &index)) in files.iter().zip(&order).enumerate() {
        assert_eq!(file.as_str().unwrap(), set.relative_path(index));
        assert_eq!(golden["labels"][number].as_u64().unwrap(), u64::from(set.label(index)));
        let image = set.image(index).unwrap();
        assert!(image.pixels() == &pixels.data()[number * 3072..][..3072], "{}", set.name(index));
        let resized = resize(&image, Size::square(64), Filter::Bilinear);
        assert!(resized.pixels() == &pixels64.data()[number * 12288..][..12288], "{}", set.name(index));
    }
}
