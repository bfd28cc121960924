//! Reads a dump, with everything that can be wrong with it.

use super::{FORMAT, Manifest, files as files_of};
use crate::GoldenError;
use serde::Deserialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Mutex,
};
use zoo_datasets::files;

/// Longest header that is read: what tens of millions of values would need.
const MAX_HEADER: u64 = 1 << 30;

/// A dump: what it says, and its values.
pub struct Dump {
    /// The folder.
    pub folder: PathBuf,
    /// What it says.
    pub manifest: Manifest,
    values: Values,
}

impl Dump {
    /// Opens a dump.
    ///
    /// # Errors
    /// A folder without a dump, files of another format, or values that are missing or cut off.
    pub fn open(folder: &Path) -> Result<Self, GoldenError> {
        let [manifest, values] = files_of(folder);
        let text = files::read(&manifest, MAX_HEADER).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => GoldenError::Malformed {
                path: folder.to_owned(),
                message: "there is no dump in this folder: `zoo check RECIPE --dump FOLDER` writes one".to_owned(),
            },
            _ => GoldenError::Unreadable { path: manifest.clone(), source },
        })?;
        let malformed = |message: String| GoldenError::Malformed { path: manifest.clone(), message };
        #[derive(Deserialize)]
        struct Version {
            zoo_dump: u32,
        }
        let version: Version = serde_json::from_slice(&text).map_err(|e| malformed(format!("not a dump: {e}")))?;
        if version.zoo_dump != FORMAT {
            return Err(malformed(format!("a dump of format {}, and this zoo reads {FORMAT}", version.zoo_dump)));
        }
        let dump: Manifest = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        let values = Values::open(&values)?;
        let written = dump.nodes.iter().flat_map(|node| &node.writes).chain(&dump.sources);
        if let Some(missing) = written.map(|value| &value.name).find(|name| !values.places.contains_key(*name)) {
            return Err(malformed(format!("the values of `{missing}` are missing")));
        }
        Ok(Self { folder: folder.to_owned(), manifest: dump, values })
    }

    /// All elements of a value in row-major order.
    ///
    /// # Errors
    /// No such value, or a file that cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<f64>, GoldenError> {
        self.values.read(name)
    }

    /// Shape of a value.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.values.places.get(name).map(|place| place.shape.as_slice())
    }
}

/// The file of values: safetensors, read one tensor at a time.
pub(super) struct Values {
    path: PathBuf,
    file: Mutex<File>,
    start: u64,
    places: HashMap<String, Place>,
}

/// A tensor as the header of safetensors describes it.
#[derive(Deserialize)]
struct Place {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

impl Place {
    /// Bytes per element; `None` for other types than a dump has.
    fn size(&self) -> Option<u64> {
        match self.dtype.as_str() {
            "F32" => Some(4),
            "F64" => Some(8),
            _ => None,
        }
    }

    /// Bytes that shape and type need, if the offsets are for as many.
    fn bytes(&self) -> Option<u64> {
        let numel = self.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d as u64))?;
        let bytes = numel.checked_mul(self.size()?)?;
        let [begin, end] = self.data_offsets;
        (end.checked_sub(begin)? == bytes).then_some(bytes)
    }
}

impl Values {
    /// Reads the header and holds the file's length against it.
    pub(super) fn open(path: &Path) -> Result<Self, GoldenError> {
        let unreadable = |source| GoldenError::Unreadable { path: path.to_owned(), source };
        let malformed = |message: String| GoldenError::Malformed { path: path.to_owned(), message };
        let (mut file, length) = files::open(path).map_err(unreadable)?;
        let mut word = [0; 8];
        file.read_exact(&mut word).map_err(|_| malformed("truncated: it ends before its header".to_owned()))?;
        let header = u64::from_le_bytes(word);
        if header > MAX_HEADER || header + 8 > length {
            return Err(malformed("truncated, or no safetensors: it ends before its header does".to_owned()));
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text).map_err(unreadable)?;
        let places: HashMap<String, Place> =
            serde_json::from_slice(&text).map_err(|e| malformed(format!("its header is no safetensors': {e}")))?;
        if let Some((name, _)) = places.iter().find(|(_, place)| place.bytes().is_none()) {
            return Err(malformed(format!("`{name}` has another size than its shape and type say")));
        }
        let end = places.values().map(|place| place.data_offsets[1]).max().unwrap_or(0);
        let (announced, there) = (end, length - header - 8);
        if announced > there {
            return Err(malformed(format!("truncated: {announced} bytes of values are announced, {there} are there")));
        }
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), start: 8 + header, places })
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All elements of a value in row-major order.
    pub(super) fn read(&self, name: &str) -> Result<Vec<f64>, GoldenError> {
        let unreadable = |source| GoldenError::Unreadable { path: self.path.clone(), source };
        let malformed = |message: String| GoldenError::Malformed { path: self.path.clone(), message };
        let place = self.places.get(name).ok_or_else(|| malformed(format!("there is no value `{name}`")))?;
        let [begin, end] = place.data_offsets;
        let mut bytes = vec![0; (end - begin) as usize];
        let mut file = self.file.lock().map_err(|_| malformed("another reader has failed".to_owned()))?;
        file.seek(SeekFrom::Start(self.start + begin)).map_err(unreadable)?;
        file.read_exact(&mut bytes).map_err(unreadable)?;
        drop(file);
        Ok(match place.size() {
            Some(8) => bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
            _ => bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
        })
    }
}
