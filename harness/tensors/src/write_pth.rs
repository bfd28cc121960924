//! Writes what `torch.load` reads, `weights_only=True` included: see [`crate::pth`] for the format.

use candle_core::{DType, Tensor};
use std::io::{Cursor, Write};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// Folder inside the archive; PyTorch names it after the file, and reads any.
const FOLDER: &str = "archive";
/// Version of the archive's layout, as PyTorch 2 writes it.
const VERSION: &str = "3\n";

/// The content of a file that holds these tensors as an `OrderedDict`: f32, and i64 for counters.
///
/// # Errors
/// Names that an archive cannot hold, or candle's.
pub fn encode(tensors: &[(String, Tensor)]) -> Result<Vec<u8>, String> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let mut add = |name: &str, content: &[u8]| {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(content.len() >= u32::MAX as usize);
        zip.start_file(format!("{FOLDER}/{name}"), options).map_err(|error| error.to_string())?;
        zip.write_all(content).map_err(|error| error.to_string())
    };
    add("data.pkl", &description(tensors))?;
    add("byteorder", b"little")?;
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        let bytes = bytes(tensor).map_err(|error| format!("`{name}`: {error}"))?;
        add(&format!("data/{index}"), &bytes)?;
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

/// The pickled dictionary (protocol 2): each tensor is `torch._utils._rebuild_tensor_v2` of a storage.
fn description(tensors: &[(String, Tensor)]) -> Vec<u8> {
    let mut out = Pickle(vec![0x80, 2]);
    out.empty_ordered_dict();
    out.0.push(b'(');
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        out.text(name);
        out.class("torch._utils", "_rebuild_tensor_v2");
        out.0.push(b'(');
        // The storage: a tuple that the reader takes for a file of the archive.
        out.0.push(b'(');
        out.text("storage");
        out.class("torch", if tensor.dtype() == DType::I64 { "LongStorage" } else { "FloatStorage" });
        out.text(&index.to_string());
        out.text("cpu");
        out.number(tensor.elem_count());
        out.0.extend(b"tQ");
        // Offset, shape, strides, requires_grad, hooks.
        out.number(0);
        out.numbers(tensor.dims());
        out.numbers(&strides(tensor.dims()));
        out.0.push(0x89);
        out.empty_ordered_dict();
        out.0.extend(b"tR");
    }
    out.0.extend(b"u.");
    out.0
}

/// Distances of elements in row-major order.
fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|dim| shape[dim + 1..].iter().product()).collect()
}

/// Instructions of a pickle machine.
struct Pickle(Vec<u8>);

impl Pickle {
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
