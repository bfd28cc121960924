//! NumPy's `.npz`: a zip archive with an [`.npy`](super::npy) file per array, as `numpy.savez` writes it.

use crate::{Array, npy};
use std::{
    fs::File,
    io::{BufReader, Cursor, Read, Write},
};
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

/// An archive of arrays.
#[derive(Debug)]
pub struct Npz {
    zip: ZipArchive<BufReader<File>>,
    size: u64,
}

impl Npz {
    /// Opens an archive.
    ///
    /// # Errors
    /// The reason: a damaged archive, for example.
    pub fn open(file: File) -> Result<Self, String> {
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        let zip = ZipArchive::new(BufReader::new(file)).map_err(|error| format!("a damaged zip archive: {error}"))?;
        Ok(Self { zip, size })
    }

    /// Names of the arrays, in the order of the archive.
    pub fn names(&self) -> Vec<String> {
        let names = self.zip.file_names().filter_map(Result::ok);
        names.filter_map(|name| name.strip_suffix(".npy").map(str::to_owned)).collect()
    }

    /// Reads an array, verified by the archive's checksum.
    ///
    /// # Errors
    /// The reason: a missing, compressed or damaged array.
    pub fn read(&mut self, name: &str) -> Result<Array, String> {
        let file = self.zip.by_name(&format!("{name}.npy")).map_err(|error| format!("`{name}`: {error}"))?;
        if file.compression() != CompressionMethod::Stored {
            return Err(format!("`{name}` is compressed: use numpy.savez, not numpy.savez_compressed"));
        }
        if file.size() > self.size {
            return Err(format!("`{name}` claims {} bytes, more than the file has", file.size()));
        }
        let mut bytes = Vec::with_capacity(file.size() as usize);
        file.take(self.size).read_to_end(&mut bytes).map_err(|error| format!("`{name}`: {error}"))?;
        npy::parse(&bytes).map_err(|reason| format!("`{name}`: {reason}"))
    }
}

/// The bytes of an archive with these arrays.
///
/// # Errors
/// Names that an archive cannot store.
pub fn encode(arrays: &[(String, Array)]) -> Result<Vec<u8>, String> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, array) in arrays {
        let content = npy::encode(array);
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(content.len() >= u32::MAX as usize);
        zip.start_file(format!("{name}.npy"), options).map_err(|error| error.to_string())?;
        zip.write_all(&content).map_err(|error| error.to_string())?;
    }
    Ok(zip.finish().map_err(|error| error.to_string())?.into_inner())
}
