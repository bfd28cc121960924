//! `ExtractImagePatches`: windows of a map as a batch of maps, and its gradient.

use super::{OpError, Operand, Operator, Rounding, Summed, Window, feature_map, one_float, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operand: `[n, c, h, w]`. Result `[n * oh * ow, c, kh, kw]`: all windows of the first image, row by row, then those
/// of the next; zero outside the image.
///
/// With a 1x1 window and stride 1, every position becomes a map of one pixel; this is only a transposition.
///
/// Source: `torch.nn.functional.unfold` (its columns as rows), `tf.image.extract_patches`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtractPatches {
    /// Kernel, stride, padding; dilation is not used.
    pub window: Window,
}

impl ExtractPatches {
    fn output(&self, [n, c, h, w]: [usize; 4]) -> Result<[usize; 4], OpError> {
        let [oh, ow] = self.window.output(h, w)?;
        Ok([n * oh * ow, c, self.window.kernel[0], self.window.kernel[1]])
    }
}

impl Operator for ExtractPatches {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        if self.window.dilation != [1, 1] {
            return Err(OpError::Attribute("windows of patches are not dilated".into()));
        }
        Ok(vec![x.with_shape(self.output(feature_map("input", x)?)?)])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let input = grad.ty(grad.operand(0)).shape.clone();
        grad.through(ExtractPatchesGrad { patches: self.clone(), input })
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| axis == 0)
    }
}

/// Gradient of [`ExtractPatches`]. Operand: output gradient. Result: for each pixel, the sum over the windows that
/// contain it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtractPatchesGrad {
    /// The forward operator.
    pub patches: ExtractPatches,
    /// Shape of its input.
    pub input: Shape,
}

impl Operator for ExtractPatchesGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy] = operands(inputs, "output gradient")?;
        let x = self.input.nchw().ok_or_else(|| OpError::Attribute("the input has 4 axes".to_string()))?;
        super::expect_shape("output gradient", dy, &self.patches.output(x)?)?;
        Ok(vec![dy.with_shape(self.input.clone())])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Narrow(self.patches.window.taps(), Summed::Last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn windows_of_siammask_reach_into_the_padding() {
        let op = ExtractPatches { window: Window { pad: [32; 4], ..Window::new([127; 2], [8; 2]) } };
        let x = TensorType::plain([2, 1, 255, 255], DType::F32);
        assert_eq!(*op.infer(&[&x]).unwrap()[0].shape, [2 * 25 * 25, 1, 127, 127]);
    }
}
