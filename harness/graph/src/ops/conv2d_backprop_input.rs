//! `Conv2DBackpropInput`: gradient of a convolution by its input.

use super::{Conv2D, OpError, Operator, expect_shape, feature_map, operands};
use crate::{
    tensor::{Layout, Shape, TensorType},
    units::Flop,
};

/// Operands: output gradient `[n, o, h', w']`, filters `[o, c/groups, kh, kw]`.
/// Result: `[n, c, h, w]`, in NC1HWC0 when the filters are in FRACTAL_Z.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2DBackpropInput {
    /// The convolution.
    pub conv: Conv2D,
    /// Shape of its input, which the output's shape does not tell when the stride is not 1.
    pub input: Shape,
}

impl Operator for Conv2DBackpropInput {
    fn name(&self) -> &'static str {
        "Conv2DBackpropInput"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, w] = operands(inputs, "output gradient and filter")?;
        let x = self.input.nchw().ok_or_else(|| OpError::Attribute("the input has 4 axes".into()))?;
        expect_shape("output gradient", dy, &self.conv.output(x, feature_map("filter", w)?)?)?;
        let layout = match w.layout {
            Layout::FractalZ { groups } if groups == self.conv.groups => Layout::Nc1hwc0,
            Layout::Plain if dy.layout == Layout::Plain => Layout::Plain,
            other => return Err(OpError::Attribute(format!("filters in {other} for a gradient in {}", dy.layout))),
        };
        Ok(vec![dy.with_shape(self.input.clone()).with_layout(layout)])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        match (inputs[0].shape.nchw(), inputs[1].shape.nchw()) {
            (Some(dy), Some(w)) => self.conv.macs_twice(dy, w),
            _ => Flop(0),
        }
    }
}
