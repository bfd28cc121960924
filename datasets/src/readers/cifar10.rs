//! The binary version of CIFAR-10 (<https://www.cs.toronto.edu/~kriz/cifar.html>).

use std::path::{Path, PathBuf};

use super::layout::expect_folder;
use crate::{DataError, Dataset, Image, Size, Source, files};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
/// One label byte, then the red, green and blue planes, row by row.
const RECORD: usize = 1 + 3 * PLANE;

/// Names of the classes, in the order of `batches.meta.txt`.
const CLASSES: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Most bytes that a file may have; the original ones have 10000 records each.
const MAX_FILE: u64 = 1 << 30;

/// Images and labels of CIFAR-10 binary files, kept in memory as they are in the files.
#[derive(Debug, Clone)]
pub struct Cifar10 {
    files: Vec<PathBuf>,
    /// Index of the first record of each file, and the number of all records.
    starts: Vec<usize>,
    records: Vec<u8>,
    classes: Vec<String>,
}

impl Cifar10 {
    /// Reads `files`, one after the other.
    ///
    /// # Errors
    /// If a file cannot be read, is not a positive multiple of 3073 bytes, or has a label above 9.
    pub fn read(paths: &[PathBuf]) -> Result<Self, DataError> {
        let mut records = Vec::new();
        let mut starts = vec![0];
        for path in paths {
            let bytes = files::read(path, MAX_FILE).map_err(DataError::io(path))?;
            let refuse = |reason: String| Err(DataError::malformed(path.display(), reason));
            let (chunks, rest) = bytes.as_chunks::<RECORD>();
            if chunks.is_empty() || !rest.is_empty() {
                let size = bytes.len();
                return refuse(format!(
                    "{size} bytes, not a positive multiple of {RECORD} (one label and 3x32x32 bytes)"
                ));
            }
            if let Some((record, chunk)) = chunks.iter().enumerate().find(|(_, chunk)| chunk[0] > 9) {
                return refuse(format!("record {record} has label {}, expected 0..=9", chunk[0]));
            }
            records.extend_from_slice(&bytes);
            starts.push(records.len() / RECORD);
        }
        Ok(Self { files: paths.to_vec(), starts, records, classes: CLASSES.map(str::to_owned).to_vec() })
    }

    /// The training part of `dir`: every `data_batch_*.bin`, in order of name.
    ///
    /// # Errors
    /// As [`read`](Self::read), or if there are none.
    pub fn train(dir: &Path) -> Result<Self, DataError> {
        Self::read(&training_files(dir)?)
    }

    /// The test part of `dir`: `test_batch.bin`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn test(dir: &Path) -> Result<Self, DataError> {
        Self::read(&[dir.join(TEST_FILE)])
    }

    fn record(&self, index: usize) -> &[u8] {
        &self.records[index * RECORD..][..RECORD]
    }
}

/// Name of the test part.
pub(super) const TEST_FILE: &str = "test_batch.bin";

/// The files `data_batch_*.bin` in `dir`, sorted by name.
pub(super) fn training_files(dir: &Path) -> Result<Vec<PathBuf>, DataError> {
    expect_folder(dir, "data_batch_1.bin to data_batch_5.bin and test_batch.bin")?;
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("data_batch_") && name.ends_with(".bin")
    };
    Ok(files::entries(dir)?.into_iter().filter(fits).collect())
}

impl Dataset for Cifar10 {
    fn len(&self) -> usize {
        self.records.len() / RECORD
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> u32 {
        self.record(index)[0].into()
    }

    fn name(&self, index: usize) -> String {
        let file = self.starts.partition_point(|&start| start <= index).saturating_sub(1);
        format!("{}[{}]", self.files[file].display(), index - self.starts[file])
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::square(SIDE))
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        let mut image = Image::filled(Size::square(SIDE), [0; 3]);
        let planes = &self.record(index)[1..];
        for (i, pixel) in image.pixels_mut().as_chunks_mut::<3>().0.iter_mut().enumerate() {
            *pixel = [planes[i], planes[PLANE + i], planes[2 * PLANE + i]];
        }
        Ok(Source::Decoded(image))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn records_become_images() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = vec![7];
        record.extend((0..3 * PLANE).map(|i| (i / PLANE * 100 + i % 97) as u8));
        file(dir.path(), "data_batch_2.bin", &record.repeat(2));
        record[0] = 3;
        file(dir.path(), "data_batch_1.bin", &record);
        file(dir.path(), "readme.html", b"");
        let set = Cifar10::train(dir.path()).unwrap();
        assert_eq!((set.len(), set.classes()[3].as_str()), (3, "cat"));
        assert_eq!((0..3).map(|i| set.label(i)).collect::<Vec<_>>(), [3, 7, 7]);
        assert!(set.name(0).ends_with("data_batch_1.bin[0]") && set.name(2).ends_with("data_batch_2.bin[1]"));
        let image = set.image(2).unwrap();
        // Pixel (5, 1) is element 37 of each plane.
        let value = |plane: usize| (plane * 100 + (plane * PLANE + 37) % 97) as u8;
        assert_eq!(image.row(1)[15..18], [value(0), value(1), value(2)]);
    }

    #[test]
    fn wrong_sizes_and_labels_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for bytes in [0, 1, RECORD - 1, RECORD + 1] {
            let path = file(dir.path(), "test_batch.bin", &vec![0; bytes]);
            let error = Cifar10::test(dir.path()).unwrap_err();
            let expected = format!("{}: {bytes} bytes, not a positive multiple", path.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        let mut bytes = vec![0; 2 * RECORD];
        bytes[RECORD] = 10;
        file(dir.path(), "test_batch.bin", &bytes);
        assert!(Cifar10::test(dir.path()).unwrap_err().to_string().contains("record 1 has label 10, expected"));
    }
}
