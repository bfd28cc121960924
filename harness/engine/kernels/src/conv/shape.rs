//! What a convolution computes: extents, and the check that they are possible.

use crate::blocked::{Blocked, channel_blocks};
use std::ops::Deref;
use thiserror::Error;

/// Extents and parameters of a two-dimensional convolution (cross-correlation, as frameworks define it):
///
/// ```text
/// y[n, o, i, j] = bias[o] + sum over c, a, b of
///     w[o, c, a, b] * x[n, g(o) + c, i * s0 + a * d0 - top, j * s1 + b * d1 - left]
/// ```
///
/// with x zero outside its extent and `g(o)` the first input channel of o's group. Pairs are (rows, columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvParams {
    /// Images.
    pub n: usize,
    /// Input channels.
    pub c_in: usize,
    /// Input rows.
    pub h: usize,
    /// Input columns.
    pub w: usize,
    /// Output channels.
    pub c_out: usize,
    /// Kernel rows.
    pub kh: usize,
    /// Kernel columns.
    pub kw: usize,
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Zeros around the input: top, bottom, left, right.
    pub pad: [usize; 4],
    /// Distance of kernel elements in the input.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

impl ConvParams {
    /// A dense convolution with stride 1, dilation 1 and no padding.
    #[must_use]
    pub const fn new(input: Blocked, c_out: usize, kernel: [usize; 2]) -> Self {
        Self {
            n: input.n,
            c_in: input.c,
            h: input.h,
            w: input.w,
            c_out,
            kh: kernel[0],
            kw: kernel[1],
            stride: [1, 1],
            pad: [0; 4],
            dilation: [1, 1],
            groups: 1,
        }
    }
}

/// Why no convolution has the given parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// An extent, stride, dilation or group count is zero.
    #[error("{0} is zero")]
    Zero(&'static str),
    /// The groups do not divide the channels.
    #[error("{groups} groups do not divide {c_in} input and {c_out} output channels")]
    Groups {
        /// Groups asked for.
        groups: usize,
        /// Input channels.
        c_in: usize,
        /// Output channels.
        c_out: usize,
    },
    /// The dilated kernel is larger than the padded input.
    #[error("a kernel that spans {kernel} {axis} is larger than {padded}, the input with its padding")]
    KernelTooLarge {
        /// "rows" or "columns".
        axis: &'static str,
        /// Extent of the dilated kernel.
        kernel: usize,
        /// Extent of the input with its padding.
        padded: usize,
    },
    /// A tensor of the convolution has more elements than an address space holds.
    #[error("the extents overflow the address space")]
    Overflow,
}

/// Parameters of a convolution that are known to be possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    params: ConvParams,
    out: [usize; 2],
}

impl Deref for ConvShape {
    type Target = ConvParams;

    fn deref(&self) -> &ConvParams {
        &self.params
    }
}

impl ConvShape {
    /// Checks the parameters.
    ///
    /// # Errors
    /// [`ShapeError`] if an extent is zero, the groups do not divide the channels, the kernel is larger than the
    /// padded input, or a tensor would not fit into memory.
    pub fn new(params: ConvParams) -> Result<Self, ShapeError> {
        let ConvParams { n, c_in, h, w, c_out, kh, kw, stride, pad, dilation, groups } = params;
        let extents = [
            (n, "the batch"),
            (c_in, "the number of input channels"),
            (h, "the input height"),
            (w, "the input width"),
            (c_out, "the number of output channels"),
            (kh, "the kernel height"),
            (kw, "the kernel width"),
            (stride[0].min(stride[1]), "a stride"),
            (dilation[0].min(dilation[1]), "a dilation"),
            (groups, "the number of groups"),
        ];
        if let Some((_, name)) = extents.into_iter().find(|(extent, _)| *extent == 0) {
            return Err(ShapeError::Zero(name));
        }
        if c_in % groups != 0 || c_out % groups != 0 {
            return Err(ShapeError::Groups { groups, c_in, c_out });
        }
        let out = [
            output_extent("rows", h, [pad[0], pad[1]], kh, dilation[0], stride[0])?,
            output_extent("columns", w, [pad[2], pad[3]], kw, dilation[1], stride[1])?,
        ];
        let padded = [h + pad[0] + pad[1], w + pad[2] + pad[3]];
        let c_in = channel_blocks(c_in) * crate::C0;
        let c_out = channel_blocks(c_out) * crate::C0;
        for sizes in [[n, c_in, padded[0], padded[1]], [n, c_out, out[0], out[1]], [c_in, c_out, kh, kw]] {
            // The factor leaves room for bytes per element and for the margins of scratch buffers.
            sizes
                .into_iter()
                .try_fold(64_usize, usize::checked_mul)
                .filter(|&size| isize::try_from(size).is_ok())
                .ok_or(ShapeError::Overflow)?;
        }
        Ok(Self { params, out })
    }

    /// Extent of the input.
    #[must_use]
    pub const fn input(&self) -> Blocked {
        Blocked::new(self.params.n, self.params.c_in, self.params.h, self.params.w)
    }

    /// Extent of the output.
    #[must_use]
    pub const fn output(&self) -> Blocked {
        Blocked::new(self.params.n, self.params.c_out, self.out[0], self.out[1])
    }

    /// Elements of the weights in the order OIHW, `[c_out, c_in / groups, kh, kw]`.
    #[must_use]
    pub const fn weight_len(&self) -> usize {
        self.params.c_out * self.c_in_of_group() * self.taps()
    }

    /// Whether every channel is a group of its own with one output, and there are more than the three of an image, so
    /// that kernels multiply lane by lane.
    #[must_use]
    pub const fn is_depthwise(&self) -> bool {
        self.params.groups == self.params.c_in && self.params.c_in == self.params.c_out && self.params.c_in > 3
    }

    /// Floating point operations of the forward convolution, of the input gradient or of the filter gradient
    /// (each needs as many; a multiplication and an addition count as two, padding counts as data).
    #[must_use]
    pub const fn flops(&self) -> usize {
        2 * self.params.n * self.out[0] * self.out[1] * self.weight_len()
    }

    /// Elements of the kernel.
    #[must_use]
    pub const fn taps(&self) -> usize {
        self.params.kh * self.params.kw
    }

    /// Row and column offset of each kernel element in the input, from an output position times the stride.
    pub(crate) fn tap_offsets(&self) -> Vec<[isize; 2]> {
        let [top, _, left, _] = self.params.pad;
        let offset =
            |k: usize, axis: usize, pad: usize| (k * self.params.dilation[axis]).wrapping_sub(pad).cast_signed();
        let columns = |a| (0..self.params.kw).map(move |b| [offset(a, 0, top), offset(b, 1, left)]);
        (0..self.params.kh).flat_map(columns).collect()
    }

    /// Input channels that an output channel sees.
    #[must_use]
    pub const fn c_in_of_group(&self) -> usize {
        self.params.c_in / self.params.groups
    }

    /// Output channels that see an input channel.
    #[must_use]
    pub const fn c_out_of_group(&self) -> usize {
        self.params.c_out / self.params.groups
    }
}

fn output_extent(
    axis: &'static str,
    len: usize,
    pad: [usize; 2],
    kernel: usize,
    dilation: usize,
    stride: usize,
) -> Result<usize, ShapeError> {
    let padded = len.checked_add(pad[0]).and_then(|l| l.checked_add(pad[1])).ok_or(ShapeError::Overflow)?;
    let kernel = (kernel - 1).checked_mul(dilation).and_then(|k| k.checked_add(1)).ok_or(ShapeError::Overflow)?;
    match padded.checked_sub(kernel) {
        Some(room) => Ok(room / stride + 1),
        None => Err(ShapeError::KernelTooLarge { axis, kernel, padded }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: ConvParams = ConvParams::new(Blocked::new(2, 6, 12, 13), 9, [3, 3]);

    #[test]
    fn output_extent_of_known_layers() {
        // ResNet's first convolution: 224 -> 112; AlexNet's: 227 -> 55.
        let resnet =
            ConvParams { stride: [2, 2], pad: [3; 4], ..ConvParams::new(Blocked::new(8, 3, 224, 224), 64, [7, 7]) };
        assert_eq!(ConvShape::new(resnet).unwrap().output(), Blocked::new(8, 64, 112, 112));
        // 2 * 8 * 112^2 * 64 * 147 = 1.888 GFLOP.
        assert_eq!(ConvShape::new(resnet).unwrap().flops(), 1_888_223_232);
        let alexnet = ConvParams { stride: [4, 4], ..ConvParams::new(Blocked::new(1, 3, 227, 227), 96, [11, 11]) };
        assert_eq!(ConvShape::new(alexnet).unwrap().output(), Blocked::new(1, 96, 55, 55));
        // Asymmetric padding, dilation: rows (12 + 1 + 0 - 5) / 2 + 1 = 5, columns (13 + 0 + 2 - 5) / 1 + 1 = 11.
        let odd = ConvParams { pad: [1, 0, 0, 2], dilation: [2, 2], stride: [2, 1], ..BASE };
        assert_eq!(ConvShape::new(odd).unwrap().output(), Blocked::new(2, 9, 5, 11));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(ConvShape::new(ConvParams { stride: [1, 0], ..BASE }), Err(ShapeError::Zero("a stride")));
        assert_eq!(ConvShape::new(ConvParams { n: 0, ..BASE }), Err(ShapeError::Zero("the batch")));
        assert_eq!(
            ConvShape::new(ConvParams { groups: 2, ..BASE }),
            Err(ShapeError::Groups { groups: 2, c_in: 6, c_out: 9 })
        );
        assert_eq!(
            ConvShape::new(ConvParams { kh: 7, dilation: [3, 1], pad: [3, 3, 0, 0], ..BASE }),
            Err(ShapeError::KernelTooLarge { axis: "rows", kernel: 19, padded: 18 })
        );
        assert_eq!(ConvShape::new(ConvParams { n: usize::MAX / 2, ..BASE }), Err(ShapeError::Overflow));
        assert_eq!(ConvShape::new(ConvParams { pad: [usize::MAX; 4], ..BASE }), Err(ShapeError::Overflow));
    }

    proptest! {
        #[test]
        fn last_window_lies_inside_and_the_next_one_does_not(
            len in 1usize..40, front in 0usize..4, back in 0usize..4, kernel in 1usize..6, dilation in 1usize..4, stride in 1usize..5,
        ) {
            let span = (kernel - 1) * dilation + 1;
            match output_extent("rows", len, [front, back], kernel, dilation, stride) {
                Ok(out) => {
                    prop_assert!((out - 1) * stride + span <= len + front + back);
                    prop_assert!(out * stride + span > len + front + back);
                }
                Err(_) => prop_assert!(span > len + front + back),
            }
        }
    }
}
