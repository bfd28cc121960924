//! MindSpore's `.ckpt`: a protobuf message of tensors by name, as `mindspore.load_checkpoint` reads it
//! (mindspore/ccsrc/utils/checkpoint.proto: `Checkpoint { repeated Value { string tag = 1; TensorProto tensor = 2 {
//! repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 } } }`).

use crate::{Array, ElementType};

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
    const BYTES: u8 = 2;
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
}
