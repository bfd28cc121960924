//! `ApplyAdam`: adaptive moments.

use super::{Group, Kind, OpError, Operand, Operator, Update, Work, expect_shape, operands, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: parameter `p`, first moment `m`, second moment `v`, gradient `g`, all of one shape.
/// Results: `p`, `m`, `v` after the step.
///
/// With `t` the number of this step from 1: `d = g + weight_decay * p`, `m' = beta1 * m + (1 - beta1) * d`,
/// `v' = beta2 * v + (1 - beta2) * d^2`,
/// `p' = p - lr / (1 - beta1^t) * m' / (sqrt(v') / sqrt(1 - beta2^t) + eps)`.
/// The learning rate comes with each step, times `lr_scale`.
///
/// Source: arXiv 1412.6980 in the form of `torch.optim.Adam` (eps outside the root, decay as L2).
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyAdam {
    /// What remains of the first moment.
    pub beta1: f64,
    /// What remains of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decay that is added to the gradient.
    pub weight_decay: f64,
    /// Factor on the step's learning rate.
    pub lr_scale: f64,
}

impl Operator for ApplyAdam {
    fn names() -> &'static [&'static str] {
        &["ApplyAdam"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [p, m, v, g] = operands(inputs, "parameter, first moment, second moment and gradient")?;
        for (name, other) in [("first moment", m), ("second moment", v), ("gradient", g)] {
            expect_shape(name, other, &p.shape)?;
            super::expect_same_storage(name, p, other)?;
        }
        Ok(vec![p.clone(), m.clone(), v.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(14, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MASTER
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::counted(self, inputs, outputs)
    }

    fn kind(&self) -> Kind {
        Kind::Update(Update::Optimizer { slots: 2, weight_decay: self.weight_decay, lr_scale: self.lr_scale })
    }

    fn group(&mut self) -> Option<Group<'_>> {
        Some(Group { weight_decay: &mut self.weight_decay, lr_scale: &mut self.lr_scale })
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 1), (2, 2)]
    }
}
