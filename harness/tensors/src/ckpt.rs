//! MindSpore's `.ckpt`: a protobuf message of tensors by name, as `mindspore.load_checkpoint` reads it
//! (mindspore/ccsrc/utils/checkpoint.proto: `Checkpoint { repeated Value { string tag = 1; TensorProto tensor = 2 {
//! repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 } } }`).

use std::ops::Range;

use crate::{Array, ElementType};

/// Behind a checkpoint that was saved with a check sum: this text, and the sum in ten bytes.
const SUM: &[u8] = b"crc_num";
/// Bytes of the sum.
const SUM_BYTES: usize = 10;

/// A checkpoint whose values are decoded on demand.
#[derive(Debug)]
pub struct Ckpt {
    bytes: Vec<u8>,
    tensors: Vec<Stored>,
}

/// A tensor of a checkpoint.
#[derive(Debug)]
struct Stored {
    name: String,
    dtype: ElementType,
    shape: Vec<usize>,
    /// Its elements; a large tensor is stored in several pieces.
    pieces: Vec<Range<usize>>,
}

impl Ckpt {
    /// Whether a file may be a checkpoint, by its first bytes: a value with a tag.
    pub fn is_one(start: &[u8]) -> bool {
        let mut message = Message { bytes: start, place: 0, end: usize::MAX };
        let is_value = matches!(message.key(), Ok((1, BYTES))) && message.number().is_ok();
        is_value && matches!(message.key(), Ok((1, BYTES)))
    }

    /// Reads names, types and shapes.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, String> {
        let whole = bytes.len().checked_sub(SUM.len() + SUM_BYTES).filter(|at| bytes[*at..].starts_with(SUM));
        let mut message = Message { bytes: &bytes, place: 0, end: whole.unwrap_or(bytes.len()) };
        let mut tensors: Vec<Stored> = Vec::new();
        while message.place < message.end {
            match message.key()? {
                (1, BYTES) => {
                    let stored = value(&bytes, message.range()?)?;
                    match tensors.last_mut().filter(|last| last.name == stored.name) {
                        Some(last) => last.pieces.extend(stored.pieces),
                        None => tensors.push(stored),
                    }
                }
                (_, kind) => message.skip(kind)?,
            }
        }
        Ok(Self { bytes, tensors })
    }

    /// Names and shapes, in the order of the file.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.tensors.iter().map(|stored| (stored.name.as_str(), stored.shape.as_slice()))
    }

    /// All tensors, by name.
    ///
    /// # Errors
    /// A tensor whose elements do not fill its shape.
    pub fn arrays(&self) -> impl Iterator<Item = Result<(String, Array), String>> {
        self.tensors.iter().map(|stored| {
            let content: Vec<u8> = stored.pieces.iter().flat_map(|range| &self.bytes[range.clone()]).copied().collect();
            let array = Array::decode(stored.dtype, stored.shape.clone(), &content).ok_or_else(|| {
                format!("`{}`: {} bytes do not fill the shape {:?}", stored.name, content.len(), stored.shape)
            })?;
            Ok((stored.name.clone(), array))
        })
    }
}

/// A value: a tag, and a tensor.
fn value(bytes: &[u8], range: Range<usize>) -> Result<Stored, String> {
    let mut message = Message { bytes, place: range.start, end: range.end };
    let (mut name, mut tensor) = (None, None);
    while message.place < message.end {
        match message.key()? {
            (1, BYTES) => name = Some(message.text()?),
            (2, BYTES) => tensor = Some(message.range()?),
            (_, kind) => message.skip(kind)?,
        }
    }
    let name = name.ok_or("a value without a name")?;
    let range = tensor.ok_or_else(|| format!("`{name}` is no tensor"))?;
    let mut message = Message { bytes, place: range.start, end: range.end };
    let (mut shape, mut told, mut content) = (Vec::new(), String::new(), 0..0);
    while message.place < message.end {
        match message.key()? {
            (1, NUMBER) => shape.push(message.number()?),
            // Packed numbers.
            (1, BYTES) => {
                let range = message.range()?;
                let mut packed = Message { bytes, place: range.start, end: range.end };
                while packed.place < packed.end {
                    shape.push(packed.number()?);
                }
            }
            (2, BYTES) => told = message.text()?,
            (3, BYTES) => content = message.range()?,
            (_, kind) => message.skip(kind)?,
        }
    }
    let dtype = element_type(&told).ok_or_else(|| format!("`{name}` has elements of type `{told}`"))?;
    // MindSpore writes a scalar with the dims [0].
    if shape == [0] && content.len() == dtype.size() {
        shape.clear();
    }
    Ok(Stored { name, dtype, shape, pieces: vec![content] })
}

fn element_type(told: &str) -> Option<ElementType> {
    Some(match told {
        "Float64" => ElementType::F64,
        "Float32" => ElementType::F32,
        "Float16" => ElementType::F16,
        "BFloat16" => ElementType::Bf16,
        "Int64" => ElementType::I64,
        "Int32" => ElementType::I32,
        "Int16" => ElementType::I16,
        "Int8" => ElementType::I8,
        "UInt8" => ElementType::U8,
        "Bool" => ElementType::Bool,
        _ => return None,
    })
}

/// Kinds of fields in protobuf.
const NUMBER: u8 = 0;
const BYTES: u8 = 2;

/// A message of protobuf.
struct Message<'b> {
    bytes: &'b [u8],
    place: usize,
    end: usize,
}

impl Message<'_> {
    fn number(&mut self) -> Result<usize, String> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.place).filter(|_| self.place < self.end).ok_or("truncated")?;
            self.place += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return usize::try_from(number).map_err(|_| "a number that is too large".to_owned());
            }
        }
        Err("a number that is too large".to_owned())
    }

    /// Number and kind of the next field.
    fn key(&mut self) -> Result<(usize, u8), String> {
        let key = self.number()?;
        Ok((key >> 3, (key & 7) as u8))
    }

    fn range(&mut self) -> Result<Range<usize>, String> {
        let length = self.number()?;
        let end = self.place.checked_add(length).filter(|end| *end <= self.end).ok_or("truncated")?;
        let range = self.place..end;
        self.place = end;
        Ok(range)
    }

    fn text(&mut self) -> Result<String, String> {
        let range = self.range()?;
        let text = self.bytes.get(range).ok_or("truncated")?;
        String::from_utf8(text.to_vec()).map_err(|_| "a text that is not UTF-8".to_owned())
    }

    fn skip(&mut self, kind: u8) -> Result<(), String> {
        const EIGHT: u8 = 1;
        const FOUR: u8 = 5;
        let fixed = match kind {
            NUMBER => return self.number().map(|_| ()),
            BYTES => return self.range().map(|_| ()),
            EIGHT => 8,
            FOUR => 4,
            other => return Err(format!("a field of kind {other}, which no checkpoint has")),
        };
        self.place = self.place.checked_add(fixed).filter(|place| *place <= self.end).ok_or("truncated")?;
        Ok(())
    }
}

/// The bytes of a checkpoint with these tensors: f32, and i64 for integers.
pub fn encode(tensors: &[(String, Array)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, array) in tensors {
        let (dtype, told) = match array.dtype.is_float() {
            true => (ElementType::F32, "Float32"),
            false => (ElementType::I64, "Int64"),
        };
        let mut tensor = Vec::new();
        // MindSpore writes a scalar with the dims [0].
        let dims = if array.shape.is_empty() { &[0][..] } else { &array.shape };
        for extent in dims {
            tensor.push(0x08);
            varint(&mut tensor, *extent as u64);
        }
        field(&mut tensor, 2, told.as_bytes());
        let content: Vec<u8> = array.values.iter().flat_map(|value| dtype.bytes(*value)).collect();
        field(&mut tensor, 3, &content);
        let mut value = Vec::new();
        field(&mut value, 1, name.as_bytes());
        field(&mut value, 2, &tensor);
        field(&mut out, 1, &value);
    }
    out
}

/// Appends a field of bytes.
fn field(out: &mut Vec<u8>, number: u8, content: &[u8]) {
    out.push(number << 3 | BYTES);
    varint(out, content.len() as u64);
    out.extend(content);
}

/// Appends a number as a varint: seven bits per byte, the least significant first.
fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_by_hand() {
        let array = Array { dtype: ElementType::F32, shape: vec![1, 2], values: vec![1.0, -2.0] };
        let tensor =
            [b"\x08\x01\x08\x02\x12\x07Float32\x1a\x08".as_slice(), b"\x00\x00\x80\x3f\x00\x00\x00\xc0"].concat();
        let expected = [b"\x0a\x1c\x0a\x01w\x12\x17".as_slice(), &tensor].concat();
        assert_eq!(encode(&[("w".to_owned(), array)]), expected);
        let mut out = Vec::new();
        varint(&mut out, 300);
        assert_eq!(out, [0xac, 2]);
    }

    #[test]
    fn what_is_written_reads_back_and_pieces_are_joined() {
        let of =
            |dtype, shape: &[usize], values: &[f64]| Array { dtype, shape: shape.to_vec(), values: values.to_vec() };
        let tensors = [
            ("step".to_owned(), of(ElementType::I64, &[], &[7.0])),
            ("w".to_owned(), of(ElementType::F32, &[2, 2], &[1.0, -2.0, 3.0, 0.5])),
        ];
        let mut bytes = encode(&tensors);
        assert!(Ckpt::is_one(&bytes[..16]) && !Ckpt::is_one(b"PK\x03\x04"));
        let read = |bytes: &[u8]| Ckpt::parse(bytes.to_vec())?.arrays().collect::<Result<Vec<_>, String>>();
        assert_eq!(read(&bytes).unwrap(), tensors);
        // A prefix of whole values is a file of fewer tensors; any other is an error.
        let first = encode(&tensors[..1]).len();
        for end in (1..bytes.len()).filter(|end| *end != first) {
            assert!(read(&bytes[..end]).is_err(), "{end}");
        }
        // A large tensor comes in pieces under one name, and a check sum may follow.
        let half = |dims: [u8; 2], value: f32| {
            let content = value.to_le_bytes();
            let tensor = [&[0x08, dims[0], 0x08, dims[1]], b"\x12\x07Float32\x1a\x04".as_slice(), &content].concat();
            [b"\x0a\x18\x0a\x01v\x12\x13".as_slice(), &tensor].concat()
        };
        bytes = [half([2, 1], 4.0), half([2, 1], 5.0), b"crc_num0123456789".to_vec()].concat();
        assert_eq!(read(&bytes).unwrap(), [("v".to_owned(), of(ElementType::F32, &[2, 1], &[4.0, 5.0]))]);
    }
}
