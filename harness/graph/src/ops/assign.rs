//! `Assign`: the formula with which an optimizer or a moving average updates persistent variables.

use super::{Group, Kind, OpError, Operand, Operator, Rounding, Update, Work, expect_same_storage, expect_shape};
use crate::{
    formula::{Formula, StepScalar, Term},
    tensor::TensorType,
    units::Flop,
};

/// Device operators for updates.
pub(super) const NAMES: [&str; 9] = [
    "ApplyMomentum",
    "ApplyAdagrad",
    "ApplyAdam",
    "ApplyAdamW",
    "ApplyEma",
    "ApplyLamb",
    "ApplyLars",
    "ApplyLion",
    "ApplyRmsProp",
];

/// Operands: the updated variables, then the values for the update, all with the same shape and layout. Results: the
/// next values of the first operands, one per result of the formula.
///
/// The formula runs over the stored elements in any layout; its row is the whole tensor. Its result must be zero if
/// all operands are zero, so that the padding of a layout stays zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Assign {
    /// The rule.
    pub formula: Formula,
    /// The device operator.
    pub device: &'static str,
    /// The updated variable.
    pub update: Update,
    in_place: Vec<(usize, usize)>,
}

impl Assign {
    /// An update with this formula.
    pub fn new(formula: Formula, device: &'static str, update: Update) -> Self {
        let in_place = (0..formula.results().len()).map(|n| (n, n)).collect();
        Self { formula, device, update, in_place }
    }

    /// `decay * average + (1 - decay) * parameter`, for an average and its parameter after the update.
    ///
    /// Source: `tf.train.ExponentialMovingAverage`.
    pub fn average(decay: f64) -> Self {
        let formula = Formula::define(0, |[average, parameter]| [decay * average + (1.0 - decay) * parameter]);
        Self::new(formula, "ApplyEma", Update::Average)
    }

    /// The same with the smaller of `decay` and `(1 + n) / (10 + n)` at update `n`, counted from 1, so that early
    /// parameters are forgotten soon. `before` updates precede those that the optimizer counts: a reset of the
    /// optimizer is none of the average.
    ///
    /// Source: `tf.train.ExponentialMovingAverage`, `num_updates`.
    pub fn average_with_warmup(decay: f64, before: u64) -> Self {
        let formula = Formula::update(0, |of| {
            let n = before as f64 + of.update;
            let decay = ((1.0 + n) / (10.0 + n)).min(decay);
            // The parameter takes the place of the gradient in this update.
            vec![decay * of.parameter + (1.0 - decay) * of.gradient]
        });
        Self::new(formula, "ApplyEma", Update::Average)
    }

    /// The value of a scalar of the step, from the learning rate and the number of this update, from 1.
    pub fn step(&self, scalar: StepScalar, learning_rate: f64, update: f64) -> f64 {
        let group = match self.update {
            Update::Optimizer { group, .. } => group,
            Update::Average | Update::Statistics => Group { weight_decay: 0.0, lr_scale: 1.0 },
        };
        match scalar {
            StepScalar::LearningRate => learning_rate * group.lr_scale,
            StepScalar::Update => update,
            StepScalar::WeightDecay => group.weight_decay,
        }
    }

    /// Whether the result is zero if all operands are zero.
    fn keeps_zero(&self) -> bool {
        let values = self.formula.values(|term| match term {
            Term::Operand(_) | Term::Row(..) => Some(0.0),
            Term::Step(scalar) => Some(self.step(*scalar, 1.0, 1.0)),
            // Row sizes include padding, and coordinates and softmax do not keep zeros.
            Term::RowSize | Term::Coordinate(_) | Term::Softmax(_) | Term::LogSoftmax(_) => None,
            Term::Constant(_) | Term::Unary(..) | Term::Binary(..) | Term::Select(..) => None,
        });
        self.formula.results().iter().all(|result| values[result.term.0] == Some(0.0))
    }
}

impl Operator for Assign {
    fn name(&self) -> Option<&'static str> {
        Some(self.device)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let results = self.formula.results().len();
        let Some(first) = inputs.first().filter(|_| inputs.len() == self.formula.operands() && results <= inputs.len())
        else {
            return Err(OpError::Arity { expected: "as many operands as its formula", found: inputs.len() });
        };
        for other in inputs {
            expect_shape("an operand of the update", other, &first.shape)?;
            expect_same_storage("an operand of the update", first, other)?;
        }
        if !self.keeps_zero() {
            return Err(OpError::Attribute(format!("{} makes something of nothing but zeros", self.device)));
        }
        Ok(inputs[..results].iter().map(|ty| (*ty).clone()).collect())
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        super::per_element(self.formula.operations(), inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MASTER
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::in_f32(inputs[0], self.formula.operations().max(1))
    }

    fn kind(&self) -> Kind {
        Kind::Update(self.update)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Update(self)
    }

    fn group(&mut self) -> Option<&mut Group> {
        match &mut self.update {
            Update::Optimizer { group, .. } => Some(group),
            Update::Average | Update::Statistics => None,
        }
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }
}
