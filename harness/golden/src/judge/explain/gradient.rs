//! Gradients that are all multiplied by one factor, or that contain a multiple of the parameter.

use super::{Explanation, Judged, as_if, line_of, listed, rules::short};
use crate::{compare::F32_WORST, foreign::Quantity, judge::found::Alike, report::Stage};
use zoo_graph::{Op, Source};
use zoo_recipe::schema::Clip;

/// Factors that differ by less than this, relatively, are one.
const SAME: f64 = 1e-3;

/// A gradient that differs.
struct Different {
    name: String,
    factor: f64,
}

impl Judged<'_> {
    /// What the gradients that differ are instead.
    pub(super) fn explain_gradients(&self) -> Explanation {
        let multiplied = self.different(|alike| alike.multiple).map(|all| self.multiplied(&all));
        let with_parameters = || self.different(|alike| alike.with_parameter).map(|all| self.with_parameters(&all));
        multiplied.or_else(with_parameters).unwrap_or_default()
    }

    /// The gradients that differ by the factor of the first one, in the order of the backward pass, if most do. The
    /// gradient behind a normalisation is computed from the recorded gradients of its scale and shift, so it need not.
    fn different(&self, of: impl Fn(Alike) -> Option<(f64, f64)>) -> Option<Vec<Different>> {
        let (mut failed, mut all): (usize, Vec<Different>) = (0, Vec::new());
        for (place, entry) in &self.matched.entries {
            let (target, Some(found)) = (&self.targets.list[*place], &self.found[*place]) else { continue };
            let item = self.item(*place, entry, found);
            if target.stage != Stage::Backward || !item.counts || item.ratio <= F32_WORST {
                continue;
            }
            failed += 1;
            let fits = of(found.alike).filter(|(_, left)| *left <= F32_WORST * item.floor);
            match (fits, all.first()) {
                (Some((factor, _)), Some(first)) if (factor - first.factor).abs() > SAME * first.factor.abs() => {}
                (Some((factor, _)), _) => all.push(Different { name: target.name.clone(), factor }),
                (None, None) => return None,
                (None, Some(_)) => {}
            }
        }
        (2 * all.len() > failed).then_some(all)
    }

    fn multiplied(&self, all: &[Different]) -> Explanation {
        let factor = all[0].factor;
        let batch = self.graph.inputs.first().and_then(|input| self.graph.ty(input.value).shape.first().copied());
        let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
        let near = |other: f64| (factor - other).abs() <= SAME * other;
        let power = Some(2f64.powf(factor.log2().round())).filter(|power| near(*power) && *power > 1.0);
        let times = power.map_or_else(|| short(factor), |power| power.to_string());
        let mut hints = vec![format!("{times} times what it should be: the gradient of {}", listed(&names))];
        if power.is_some() {
            hints.push(format!("if that is a loss scale, say so: --loss-scale {times}"));
        }
        if batch.is_some_and(|batch| batch > 1 && near(batch as f64)) {
            hints.extend(as_if(&["the loss were summed over the batch, not averaged".to_owned()]));
        }
        if self.clips_by(factor) {
            hints.extend(as_if(&["gradients were recorded after they were clipped: record them before".to_owned()]));
        }
        Explanation { hints, line: None }
    }

    /// Whether the recipe's clipping multiplies gradients by this, which are recorded with it.
    fn clips_by(&self, factor: f64) -> bool {
        let [Clip::Norm(bound)] = self.recipe.gradients.clip[..] else { return false };
        let gradients = self
            .matched
            .entries
            .iter()
            .filter(|(place, _)| matches!(self.targets.list[**place].quantity, Quantity::Gradient(_)));
        let squares = gradients.filter_map(|(_, entry)| entry.array().ok().flatten());
        let norm = squares.map(|array| array.values.iter().map(|x| x * x).sum::<f64>()).sum::<f64>().sqrt();
        (norm - bound).abs() <= SAME * bound && factor < 1.0
    }

    fn with_parameters(&self, all: &[Different]) -> Explanation {
        let (factor, names) = (all[0].factor, all.iter().map(|one| one.name.clone()).collect::<Vec<_>>());
        let l2 = self.graph.nodes.iter().find(|node| node.name == L2);
        let weight =
            l2.and_then(|node| if let Op::WeightedSum(op) = &node.op { op.weights.first().copied() } else { None });
        let (text, line) = match weight {
            Some(weight) if (factor + weight).abs() <= SAME * weight => {
                (format!("`l2` did not sum over {}", listed(&names)), line_of(self.graph, L2))
            }
            Some(_) | None => {
                let (times, names) = (short(factor), listed(&names));
                let text = format!(
                    "{times} times the parameter were added to the gradient of {names}: decay belongs to the update, \
                     after the gradients are recorded"
                );
                (text, None)
            }
        };
        Explanation { hints: as_if(&[text]).into_iter().collect(), line }
    }

    /// Names of the parameters that the L2 term sums over, with its weight.
    pub(super) fn regularised(&self) -> Option<(f64, Vec<&str>)> {
        let node = self.graph.nodes.iter().find(|node| node.name == L2)?;
        let Op::WeightedSum(op) = &node.op else { return None };
        let name = |value: &zoo_graph::ValueId| {
            let Source::Variable(id) = self.graph.value(*self.graph.producer(*value)?.inputs.first()?).source else {
                return None;
            };
            Some(self.graph.variable(id).name.as_str())
        };
        Some((*op.weights.first()?, node.inputs.iter().map(name).collect::<Option<_>>()?))
    }
}

/// The node of the L2 term.
pub(super) const L2: &str = "loss/l2";
