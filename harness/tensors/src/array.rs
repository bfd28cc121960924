//! A tensor as stored in a file.

use half::{bf16, f16};
use std::fmt;

/// How a file stores an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// IEEE double.
    F64,
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of a single.
    Bf16,
    /// Signed, 8 bytes.
    I64,
    /// Signed, 4 bytes.
    I32,
    /// Signed, 2 bytes.
    I16,
    /// Signed, 1 byte.
    I8,
    /// Unsigned, 1 byte.
    U8,
    /// A byte that is 0 or 1.
    Bool,
}

impl ElementType {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::Bf16)
    }

    /// The largest relative change of a number by one rounding to this type; zero for integers, which are exact.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            Self::F64 => 1.0 / (1u64 << 53) as f64,
            Self::F32 => 1.0 / (1u64 << 24) as f64,
            Self::F16 => 1.0 / 2048.0,
            Self::Bf16 => 1.0 / 256.0,
            Self::I64 | Self::I32 | Self::I16 | Self::I8 | Self::U8 | Self::Bool => 0.0,
        }
    }

    /// Decodes an element from [`ElementType::size`] bytes in little-endian order. An i64 beyond 2^53 is rounded.
    pub(crate) fn value(self, bytes: &[u8]) -> f64 {
        // Missing bytes are zero: lengths have been checked.
        let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
        let two = [at(0), at(1)];
        let four = [at(0), at(1), at(2), at(3)];
        let eight = [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)];
        match self {
            Self::F64 => f64::from_le_bytes(eight),
            Self::F32 => f64::from(f32::from_le_bytes(four)),
            Self::F16 => f16::from_le_bytes(two).to_f64(),
            Self::Bf16 => bf16::from_le_bytes(two).to_f64(),
            Self::I64 => i64::from_le_bytes(eight) as f64,
            Self::I32 => f64::from(i32::from_le_bytes(four)),
            Self::I16 => f64::from(i16::from_le_bytes(two)),
            Self::I8 => f64::from(at(0) as i8),
            Self::U8 | Self::Bool => f64::from(at(0)),
        }
    }

    /// Encodes a value in this type, in little-endian order.
    pub(crate) fn bytes(self, value: f64) -> Vec<u8> {
        match self {
            Self::F64 => value.to_le_bytes().to_vec(),
            Self::F32 => (value as f32).to_le_bytes().to_vec(),
            Self::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Self::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            Self::I64 => (value as i64).to_le_bytes().to_vec(),
            Self::I32 => (value as i32).to_le_bytes().to_vec(),
            Self::I16 => (value as i16).to_le_bytes().to_vec(),
            Self::I8 => (value as i8).to_le_bytes().to_vec(),
            Self::U8 | Self::Bool => vec![value as u8],
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::Bool => "bool",
        })
    }
}

/// A tensor: its elements in row-major order, and the type in which the file stores them.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// How the file stores an element.
    pub dtype: ElementType,
    /// The shape; empty for a number.
    pub shape: Vec<usize>,
    /// The elements; exact except i64 beyond 2^53.
    pub values: Vec<f64>,
}

impl Array {
    /// Decodes a tensor; `None` if the number of bytes does not match shape and type.
    pub(crate) fn decode(dtype: ElementType, shape: Vec<usize>, bytes: &[u8]) -> Option<Self> {
        let needed = numel(&shape)?.checked_mul(dtype.size())?;
        let values = bytes.chunks_exact(dtype.size()).map(|element| dtype.value(element)).collect();
        (needed == bytes.len()).then_some(Self { dtype, shape, values })
    }

    /// The elements as bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|value| self.dtype.bytes(*value)).collect()
    }
}

/// Number of elements of a shape; `None` if it overflows.
pub(crate) fn numel(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_is_read_and_written() {
        let cases: [(ElementType, &[u8], f64); 10] = [
            (ElementType::F64, &1.5f64.to_le_bytes(), 1.5),
            (ElementType::F32, &(-2.25f32).to_le_bytes(), -2.25),
            (ElementType::F16, &f16::from_f32(0.5).to_le_bytes(), 0.5),
            (ElementType::Bf16, &bf16::from_f32(3.0).to_le_bytes(), 3.0),
            (ElementType::I64, &(-7i64).to_le_bytes(), -7.0),
            (ElementType::I32, &9i32.to_le_bytes(), 9.0),
            (ElementType::I16, &(-3i16).to_le_bytes(), -3.0),
            (ElementType::I8, &(-1i8).to_le_bytes(), -1.0),
            (ElementType::U8, &[200], 200.0),
            (ElementType::Bool, &[1], 1.0),
        ];
        for (dtype, bytes, value) in cases {
            assert_eq!((bytes.len(), dtype.value(bytes)), (dtype.size(), value), "{dtype}");
            assert_eq!(dtype.bytes(value), bytes, "{dtype}");
        }
    }

    #[test]
    fn bytes_that_do_not_fill_the_shape_are_no_tensor() {
        assert!(Array::decode(ElementType::F32, vec![2], &[0; 7]).is_none());
        assert!(Array::decode(ElementType::F32, vec![usize::MAX, 2], &[0; 8]).is_none());
        assert_eq!(Array::decode(ElementType::F32, vec![], &[0; 4]).unwrap().values, [0.0]);
    }
}
