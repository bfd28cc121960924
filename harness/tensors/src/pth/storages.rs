//! Where a file keeps its pickle and its storages: since PyTorch 1.6 a zip archive without compression, with the pickle
//! as `data.pkl` and a file for each storage; before, one pickle after another, and the storages behind them.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
};
use zip::{CompressionMethod, ZipArchive};

use super::view::{Stored, size_of_storage};
use crate::pickle::{MOST_BYTES, Pickle, Value};

/// The first bytes of every zip archive that is not empty.
const ZIP: [u8; 4] = *b"PK\x03\x04";
/// The first pickle of the older format, behind its protocol: a magic number, as a LONG1 of ten bytes.
const MAGIC: [u8; 12] = [0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
/// Bytes of the protocol at the beginning of a pickle.
const PROTOCOL: usize = 2;
/// Bytes of a frame and its length, which follow since protocol 4.
const FRAME: usize = 9;

/// Whether a file is a zip archive; reads from its beginning.
///
/// # Errors
/// Errors of the operating system.
pub fn is_zip(file: &File) -> io::Result<bool> {
    Ok(start(file)?.starts_with(&ZIP))
}

/// Whether a file may be written by `torch.save`, in its format since PyTorch 1.6 or in the older one; reads from its
/// beginning.
///
/// # Errors
/// Errors of the operating system.
pub fn is_one(file: &File) -> io::Result<bool> {
    let start = start(file)?;
    Ok(start.starts_with(&ZIP) || is_stream(&start))
}

fn start(mut file: &File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take((PROTOCOL + FRAME + MAGIC.len()) as u64).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

/// Whether these are the first bytes of PyTorch before 1.6, or of `_use_new_zipfile_serialization=False`.
fn is_stream(start: &[u8]) -> bool {
    let Some([0x80, _]) = start.get(..PROTOCOL) else { return false };
    let rest = start.get(PROTOCOL..).unwrap_or_default();
    let framed = rest.get(FRAME..).filter(|_| rest.first() == Some(&0x95));
    rest.starts_with(&MAGIC) || framed.is_some_and(|rest| rest.starts_with(&MAGIC))
}

/// The storages of a file.
#[derive(Debug)]
pub(super) enum Storages {
    Zip(Archive),
    Stream(Stream),
}

impl Storages {
    /// The pickle of a file, and its storages.
    pub(super) fn open(file: File) -> Result<(Pickle, Self), String> {
        match is_zip(&file).map_err(|error| error.to_string())? {
            true => {
                let mut archive = Archive::open(file)?;
                let pickle = Pickle::read(archive.file("data.pkl", MOST_BYTES as u64)?)?;
                Ok((pickle, Self::Zip(archive)))
            }
            false => {
                let (pickle, stream) = Stream::open(file)?;
                Ok((pickle, Self::Stream(stream)))
            }
        }
    }

    /// Bytes of the whole file.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Zip(archive) => archive.size,
            Self::Stream(stream) => stream.size,
        }
    }

    /// The bytes of a storage.
    pub(super) fn read(&mut self, key: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::Zip(archive) => archive.file(&format!("data/{key}"), archive.size),
            Self::Stream(stream) => stream.read(key),
        }
    }
}

/// A zip archive, with all files in one folder.
#[derive(Debug)]
pub(super) struct Archive {
    zip: ZipArchive<BufReader<File>>,
    folder: String,
    size: u64,
}

impl Archive {
    fn open(file: File) -> Result<Self, String> {
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        let zip = ZipArchive::new(BufReader::new(file))
            .map_err(|error| format!("a damaged zip archive, or one that is cut off: {error}"))?;
        let names: Vec<String> = zip.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect();
        let folder = names.iter().find_map(|name| name.strip_suffix("data.pkl")).map(str::to_owned);
        let folder = folder.ok_or_else(|| other_zip(&names))?;
        let mut archive = Self { zip, folder, size };
        let scripted = archive.zip.index_for_name(&format!("{}constants.pkl", archive.folder)).is_some();
        if scripted {
            return Err(
                "a TorchScript module: save its state_dict instead, torch.save(module.state_dict(), FILE)".into()
            );
        }
        // Absent from files of PyTorch before 2.1; these are little-endian, as all platforms of that PyTorch were.
        match archive.file("byteorder", size) {
            Ok(order) if order != b"little" => Err("written on a big-endian machine".to_owned()),
            _ => Ok(archive),
        }
    }

    /// Content of a file of at most `most` bytes, verified by the archive's checksum.
    fn file(&mut self, name: &str, most: u64) -> Result<Vec<u8>, String> {
        let found = self.zip.by_name(&format!("{}{name}", self.folder));
        let file = found.map_err(|error| format!("{name} in the archive: {error}"))?;
        if file.compression() != CompressionMethod::Stored {
            return Err(format!("{name} is compressed, which torch.save never does: unpack it, and zip it with -0"));
        }
        if file.size() > most {
            return Err(format!("{name} claims {} bytes, more than possible", file.size()));
        }
        let mut bytes = Vec::with_capacity(file.size() as usize);
        file.take(most).read_to_end(&mut bytes).map_err(|error| format!("{name} in the archive: {error}"))?;
        Ok(bytes)
    }
}

/// What a zip archive without `data.pkl` is, by the names in it.
fn other_zip(names: &[String]) -> String {
    let any = |ending: &str| names.iter().any(|name| name.ends_with(ending));
    if any("model.weights.h5") {
        return "a model of Keras: its layers have other names and layouts. Set the weights of a PyTorch module from \
                it, and save its state_dict"
            .to_owned();
    }
    if any(".npy") {
        return "an archive of NumPy's arrays (.npz): save them with safetensors.numpy.save_file(dict(numpy.load(FILE)), \
                OUT) or as a state_dict"
            .to_owned();
    }
    let weights =
        names.iter().find(|name| [".pth", ".pt", ".bin", ".safetensors", ".ckpt"].iter().any(|e| name.ends_with(e)));
    match weights {
        Some(name) => format!("a zip archive that contains {name}: unpack it first"),
        None => "a zip archive without data.pkl: not a file of torch.save".to_owned(),
    }
}

/// Pickles one after another, and the storages behind them.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    size: u64,
    /// First byte and number of bytes of each storage.
    places: HashMap<String, (u64, u64)>,
}

impl Stream {
    fn open(mut file: File) -> Result<(Pickle, Self), String> {
        let system = |error: io::Error| error.to_string();
        let size = file.metadata().map_err(system)?.len();
        let mut start = Vec::new();
        (&mut file).take(MOST_BYTES as u64).read_to_end(&mut start).map_err(system)?;
        if !is_stream(&start) {
            return Err("not a file of torch.save".to_owned());
        }
        let mut place = 0;
        let mut next = || {
            let (pickle, length) = Pickle::first(start[place..].to_vec())?;
            place += length;
            Ok::<_, String>(pickle)
        };
        // Magic number, version, machine, object, keys of the storages.
        let (_, _, machine, object, keys) = (next()?, next()?, next()?, next()?, next()?);
        let order = machine.get(machine.root(), "little_endian").map(|order| machine.value(order));
        if !matches!(order, None | Some(Value::Bool(true))) {
            return Err("written on a big-endian machine".to_owned());
        }
        let Value::List(list) = keys.value(keys.root()) else { return Err("without keys of its storages".to_owned()) };
        let sizes = object.persistent().filter_map(|id| {
            let stored = Stored::of(&object, id)?;
            Some((stored.key, size_of_storage(&stored.class.name)?))
        });
        let sizes: HashMap<&str, usize> = sizes.collect();
        let mut places = HashMap::new();
        let mut at = place as u64;
        for key in list {
            let key = keys.text(*key).ok_or("a key of its storages is no text")?;
            let bytes = *sizes.get(key).ok_or_else(|| format!("nothing describes its storage `{key}`"))? as u64;
            let mut elements = [0; 8];
            file.seek(SeekFrom::Start(at)).map_err(system)?;
            file.read_exact(&mut elements).map_err(|_| "truncated: it ends before its storages")?;
            let length = u64::from_le_bytes(elements).checked_mul(bytes);
            let end = length.and_then(|length| at.checked_add(8)?.checked_add(length)).filter(|end| *end <= size);
            let end = end.ok_or_else(|| format!("truncated: it ends within the storage `{key}`"))?;
            places.insert(key.to_owned(), (at + 8, end - at - 8));
            at = end;
        }
        drop(sizes);
        Ok((object, Self { file, size, places }))
    }

    fn read(&mut self, key: &str) -> Result<Vec<u8>, String> {
        let (at, length) = *self.places.get(key).ok_or_else(|| format!("there is no storage `{key}`"))?;
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(at)).map_err(|error| error.to_string())?;
        (&mut self.file).take(length).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }
}
