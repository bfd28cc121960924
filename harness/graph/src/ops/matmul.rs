//! `MatMul`: product of two matrices, perhaps with an added bias.

use super::{BiasAddGrad, Kind, OpError, Operand, Operator, Product, Work, expect_shape};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operands: matrices `a` and `b`, and optionally a bias `[n]`.
/// Result: `op(a) * op(b) + bias`, `[m, n]`, where `op` transposes if asked to.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// Whether `a` is given as `[k, m]` rather than `[m, k]`.
    pub transpose_a: bool,
    /// Whether `b` is given as `[n, k]` rather than `[k, n]`.
    pub transpose_b: bool,
}

/// Rows and columns of a matrix.
fn matrix(operand: &'static str, ty: &TensorType, transposed: bool) -> Result<[usize; 2], OpError> {
    super::expect_float(operand, ty)?;
    match ty.shape[..] {
        [rows, columns] if transposed => Ok([columns, rows]),
        [rows, columns] => Ok([rows, columns]),
        _ => Err(OpError::Shape {
            operand,
            expected: "a matrix (put a `flatten` before a linear layer)".into(),
            found: ty.shape.clone(),
        }),
    }
}

impl Operator for MatMul {
    fn names() -> &'static [&'static str] {
        &["MatMul"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let (a, b, bias) = match inputs {
            [a, b] => (a, b, None),
            [a, b, bias] => (a, b, Some(bias)),
            _ => return Err(OpError::Arity { expected: "two matrices and perhaps a bias", found: inputs.len() }),
        };
        let [m, k] = matrix("first matrix", a, self.transpose_a)?;
        let [k_b, n] = matrix("second matrix", b, self.transpose_b)?;
        if k != k_b {
            return Err(OpError::Shape {
                operand: "second matrix",
                expected: format!("{k} along the summed axis"),
                found: b.shape.clone(),
            });
        }
        if let Some(bias) = bias {
            expect_shape("bias", bias, &[n])?;
        }
        Ok(vec![a.with_shape([m, n])])
    }

    fn flop(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        let rows = outputs[0].shape[0].max(1);
        Flop(2 * outputs[0].shape.numel() as u64 * (inputs[0].shape.numel() / rows) as u64)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::PLAIN
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Product { product: Product::Matrices(self), instructions: 1 + u64::from(inputs.len() == 3) }
    }

    fn kind(&self) -> Kind {
        Kind::Product
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let (a, b) = (grad.operand(0), grad.operand(1));
        let product = |transpose_a, transpose_b| MatMul { transpose_a, transpose_b };
        if grad.wants(1) {
            // C = A B gives dB = A' C', and its transpose where B is given transposed.
            let db = match self.transpose_b {
                true => grad.emit("grad_weight", product(true, self.transpose_a), &[dy, a])?,
                false => grad.emit("grad_weight", product(!self.transpose_a, false), &[a, dy])?,
            };
            grad.set(1, db);
        }
        if grad.operands() == 3 && grad.wants(2) {
            let dbias = grad.emit("grad_bias", BiasAddGrad, &[dy])?;
            grad.set(2, dbias);
        }
        if grad.wants(0) {
            let da = match self.transpose_a {
                true => grad.emit("grad_input", product(self.transpose_b, true), &[b, dy])?,
                false => grad.emit("grad_input", product(false, !self.transpose_b), &[dy, b])?,
            };
            grad.set(0, da);
        }
        Ok(())
    }
}
