//! Even use of experts.

use std::collections::HashSet;
use zoo_graph::formula::Formula;
use zoo_graph::ops::{Concat, DeviceName};
use zoo_graph::{GraphError, ValueId};

use super::{Code, Diagnostic, Judged, LossTerm, Terms};

term! {
    /// experts * sum over experts of (share of tokens that use the expert) * (mean of its softmax over tokens), where
    /// no gradient passes through the shares (arXiv 2101.03961, section 2.2). It is `top` if all experts are used
    /// evenly. Tokens of all `experts` layers count as one set, as in transformers.
    pub struct ExpertBalance called "expert_balance" {
        /// Whether each layer has a set of its own, and the term is the sum over the layers, as in Megatron-LM.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub by_layer: bool = false,
    }
}

const DEVICE: DeviceName = DeviceName::new("LossFormula", "LossFormulaGrad");

/// The sum of so many numbers.
pub(super) fn sum(count: usize) -> Formula {
    Formula::over(0, count, |terms| terms[1..].iter().fold(terms[0], |sum, term| sum + *term))
}

impl LossTerm for ExpertBalance {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let routings = at.routings()?.to_vec();
        let counts = routings.iter().map(|routing| at.shape(routing.scores)[1]);
        if !self.by_layer && counts.collect::<HashSet<_>>().len() > 1 {
            return Err(at.refuse("layers have several numbers of experts: set `by_layer`".to_owned()));
        }
        let name = format!("loss/{}", self.name);
        let sets: Vec<[ValueId; 2]> = routings.iter().map(|routing| [routing.scores, routing.chosen]).collect();
        let sets = match (self.by_layer, &sets[..]) {
            (true, _) | (false, [_]) => sets,
            (false, several) => {
                let joined = |at: &mut Terms<'_>, part: &str, n: usize| {
                    let parts: Vec<ValueId> = several.iter().map(|set| set[n]).collect();
                    at.add(format!("{name}/{part}"), Concat { axis: 0 }, &parts)
                };
                vec![[joined(at, "scores", 0)?, joined(at, "chosen", 1)?]]
            }
        };
        let mut terms = Vec::new();
        for (n, set) in sets.into_iter().enumerate() {
            let shape = at.shape(set[0]);
            let factor = shape[1] as f64 / (shape[0] * shape[0]) as f64;
            let over_tokens = |formula: Formula| formula.summed(vec![0]);
            let parts = [
                ("weights", over_tokens(Formula::define(1, |[scores]| [scores.softmax()]))),
                ("choices", over_tokens(Formula::define(0, |[chosen]| [chosen]))),
            ];
            let mut sums = Vec::new();
            for ((part, formula), value) in parts.into_iter().zip(set) {
                sums.push(at.formula(format!("{name}/{part}{n}"), formula, DEVICE, &[value])?);
            }
            let term = Formula::define(2, |[weights, choices]| [(weights * choices).row_sum() * factor]);
            terms.push(at.formula(format!("{name}/term{n}"), term, DEVICE, &sums)?);
        }
        at.formula_term((&self.name, self.weight), sum(terms.len()), DEVICE, &terms)
    }

    fn has_target(&self) -> bool {
        false
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        at.function(TEXT);
        at.network = true;
        let mut arguments = vec![Code::text("network")];
        if self.by_layer {
            arguments.push(Code::text("by_layer=True"));
        }
        at.term(&self.name, self.weight, Code::call("expert_balance", arguments));
        Ok(())
    }
}

/// In Python.
const TEXT: &str = r#"
def expert_balance(network: nn.Module, by_layer: bool = False) -> Tensor:
    """Number of experts times the sum over them of (share of tokens that use it) * (mean of its softmax)."""
    layers = [module.routing for module in network.modules() if hasattr(module, "routing")]
    sets = layers if by_layer else [[torch.cat(parts) for parts in zip(*layers, strict=True)]]
    terms = []
    for scores, chosen in sets:
        shares = functional.one_hot(chosen, scores.shape[-1]).sum(1).to(scores.dtype).mean(0)
        terms.append(scores.shape[-1] * (shares * scores.softmax(-1).mean(0)).sum())
    return torch.stack(terms).sum()
"#;
