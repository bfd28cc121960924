//! One checkpoint in one safetensors file.
//!
//! Tensors are named like variables, and the file can be read by any safetensors reader. Its metadata have one entry,
//! `zoo.checkpoint`, with the JSON text `{"crc32c":"xxxxxxxx","progress":{...}}`. The checksum covers the text of
//! `progress` and, in the order of the file, name, element type, shape and bytes of each tensor.

use candle_core::{CpuStorage, Storage, Tensor};
use half::{bf16, f16};
use safetensors::{
    SafeTensorError, SafeTensors,
    tensor::{Dtype, Metadata, TensorInfo},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Read},
    path::Path,
};

use zoo_datasets::{atomic, files};

use super::{Checkpoint, CheckpointError, FORMAT, Progress};
use crate::loss_scale::LossScale;

/// Bytes of a file that are read before its header is validated.
const BEGINNING: u64 = 1 << 16;
/// Key of the metadata.
const KEY: &str = "zoo.checkpoint";

/// The value of [`KEY`]. `progress` stays text, because the checksum is computed over the text.
#[derive(Serialize, Deserialize)]
struct Sealed {
    crc32c: String,
    progress: Box<RawValue>,
}

impl Checkpoint {
    /// Writes the checkpoint to `path`, either completely or not at all.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        let header = self.header(path)?;
        atomic::replace(path, |out| self.write(&header, out)).map_err(CheckpointError::unwritable(path))
    }

    /// The content of the file that [`Checkpoint::save`] writes; errors name `path`.
    pub(crate) fn encode(&self, path: &Path) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = Vec::new();
        self.write(&self.header(path)?, &mut bytes).map_err(CheckpointError::unwritable(path))?;
        Ok(bytes)
    }

    /// Writes the header and the tensors.
    fn write(&self, header: &[u8], out: &mut dyn io::Write) -> io::Result<()> {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(header)?;
        self.tensors().iter().try_for_each(|(_, _, tensor)| each_chunk(tensor, &mut |chunk| out.write_all(chunk)))
    }

    /// The header before the tensors: their offsets, the progress, and the checksum of both.
    fn header(&self, path: &Path) -> Result<Vec<u8>, CheckpointError> {
        let foreign = |error: serde_json::Error| foreign(path, error.to_string());
        let progress = serde_json::value::to_raw_value(&self.progress).map_err(foreign)?;
        let tensors = self.tensors();
        let mut crc = crc32c::crc32c(progress.get().as_bytes());
        for (name, info, tensor) in &tensors {
            crc = describe(crc, name, info.dtype, &info.shape);
            let mut add = |chunk: &[u8]| {
                crc = crc32c::crc32c_append(crc, chunk);
                Ok(())
            };
            each_chunk(tensor, &mut add).map_err(CheckpointError::unwritable(path))?;
        }
        let sealed = Sealed { crc32c: format!("{crc:08x}"), progress };
        let text = serde_json::to_string(&sealed).map_err(foreign)?;
        let infos = tensors.iter().map(|(name, info, _)| ((*name).to_owned(), info.clone())).collect();
        let metadata = Metadata::new(Some(HashMap::from([(KEY.to_owned(), text)])), infos).map_err(format(path))?;
        let mut header = serde_json::to_vec(&metadata).map_err(foreign)?;
        // Tensors start at a multiple of eight bytes.
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok(header)
    }

    /// Reads a checkpoint and verifies it.
    ///
    /// # Errors
    /// A file that cannot be read, is truncated, is something else, or is damaged.
    pub fn load(path: &Path) -> Result<Self, CheckpointError> {
        Self::decode(path, &read(path).map_err(CheckpointError::io(path))?)
    }

    /// As [`Checkpoint::load`], for the content of the file; errors name `path`.
    pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(format(path))?;
        let file = SafeTensors::deserialize(bytes).map_err(format(path))?;
        let entries = || metadata.metadata().iter().flatten();
        let Some((_, text)) = entries().find(|(key, _)| *key == KEY) else {
            return Err(match entries().find(|(_, text)| serde_json::from_str::<Sealed>(text).is_ok()) {
                Some((key, _)) => garbled(path, format!("its metadata have `{key}` instead of `{KEY}`")),
                None => foreign(path, format!("its metadata have no `{KEY}`")),
            });
        };
        let sealed: Sealed = serde_json::from_str(text).map_err(|e| garbled(path, e.to_string()))?;
        let expected = u32::from_str_radix(&sealed.crc32c, 16).map_err(|e| garbled(path, e.to_string()))?;
        let mut found = crc32c::crc32c(sealed.progress.get().as_bytes());
        for name in metadata.offset_keys() {
            let view = file.tensor(&name).map_err(format(path))?;
            found = describe(found, &name, view.dtype(), view.shape());
            found = crc32c::crc32c_append(found, view.data());
        }
        if found != expected {
            return Err(CheckpointError::Damaged { path: path.to_owned(), expected, found });
        }
        let format_of: Version =
            serde_json::from_str(sealed.progress.get()).map_err(|e| garbled(path, e.to_string()))?;
        if format_of.format != FORMAT {
            let found = format_of.format;
            let reason = format!("written in format {found}, this version reads {FORMAT}");
            return Err(CheckpointError::unusable(path, reason));
        }
        let progress: Progress =
            serde_json::from_str(sealed.progress.get()).map_err(|e| garbled(path, e.to_string()))?;
        let Progress { step, updates_before_reset: before, loss_scale, .. } = progress;
        let skipped = loss_scale.map_or(0, |LossScale { skipped, .. }| skipped);
        if skipped > step {
            return Err(garbled(path, format!("{skipped} updates skipped in {step} steps")));
        }
        if before > step - skipped {
            return Err(garbled(path, format!("the optimizer was reset after {before} updates in {step} steps")));
        }
        let variables: BTreeMap<String, Tensor> = file
            .iter()
            .map(|(name, view)| {
                let dtype = view.dtype().try_into()?;
                let tensor = Tensor::from_raw_buffer(view.data(), dtype, view.shape(), &candle_core::Device::Cpu)?;
                Ok((name.to_owned(), tensor))
            })
            .collect::<Result<_, _>>()
            .map_err(|error: candle_core::Error| CheckpointError::unusable(path, error.to_string()))?;
        Ok(Self { progress, variables })
    }

    /// Name, description and value of each variable in the order of the file: by decreasing alignment, then by name.
    fn tensors(&self) -> Vec<(&str, TensorInfo, &Tensor)> {
        let mut variables: Vec<(&str, Dtype, &Tensor)> =
            self.variables.iter().map(|(name, tensor)| (name.as_str(), tensor.dtype().into(), tensor)).collect();
        variables.sort_by(|(a, a_type, _), (b, b_type, _)| b_type.cmp(a_type).then(a.cmp(b)));
        let mut end = 0;
        variables
            .into_iter()
            .map(|(name, dtype, tensor)| {
                let start = end;
                end += tensor.elem_count() * tensor.dtype().size_in_bytes();
                (name, TensorInfo { dtype, shape: tensor.dims().to_vec(), data_offsets: (start, end) }, tensor)
            })
            .collect()
    }
}

/// The common part of all format versions.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// Passes on the elements of a tensor in pieces, row-major and little-endian.
fn each_chunk(tensor: &Tensor, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let tensor = tensor.contiguous().map_err(io::Error::other)?;
    let (storage, layout) = tensor.storage_and_layout();
    let range = layout.start_offset()..layout.start_offset() + layout.shape().elem_count();
    match &*storage {
        Storage::Cpu(CpuStorage::F32(values)) => encode(&values[range], f32::to_le_bytes, take),
        Storage::Cpu(CpuStorage::F64(values)) => encode(&values[range], f64::to_le_bytes, take),
        Storage::Cpu(CpuStorage::F16(values)) => encode(&values[range], f16::to_le_bytes, take),
        Storage::Cpu(CpuStorage::BF16(values)) => encode(&values[range], bf16::to_le_bytes, take),
        _ => Err(io::Error::other(format!("a variable of type {} cannot be stored", tensor.dtype().as_str()))),
    }
}

fn encode<T: Copy, const N: usize>(
    values: &[T],
    to_bytes: impl Fn(T) -> [u8; N],
    take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    const PIECE: usize = 1 << 14;
    let mut buffer = vec![[0; N]; PIECE.min(values.len())];
    for piece in values.chunks(PIECE) {
        let buffer = &mut buffer[..piece.len()];
        buffer.iter_mut().zip(piece).for_each(|(bytes, &value)| *bytes = to_bytes(value));
        take(buffer.as_flattened())?;
    }
    Ok(())
}

/// Adds the description of a tensor to a checksum.
fn describe(crc: u32, name: &str, dtype: Dtype, shape: &[usize]) -> u32 {
    crc32c::crc32c_append(crc, format!("{name}\0{dtype:?}\0{shape:?}\0").as_bytes())
}

fn format(path: &Path) -> impl Fn(SafeTensorError) -> CheckpointError + '_ {
    move |error| CheckpointError::unusable(path, format!("not a readable safetensors file: {error}"))
}

/// Reads a safetensors file; only the beginning if the header is invalid, which suffices for the error.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, size) = files::open(path)?;
    let mut beginning = Vec::new();
    (&mut file).take(BEGINNING).read_to_end(&mut beginning)?;
    let header = beginning.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    if header > 0 && header <= size.saturating_sub(size_of::<u64>() as u64) {
        // Another process may be appending, so the file may have grown.
        beginning.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(beginning.len()))?;
        file.take(size).read_to_end(&mut beginning)?;
    }
    Ok(beginning)
}

/// The error for a file that was a checkpoint, but is damaged.
fn garbled(path: &Path, reason: String) -> CheckpointError {
    CheckpointError::unusable(path, format!("damaged: {reason}"))
}

fn foreign(path: &Path, reason: String) -> CheckpointError {
    CheckpointError::Foreign { path: path.to_owned(), reason }
}
