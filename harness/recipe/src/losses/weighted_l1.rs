//! Weighted L1 distance of box offsets.

use zoo_graph::{GraphError, formula::Formula, ops::DeviceName};

use super::{Diagnostic, Judged, LossTerm, Terms};

term! {
    /// The sum over the four offsets of |prediction - target|, times the weights, summed and divided by the batch size.
    pub struct WeightedL1 called "loc_loss" {
        /// Output of the model: `[4A, H, W]`, which is `[4, A, H, W]`.
        pub prediction: String,
        /// Input of the step: `[4, A, H, W]`.
        pub target: String,
        /// Input of the step: weight of each anchor, `[A, H, W]`.
        pub weights: String,
    }
}

impl WeightedL1 {
    /// The loss of `samples` samples: prediction and target `[n, 4, A, H, W]`, weights `[n, 1, A, H, W]`.
    pub fn formula(samples: usize) -> Formula {
        Formula::define(5, |[p, target, weights]| [((p - target).abs() * weights).row_sum() / samples as f64])
    }
}

impl LossTerm for WeightedL1 {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let [n, c, h, w] = at.axes(prediction)?;
        if !c.is_multiple_of(4) {
            return Err(at.refuse(format!("{c} channels are not four offsets per anchor")));
        }
        let target = at.input(&self.target, [n, 4, c / 4, h, w])?;
        let weights = at.input(&self.weights, [n, c / 4, h, w])?;
        let path = |part: &str| format!("loss/{}/{part}", self.name);
        let prediction = at.reshaped(path("prediction"), prediction, [n, 4, c / 4, h, w])?;
        let weights = at.reshaped(path("weights"), weights, [n, 1, c / 4, h, w])?;
        let device = DeviceName::new("WeightedL1Loss", "WeightedL1LossGrad");
        at.formula_term((&self.name, self.weight), Self::formula(n), device, &[prediction, target, weights])
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        at.call((&self.name, self.weight), TEXT, &[&self.prediction], &[&self.target, &self.weights], &[])
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

const TEXT: &str = r#"
def weighted_l1(p: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Weighted L1 distance of box offsets, per sample."""
    return ((p.view_as(target) - target).abs() * weights[:, None]).sum() / len(p)
"#;
