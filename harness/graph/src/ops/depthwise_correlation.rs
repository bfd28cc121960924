//! Depth-wise cross-correlation of two feature maps, and the gradient of the larger one.

use super::{
    OpError, Operand, Operator, Rounding, Summed, expect_float, expect_same_storage, feature_map, operands,
    smallest_plane,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: search `[n, c, h, w]`, kernel `[n, c, kh, kw]`. Result `[n, c, h - kh + 1, w - kw + 1]`: each channel of
/// each sample of the search correlated with the same channel of the same sample of the kernel, without padding.
///
/// Frameworks write it as a convolution with `n * c` groups. The gradient of the kernel is the correlation of the
/// search with the output gradient, so it is this operator again.
///
/// Source: arXiv 1812.05050, section 3.1; `conv2d_dw_group` of its authors.
#[derive(Clone, Debug, PartialEq)]
pub struct DepthwiseCorrelation;

impl DepthwiseCorrelation {
    fn output(x: [usize; 4], k: [usize; 4]) -> Result<[usize; 4], OpError> {
        let [n, c, h, w] = x;
        if k[..2] != [n, c] || k[2] > h || k[3] > w || k[2] == 0 || k[3] == 0 {
            let expected = format!("{n}x{c} maps of at most {h}x{w}");
            return Err(OpError::Shape { operand: "kernel", expected, found: k.into() });
        }
        Ok([n, c, h - k[2] + 1, w - k[3] + 1])
    }
}

impl Operator for DepthwiseCorrelation {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, k] = operands(inputs, "search and kernel")?;
        expect_float("search", x)?;
        expect_same_storage("kernel", x, k)?;
        Ok(vec![x.with_shape(Self::output(feature_map("search", x)?, feature_map("kernel", k)?)?)])
    }

    fn flop(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        let taps = inputs[1].shape.nchw().map_or(0, |k| k[2] * k[3]);
        Flop(2 * (outputs[0].shape.numel() * taps) as u64)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Narrow(smallest_plane(inputs), Summed::All)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let (x, k) = (grad.operand(0), grad.operand(1));
        if grad.wants(0) {
            let input = grad.ty(x).shape.clone();
            let dx = grad.emit("grad_search", DepthwiseCorrelationGrad { input }, &[dy, k])?;
            grad.set(0, dx);
        }
        if grad.wants(1) {
            let dk = grad.emit("grad_kernel", Self, &[x, dy])?;
            grad.set(1, dk);
        }
        Ok(())
    }
}

/// Gradient of the search in [`DepthwiseCorrelation`]. Operands: output gradient `[n, c, h - kh + 1, w - kw + 1]`,
/// kernel `[n, c, kh, kw]`. Result: `[n, c, h, w]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DepthwiseCorrelationGrad {
    /// Shape of the search.
    pub input: Shape,
}

impl Operator for DepthwiseCorrelationGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, k] = operands(inputs, "output gradient and kernel")?;
        expect_same_storage("kernel", dy, k)?;
        let x = self.input.nchw().ok_or_else(|| OpError::Attribute("the search has 4 axes".to_string()))?;
        super::expect_shape("output gradient", dy, &DepthwiseCorrelation::output(x, feature_map("kernel", k)?)?)?;
        Ok(vec![dy.with_shape(self.input.clone())])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        let taps = inputs[1].shape.nchw().map_or(0, |k| k[2] * k[3]);
        Flop(2 * (inputs[0].shape.numel() * taps) as u64)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Narrow(smallest_plane(inputs), Summed::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn shapes_of_siammask() {
        let ty = |shape: [usize; 4]| TensorType::plain(shape, DType::F32);
        let (x, k) = (ty([2, 256, 29, 29]), ty([2, 256, 5, 5]));
        let y = DepthwiseCorrelation.infer(&[&x, &k]).unwrap().remove(0);
        assert_eq!(*y.shape, [2, 256, 25, 25]);
        assert_eq!(DepthwiseCorrelation.flop(&[&x, &k], &[&y]), Flop(2 * 2 * 256 * 625 * 25));
        assert!(DepthwiseCorrelation.infer(&[&k, &x]).is_err(), "a kernel larger than the search");
        assert!(DepthwiseCorrelation.infer(&[&x, &ty([1, 256, 5, 5])]).is_err(), "another batch");
    }
}
