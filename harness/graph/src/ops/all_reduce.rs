//! Communication between ranks: means of gradients and scalars, statistics of a distributed batch.

use super::bn_training_reduce::expect_per_channel;
use super::{Element, OpError, Operand, OperandLayout, Operator, Rounding, expect_float, operands, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: any tensors. Results: their means over the ranks, with the same types. All of them are sent together.
///
/// The loss of a rank is a mean over its part of the batch, so the mean over the ranks is the mean over the batch.
/// The same holds for gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct AllReduce {
    /// Number of ranks.
    pub ranks: usize,
}

/// Largest number of operands that are overwritten by their means.
const IN_PLACE: usize = 1024;

/// The n-th result may overwrite the n-th operand.
const PAIRS: [(usize, usize); IN_PLACE] = {
    let mut pairs = [(0, 0); IN_PLACE];
    let mut n = 0;
    while n < IN_PLACE {
        pairs[n] = (n, n);
        n += 1;
    }
    pairs
};

impl Operator for AllReduce {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        if inputs.is_empty() {
            return Err(OpError::Arity { expected: "one or more", found: 0 });
        }
        inputs.iter().try_for_each(|x| expect_float("operand", x))?;
        Ok(inputs.iter().map(|x| (*x).clone()).collect())
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        inputs.iter().map(|x| per_element(self.ranks as u64, x)).sum()
    }

    fn operand(&self, _: usize) -> Operand {
        Operand { element: Element::AsIs, ..Operand::in_layout(OperandLayout::Any) }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Converts
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &PAIRS
    }
}

/// Operands: mean and biased variance (each `[c]`) over this rank's part of a batch. Results: those over the whole
/// batch, with parts of equal size: `mean = avg(mean_r)`, `var = avg(var_r + (mean_r - mean)^2)`, which has no
/// cancellation.
///
/// Source: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979),
/// for parts of equal size; as in `torch.nn.SyncBatchNorm`.
#[derive(Clone, Debug, PartialEq)]
pub struct GatherStatistics {
    /// Number of ranks.
    pub ranks: usize,
}

impl GatherStatistics {
    /// Mean and variance over all ranks, from those of each rank.
    pub fn pooled(parts: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
        let n = parts.clone().count() as f64;
        let mean = parts.clone().map(|(mean, _)| mean).sum::<f64>() / n;
        let var = parts.map(|(m, v)| v + (m - mean) * (m - mean)).sum::<f64>() / n;
        (mean, var)
    }
}

impl Operator for GatherStatistics {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [mean, var] = operands(inputs, "mean and variance")?;
        expect_per_channel(mean.shape.numel(), &[("mean", mean), ("variance", var)])?;
        Ok(vec![mean.clone(), var.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(5 * self.ranks as u64, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::EXACT
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooled_statistics_by_hand() {
        // 1, 3 and 5, 11: means 2 and 8, variances 1 and 9; together mean 5, variance (16 + 4 + 0 + 36) / 4.
        assert_eq!(GatherStatistics::pooled([(2.0, 1.0), (8.0, 9.0)].into_iter()), (5.0, 14.0));
    }
}
