//! Adaptive average pool: mean over windows chosen so that the output has a given size.

use super::{
    OpError, Operand, OperandLayout, Operator, Rounding, Summed, expect_shape, feature_map, one_float, operands,
    per_element,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::{Shape, TensorType},
    units::Flop,
};
use std::ops::Range;

/// Operand: `[n, c, h, w]`. Result: `[n, c, out[0], out[1]]`.
///
/// Source: `torch.nn.functional.adaptive_avg_pool2d`; on the device a `ReduceMeanD` if the output is 1x1.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveAvgPool {
    /// Height and width of the output.
    pub out: [usize; 2],
}

/// The input rows, of `n`, that row `i` of `out` output rows averages: `floor(i*n/out) .. ceil((i+1)*n/out)`.
pub fn adaptive_range(i: usize, out: usize, n: usize) -> Range<usize> {
    i * n / out..((i + 1) * n).div_ceil(out)
}

impl Operator for AdaptiveAvgPool {
    fn name(&self) -> Option<&'static str> {
        Some(if self.out == [1, 1] { "ReduceMeanD" } else { "AdaptiveAvgPool2d" })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        let [n, c, h, w] = feature_map("input", x)?;
        if self.out.contains(&0) || h == 0 || w == 0 {
            return Err(OpError::Attribute(format!("a pool of {} to {}x{}", x.shape, self.out[0], self.out[1])));
        }
        Ok(vec![x.with_shape([n, c, self.out[0], self.out[1]])])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Wide(Summed::All)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let input = grad.ty(grad.operand(0)).shape.clone();
        grad.through(AdaptiveAvgPoolGrad { pool: self.clone(), input })
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| axis < 2)
    }
}

/// Gradient of [`AdaptiveAvgPool`]. Operand: output gradient. Result: `[n, c, h, w]`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveAvgPoolGrad {
    /// The pool.
    pub pool: AdaptiveAvgPool,
    /// Shape of its input.
    pub input: Shape,
}

impl Operator for AdaptiveAvgPoolGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy] = operands(inputs, "output gradient")?;
        let y = self.pool.infer(&[&dy.with_shape(self.input.clone())])?;
        expect_shape("output gradient", dy, &y[0].shape)?;
        Ok(vec![dy.with_shape(self.input.clone())])
    }

    fn flop(&self, _inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        per_element(1, outputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        // The gradient of a pool is larger than its operand, so the smaller one is converted.
        let is_map = self.input.iter().skip(2).product::<usize>() > 1;
        if is_map { Operand::in_layout(OperandLayout::Blocked) } else { Operand::MAP }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Wide(Summed::Last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_where_the_sizes_do_not_divide() {
        let ranges: Vec<_> = (0..3).map(|i| adaptive_range(i, 3, 7)).collect();
        assert_eq!(ranges, [0..3, 2..5, 4..7]);
        assert_eq!(adaptive_range(5, 6, 6), 5..6);
    }
}
