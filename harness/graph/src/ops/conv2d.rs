//! `Conv2D`: 2-d convolution (cross-correlation, as in all frameworks).

use super::{
    BiasAddGrad, Conv2DBackpropFilter, Conv2DBackpropInput, Kind, OpError, Operand, OperandLayout, Operator, Product,
    Rounding, Window, Work, expect_float, expect_shape, feature_map,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::{Layout, TensorType},
    units::Flop,
};

/// Operands: input `[n, c, h, w]`, filters `[o, c/groups, kh, kw]`, and optionally bias `[o]`. Results: `[n, o, h',
/// w']`, in NC1HWC0 if the filters are in FRACTAL_Z; with `statistics` also its mean and biased variance, each `[o]`.
///
/// Source: `torch.nn.functional.conv2d`.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2D {
    /// Kernel, stride, padding, dilation.
    pub window: Window,
    /// Groups: each output channel reads `c / groups` input channels.
    pub groups: usize,
    /// Whether mean and variance per output channel are additional results (placed by fusion).
    pub statistics: bool,
    /// Whether it ends with a ReLU (placed by fusion).
    pub relu: bool,
}

impl Conv2D {
    /// A convolution without fused operators.
    pub fn new(window: Window, groups: usize) -> Self {
        Self { window, groups, statistics: false, relu: false }
    }

    /// Checks that the shapes of input and filters fit each other, and returns the shape of the result.
    pub(super) fn output(&self, x: [usize; 4], w: [usize; 4]) -> Result<[usize; 4], OpError> {
        let [n, c, h, width] = x;
        if self.groups == 0 || !c.is_multiple_of(self.groups) || !w[0].is_multiple_of(self.groups) {
            return Err(OpError::Attribute(format!(
                "{} groups do not divide {c} input and {} output channels",
                self.groups, w[0]
            )));
        }
        let expected = [w[0], c / self.groups, self.window.kernel[0], self.window.kernel[1]];
        if w != expected {
            return Err(OpError::Shape { operand: "filter", expected: format!("{expected:?}"), found: w.into() });
        }
        let [oh, ow] = self.window.output(h, width)?;
        Ok([n, w[0], oh, ow])
    }

    /// Twice the multiply-accumulates of the convolution, which are equal to those of each of its two gradients.
    pub(super) fn macs_twice(&self, y: [usize; 4], w: [usize; 4]) -> Flop {
        let per_output = 2 * w[1] as u64 * self.window.taps() as u64;
        Flop(per_output * y.iter().map(|&d| d as u64).product::<u64>())
    }
}

impl Operator for Conv2D {
    fn name(&self) -> Option<&'static str> {
        Some(match (self.statistics, self.relu) {
            (false, false) => "Conv2D",
            (false, true) => "Conv2DRelu",
            (true, _) => "Conv2DBNReduce",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let (x, w, bias) = match inputs {
            [x, w] => (x, w, None),
            [x, w, bias] => (x, w, Some(bias)),
            _ => return Err(OpError::Arity { expected: "input, filter and perhaps bias", found: inputs.len() }),
        };
        expect_float("input", x)?;
        expect_float("filter", w)?;
        let y = self.output(feature_map("input", x)?, feature_map("filter", w)?)?;
        if let Some(bias) = bias {
            expect_shape("bias", bias, &[y[1]])?;
        }
        let layout = match w.layout {
            Layout::FractalZ { groups } if groups == self.groups => Layout::Nc1hwc0,
            Layout::Plain if x.layout == Layout::Plain => Layout::Plain,
            other @ (Layout::Plain | Layout::Nc1hwc0 | Layout::FractalZ { .. }) => {
                return Err(OpError::Attribute(format!("filters in {other} for an input in {}", x.layout)));
            }
        };
        let mut results = vec![x.with_shape(y).with_layout(layout)];
        if self.statistics {
            if self.relu {
                return Err(OpError::Attribute("statistics are those before a ReLU, not after".into()));
            }
            let statistic = x.per_channel(y[1]);
            results.extend([statistic.clone(), statistic]);
        }
        Ok(results)
    }

    fn flop(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        match (outputs[0].shape.nchw(), inputs[1].shape.nchw()) {
            (Some(y), Some(w)) => self.macs_twice(y, w),
            _ => Flop(0),
        }
    }

    fn operand(&self, i: usize) -> Operand {
        match i {
            0 => Operand::in_layout(OperandLayout::Image),
            1 => Operand::in_layout(OperandLayout::Filters { groups: self.groups }),
            _ => Operand::PLAIN,
        }
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        let bias = u64::from(inputs.len() == 3);
        let instructions = 1 + bias + u64::from(self.relu) + 3 * u64::from(self.statistics);
        Work::Product { product: Product::Convolution(self), instructions }
    }

    fn kind(&self) -> Kind {
        Kind::Product
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Product(Product::Convolution(self))
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        if self.statistics || self.relu {
            return Err(grad.refuse("a fused Conv2D"));
        }
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let (x, w) = (grad.operand(0), grad.operand(1));
        if grad.wants(1) {
            let op = Conv2DBackpropFilter { conv: self.clone(), filter: grad.ty(w).shape.clone() };
            let dw = grad.emit("grad_filter", op, &[x, dy])?;
            grad.set(1, dw);
        }
        if grad.operands() == 3 && grad.wants(2) {
            let db = grad.emit("grad_bias", BiasAddGrad, &[dy])?;
            grad.set(2, db);
        }
        if grad.wants(0) {
            let op = Conv2DBackpropInput { conv: self.clone(), input: grad.ty(x).shape.clone() };
            let dx = grad.emit("grad_input", op, &[dy, w])?;
            grad.set(0, dx);
        }
        Ok(())
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let samples = matches!(known, Slot::Operand(0) | Slot::Result(0)) && !self.statistics;
        Way::along(self.clone(), call, part, |axis| samples && axis == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn shapes_and_cost_of_the_first_layer_of_resnet50() {
        let conv = Conv2D::new(Window { pad: [3; 4], ..Window::new([7, 7], [2, 2]) }, 1);
        let x = TensorType::plain([1, 3, 224, 224], DType::F32);
        let w = TensorType::plain([64, 3, 7, 7], DType::F32);
        let y = conv.infer(&[&x, &w]).unwrap().remove(0);
        assert_eq!(*y.shape, [1, 64, 112, 112]);
        assert_eq!(conv.flop(&[&x, &w], &[&y]), Flop(2 * 118_013_952));
    }

    #[test]
    fn groups_must_divide_the_channels() {
        let conv = Conv2D::new(Window::new([1, 1], [1, 1]), 2);
        let x = TensorType::plain([1, 3, 4, 4], DType::F32);
        let w = TensorType::plain([4, 1, 1, 1], DType::F32);
        assert!(matches!(conv.infer(&[&x, &w]), Err(OpError::Attribute(_))));
    }
    #[test]
    fn indices_are_not_convolved() {
        let conv = Conv2D::new(Window::new([1, 1], [1, 1]), 1);
        let (x, w) = (TensorType::plain([1, 3, 4, 4], DType::F32), TensorType::plain([4, 3, 1, 1], DType::F32));
        let indices = |ty: &TensorType| TensorType { dtype: DType::U32, ..ty.clone() };
        for (operand, inputs) in [("input", [&indices(&x), &w]), ("filter", [&x, &indices(&w)])] {
            let refused = conv.infer(&inputs).unwrap_err();
            assert!(matches!(refused, OpError::DType { operand: found, .. } if found == operand), "{refused}");
        }
    }
}
