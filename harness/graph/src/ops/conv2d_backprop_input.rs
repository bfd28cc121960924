//! `Conv2DBackpropInput`: input gradient of a convolution, which is also the transposed convolution.

use super::{
    Conv2D, Conv2DBackpropFilter, Kind, OpError, Operand, OperandLayout, Operator, Product, Rounding, Work,
    expect_float, expect_shape, feature_map, operands,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Layout, Shape, TensorType},
    units::Flop,
};

/// Operands: output gradient `[n, o, h', w']`, filters `[o, c/groups, kh, kw]`. Result: `[n, c, h, w]`, in NC1HWC0 if
/// the filters are in FRACTAL_Z.
///
/// In a forward pass it is a transposed convolution of the first operand, with filters `[in, out / groups, kh, kw]`
/// (`torch.nn.functional.conv_transpose2d`). It is linear in both operands, so its gradients are the convolution of
/// the result's gradient, and the filter gradient of that convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2DBackpropInput {
    /// The convolution.
    pub conv: Conv2D,
    /// Shape of its input, which is not determined by the shape of the output if the stride is not 1.
    pub input: Shape,
}

impl Operator for Conv2DBackpropInput {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, w] = operands(inputs, "output gradient and filter")?;
        expect_float("output gradient", dy)?;
        expect_float("filter", w)?;
        let x = self.input.nchw().ok_or_else(|| OpError::Attribute("the input has 4 axes".into()))?;
        expect_shape("output gradient", dy, &self.conv.output(x, feature_map("filter", w)?)?)?;
        let layout = match w.layout {
            Layout::FractalZ { groups } if groups == self.conv.groups => Layout::Nc1hwc0,
            Layout::Plain if dy.layout == Layout::Plain => Layout::Plain,
            other @ (Layout::Plain | Layout::Nc1hwc0 | Layout::FractalZ { .. }) => {
                return Err(OpError::Attribute(format!("filters in {other} for a gradient in {}", dy.layout)));
            }
        };
        Ok(vec![dy.with_shape(self.input.clone()).with_layout(layout)])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        match (inputs[0].shape.nchw(), inputs[1].shape.nchw()) {
            (Some(dy), Some(w)) => self.conv.macs_twice(dy, w),
            _ => Flop(0),
        }
    }

    fn operand(&self, i: usize) -> Operand {
        let filters = OperandLayout::Filters { groups: self.conv.groups };
        Operand::in_layout(if i == 0 { OperandLayout::Blocked } else { filters })
    }

    fn work(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Product { product: Product::ConvolutionInput(&self.conv), instructions: 1 }
    }

    fn kind(&self) -> Kind {
        Kind::Product
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Product(Product::ConvolutionInput(&self.conv))
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let (x, w) = (grad.operand(0), grad.operand(1));
        if grad.wants(1) {
            let op = Conv2DBackpropFilter { conv: self.conv.clone(), filter: grad.ty(w).shape.clone() };
            let dw = grad.emit("grad_filter", op, &[dy, x])?;
            grad.set(1, dw);
        }
        if grad.wants(0) {
            let dx = grad.emit("grad_input", self.conv.clone(), &[dy, w])?;
            grad.set(0, dx);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ops::Window, tensor::DType};

    #[test]
    fn indices_have_no_gradients() {
        let conv = Conv2D::new(Window::new([1, 1], [1, 1]), 1);
        let op = Conv2DBackpropInput { conv, input: [1, 3, 4, 4].into() };
        let (dy, w) = (TensorType::plain([1, 4, 4, 4], DType::F32), TensorType::plain([4, 3, 1, 1], DType::F32));
        let indices = |ty: &TensorType| TensorType { dtype: DType::U32, ..ty.clone() };
        assert!(op.infer(&[&dy, &w]).is_ok());
        for inputs in [[&indices(&dy), &w], [&dy, &indices(&w)]] {
            assert!(matches!(op.infer(&inputs), Err(OpError::DType { .. })));
        }
    }
}
