//! `Resize`: nearest or bilinear interpolation to another height and width, and its gradient.

use super::{
    OpError, Operand, Operator, Rounding, Summed, feature_map, one_float, operands, per_element, smallest_plane,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::{Shape, TensorType},
    units::Flop,
};

/// How an output pixel is computed from input pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The pixel at `floor(index * input / output)`, with the ratio rounded to f32 as in PyTorch.
    Nearest,
    /// The four pixels around its position, weighted by their distance.
    Bilinear {
        /// Whether the centres of the corner pixels of input and output coincide; otherwise the corners of these
        /// pixels do.
        align_corners: bool,
    },
}

/// The input pixels of an output pixel along one axis: `(1 - weight) * x[first] + weight * x[second]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResizeTap {
    /// The nearer pixel towards index zero.
    pub first: usize,
    /// The next pixel, or the same one at the border.
    pub second: usize,
    /// Weight of the second pixel.
    pub weight: f64,
}

impl Interpolation {
    /// The input pixels of each of `output` pixels along an axis of `input` pixels.
    ///
    /// Source: `torch.nn.functional.interpolate`.
    pub fn taps(self, input: usize, output: usize) -> Vec<ResizeTap> {
        let last = input.saturating_sub(1);
        let tap = |place: usize| match self {
            Self::Nearest => {
                let first = ((place as f32 * (input as f32 / output as f32)) as usize).min(last);
                ResizeTap { first, second: first, weight: 0.0 }
            }
            Self::Bilinear { align_corners } => {
                let source = match align_corners {
                    true if output > 1 => place as f64 * (last as f64 / (output - 1) as f64),
                    true => 0.0,
                    false => ((place as f64 + 0.5) * (input as f64 / output as f64) - 0.5).max(0.0),
                };
                let first = (source as usize).min(last);
                ResizeTap { first, second: (first + 1).min(last), weight: source - first as f64 }
            }
        };
        (0..output).map(tap).collect()
    }
}

/// Operand: `[n, c, h, w]`. Result: `[n, c, out h, out w]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    /// Height and width of the result.
    pub out: [usize; 2],
    /// How an output pixel is computed.
    pub interpolation: Interpolation,
}

impl Operator for Resize {
    fn name(&self) -> Option<&'static str> {
        Some(match self.interpolation {
            Interpolation::Nearest => "ResizeNearestNeighborV2",
            Interpolation::Bilinear { .. } => "ResizeBilinearV2",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        let [n, c, h, w] = feature_map("input", x)?;
        if h == 0 || w == 0 || self.out.contains(&0) {
            return Err(OpError::Attribute(format!("no resize from {h}x{w} to {}x{}", self.out[0], self.out[1])));
        }
        Ok(vec![x.with_shape([n, c, self.out[0], self.out[1]])])
    }

    fn flop(&self, _inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        match self.interpolation {
            Interpolation::Nearest => Flop(0),
            Interpolation::Bilinear { .. } => per_element(7, outputs[0]),
        }
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        // A weight, a product and a sum along each axis, of four terms at most.
        Rounding::Narrow(6, Summed::Last)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let input = grad.ty(grad.operand(0)).shape.clone();
        grad.through(ResizeGrad { resize: self.clone(), input })
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| axis < 2)
    }
}

/// `ResizeGrad`. Operand: output gradient. Result: for each input pixel, the weighted sum of the gradients of the
/// output pixels that read it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizeGrad {
    /// The forward operator.
    pub resize: Resize,
    /// Shape of its input.
    pub input: Shape,
}

impl Operator for ResizeGrad {
    fn name(&self) -> Option<&'static str> {
        Some(match self.resize.interpolation {
            Interpolation::Nearest => "ResizeNearestNeighborV2Grad",
            Interpolation::Bilinear { .. } => "ResizeBilinearV2Grad",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy] = operands(inputs, "output gradient")?;
        let [n, c, _, _] = self.input.nchw().ok_or_else(|| OpError::Attribute("the input has 4 axes".to_string()))?;
        super::expect_shape("output gradient", dy, &[n, c, self.resize.out[0], self.resize.out[1]])?;
        Ok(vec![dy.with_shape(self.input.clone())])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        match self.resize.interpolation {
            Interpolation::Nearest => per_element(1, inputs[0]),
            Interpolation::Bilinear { .. } => per_element(8, inputs[0]),
        }
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Narrow(smallest_plane(inputs), Summed::Last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_pytorch() {
        let firsts = |input, output| {
            let taps = Interpolation::Nearest.taps(input, output);
            taps.iter().map(|t| t.first).collect::<Vec<_>>()
        };
        assert_eq!(firsts(2, 4), [0, 0, 1, 1]);
        assert_eq!(firsts(3, 5), [0, 0, 1, 1, 2]);
        assert_eq!(firsts(4, 2), [0, 2]);
        let aligned = Interpolation::Bilinear { align_corners: true }.taps(3, 5);
        let places: Vec<f64> = aligned.iter().map(|t| t.first as f64 + t.weight).collect();
        assert_eq!(places, [0.0, 0.5, 1.0, 1.5, 2.0]);
        let free = Interpolation::Bilinear { align_corners: false }.taps(2, 4);
        let places: Vec<f64> = free.iter().map(|t| t.first as f64 + t.weight).collect();
        assert_eq!(places, [0.0, 0.25, 0.75, 1.25]);
        assert_eq!((free[3].first, free[3].second), (1, 1), "the border repeats itself");
    }
}
