//! A golden of a small network, to be changed.

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use zoo_golden::Golden;

/// An array of any type: key, type, shape and bytes.
pub type Encoded = (String, Dtype, Vec<usize>, Vec<u8>);

/// A copy of the golden.
pub struct Changed {
    folder: TempDir,
    pub manifest: Value,
    pub arrays: Vec<(String, Vec<f64>)>,
    /// The arrays that are not in f64.
    pub others: Vec<Encoded>,
}

impl Changed {
    pub fn tiny() -> Self {
        let path = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/seeds/tiny.json");
        let manifest = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let bytes = fs::read(path.with_extension("safetensors")).unwrap();
        let mut changed =
            Self { folder: tempfile::tempdir().unwrap(), manifest, arrays: Vec::new(), others: Vec::new() };
        for (key, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            if view.dtype() == Dtype::F64 {
                let (values, _) = view.data().as_chunks::<8>();
                changed.arrays.push((key.to_owned(), values.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()));
            } else {
                let array = (key.to_owned(), view.dtype(), view.shape().to_vec(), view.data().to_vec());
                changed.others.push(array);
            }
        }
        changed
    }

    /// Writes and reads it.
    pub fn read(&self) -> Result<Golden, String> {
        let path: PathBuf = self.folder.path().join("golden.json");
        let floats = self.arrays.iter().map(|(key, values)| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (key.clone(), Dtype::F64, vec![values.len()], bytes)
        });
        let arrays: Vec<_> = floats.chain(self.others.clone()).collect();
        let views = arrays.iter().map(|(key, dtype, shape, bytes): &Encoded| {
            (key.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        fs::write(path.with_extension("safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
        fs::write(&path, self.manifest.to_string()).unwrap();
        Golden::read(&path).map_err(|error| error.to_string())
    }
}
