//! Exponential moving average of a parameter.

use super::{Kind, OpError, Operand, Operator, Update, Work, expect_same_storage, expect_shape, operands, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: average, parameter after its update. Result: `decay * average + (1 - decay) * parameter`.
///
/// Source: `tf.train.ExponentialMovingAverage`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplyEma {
    /// What remains of the old average.
    pub decay: f64,
}

impl Operator for ApplyEma {
    fn names() -> &'static [&'static str] {
        &["ApplyEma"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [average, parameter] = operands(inputs, "average and parameter")?;
        expect_shape("parameter", parameter, &average.shape)?;
        expect_same_storage("parameter", average, parameter)?;
        Ok(vec![average.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(3, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MASTER
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::counted(self, inputs, outputs)
    }

    fn kind(&self) -> Kind {
        Kind::Update(Update::Average)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
