//! What a file is that holds no tensors as zoo reads them: its format, and what to do with it.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};
use zoo_datasets::files;

use crate::pth;

/// A format that is recognised, and not read as weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// What the file is, such as `an ONNX model`.
    pub what: &'static str,
    /// What to do for its weights.
    pub instead: &'static str,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.instead)
    }
}

/// Bytes at the beginning that are looked at.
const START: u64 = 4096;
/// The last bytes of the index of a checkpoint of TensorFlow.
const INDEX: [u8; 8] = [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb];

const AGAIN: &str = "load its weights into the PyTorch module, and save torch.save(module.state_dict(), FILE)";
const LAYOUT: &str = "its layers have other names and layouts. Set the weights of a PyTorch module from it, and save \
                      torch.save(module.state_dict(), FILE)";
const UNPACK: &str = "unpack it first";
const DOWNLOAD: &str = "download it again";

/// Formats that begin with these bytes.
const BEGINNINGS: &[(&[u8], &str, &str)] = &[
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras and TensorFlow write it", LAYOUT),
    (b"version https://git-lfs", "a pointer of Git LFS instead of the file", "fetch the file: git lfs pull"),
    (b"GGUF", "a GGUF model of llama.cpp", "use the PyTorch or safetensors file that it was converted from"),
    (b"tjgg", "a GGML model of llama.cpp", "use the PyTorch or safetensors file that it was converted from"),
    (b"IMOD", "an offline model for Ascend (.om)", "use the weights that it was converted from"),
    (b"\x93NUMPY", "an array of NumPy", "save all arrays by name: safetensors.numpy.save_file({...}, FILE)"),
    (b"MATLAB 5.0", "a file of MATLAB", AGAIN),
    (b"\x1f\x8b", "compressed by gzip", UNPACK),
    (b"\xfd7zXZ\x00", "compressed by xz", UNPACK),
    (b"BZh", "compressed by bzip2", UNPACK),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "an archive of 7-Zip", UNPACK),
    (b"Rar!", "an archive of RAR", UNPACK),
    (b"\x89PNG", "an image (PNG)", "name a file of weights"),
    (b"\xff\xd8\xff", "an image (JPEG)", "name a file of weights"),
    (b"%PDF", "a document (PDF)", "name a file of weights"),
    (b"PK\x05\x06", "an empty zip archive", DOWNLOAD),
];

/// The format of a file, by its content and where that tells nothing by its name; `None` if it is none of these.
///
/// # Errors
/// Errors of the operating system.
pub fn foreign(path: &Path) -> io::Result<Option<Foreign>> {
    let (mut file, size) = files::open(path)?;
    let mut start = Vec::new();
    (&mut file).take(START).read_to_end(&mut start)?;
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let found = by_start(&start).or_else(|| by_name(&name));
    let found = found.or(if is_index(&mut file, size)? { Some(TENSORFLOW) } else { None });
    Ok(found.or_else(|| by_kind(&start)).map(|(what, instead)| Foreign { what, instead }))
}

/// What a file is that is no text, where a text was expected; `None` for text and for unknown formats.
///
/// # Errors
/// Errors of the operating system.
pub fn not_text(path: &Path) -> io::Result<Option<&'static str>> {
    let (file, _) = files::open(path)?;
    if pth::is_one(&file)? {
        return Ok(Some("a zip archive, or a file of torch.save"));
    }
    let mut start = Vec::new();
    file.take(START).read_to_end(&mut start)?;
    if start.is_empty() {
        return Ok(None);
    }
    if start.get(8) == Some(&b'{') && start.contains(&0) {
        return Ok(Some("a safetensors file"));
    }
    let is_text = !start.contains(&0) && is_text(&start) && by_start(&start).is_none();
    Ok(if is_text { None } else { foreign(path)?.map(|foreign| foreign.what) })
}

type Told = (&'static str, &'static str);

const TENSORFLOW: Told = ("a part of a TensorFlow checkpoint", LAYOUT);

fn by_start(start: &[u8]) -> Option<Told> {
    if start.is_empty() {
        return Some(("an empty file", DOWNLOAD));
    }
    if start.iter().all(|byte| *byte == 0) {
        return Some(("a file that begins with zeros, as a download that was cut off", DOWNLOAD));
    }
    if let Some((_, what, instead)) = BEGINNINGS.iter().find(|(bytes, _, _)| start.starts_with(bytes)) {
        return Some((what, instead));
    }
    if is_page(start) {
        return Some(("a web page, as servers send it instead of a file", "download the file itself"));
    }
    if start.get(257..262) == Some(b"ustar") {
        let member = |name: &[u8]| start.starts_with(name);
        return Some(match member(b"sys_info") || member(b"pickle") || member(b"storages") || member(b"tensors") {
            true => ("a file of PyTorch before 0.2", "load it in PyTorch, and save torch.save(state_dict, FILE)"),
            false => ("a tar archive", UNPACK),
        });
    }
    if start.get(4..8) == Some(b"TFL3") {
        return Some(("a model of TensorFlow Lite", LAYOUT));
    }
    // Paddle stores dictionaries of NumPy's arrays; its linear weights are transposed.
    let names = |text: &[u8]| start.windows(text.len()).any(|window| window == text);
    if start[0] == 0x80 && names(b"StructuredToParameterName@@") {
        return Some(PADDLE);
    }
    // ModelProto: ir_version, and then a producer, a version, a graph or a set of operators.
    let is_onnx = matches!(start, [0x08, 1..=20, 0x12 | 0x1a | 0x22 | 0x28 | 0x3a | 0x42, ..]);
    is_onnx.then_some(ONNX)
}

const PADDLE: Told = (
    "a file of Paddle",
    "transpose the weights of its linear layers, rename _mean and _variance of its normalisations to running_mean \
     and running_var, and save a state_dict",
);
const ONNX: Told = ("an ONNX model", "save the state_dict of the PyTorch module that it was exported from");

fn by_name(name: &str) -> Option<Told> {
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    Some(match () {
        () if ends(&[".pdparams", ".pdopt", ".pdmodel"]) => PADDLE,
        () if ends(&[".onnx"]) => ONNX,
        () if name.contains(".data-0000") || ends(&[".ckpt.index", ".ckpt.meta"]) => TENSORFLOW,
        () if ends(&[".pb"]) => ("a graph of TensorFlow", LAYOUT),
        () if ends(&[".msgpack"]) => FLAX,
        () if ends(&[".mindir"]) => ("a graph of MindSpore (MindIR)", "save a checkpoint: mindspore.save_checkpoint"),
        () if ends(&[".caffemodel", ".prototxt"]) => ("a model of Caffe", LAYOUT),
        () if ends(&[".mlmodel"]) => ("a model of Core ML", AGAIN),
        () if ends(&[".distcp"]) => DISTRIBUTED,
        () => return None,
    })
}

const FLAX: Told = ("a file of Flax (msgpack)", LAYOUT);
const DISTRIBUTED: Told = (
    "a part of a checkpoint of torch.distributed",
    "convert it: python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE",
);

/// What less certain signs tell.
fn by_kind(start: &[u8]) -> Option<Told> {
    match start {
        // A map of msgpack whose first key is a short text.
        [0x81..=0x8f, 0xa1..=0xbf, ..] => Some(FLAX),
        [0x80, 0..=5, ..] => Some(("a pickle of Python objects that torch.save did not write", AGAIN)),
        [b'{' | b'[', ..] => Some(("a JSON file", "name a file of weights")),
        _ if !start.contains(&0) && is_text(start) => Some(("a text file", "name a file of weights")),
        _ => None,
    }
}

/// Whether bytes are text, the last character perhaps cut.
fn is_text(start: &[u8]) -> bool {
    match std::str::from_utf8(start) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

fn is_page(start: &[u8]) -> bool {
    let text: String = String::from_utf8_lossy(start)
        .trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t'])
        .chars()
        .take(16)
        .collect();
    let text = text.to_lowercase();
    ["<!doctype", "<html", "<?xml", "<head", "<error"].iter().any(|page| text.starts_with(page))
}

fn is_index(file: &mut File, size: u64) -> io::Result<bool> {
    let mut end = [0; INDEX.len()];
    if size < end.len() as u64 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-(end.len() as i64)))?;
    file.read_exact(&mut end)?;
    Ok(end == INDEX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_content_and_then_by_their_name() {
        let dir = tempfile::tempdir().unwrap();
        let told = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            foreign(&path).unwrap().map(|foreign| foreign.to_string()).unwrap_or_default()
        };
        let tar = |member: &str| [member.as_bytes(), &vec![0; 257 - member.len()], b"ustar\x00"].concat();
        let index = [b"something".as_slice(), &INDEX].concat();
        let cases: [(&str, &[u8], &str); 22] = [
            ("w.h5", b"\x89HDF\r\n\x1a\n....", "HDF5"),
            ("w.pth", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
            ("w.pth", b"\n<!DOCTYPE html><html>", "web page"),
            ("w.pth", b"\xef\xbb\xbf<html>", "web page"),
            ("w.pth", b"<?xml version='1.0'?><Error>", "web page"),
            ("w.gguf", b"GGUF\x03\x00\x00\x00", "GGUF"),
            ("w.pth.gz", b"\x1f\x8b\x08", "gzip: unpack"),
            ("w", b"\x08\x08\x12\x07pytorch", "an ONNX model"),
            ("w.onnx", b"\x0a\x01", "an ONNX model"),
            ("w.pdparams", b"\x80\x02}q\x00(X\x0c\x00\x00\x00conv1.weight", "Paddle: transpose"),
            ("w", b"\x80\x02}(X\x1b\x00\x00\x00StructuredToParameterName@@q", "Paddle"),
            ("w.pth", &tar("sys_info"), "PyTorch before 0.2"),
            ("w.tar", &tar("resnet50.pth"), "a tar archive: unpack"),
            ("model.ckpt.data-00000-of-00001", b"\x01\x02\x03", "TensorFlow"),
            ("model.index", &index, "TensorFlow"),
            ("w", b"....TFL3", "TensorFlow Lite"),
            ("w", b"\x81\xa6params\x82", "Flax"),
            ("w.pkl", b"\x80\x04\x95", "a pickle of Python objects"),
            ("w.pth", b"", "an empty file: download"),
            ("w.pth", &[0; 64], "begins with zeros"),
            ("w.npy", b"\x93NUMPY\x01\x00", "an array of NumPy"),
            ("README", "Gewichte: größer".as_bytes(), "a text file"),
        ];
        for (name, content, expected) in cases {
            assert!(told(name, content).contains(expected), "{name}: {}", told(name, content));
        }
        let text = |content: &[u8]| {
            let path = dir.path().join("recipe.yaml");
            std::fs::write(&path, content).unwrap();
            not_text(&path).unwrap()
        };
        assert_eq!(text(b"name: lenet"), None);
        assert_eq!(text(b"{\"name\": \"lenet\"}"), None);
        assert_eq!(text(b"\x08\x08\x12\x07pytorch"), Some("an ONNX model"));
        assert_eq!(text(b"\x40\0\0\0\0\0\0\0{\"a\""), Some("a safetensors file"));
        assert_eq!(told("w", b"\xf0\x01\x00\x00\x00\x00\x00\x00{\"a\""), "");
    }
}
