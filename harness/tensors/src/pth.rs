//! The format of `torch.save` since PyTorch 1.6: an uncompressed zip archive with `data.pkl`, which describes the
//! tensors, and a file for each storage (<https://pytorch.org/docs/stable/notes/serialization.html>).

use candle_core::{Device, Tensor, pickle::Object};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Seek},
};
use zip::{CompressionMethod, ZipArchive};

use crate::{Array, ElementType, array::numel, pickle};

/// The first bytes of every zip archive that is not empty.
const ZIP: [u8; 4] = *b"PK\x03\x04";
/// The first bytes of files of PyTorch before 1.6: protocol 2, and the magic number as a LONG1 of ten bytes.
const OLDER: [u8; 4] = [0x80, 2, 0x8a, 10];
/// The entries in which a state_dict is usually stored, in search order.
const USUAL: [&str; 7] = ["state_dict", "model_state_dict", "model", "module", "net", "network", "weights"];
/// The tensors may take this multiple of the file size: f16 becomes f64, and tied weights occur several times.
const MOST_GROWTH: usize = 16;

type Tensors = BTreeMap<String, Tensor>;

/// Whether a file is a zip archive; reads from its beginning.
pub fn is_zip(mut file: &File) -> io::Result<bool> {
    let mut start = Vec::new();
    (&mut file).take(ZIP.len() as u64).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start == ZIP)
}

/// For a file of PyTorch before 1.6: why it is not read, and what to do.
pub fn is_older(bytes: &[u8]) -> Option<String> {
    let advice = "written by PyTorch before 1.6, or with _use_new_zipfile_serialization=False: \
                  load it in PyTorch and save it again with torch.save(state_dict, FILE)";
    bytes.starts_with(&OLDER).then(|| advice.to_owned())
}

/// All tensors of the state_dict in f32, and the name of the entry that contains it, unless the root is the
/// state_dict.
///
/// # Errors
/// Errors of the file; no state_dict, or several.
pub fn read(file: File, entry: Option<&str>) -> Result<(Tensors, Option<String>), String> {
    let mut archive = Archive::open(file)?;
    let root = pickle::read(&archive.file("data.pkl", pickle::MOST_BYTES as u64)?)?;
    let (state, entry) = state_dict(root, entry)?;
    let described = state.into_iter().filter_map(|(name, value)| match name {
        Object::Unicode(name) => Some((name, Described::of(value)?)),
        _ => None,
    });
    let mut tensors = Tensors::new();
    archive.each(described.collect(), |name, array| {
        let values: Vec<f32> = array.values.iter().map(|value| *value as f32).collect();
        let tensor = Tensor::from_vec(values, array.shape, &Device::Cpu).map_err(|error| error.to_string())?;
        tensors.insert(name, tensor);
        Ok(())
    })?;
    Ok((tensors, entry))
}

/// All saved tensors: a single tensor has no name; tensors in nested dictionaries have the keys joined by `/`.
///
/// # Errors
/// Errors of the file; no tensor.
pub fn read_all(file: File) -> Result<Vec<(String, Array)>, String> {
    let mut archive = Archive::open(file)?;
    let root = pickle::read(&archive.file("data.pkl", pickle::MOST_BYTES as u64)?)?;
    let mut described = Vec::new();
    collect(root, String::new(), &mut described);
    if described.is_empty() {
        return Err("there is no tensor in it: torch.save(TENSOR, FILE) writes one".to_owned());
    }
    let mut arrays = Vec::new();
    archive.each(described, |name, array| {
        arrays.push((name, array));
        Ok(())
    })?;
    Ok(arrays)
}

/// The tensors of an object at `name`. [`pickle::read`] bounds the nesting.
fn collect(object: Object, name: String, described: &mut Vec<(String, Described)>) {
    match object {
        Object::Dict(pairs) => {
            for (key, value) in pairs {
                let Object::Unicode(key) = key else { continue };
                collect(value, if name.is_empty() { key } else { format!("{name}/{key}") }, described);
            }
        }
        other => described.extend(Described::of(other).map(|tensor| (name, tensor))),
    }
}

/// The archive, with all files in one folder.
struct Archive {
    zip: ZipArchive<BufReader<File>>,
    folder: String,
    /// Bytes of the whole file.
    size: u64,
}

impl Archive {
    fn open(file: File) -> Result<Self, String> {
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        let zip = ZipArchive::new(BufReader::new(file)).map_err(|error| format!("a damaged zip archive: {error}"))?;
        let names = zip.file_names().filter_map(Result::ok);
        let folder = names.filter_map(|name| name.strip_suffix("data.pkl").map(str::to_owned)).next();
        let folder = folder.ok_or("a zip archive without data.pkl: not a file of torch.save")?;
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
            return Err(format!("{name} is compressed, which torch.save never does"));
        }
        if file.size() > most {
            return Err(format!("{name} claims {} bytes, more than possible", file.size()));
        }
        let mut bytes = Vec::with_capacity(file.size() as usize);
        file.take(most).read_to_end(&mut bytes).map_err(|error| format!("{name} in the archive: {error}"))?;
        Ok(bytes)
    }

    /// Passes each tensor to `take`. Parameters may be views of one storage, which is read once.
    fn each(
        &mut self,
        mut described: Vec<(String, Described)>,
        mut take: impl FnMut(String, Array) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut left = usize::try_from(self.size).unwrap_or(usize::MAX).saturating_mul(MOST_GROWTH);
        described.sort_by(|(_, a), (_, b)| a.storage.cmp(&b.storage));
        let mut storage: Option<(String, Vec<u8>)> = None;
        for (name, described) in described {
            let fail = |reason: String| match name.as_str() {
                "" => reason,
                name => format!("tensor `{name}`: {reason}"),
            };
            let bytes = numel(&described.shape).and_then(|numel| numel.checked_mul(size_of::<f64>()));
            left =
                bytes.and_then(|bytes| left.checked_sub(bytes)).ok_or_else(|| fail("larger than the file".into()))?;
            let (_, bytes) = match storage.take().filter(|(key, _)| *key == described.storage) {
                Some(read) => storage.insert(read),
                None => {
                    let bytes = self.file(&format!("data/{}", described.storage), self.size).map_err(fail)?;
                    storage.insert((described.storage.clone(), bytes))
                }
            };
            let values = described.values(bytes).map_err(fail)?;
            let array = Array { dtype: described.dtype, shape: described.shape, values };
            take(name.clone(), array).map_err(fail)?;
        }
        Ok(())
    }
}

type State = Vec<(Object, Object)>;

/// The state_dict in a saved object: the object itself, the requested entry, or the usual entry.
fn state_dict(root: Object, entry: Option<&str>) -> Result<(State, Option<String>), String> {
    let Object::Dict(mut pairs) = root else {
        return Err(match root {
            Object::Reduce { .. } | Object::Build { .. } => {
                "a whole module, which cannot be read without its code: save its state_dict instead, \
                 torch.save(module.state_dict(), FILE)"
            }
            _ => "not a state_dict: a dictionary from names to tensors",
        }
        .to_owned());
    };
    if let Some(entry) = entry {
        for key in entry.split('.') {
            let known = keys(&pairs);
            let found = pairs.into_iter().find(|(name, _)| *name == Object::Unicode(key.to_owned()));
            match found {
                Some((_, Object::Dict(inner))) => pairs = inner,
                Some(_) => return Err(format!("its entry `{key}` is not a dictionary")),
                None => return Err(format!("it has no entry `{key}`; its entries: {known}")),
            }
        }
        return match has_tensors(&pairs) {
            true => Ok((pairs, Some(entry.to_owned()))),
            false => Err(format!("its entry `{entry}` has no tensors")),
        };
    }
    if has_tensors(&pairs) {
        return Ok((pairs, None));
    }
    let known = keys(&pairs);
    let mut inner: Vec<(String, State)> = pairs
        .into_iter()
        .filter_map(|pair| match pair {
            (Object::Unicode(name), Object::Dict(state)) if has_tensors(&state) => Some((name, state)),
            _ => None,
        })
        .collect();
    let usual = USUAL.iter().find_map(|usual| inner.iter().position(|(name, _)| name == usual));
    let one = (inner.len() == 1).then_some(0);
    match usual.or(one) {
        Some(index) => {
            let (name, state) = inner.swap_remove(index);
            Ok((state, Some(name)))
        }
        None if inner.is_empty() => Err(format!("it contains no state_dict; its entries: {known}")),
        None => {
            let names = inner.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            Err(format!("it has several state_dicts, {names}: choose one with --entry"))
        }
    }
}

fn keys(pairs: &[(Object, Object)]) -> String {
    const NAMED: usize = 12;
    let names: Vec<String> = pairs
        .iter()
        .filter_map(|(name, _)| match name {
            Object::Unicode(name) => Some(format!("`{name}`")),
            _ => None,
        })
        .take(NAMED)
        .collect();
    if names.is_empty() { "no entries".to_owned() } else { names.join(", ") }
}

fn has_tensors(pairs: &[(Object, Object)]) -> bool {
    pairs.iter().any(|(_, value)| Described::of(value.clone()).is_some())
}

/// The element type of a storage.
fn of_storage(class: &str) -> Option<ElementType> {
    Some(match class {
        "DoubleStorage" => ElementType::F64,
        "FloatStorage" => ElementType::F32,
        "HalfStorage" => ElementType::F16,
        "BFloat16Storage" => ElementType::Bf16,
        "LongStorage" => ElementType::I64,
        "IntStorage" => ElementType::I32,
        "ShortStorage" => ElementType::I16,
        "CharStorage" => ElementType::I8,
        "ByteStorage" => ElementType::U8,
        "BoolStorage" => ElementType::Bool,
        _ => return None,
    })
}

/// A tensor as `data.pkl` describes it: a view of a storage.
#[derive(Debug)]
struct Described {
    dtype: ElementType,
    /// Name of the storage's file.
    storage: String,
    /// Elements of the storage before the first.
    offset: usize,
    shape: Vec<usize>,
    /// Strides in elements.
    strides: Vec<usize>,
}

impl Described {
    /// A tensor or parameter; `None` if the object is something else.
    fn of(object: Object) -> Option<Self> {
        let (callable, args) = object.reduce().ok()?;
        let (module, class) = callable.class().ok()?;
        let mut args = args.tuple().ok()?.into_iter();
        match (module.as_str(), class.as_str()) {
            ("torch._utils", "_rebuild_tensor_v2") => {
                let mut storage = args.next()?.persistent_load().ok()?.tuple().ok()?.into_iter();
                // ("storage", class, key, device, number of elements)
                let (_, class) = storage.nth(1)?.class().ok()?;
                Some(Self {
                    dtype: of_storage(&class)?,
                    storage: storage.next()?.unicode().ok()?,
                    offset: extent(args.next()?)?,
                    shape: extents(args.next()?)?,
                    strides: extents(args.next()?)?,
                })
                .filter(|described| described.shape.len() == described.strides.len())
            }
            // (tensor, requires_grad, hooks)
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => Self::of(args.next()?),
            // (function, class, its arguments, state)
            ("torch._tensor", "_rebuild_from_type_v2") => {
                let callable = Box::new(args.next()?);
                Self::of(Object::Reduce { callable, args: Box::new(args.nth(1)?) })
            }
            _ => None,
        }
    }

    /// The elements in row-major order.
    fn values(&self, storage: &[u8]) -> Result<Vec<f64>, String> {
        let size = self.dtype.size();
        let numel = numel(&self.shape).ok_or("its shape is too large")?;
        if numel == 0 {
            return Ok(Vec::new());
        }
        let last = self.shape.iter().zip(&self.strides).try_fold(self.offset, |last, (extent, stride)| {
            last.checked_add(extent.saturating_sub(1).checked_mul(*stride)?)
        });
        let fits = last.and_then(|last| last.checked_add(1)?.checked_mul(size)).is_some_and(|end| end <= storage.len());
        if !fits {
            return Err(format!("shape {:?} does not lie within its storage of {} bytes", self.shape, storage.len()));
        }
        let element = |at: usize| self.dtype.value(&storage[at * size..(at + 1) * size]);
        let mut values = Vec::with_capacity(numel);
        let mut index = vec![0; self.shape.len()];
        let mut at = self.offset;
        loop {
            values.push(element(at));
            // The next index, the last dimension first.
            let mut dim = self.shape.len();
            loop {
                let Some(next) = dim.checked_sub(1) else { return Ok(values) };
                dim = next;
                index[dim] += 1;
                at += self.strides[dim];
                if index[dim] < self.shape[dim] {
                    break;
                }
                at -= self.shape[dim] * self.strides[dim];
                index[dim] = 0;
            }
        }
    }
}

fn extent(object: Object) -> Option<usize> {
    usize::try_from(object.int_or_long().ok()?).ok()
}

fn extents(object: Object) -> Option<Vec<usize>> {
    object.tuple().ok()?.into_iter().map(extent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn described(offset: usize, shape: &[usize], strides: &[usize]) -> Described {
        Described {
            dtype: ElementType::F32,
            storage: "0".into(),
            offset,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
        }
    }

    #[test]
    fn views_are_read_in_row_major_order() {
        let storage = bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let read = |view: Described| view.values(&storage);
        assert_eq!(read(described(1, &[2, 3], &[3, 1])).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        // A transposed matrix, as channels_last leaves it; a scalar; an empty tensor.
        assert_eq!(read(described(0, &[3, 2], &[1, 3])).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(read(described(6, &[], &[])).unwrap(), [6.0]);
        assert_eq!(read(described(0, &[0, 5], &[5, 1])).unwrap(), [0.0; 0]);
        for outside in [described(2, &[2, 3], &[3, 1]), described(0, &[2], &[usize::MAX]), described(7, &[], &[])] {
            assert!(read(outside).unwrap_err().contains("does not lie within"));
        }
    }
}
