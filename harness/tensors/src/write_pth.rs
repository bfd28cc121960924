//! Writes files for `torch.load`, also with `weights_only=True`: see [`crate::pth`] for the format.

use crate::{Array, ElementType};
use candle_core::{DType, Tensor};
use std::io::{Cursor, Write};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// Folder inside the archive. PyTorch names it after the file, and reads any name.
const FOLDER: &str = "archive";
/// Version of the archive's layout, as PyTorch 2 writes it.
const VERSION: &str = "3\n";

/// The content of a file that holds these tensors as an `OrderedDict`: f32, and i64 for counters.
///
/// # Errors
/// Names that an archive cannot store, and errors of candle.
pub fn encode(tensors: &[(String, Tensor)]) -> Result<Vec<u8>, String> {
    let mut out = Pickle(vec![0x80, 2]);
    out.empty_ordered_dict();
    out.0.push(b'(');
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        out.text(name);
        out.tensor(index, tensor.dims(), tensor.dtype() == DType::I64);
    }
    out.0.extend(b"u.");
    let storage = |(name, tensor): &(String, Tensor)| bytes(tensor).map_err(|error| format!("`{name}`: {error}"));
    archive(&out.0, tensors.iter().map(storage))
}

/// The content of a file that holds this tensor by itself: f32, or i64.
///
/// # Errors
/// None in practice: the archive is written to memory.
pub fn encode_one(array: &Array) -> Result<Vec<u8>, String> {
    let dtype = if array.dtype.is_float() { ElementType::F32 } else { ElementType::I64 };
    let mut out = Pickle(vec![0x80, 2]);
    out.tensor(0, &array.shape, dtype == ElementType::I64);
    out.0.push(b'.');
    archive(&out.0, std::iter::once(Ok(Array { dtype, ..array.clone() }.bytes())))
}

/// The archive: `data.pkl`, and a file per storage.
fn archive(description: &[u8], storages: impl Iterator<Item = Result<Vec<u8>, String>>) -> Result<Vec<u8>, String> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let mut add = |name: &str, content: &[u8]| {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(content.len() >= u32::MAX as usize);
        zip.start_file(format!("{FOLDER}/{name}"), options).map_err(|error| error.to_string())?;
        zip.write_all(content).map_err(|error| error.to_string())
    };
    add("data.pkl", description)?;
    add("byteorder", b"little")?;
    for (index, storage) in storages.enumerate() {
        add(&format!("data/{index}"), &storage?)?;
    }
    add("version", VERSION.as_bytes())?;
    Ok(zip.finish().map_err(|error| error.to_string())?.into_inner())
}

fn bytes(tensor: &Tensor) -> Result<Vec<u8>, candle_core::Error> {
    let flat = tensor.flatten_all()?;
    Ok(match tensor.dtype() {
        DType::I64 => flat.to_vec1::<i64>()?.into_iter().flat_map(i64::to_le_bytes).collect(),
        _ => flat.to_dtype(DType::F32)?.to_vec1::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect(),
    })
}

/// Strides in row-major order, in elements.
fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|dim| shape[dim + 1..].iter().product()).collect()
}

/// Instructions of a pickle machine (protocol 2).
struct Pickle(Vec<u8>);

impl Pickle {
    /// `torch._utils._rebuild_tensor_v2` of the storage of this number.
    fn tensor(&mut self, index: usize, shape: &[usize], integers: bool) {
        self.class("torch._utils", "_rebuild_tensor_v2");
        self.0.push(b'(');
        // The storage: a tuple that the reader takes for a file of the archive.
        self.0.push(b'(');
        self.text("storage");
        self.class("torch", if integers { "LongStorage" } else { "FloatStorage" });
        self.text(&index.to_string());
        self.text("cpu");
        self.number(shape.iter().product());
        self.0.extend(b"tQ");
        // Offset, shape, strides, requires_grad, hooks.
        self.number(0);
        self.numbers(shape);
        self.numbers(&strides(shape));
        self.0.push(0x89);
        self.empty_ordered_dict();
        self.0.extend(b"tR");
    }

    fn class(&mut self, module: &str, name: &str) {
        self.0.extend(format!("c{module}\n{name}\n").as_bytes());
    }

    fn empty_ordered_dict(&mut self) {
        self.class("collections", "OrderedDict");
        self.0.extend(b")R");
    }

    fn text(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    /// As a LONG1 of eight bytes, which holds any size.
    fn number(&mut self, number: usize) {
        self.0.extend([0x8a, 8]);
        self.0.extend((number as u64).to_le_bytes());
    }

    fn numbers(&mut self, numbers: &[usize]) {
        self.0.push(b'(');
        numbers.iter().for_each(|number| self.number(*number));
        self.0.push(b't');
    }
}
