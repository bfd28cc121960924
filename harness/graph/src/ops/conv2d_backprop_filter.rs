//! `Conv2DBackpropFilter`: filter gradient of a convolution.

use super::{
    Conv2D, OpError, Operand, OperandLayout, Operator, Product, Rounding, Work, expect_shape, feature_map, operands,
};
use crate::{
    tensor::{Layout, Shape, TensorType},
    units::Flop,
};

/// Operands: input `[n, c, h, w]`, output gradient `[n, o, h', w']`. Result: `[o, c/groups, kh, kw]`, in FRACTAL_Z if
/// the output gradient is in NC1HWC0.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2DBackpropFilter {
    /// The convolution.
    pub conv: Conv2D,
    /// Shape of its filters.
    pub filter: Shape,
}

impl Operator for Conv2DBackpropFilter {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, dy] = operands(inputs, "input and output gradient")?;
        let w = self.filter.nchw().ok_or_else(|| OpError::Attribute("the filter has 4 axes".into()))?;
        expect_shape("output gradient", dy, &self.conv.output(feature_map("input", x)?, w)?)?;
        let layout = match dy.layout {
            Layout::Nc1hwc0 => Layout::FractalZ { groups: self.conv.groups },
            Layout::Plain | Layout::FractalZ { .. } => Layout::Plain,
        };
        Ok(vec![x.with_shape(self.filter.clone()).with_layout(layout)])
    }

    fn flop(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        match (inputs[1].shape.nchw(), outputs[0].shape.nchw()) {
            (Some(dy), Some(w)) => self.conv.macs_twice(dy, w),
            _ => Flop(0),
        }
    }

    fn operand(&self, i: usize) -> Operand {
        Operand::in_layout(if i == 0 { OperandLayout::Image } else { OperandLayout::Blocked })
    }

    fn work(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Product { product: Product::ConvolutionFilter(&self.conv), instructions: 1 }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Product(Product::ConvolutionFilter(&self.conv))
    }
}
