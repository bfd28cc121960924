//! `MoeInitRouting` and `MoeFinalizeRouting`: the rows of tokens by expert, and back.
//!
//! A *routing* `[tokens, experts]` has the weight of each expert for each token. A weight that is not zero is a
//! *choice*; a token has at most `top` of them. Each choice has a row in a table of `tokens * top` rows, which are
//! ordered by expert and then by token. Rows behind the last choice are zero, and nothing reads them. So shapes do not
//! depend on values.

use super::{OpError, Operator, Rounding, Summed, Work, expect_float, expect_shape, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operands: tokens `[tokens, width]` and their routing. Result: the row of the token of each choice.
///
/// Source: `permute` in Megatron-LM, `megatron/core/transformer/moe/moe_utils.py`; CANN's `aclnnMoeInitRouting`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// The most choices of a token.
    pub top: usize,
}

/// Operands: the rows of choices `[tokens * top, width]` and their routing. Result: for each token, the sum of the
/// rows of its choices, in the order of the experts.
///
/// Source: `unpermute` in Megatron-LM, as above; CANN's `aclnnMoeFinalizeRouting`.
#[derive(Clone, Debug, PartialEq)]
pub struct Combine {
    /// The most choices of a token.
    pub top: usize,
    /// Whether each row is multiplied by the weight of its choice.
    pub weighted: bool,
}

/// Gradients of rows and routing in a weighted [`Combine`]. Operands: rows, routing, and the gradient of the result.
/// Weights that are no choices get none.
#[derive(Clone, Debug, PartialEq)]
pub struct CombineGrad;

/// Tokens and experts of a routing.
fn routing(ty: &TensorType) -> Result<[usize; 2], OpError> {
    expect_float("routing", ty)?;
    ty.shape[..].try_into().map_err(|_| OpError::Shape {
        operand: "routing",
        expected: "[tokens, experts]".to_owned(),
        found: ty.shape.clone(),
    })
}

/// Number of experts, if the routing is of this many tokens, and each has `top` choices.
pub(super) fn experts(ty: &TensorType, rows: usize, top: usize) -> Result<usize, OpError> {
    let [tokens, experts] = routing(ty)?;
    if top == 0 {
        return Err(OpError::Attribute("a token uses at least one expert".to_owned()));
    }
    if tokens.checked_mul(top) != Some(rows) {
        let message = format!("{tokens} tokens with {top} experts each have {} rows, not {rows}", tokens * top);
        return Err(OpError::Attribute(message));
    }
    Ok(experts)
}

/// Rows and columns of a matrix.
pub(super) fn matrix(operand: &'static str, ty: &TensorType) -> Result<[usize; 2], OpError> {
    expect_float(operand, ty)?;
    let misfit = || OpError::Shape { operand, expected: "[rows, width]".to_owned(), found: ty.shape.clone() };
    ty.shape[..].try_into().map_err(|_| misfit())
}

/// The rows of the choices of a part of the tokens. They are in another order if they are put together, which nothing
/// does.
pub(super) fn choices(tokens: &Part, top: usize) -> Part {
    Part { axis: 0, runs: tokens.runs.iter().map(|run| run * top).collect() }
}

/// The tokens of rows of choices.
pub(super) fn tokens(choices: &Part, top: usize) -> Part {
    Part { axis: 0, runs: choices.runs.iter().map(|run| run / top).collect() }
}

/// Bytes of a row.
fn row_bytes(rows: &TensorType) -> u64 {
    rows.shape.iter().skip(1).product::<usize>() as u64 * rows.dtype.bytes().0
}

impl Operator for Dispatch {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, choices] = operands(inputs, "tokens and routing")?;
        let [tokens, width] = matrix("tokens", x)?;
        let rows = tokens.checked_mul(self.top).ok_or(OpError::TooLarge)?;
        experts(choices, rows, self.top)?;
        Ok(vec![x.with_shape([rows, width])])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Moves { run: row_bytes(inputs[0]) }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let routing = grad.operand(1);
        grad.through_with(Combine { top: self.top, weighted: false }, |_, dy| [dy, routing])
    }

    fn way(&self, _call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let (x, result) = match (known, part.axis) {
            (Slot::Operand(1), 1) => (Need::Whole, Outcome::Local),
            (Slot::Operand(_), 0) => (Need::Part(part.clone()), Outcome::Part(choices(part, self.top))),
            (Slot::Operand(0), _) => (Need::Part(part.clone()), Outcome::Part(part.clone())),
            (Slot::Operand(_) | Slot::Result(_), _) => return None,
        };
        let routing = if (known, part.axis) == (Slot::Operand(0), 1) { Need::Whole } else { Need::Part(part.clone()) };
        Some(Way { op: self.clone().into(), operands: vec![x, routing], results: vec![result] })
    }
}

impl Operator for Combine {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, choices] = operands(inputs, "rows and routing")?;
        let [rows, width] = matrix("rows", x)?;
        experts(choices, rows, self.top)?;
        Ok(vec![x.with_shape([rows / self.top, width])])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1 + u64::from(self.weighted), inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Narrow(self.top + usize::from(self.weighted), Summed::All)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let (rows, routing) = (grad.operand(0), grad.operand(1));
        if !self.weighted {
            return grad.through_with(Dispatch { top: self.top }, |_, dy| [dy, routing]);
        }
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let both = grad.emit_all("grad", CombineGrad, &[rows, routing, dy])?;
        both.into_iter().enumerate().for_each(|(n, gradient)| grad.set(n, gradient));
        Ok(())
    }

    fn way(&self, _call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let (rows, routing, result) = match (known, part.axis) {
            (Slot::Operand(1), 1) => (Need::Local, Need::Part(part.clone()), Outcome::Partial),
            (Slot::Operand(1) | Slot::Result(_), 0) => {
                let rows = Need::Part(choices(part, self.top));
                (rows, Need::Part(part.clone()), Outcome::Part(part.clone()))
            }
            (Slot::Operand(0), 0) => {
                let tokens = tokens(part, self.top);
                (Need::Part(part.clone()), Need::Part(tokens.clone()), Outcome::Part(tokens))
            }
            (Slot::Operand(_) | Slot::Result(_), _) => {
                (Need::Part(part.clone()), Need::Whole, Outcome::Part(part.clone()))
            }
        };
        Some(Way { op: self.clone().into(), operands: vec![rows, routing], results: vec![result] })
    }
}

impl Operator for CombineGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, choices, dy] = operands(inputs, "rows, routing and the gradient of the result")?;
        let ([rows, width], [tokens, _]) = (matrix("rows", x)?, routing(choices)?);
        experts(choices, rows, rows.checked_div(tokens).unwrap_or(0))?;
        expect_shape("gradient", dy, &[tokens, width])?;
        Ok(vec![x.clone(), choices.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(3, inputs[0])
    }

    fn rounding(&self, inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Narrow(inputs[0].shape.iter().skip(1).product::<usize>() + 1, Summed::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn every_choice_has_a_row() {
        let ty = |shape: [usize; 2]| TensorType::plain(shape, DType::F32);
        let (x, choices) = (ty([6, 8]), ty([6, 4]));
        let rows = Dispatch { top: 2 }.infer(&[&x, &choices]).unwrap().remove(0);
        assert_eq!(rows.shape[..], [12, 8]);
        assert_eq!(Combine { top: 2, weighted: true }.infer(&[&rows, &choices]).unwrap()[0], x);
        assert_eq!(CombineGrad.infer(&[&rows, &choices, &x]).unwrap(), [rows.clone(), choices.clone()]);
        assert!(Dispatch { top: 0 }.infer(&[&x, &choices]).is_err(), "no choice");
        assert!(Dispatch { top: 5 }.infer(&[&x, &choices]).is_ok(), "a rank may have fewer experts than a token uses");
        assert!(Combine { top: 3, weighted: true }.infer(&[&rows, &choices]).is_err(), "rows of other tokens");
        assert!(Dispatch { top: 1 }.infer(&[&ty([5, 8]), &choices]).is_err(), "a routing of other tokens");
    }
}
