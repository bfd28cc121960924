//! Small scores of experts.

use zoo_graph::GraphError;
use zoo_graph::formula::Formula;
use zoo_graph::ops::DeviceName;

use super::expert_balance::sum;
use super::{Code, Diagnostic, Judged, LossTerm, Terms};

term! {
    /// The mean over tokens of log(sum(e^score))^2, and the mean of that over all `experts` layers (arXiv 2202.08906,
    /// section 3.2).
    pub struct ExpertZ called "expert_z" {}
}

const DEVICE: DeviceName = DeviceName::new("LossFormula", "LossFormulaGrad");

impl LossTerm for ExpertZ {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let scores: Vec<_> = at.routings()?.iter().map(|routing| routing.scores).collect();
        let layers = scores.len() as f64;
        let mut means = Vec::new();
        for (n, scores) in scores.into_iter().enumerate() {
            let tokens = at.shape(scores).first().copied().unwrap_or(1) as f64;
            let squares = Formula::define(1, |[scores]| [scores.row_log_sum_exp().square() / (tokens * layers)]);
            means.push(at.formula(
                format!("loss/{}/layer{n}", self.name),
                squares.summed(vec![0, 1]),
                DEVICE,
                &[scores],
            )?);
        }
        at.formula_term((&self.name, self.weight), sum(means.len()), DEVICE, &means)
    }

    fn has_target(&self) -> bool {
        false
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        at.function(TEXT);
        at.network = true;
        at.term(&self.name, self.weight, Code::text("expert_z(network)"));
        Ok(())
    }
}

/// In Python.
const TEXT: &str = r#"
def expert_z(network: nn.Module) -> Tensor:
    """The mean square of the logarithm of the sum of e^score of a token, over tokens and layers."""
    layers = [module.routing[0] for module in network.modules() if hasattr(module, "routing")]
    return torch.stack([scores.logsumexp(-1).square().mean() for scores in layers]).mean()
"#;
