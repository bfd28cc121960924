//! `MatMul`: matrix products, optionally with a bias.

use super::{BiasAddGrad, Kind, Map, OpError, Operator, Product, Reshape, Rounding, Work, expect_shape};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    formula::Formula,
    graph::ValueId,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: matrices `a` and `b`, or several of them along leading axes that broadcast as in NumPy, and optionally a
/// bias `[n]`. Result: `op(a) * op(b) + bias`, `[.., m, n]`, where `op` optionally exchanges the last two axes.
///
/// Source: `torch.matmul`; CANN's `MatMulV2` and `BatchMatMulV2`.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// Whether `a` is `[k, m]` and not `[m, k]`.
    pub transpose_a: bool,
    /// Whether `b` is `[n, k]` and not `[k, n]`.
    pub transpose_b: bool,
}

/// Extents of matrix products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Products {
    /// Leading axes of the result: one product for each of their positions.
    pub leading: Vec<usize>,
    /// Leading axes of the first operand.
    pub leading_a: Vec<usize>,
    /// Leading axes of the second operand.
    pub leading_b: Vec<usize>,
    /// Rows of a result.
    pub m: usize,
    /// Columns of a result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
}

/// Leading axes, rows and columns of an operand.
fn matrices<'s>(
    operand: &'static str,
    ty: &'s TensorType,
    transposed: bool,
) -> Result<(&'s [usize], [usize; 2]), OpError> {
    super::expect_float(operand, ty)?;
    match ty.shape[..] {
        [ref leading @ .., rows, columns] if transposed => Ok((leading, [columns, rows])),
        [ref leading @ .., rows, columns] => Ok((leading, [rows, columns])),
        _ => Err(OpError::Shape {
            operand,
            expected: "a matrix (put a `flatten` before a linear layer)".into(),
            found: ty.shape.clone(),
        }),
    }
}

/// The common shape of two lists of axes; `None` if an axis differs and neither has one element.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let extent = |axes: &[usize], axis: usize| (axis + axes.len()).checked_sub(rank).map_or(1, |own| axes[own]);
    let common = |axis| match (extent(a, axis), extent(b, axis)) {
        (1, n) | (n, 1) => Some(n),
        (n, m) => (n == m).then_some(n),
    };
    (0..rank).map(common).collect()
}

impl Products {
    /// Index of an operand's matrix for the `index`-th product. `own` are the leading axes of the operand.
    pub fn matrix_of(&self, own: &[usize], index: usize) -> usize {
        let missing = self.leading.len() - own.len();
        let (mut rest, mut place, mut stride) = (index, 0, 1);
        for (axis, extent) in self.leading.iter().enumerate().rev() {
            let at = rest % extent;
            rest /= extent;
            if let Some(own) = axis.checked_sub(missing).map(|axis| own[axis]) {
                place += if own == 1 { 0 } else { at * stride };
                stride *= own;
            }
        }
        place
    }

    /// Number of products.
    pub fn count(&self) -> usize {
        self.leading.iter().product()
    }

    /// The same as fewer products: those with the same second matrix become one product of all their rows. Only for a
    /// first operand that is not transposed.
    fn joined(self) -> Self {
        if self.leading_b.iter().any(|extent| *extent != 1) || self.leading_a != self.leading {
            return self;
        }
        let m = self.leading.iter().product::<usize>() * self.m;
        Self { leading: Vec::new(), leading_a: Vec::new(), leading_b: Vec::new(), m, ..self }
    }
}

impl MatMul {
    /// Extents of its products.
    ///
    /// # Errors
    /// The operands do not fit each other.
    pub fn products(&self, a: &TensorType, b: &TensorType) -> Result<Products, OpError> {
        let (leading_a, [m, k]) = matrices("first matrix", a, self.transpose_a)?;
        let (leading_b, [k_b, n]) = matrices("second matrix", b, self.transpose_b)?;
        let misfit = |expected| OpError::Shape { operand: "second matrix", expected, found: b.shape.clone() };
        if k != k_b {
            return Err(misfit(format!("{k} along the summed axis")));
        }
        let leading = broadcast(leading_a, leading_b)
            .ok_or_else(|| misfit(format!("leading axes that broadcast with {}", Shape::from(leading_a))))?;
        Ok(Products { leading, leading_a: leading_a.to_vec(), leading_b: leading_b.to_vec(), m, n, k })
    }

    /// The same as fewer products, if possible.
    ///
    /// # Errors
    /// As [`MatMul::products`].
    pub fn joined(&self, a: &TensorType, b: &TensorType) -> Result<Products, OpError> {
        let products = self.products(a, b)?;
        Ok(if self.transpose_a { products } else { products.joined() })
    }
}

/// Reshapes a value to a matrix with all its rows.
fn rows(grad: &mut Gradient<'_>, part: &str, value: ValueId) -> Result<ValueId, GraphError> {
    let shape = grad.ty(value).shape.to_vec();
    match shape[..] {
        [ref leading @ .., rows, columns] if !leading.is_empty() => {
            let rows = leading.iter().product::<usize>() * rows;
            grad.emit(part, Reshape { shape: [rows, columns].into() }, &[value])
        }
        _ => Ok(value),
    }
}

/// Sums a gradient over the axes along which its operand was broadcast.
fn summed(grad: &mut Gradient<'_>, part: &str, value: ValueId, operand: ValueId) -> Result<ValueId, GraphError> {
    let (space, shape) = (grad.ty(value).shape.clone(), grad.ty(operand).shape.clone());
    if space == shape {
        return Ok(value);
    }
    let missing = space.len() - shape.len();
    let broadcast = |axis: &usize| axis.checked_sub(missing).map_or(1, |own| shape[own]) == 1 && space[*axis] != 1;
    let over = (0..space.len()).filter(broadcast).collect();
    let sum = Map::with_space(Formula::define(0, |[x]| [x]).summed(over), space);
    let sum = grad.emit(&format!("{part}_sum"), sum, &[value])?;
    if grad.ty(sum).shape == shape {
        return Ok(sum);
    }
    grad.emit(&format!("{part}_shape"), Reshape { shape }, &[sum])
}

impl Operator for MatMul {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let (a, b, bias) = match inputs {
            [a, b] => (a, b, None),
            [a, b, bias] => (a, b, Some(bias)),
            _ => return Err(OpError::Arity { expected: "two matrices and perhaps a bias", found: inputs.len() }),
        };
        let Products { leading, m, n, .. } = self.products(a, b)?;
        if let Some(bias) = bias {
            expect_shape("bias", bias, &[n])?;
        }
        let shape = Shape::from([leading, vec![m, n]].concat());
        shape.checked_numel().ok_or(OpError::TooLarge)?;
        Ok(vec![a.with_shape(shape)])
    }

    fn flop(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        let k = self.products(inputs[0], inputs[1]).map_or(0, |products| products.k);
        Flop(2 * outputs[0].shape.numel() as u64 * k as u64)
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Product { product: Product::Matrices(self), instructions: 1 + u64::from(inputs.len() == 3) }
    }

    fn kind(&self) -> Kind {
        Kind::Product
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Product(Product::Matrices(self))
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let (a, b) = (grad.operand(0), grad.operand(1));
        let product = |transpose_a, transpose_b| MatMul { transpose_a, transpose_b };
        let has_bias = grad.operands() == 3 && grad.wants(2);
        // One matrix for all rows: its gradient is the sum over all rows, and so is that of the bias.
        let shared = grad.ty(b).shape.len() == 2 && !self.transpose_a;
        let dy_rows = if has_bias || (shared && grad.wants(1)) { rows(grad, "grad_rows", dy)? } else { dy };
        if grad.wants(1) {
            let (a, dy) = if shared { (rows(grad, "rows", a)?, dy_rows) } else { (a, dy) };
            // C = A B gives dB = A' C', or the transpose of this if B is transposed.
            let db = match self.transpose_b {
                true => grad.emit("grad_weight", product(true, self.transpose_a), &[dy, a])?,
                false => grad.emit("grad_weight", product(!self.transpose_a, false), &[a, dy])?,
            };
            let db = summed(grad, "grad_weight", db, b)?;
            grad.set(1, db);
        }
        if has_bias {
            let dbias = grad.emit("grad_bias", BiasAddGrad, &[dy_rows])?;
            grad.set(2, dbias);
        }
        if grad.wants(0) {
            let da = match self.transpose_a {
                true => grad.emit("grad_input", product(self.transpose_b, true), &[b, dy])?,
                false => grad.emit("grad_input", product(false, !self.transpose_b), &[dy, b])?,
            };
            let da = summed(grad, "grad_input", da, a)?;
            grad.set(0, da);
        }
        Ok(())
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let [a, b] = [0, 1].map(|n| &call.inputs[n].shape);
        let rank = call.outputs[0].shape.len();
        // The axes of rows, columns and terms, counted from the last one of each operand.
        let (m, k) = if self.transpose_a { (1, 2) } else { (2, 1) };
        let (n, terms) = if self.transpose_b { (2, 1) } else { (1, 2) };
        let from_last = call.shape(known).len() - part.axis;
        let leading = |shape: &Shape| match shape.len().checked_sub(from_last) {
            Some(axis) if shape[axis] > 1 => Need::Part(part.along(axis)),
            _ => Need::Whole,
        };
        let along = |shape: &Shape, from_last: usize| Need::Part(part.along(shape.len() - from_last));
        let result = |from_last: usize| Outcome::Part(part.along(rank - from_last));
        let (a, b, bias, result) = match known {
            Slot::Operand(0 | 1) | Slot::Result(_) if from_last > 2 => {
                (leading(a), leading(b), Need::Whole, result(from_last))
            }
            Slot::Operand(0) if from_last == k => (along(a, k), along(b, terms), Need::AddedLater, Outcome::Partial),
            Slot::Operand(1) if from_last == terms => {
                (along(a, k), along(b, terms), Need::AddedLater, Outcome::Partial)
            }
            Slot::Operand(0) => (along(a, m), Need::Whole, Need::Whole, result(2)),
            Slot::Result(_) if from_last == 2 => (along(a, m), Need::Whole, Need::Whole, result(2)),
            Slot::Operand(_) | Slot::Result(_) => (Need::Whole, along(b, n), Need::Part(part.along(0)), result(1)),
        };
        let operands = [a, b].into_iter().chain((call.inputs.len() == 3).then_some(bias)).collect();
        Some(Way { op: self.clone().into(), operands, results: vec![result] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn infer(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
        let [a, b] = [a, b].map(|shape| TensorType::plain(shape, DType::F32));
        Ok(MatMul { transpose_a: false, transpose_b: true }.infer(&[&a, &b])?[0].shape.to_vec())
    }

    #[test]
    fn leading_axes_broadcast() {
        assert_eq!(infer(&[2, 3, 5, 4], &[7, 4]).unwrap(), [2, 3, 5, 7]);
        assert_eq!(infer(&[2, 3, 5, 4], &[2, 1, 7, 4]).unwrap(), [2, 3, 5, 7]);
        assert_eq!(infer(&[5, 4], &[3, 7, 4]).unwrap(), [3, 5, 7]);
        assert!(infer(&[2, 5, 4], &[3, 7, 4]).is_err());
        assert!(infer(&[4], &[7, 4]).is_err());
    }

    #[test]
    fn a_product_finds_its_matrices() {
        let [a, b] = [[2, 3, 5, 4], [2, 1, 4, 7]].map(|shape| TensorType::plain(shape, DType::F32));
        let products = MatMul { transpose_a: false, transpose_b: false }.products(&a, &b).unwrap();
        let found = |own: &[usize]| (0..6).map(|index| products.matrix_of(own, index)).collect::<Vec<_>>();
        assert_eq!(found(&products.leading_a), [0, 1, 2, 3, 4, 5]);
        assert_eq!(found(&products.leading_b), [0, 0, 0, 1, 1, 1]);
        assert_eq!(products.joined().count(), 6);
    }
}
