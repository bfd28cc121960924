//! `ApplyMomentum`: stochastic gradient descent with momentum.

use super::{Group, Kind, OpError, Operand, Operator, Update, Work, expect_shape, operands, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: parameter `p`, momentum `v`, gradient `g`, all of one shape. Results: `p` and `v` after the step.
///
/// `d = g + weight_decay * p`, `v' = momentum * v + d`, and `p' = p - lr * v'`, or with `nesterov`
/// `p' = p - lr * (d + momentum * v')`. The learning rate comes with each step, times `lr_scale`.
///
/// Source: `torch.optim.SGD` (dampening 0; a `v` of zero starts as PyTorch's first step does).
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyMomentum {
    /// What remains of the old momentum.
    pub momentum: f64,
    /// Look ahead by one momentum.
    pub nesterov: bool,
    /// Decay that is added to the gradient.
    pub weight_decay: f64,
    /// Factor on the step's learning rate.
    pub lr_scale: f64,
}

impl Operator for ApplyMomentum {
    fn names() -> &'static [&'static str] {
        &["ApplyMomentum"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [p, v, g] = operands(inputs, "parameter, momentum and gradient")?;
        expect_shape("momentum", v, &p.shape)?;
        expect_shape("gradient", g, &p.shape)?;
        super::expect_same_storage("momentum", p, v)?;
        super::expect_same_storage("gradient", p, g)?;
        Ok(vec![p.clone(), v.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(6 + 2 * u64::from(self.nesterov), inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MASTER
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::counted(self, inputs, outputs)
    }

    fn kind(&self) -> Kind {
        Kind::Update(Update::Optimizer { slots: 1, weight_decay: self.weight_decay, lr_scale: self.lr_scale })
    }

    fn group(&mut self) -> Option<Group<'_>> {
        Some(Group { weight_decay: &mut self.weight_decay, lr_scale: &mut self.lr_scale })
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 1)]
    }
}
