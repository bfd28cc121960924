//! Types of tensors: shape, element type, memory layout.

use crate::units::Bytes;
use serde::Serialize;
use std::{fmt, ops::Deref};

/// Channels per block of the blocked layouts (the Cube's edge, and the lanes of an AVX-512 register).
pub const C0: usize = 16;

/// Sizes of a tensor's axes, outermost first. A scalar has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A scalar's shape.
    pub fn scalar() -> Self {
        Self(Vec::new())
    }

    /// Number of elements, `None` when it overflows.
    pub fn checked_numel(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }

    /// Number of elements. Shapes in a graph have been checked not to overflow.
    pub fn numel(&self) -> usize {
        self.0.iter().product()
    }

    /// The axes as `[n, c, h, w]`, if there are four.
    pub fn nchw(&self) -> Option<[usize; 4]> {
        self.0.as_slice().try_into().ok()
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(dims.to_vec())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(dims.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("scalar");
        }
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("x")?;
            }
            write!(f, "{d}")?;
        }
        Ok(())
    }
}

/// Element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision: the golden check's arithmetic.
    F64,
    /// Class indices.
    U32,
}

impl DType {
    /// Size of one element.
    pub fn bytes(self) -> Bytes {
        Bytes(match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::U32 => 4,
            Self::F64 => 8,
        })
    }

    /// Whether gradients can flow through values of this type.
    pub fn is_float(self) -> bool {
        !matches!(self, Self::U32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::U32 => "u32",
        })
    }
}

/// How the elements of a tensor lie in memory. The shape stays the logical one in every layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Row-major: NCHW for feature maps, OIHW for filters.
    Plain,
    /// Feature maps in blocks of [`C0`] channels: `[n][c1][h][w][c0]`, the last block filled with zeros.
    Nc1hwc0,
    /// Filters for the forward convolution: `[group][o1][i1][kh][kw][i0][o0]`, filled with zeros.
    FractalZ {
        /// Groups of the convolution, whose channels are blocked apart.
        groups: usize,
    },
    /// Filters for the input gradient: `[group][i1][o1][kh][kw][o0][i0]`, filled with zeros.
    FractalZTransposed {
        /// Groups of the convolution, whose channels are blocked apart.
        groups: usize,
    },
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Nc1hwc0 => "NC1HWC0",
            Self::FractalZ { .. } => "FRACTAL_Z",
            Self::FractalZTransposed { .. } => "FRACTAL_Z_T",
        })
    }
}

/// What a graph knows of a value before it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct TensorType {
    /// Logical shape.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Memory layout.
    pub layout: Layout,
}

impl TensorType {
    /// A row-major tensor.
    pub fn plain(shape: impl Into<Shape>, dtype: DType) -> Self {
        Self { shape: shape.into(), dtype, layout: Layout::Plain }
    }

    /// The same element type and layout with another shape.
    pub fn with_shape(&self, shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), ..self.clone() }
    }

    /// The same tensor in another layout.
    pub fn with_layout(&self, layout: Layout) -> Self {
        Self { layout, ..self.clone() }
    }

    /// Elements in memory, the blocked layouts' filling included.
    pub fn stored_numel(&self) -> usize {
        let up = |n: usize| n.div_ceil(C0) * C0;
        match (self.layout, self.shape.nchw()) {
            (Layout::Nc1hwc0, Some([n, c, h, w])) => n * up(c) * h * w,
            (Layout::FractalZ { groups } | Layout::FractalZTransposed { groups }, Some([o, i, h, w])) => {
                groups * up(o / groups) * up(i) * h * w
            }
            _ => self.shape.numel(),
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.stored_numel() as u64 * self.dtype.bytes().0)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)?;
        if self.layout != Layout::Plain {
            write!(f, " {}", self.layout)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_layouts_count_their_filling() {
        let t = TensorType::plain([2, 20, 3, 5], DType::F32);
        assert_eq!(t.stored_numel(), 600);
        assert_eq!(t.with_layout(Layout::Nc1hwc0).stored_numel(), 2 * 32 * 15);
        let w = TensorType::plain([40, 3, 7, 7], DType::F32);
        assert_eq!(w.with_layout(Layout::FractalZ { groups: 2 }).stored_numel(), 2 * 32 * 16 * 49);
    }
}
