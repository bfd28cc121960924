//! `MaxPool`: maximum over windows.

use super::{
    OpError, Operand, Operator, Rounding, Summed, Window, Work, expect_same_storage, expect_shape, feature_map,
    one_float, operands, per_element,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operand: `[n, c, h, w]`. Result: the maximum of each window, `[n, c, h', w']`; padding is never selected.
///
/// Source: `torch.nn.functional.max_pool2d`.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool {
    /// Kernel, stride, padding.
    pub window: Window,
}

impl Operator for MaxPool {
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
        // Compare, select.
        Work::rows(outputs[0], 2 * self.window.taps())
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through_with(MaxPoolGrad { window: self.window }, |grad, dy| [grad.operand(0), grad.result(0), dy])
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| axis < 2)
    }
}

/// `MaxPoolGrad`. Operands: input `[n, c, h, w]`, output and output gradient `[n, c, h', w']`. Result: `[n, c, h,
/// w]`. The gradient of each window is added to its first maximum in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPoolGrad {
    /// Kernel, stride, padding of the pool.
    pub window: Window,
}

impl Operator for MaxPoolGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, y, dy] = operands(inputs, "input, output and output gradient")?;
        let [n, c, h, w] = feature_map("input", x)?;
        let [oh, ow] = self.window.output(h, w)?;
        expect_shape("output", y, &[n, c, oh, ow])?;
        expect_shape("output gradient", dy, &y.shape)?;
        expect_same_storage("output gradient", x, dy)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(self.window.taps() as u64, inputs[2])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        // Compare, select, convert, add overlapping windows.
        Work::rows(inputs[2], 4 * self.window.taps())
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Narrow(self.window.taps(), Summed::Last)
    }
}
