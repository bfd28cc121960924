//! `AvgPool`: mean over windows.

use super::{
    OpError, Operand, Operator, Rounding, Summed, Window, Work, expect_shape, feature_map, one_float, operands,
    per_element,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operand: `[n, c, h, w]`. Result: the mean of each window, `[n, c, h', w']`.
///
/// Source: `torch.nn.functional.avg_pool2d`.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPool {
    /// Kernel, stride, padding.
    pub window: Window,
    /// Whether zeros of the padding count as values.
    pub count_include_pad: bool,
}

impl AvgPool {
    /// For an output position, the range of rows (or columns, `axis` 1) inside the map of extent `n`, and the divisor
    /// of the mean along this axis.
    ///
    /// The divisor counts padding only up to the end of the padded map, as PyTorch does for windows that `ceil_mode`
    /// adds.
    pub fn span(&self, out: usize, axis: usize, n: usize) -> (std::ops::Range<usize>, usize) {
        let (near, far) = (self.window.pad[2 * axis], self.window.pad[2 * axis + 1]);
        let start = out * self.window.stride[axis];
        let end = (start + self.window.kernel[axis]).min(n + near + far);
        let inside = start.saturating_sub(near).min(n)..end.saturating_sub(near).min(n);
        let count = if self.count_include_pad { end - start } else { inside.len() };
        (inside, count)
    }
}

impl Operator for AvgPool {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        let [n, c, h, w] = feature_map("input", x)?;
        self.window.expect_pool_padding()?;
        let [oh, ow] = self.window.output(h, w)?;
        Ok(vec![x.with_shape([n, c, oh, ow])])
    }

    fn flop(&self, _inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        per_element(self.window.taps() as u64, outputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn work(&self, _inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::rows(outputs[0], self.window.taps() + 1)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Wide(Summed::All)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let input = grad.ty(grad.operand(0)).shape.clone();
        grad.through(AvgPoolGrad { pool: self.clone(), input })
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| axis < 2)
    }
}

/// `AvgPoolGrad`. Operand: output gradient `[n, c, h', w']`. Result: `[n, c, h, w]`.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPoolGrad {
    /// The pool.
    pub pool: AvgPool,
    /// Shape of its input.
    pub input: Shape,
}

impl Operator for AvgPoolGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy] = operands(inputs, "output gradient")?;
        let x = self.pool.infer(&[&dy.with_shape(self.input.clone())])?;
        expect_shape("output gradient", dy, &x[0].shape)?;
        Ok(vec![dy.with_shape(self.input.clone())])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(self.pool.window.taps() as u64, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::rows(inputs[0], self.pool.window.taps() + 1)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Wide(Summed::Last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divisor_counts_padding_as_pytorch_does() {
        let window = Window { pad: [1; 4], ceil: true, ..Window::new([3, 3], [2, 2]) };
        let pool = AvgPool { window, count_include_pad: true };
        // 6 rows: windows start at -1, 1, 3, 5. The last one ends one row after the padded map.
        assert_eq!(pool.span(0, 0, 6), (0..2, 3));
        assert_eq!(pool.span(1, 0, 6), (1..4, 3));
        assert_eq!(pool.span(3, 0, 6), (5..6, 2));
        let pool = AvgPool { count_include_pad: false, ..pool };
        assert_eq!(pool.span(0, 0, 6), (0..2, 2));
    }
}
