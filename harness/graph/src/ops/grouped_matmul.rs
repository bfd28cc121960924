//! `GroupedMatmul`: the product of each group of rows with a matrix of its own.

use super::{
    Kind, OpError, Operator, Product, Rounding, Work, operands,
    routing::{choices, experts, matrix, tokens},
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: rows of choices `[rows, k]`, matrices `[experts, k, n]`, and the routing that says which rows belong to
/// which expert ([`super::Dispatch`]). Result `[rows, n]`: each row times the matrix of its expert; zero for rows that
/// are no choices.
///
/// Source: CANN's `aclnnGroupedMatmul`; `torch.nn.functional.grouped_mm`.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupedMatMul {
    /// The most choices of a token.
    pub top: usize,
    /// Whether the matrices are `[experts, n, k]`.
    pub transpose: bool,
}

/// Gradient of the matrices in [`GroupedMatMul`]. Operands: rows `[rows, k]`, the gradient of the result `[rows, n]`,
/// and the routing. Result: for each expert, the sum of the outer products of its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupedMatMulWeights {
    /// The most choices of a token.
    pub top: usize,
    /// Whether the matrices are `[experts, n, k]`.
    pub transpose: bool,
}

/// Operations of a product of `rows` rows of `k` elements with matrices of `n` columns.
fn multiply_adds([rows, k]: [usize; 2], n: usize) -> Flop {
    Flop(2 * (rows * k * n) as u64)
}

fn columns(ty: &TensorType) -> usize {
    ty.shape.last().copied().unwrap_or(0)
}

impl Operator for GroupedMatMul {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, weights, choices] = operands(inputs, "rows, matrices and routing")?;
        let [rows, k] = matrix("rows", x)?;
        let experts = experts(choices, rows, self.top)?;
        let n = match (&weights.shape[..], self.transpose) {
            (&[e, n, inner], true) | (&[e, inner, n], false) if (e, inner) == (experts, k) => n,
            _ => {
                let expected = format!("matrices of {experts} experts for rows of {k} elements");
                return Err(OpError::Shape { operand: "matrices", expected, found: weights.shape.clone() });
            }
        };
        let shape = Shape::from([rows, n]);
        shape.checked_numel().ok_or(OpError::TooLarge)?;
        Ok(vec![x.with_shape(shape)])
    }

    fn flop(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        multiply_adds(matrix("rows", inputs[0]).unwrap_or_default(), columns(outputs[0]))
    }

    fn kind(&self) -> Kind {
        Kind::Product
    }

    fn work(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Product { product: Product::Groups(self), instructions: 1 }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Product(Product::Groups(self))
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let [rows, weights, routing] = [0, 1, 2].map(|n| grad.operand(n));
        let Self { top, transpose } = *self;
        if grad.wants(1) {
            let dw = grad.emit("grad_weight", GroupedMatMulWeights { top, transpose }, &[rows, dy, routing])?;
            grad.set(1, dw);
        }
        if grad.wants(0) {
            let dx = grad.emit("grad_input", Self { top, transpose: !transpose }, &[dy, weights, routing])?;
            grad.set(0, dx);
        }
        Ok(())
    }

    fn way(&self, _call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let own = || Need::Part(part.clone());
        let (n, k) = if self.transpose { (1, 2) } else { (2, 1) };
        let (rows, matrices, routing, result) = match (known, part.axis) {
            (Slot::Operand(1), 0) => (Need::Local, own(), Need::Part(part.along(1)), Outcome::Local),
            (Slot::Operand(2), 1) => (Need::Local, Need::Part(part.along(0)), own(), Outcome::Local),
            (Slot::Operand(2), _) => {
                let rows = choices(part, self.top);
                (Need::Part(rows.clone()), Need::Whole, own(), Outcome::Part(rows))
            }
            (Slot::Operand(0) | Slot::Result(_), 0) => {
                (own(), Need::Whole, Need::Part(tokens(part, self.top)), Outcome::Part(part.clone()))
            }
            (Slot::Operand(1), axis) if axis == n => (Need::Whole, own(), Need::Whole, Outcome::Part(part.along(1))),
            (Slot::Result(_), _) => (Need::Whole, Need::Part(part.along(n)), Need::Whole, Outcome::Part(part.clone())),
            (Slot::Operand(_), _) => {
                (Need::Part(part.along(1)), Need::Part(part.along(k)), Need::Whole, Outcome::Partial)
            }
        };
        Some(Way { op: self.clone().into(), operands: vec![rows, matrices, routing], results: vec![result] })
    }
}

impl Operator for GroupedMatMulWeights {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, dy, choices] = operands(inputs, "rows, the gradient of the result, and routing")?;
        let ([rows, k], [others, n]) = (matrix("rows", x)?, matrix("gradient", dy)?);
        if rows != others {
            let expected = format!("{rows} rows");
            return Err(OpError::Shape { operand: "gradient", expected, found: dy.shape.clone() });
        }
        let experts = experts(choices, rows, self.top)?;
        let shape = Shape::from(if self.transpose { [experts, n, k] } else { [experts, k, n] });
        shape.checked_numel().ok_or(OpError::TooLarge)?;
        Ok(vec![x.with_shape(shape)])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        multiply_adds(matrix("rows", inputs[0]).unwrap_or_default(), columns(inputs[1]))
    }

    fn kind(&self) -> Kind {
        Kind::Product
    }

    fn work(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Product { product: Product::GroupGradients(self), instructions: 1 }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Product(Product::GroupGradients(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn shapes_of_a_product_and_its_gradient() {
        let ty = |shape: &[usize]| TensorType::plain(shape.to_vec(), DType::F32);
        let (x, weights, choices) = (ty(&[12, 8]), ty(&[4, 5, 8]), ty(&[6, 4]));
        let product = GroupedMatMul { top: 2, transpose: true };
        let y = product.infer(&[&x, &weights, &choices]).unwrap().remove(0);
        assert_eq!(y.shape[..], [12, 5]);
        assert_eq!(product.flop(&[&x, &weights, &choices], &[&y]), Flop(2 * 12 * 8 * 5));
        let gradient = GroupedMatMulWeights { top: 2, transpose: true };
        assert_eq!(gradient.infer(&[&x, &y, &choices]).unwrap()[0], weights);
        assert!(GroupedMatMul { top: 2, transpose: false }.infer(&[&x, &weights, &choices]).is_err());
        assert!(product.infer(&[&x, &ty(&[3, 5, 8]), &choices]).is_err(), "another number of experts");
    }
}
