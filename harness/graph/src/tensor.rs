//! Types of tensors: shape, element type, memory layout.

use crate::units::Bytes;
use serde::Serialize;
use std::{fmt, ops::Deref};

/// Channels per block in blocked layouts (the edge of the Cube, and the lanes of an AVX-512 register).
pub const C0: usize = 16;

/// Sizes of a tensor's axes, outermost first. A scalar has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A scalar's shape.
    pub fn scalar() -> Self {
        Self(Vec::new())
    }

    /// Number of elements; `None` if it overflows.
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
    /// IEEE double precision, for the golden check.
    F64,
    /// Class indices.
    U32,
}

impl DType {
    /// Size of one element.
    pub const fn bytes(self) -> Bytes {
        Bytes(match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::U32 => 4,
            Self::F64 => 8,
        })
    }

    /// The type in which values of this type are summed: f32 for half-precision types.
    pub fn accumulator(self) -> Self {
        match self {
            Self::F16 | Self::Bf16 => Self::F32,
            Self::F32 | Self::F64 | Self::U32 => self,
        }
    }

    /// Whether it is a half-precision type.
    pub fn is_half(self) -> bool {
        self != self.accumulator()
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

/// The memory layout of a tensor. The shape is always the logical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Row-major: NCHW for feature maps, OIHW for filters.
    Plain,
    /// Feature maps in blocks of [`C0`] channels: `[n][c1][h][w][c0]`. The last block is padded with zeros.
    Nc1hwc0,
    /// Filters in the layout of the matrix unit: `[o1][i1][kh][kw][i][o0]` with blocks of [`C0`] channels, where `i`
    /// counts the `min(C0, channels)` channels of an input block; depthwise, with more channels than the three of an
    /// image, `[c1][kh][kw][c0]`. With groups, `i1` runs over the blocks that an output block uses. Padding is zero.
    FractalZ {
        /// Groups of the convolution.
        groups: usize,
    },
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Nc1hwc0 => "NC1HWC0",
            Self::FractalZ { .. } => "FRACTAL_Z",
        })
    }
}

/// The type of a value.
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

    /// The same shape and layout with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Self { dtype, ..self.clone() }
    }

    /// One value per channel of this tensor, in the type in which values are summed.
    pub fn per_channel(&self, channels: usize) -> Self {
        Self::plain([channels], self.dtype.accumulator())
    }

    /// The same tensor in another layout.
    pub fn with_layout(&self, layout: Layout) -> Self {
        Self { layout, ..self.clone() }
    }

    /// Elements in memory, including the padding of blocked layouts.
    pub fn stored_numel(&self) -> usize {
        let up = |n: usize| n.div_ceil(C0) * C0;
        match (self.layout, self.shape.nchw()) {
            (Layout::Nc1hwc0, Some([n, c, h, w])) => n * up(c) * h * w,
            (Layout::FractalZ { groups }, Some([o, i, h, w])) => fractal_z_matrices(o, i, groups) * h * w * C0,
            _ => self.shape.numel(),
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.stored_numel() as u64 * self.dtype.bytes().0)
    }
}

/// Whether FRACTAL_Z holds filters `[o, i, ..]` channel by channel.
pub fn lies_depthwise([o, i]: [usize; 2], groups: usize) -> bool {
    i == 1 && o == groups && o > 3
}

/// Rows of [`C0`] filters per tap in FRACTAL_Z, for `o` output channels that each read `i` input channels.
fn fractal_z_matrices(o: usize, i: usize, groups: usize) -> usize {
    if lies_depthwise([o, i], groups) {
        return o.div_ceil(C0);
    }
    let (groups, o_of_group) = (groups.max(1), (o / groups.max(1)).max(1));
    let blocks_seen = |block: usize| {
        let last = ((block + 1) * C0).min(o) - 1;
        let (first, end) = (block * C0 / o_of_group * i, (last / o_of_group + 1) * i);
        end.div_ceil(C0) - first / C0
    };
    (0..o.div_ceil(C0)).map(blocks_seen).sum::<usize>() * (i * groups).min(C0)
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
        // 3 output blocks, each reading all 6 input channels in one block.
        assert_eq!(w.with_layout(Layout::FractalZ { groups: 2 }).stored_numel(), 3 * 6 * 16 * 49);
        let w = TensorType::plain([64, 1, 3, 3], DType::F32);
        assert_eq!(w.with_layout(Layout::FractalZ { groups: 64 }).stored_numel(), 64 * 9);
        let w = TensorType::plain([3, 1, 3, 3], DType::F32);
        assert_eq!(w.with_layout(Layout::FractalZ { groups: 3 }).stored_numel(), 3 * 16 * 9);
    }
}
