//! Softmax cross entropy with label smoothing.

use super::{OpError, Operand, Operator, Rounding, ScaleBy, expect_shape, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::{DType, Shape, TensorType},
    units::Flop,
};

/// The distribution of label smoothing. The losses of the two definitions differ slightly, which is a frequent
/// unnoticed difference between frameworks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmoothingOver {
    /// `1 - s + s/K` on the label, `s/K` elsewhere (`torch.nn.CrossEntropyLoss`, TensorFlow).
    AllClasses,
    /// `1 - s` on the label, `s/(K-1)` elsewhere (MindSpore's guide).
    OtherClasses,
}

/// Operands: logits `[n, k]` and labels `[n]` (u32), or for each of `t` tokens `[n, t, k]` and `[n, t]`, or for each
/// pixel `[n, h, w, k]` and `[n, h, w]`. Results: the mean cross entropy between smoothed label and softmax, over all
/// labels that are not ignored; and the gradient of the logits, 0 where a label is ignored. If all labels are
/// ignored, the mean is NaN.
///
/// Source: `torch.nn.functional.cross_entropy`; the operator of the device also returns loss and gradient at once.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftmaxCrossEntropy {
    /// The part `s` of the label that is distributed, in `[0, 1)`.
    pub smoothing: f64,
    /// The classes over which it is distributed.
    pub over: SmoothingOver,
    /// The label of ignored elements (`ignore_index`); it need not be a class.
    pub ignored: Option<u32>,
}

impl SoftmaxCrossEntropy {
    /// Target probability of the label, and of each other class, for `k` classes.
    pub fn targets(&self, k: usize) -> (f64, f64) {
        let (s, k) = (self.smoothing, k as f64);
        match self.over {
            SmoothingOver::AllClasses => (1.0 - s + s / k, s / k),
            SmoothingOver::OtherClasses => (1.0 - s, s / (k - 1.0)),
        }
    }
}

impl Operator for SoftmaxCrossEntropy {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [logits, labels] = operands(inputs, "logits and labels")?;
        super::expect_float("logits", logits)?;
        let (rows, k) = match logits.shape[..] {
            [ref rows @ .., k] if (1..=3).contains(&rows.len()) => (rows, k),
            _ => {
                let expected = "[batch, classes] for each sample, token or pixel".to_string();
                return Err(OpError::Shape { operand: "logits", expected, found: logits.shape.clone() });
            }
        };
        expect_shape("labels", labels, rows)?;
        if labels.dtype != DType::U32 {
            return Err(OpError::DType { operand: "labels", expected: "u32", found: labels.dtype });
        }
        if k < 2 {
            return Err(OpError::Attribute(format!("cross entropy over {k} classes")));
        }
        if !(0.0..1.0).contains(&self.smoothing) {
            return Err(OpError::Attribute(format!("label smoothing of {} is not in [0, 1)", self.smoothing)));
        }
        Ok(vec![TensorType::plain(Shape::scalar(), logits.dtype), logits.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(8, inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 { Operand::PLAIN } else { Operand::AS_IS }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Softmax(self)
    }

    fn numbered(&self, inputs: &[&TensorType]) -> Option<(usize, usize)> {
        Some((1, *inputs[0].shape.last()?))
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through_with(ScaleBy, |grad, dloss| [grad.result(1), dloss])
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let rows = call.inputs[1].shape.len();
        let mean = match self.ignored {
            Some(ignored) => Outcome::MeanOf { operand: 1, ignored },
            None => Outcome::Mean,
        };
        (known != Slot::Result(0) && part.axis < rows).then(|| Way {
            op: self.clone().into(),
            operands: vec![Need::Part(part.clone()); 2],
            results: vec![mean, Outcome::Part(part.clone())],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_label_for_each_row_of_the_logits() {
        let op = SoftmaxCrossEntropy { smoothing: 0.0, over: SmoothingOver::AllClasses, ignored: None };
        let infer = |logits: &[usize], labels: &[usize]| {
            let (logits, labels) = (TensorType::plain(logits, DType::F32), TensorType::plain(labels, DType::U32));
            op.infer(&[&logits, &labels]).map(|types| types[1].shape.to_vec())
        };
        assert_eq!(infer(&[2, 5], &[2]), Ok(vec![2, 5]));
        assert_eq!(infer(&[2, 3, 5], &[2, 3]), Ok(vec![2, 3, 5]));
        assert_eq!(infer(&[2, 3, 4, 5], &[2, 3, 4]), Ok(vec![2, 3, 4, 5]));
        for (logits, labels) in
            [(&[2, 3, 5][..], &[2][..]), (&[2, 3, 5], &[3, 2]), (&[5], &[]), (&[2, 3, 4, 6, 5], &[2, 3, 4, 6])]
        {
            assert!(infer(logits, labels).is_err(), "{logits:?} {labels:?}");
        }
    }

    #[test]
    fn both_smoothings_are_distributions() {
        for (over, on) in [(SmoothingOver::AllClasses, 0.91), (SmoothingOver::OtherClasses, 0.9)] {
            let op = SoftmaxCrossEntropy { smoothing: 0.1, over, ignored: None };
            let (label, other) = op.targets(10);
            assert!((label - on).abs() < 1e-15);
            assert!((label + 9.0 * other - 1.0).abs() < 1e-15);
        }
        let over = |over, smoothing| SoftmaxCrossEntropy { smoothing, over, ignored: None };
        assert_eq!(over(SmoothingOver::AllClasses, 0.1).targets(10), (0.91, 0.01));
        assert_eq!(over(SmoothingOver::OtherClasses, 0.5).targets(6), (0.5, 0.1));
    }
}
