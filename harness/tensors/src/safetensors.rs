//! Safetensors, read one tensor at a time (<https://huggingface.co/docs/safetensors>).

use crate::{Array, ElementType, TensorsError, array::numel};
use serde::Deserialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Mutex,
};
use zoo_datasets::files;

/// Longest header that is accepted: enough for tens of millions of values.
const MAX_HEADER: u64 = 1 << 30;

/// An open file.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: Mutex<File>,
    start: u64,
    places: HashMap<String, Place>,
}

/// A header.
#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__", default)]
    _metadata: Option<HashMap<String, String>>,
    #[serde(flatten)]
    places: HashMap<String, Place>,
}

/// A tensor as the header describes it.
#[derive(Debug, Deserialize)]
struct Place {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

impl Place {
    fn dtype(&self) -> Option<ElementType> {
        Some(match self.dtype.as_str() {
            "F64" => ElementType::F64,
            "F32" => ElementType::F32,
            "F16" => ElementType::F16,
            "BF16" => ElementType::Bf16,
            "I64" => ElementType::I64,
            "I32" => ElementType::I32,
            "I16" => ElementType::I16,
            "I8" => ElementType::I8,
            "U8" => ElementType::U8,
            "BOOL" => ElementType::Bool,
            _ => return None,
        })
    }

    /// Whether the offsets span exactly the bytes that shape and type need.
    fn is_sound(&self) -> bool {
        let bytes = self.dtype().and_then(|dtype| numel(&self.shape)?.checked_mul(dtype.size()));
        let [begin, end] = self.data_offsets;
        bytes.is_some_and(|bytes| end.checked_sub(begin) == Some(bytes as u64))
    }
}

impl Reader {
    /// Reads the header and checks it against the file's length.
    ///
    /// # Errors
    /// A file that cannot be opened, is not a safetensors file, or is truncated.
    pub fn open(path: &Path) -> Result<Self, TensorsError> {
        let unreadable = |source| TensorsError::Unreadable { path: path.to_owned(), source };
        let malformed = |reason: String| TensorsError::Malformed { path: path.to_owned(), reason };
        let (mut file, length) = files::open(path).map_err(unreadable)?;
        let mut word = [0; 8];
        file.read_exact(&mut word).map_err(|_| malformed("truncated: it ends before its header".to_owned()))?;
        let header = u64::from_le_bytes(word);
        if header > MAX_HEADER || header + 8 > length {
            return Err(malformed("truncated, or not a safetensors file: it ends within its header".to_owned()));
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text).map_err(unreadable)?;
        let Header { places, .. } =
            serde_json::from_slice(&text).map_err(|e| malformed(format!("not a safetensors header: {e}")))?;
        if let Some(name) = places.iter().filter(|(_, place)| !place.is_sound()).map(|(name, _)| name).min() {
            return Err(malformed(format!("the size of `{name}` does not match its shape and type")));
        }
        let end = places.values().map(|place| place.data_offsets[1]).max().unwrap_or(0);
        let (announced, there) = (end, length - header - 8);
        if announced > there {
            return Err(malformed(format!("truncated: {there} of {announced} bytes of values")));
        }
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), start: 8 + header, places })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors in the order of the file.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.places.keys().map(String::as_str).collect();
        names.sort_by_key(|name| (self.places[*name].data_offsets, *name));
        names
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.places.get(name).map(|place| place.shape.as_slice())
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// No tensor of this name, or a file that cannot be read.
    pub fn read(&self, name: &str) -> Result<Array, TensorsError> {
        let unreadable = |source| TensorsError::Unreadable { path: self.path.clone(), source };
        let malformed = |reason: String| TensorsError::Malformed { path: self.path.clone(), reason };
        let place = self.places.get(name).ok_or_else(|| malformed(format!("there is no value `{name}`")))?;
        let [begin, end] = place.data_offsets;
        let mut bytes = vec![0; (end - begin) as usize];
        let mut file = self.file.lock().map_err(|_| malformed("another reader failed".to_owned()))?;
        file.seek(SeekFrom::Start(self.start + begin)).map_err(unreadable)?;
        file.read_exact(&mut bytes).map_err(unreadable)?;
        drop(file);
        let array = place.dtype().and_then(|dtype| Array::decode(dtype, place.shape.clone(), &bytes));
        array.ok_or_else(|| malformed(format!("the size of `{name}` does not match its shape and type")))
    }
}
