//! What may be wrong with recorded steps: each fault that can be planted in the split step gives other values, and the
//! one that gives the recorded values explains them.

use super::{
    SplitOptions,
    comparison::{Comparison, Keep, Replicas},
    planted::all,
    proof::Proof,
    truth::{Key, Values, distance},
    whole::Whole,
};
use crate::GoldenError;
use std::collections::{BTreeMap, BTreeSet};
use zoo_engine::{EngineError, Inputs};
use zoo_graph::parallel::MeshAxis;
use zoo_recipe::Recipe;

/// Largest distance of the recorded values from those with the fault, as a share of their distance from the right ones.
const NEAR: f64 = 0.02;

/// Most elements that all faults together compute: minutes.
const MOST: usize = 1 << 33;

/// Most faults to name.
const NAMED: usize = 3;

/// The faults that give the recorded values; none if what differs is explained, or nothing differs.
///
/// # Errors
/// An engine that fails.
pub(super) fn suspects(
    recipe: &Recipe,
    proof: &Proof,
    recorded: &Comparison<'_>,
) -> Result<Option<String>, GoldenError> {
    if !recorded.wants_explanation() || recorded.kept.is_empty() {
        return Ok(None);
    }
    let graph = proof.graph();
    let steps = recorded.kept.keys().map(Key::step).max().unwrap_or(0) + 1;
    let elements: usize = graph.values.iter().map(|value| value.ty.shape.numel()).sum();
    let faults = all(proof).into_iter().filter(|plant| !plant.harmless).collect::<Vec<_>>();
    if faults.len().saturating_mul(elements).saturating_mul(steps * proof.split.mesh.ranks()) > MOST {
        return Ok(None);
    }
    let differs: BTreeMap<&Key, bool> = recorded.verdicts().collect();
    let mut found = Vec::new();
    for plant in faults {
        let keep = Keep::These(recorded.kept.keys().cloned().collect::<BTreeSet<_>>());
        let planted = proof.compare((plant.graph, &plant.disturbed), steps, keep)?;
        let forward = |key: &Key| matches!(key, Key::Output(_) | Key::Gradient(0, _) | Key::Scalar(0, _));
        let same = planted.verdicts().filter(|(key, _)| forward(key));
        let same = same.into_iter().all(|(key, wrong)| differs.get(key).is_none_or(|differs| *differs == wrong));
        let near = |(key, values): (&Key, &Replicas)| {
            planted.kept.get(key).is_some_and(|planted| is_near(values, planted, proof, key))
        };
        if same && recorded.kept.iter().all(near) {
            found.push(plant.fault);
        }
        if found.len() == NAMED {
            break;
        }
    }
    if found.is_empty() {
        return mean_of_means(recipe, proof, recorded);
    }
    Ok(Some(found.join(", or ")))
}

/// The mean of the means of parts of the batch, where they have different numbers of labels that count: the mean of the
/// gradients of the parts, each by itself.
fn mean_of_means(recipe: &Recipe, proof: &Proof, recorded: &Comparison<'_>) -> Result<Option<String>, GoldenError> {
    let mesh = &proof.split.mesh;
    let of = |axes: &[MeshAxis]| axes.iter().map(|axis| mesh.extent(*axis)).product::<usize>();
    let ranks = of(&[MeshAxis::Data, MeshAxis::Expert]);
    let all = ranks * of(&[MeshAxis::MicroBatch]);
    for (parts, word) in [(ranks, "ranks"), (all, "parts of the batch")] {
        if parts == 1 || proof.options.golden.is_some() {
            continue;
        }
        let own = SplitOptions { batch: proof.options.batch / parts, steps: 1, ..proof.options.clone() };
        let graph = Whole::of(recipe, &own)?.graph;
        let mut mean: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
        for part in 0..parts {
            let inputs = proof.whole.inputs.iter().filter_map(|input| {
                let whole = proof.inputs.get(&input.name)?;
                let rows = whole.dims().first().map_or(0, |rows| rows / parts);
                Some(whole.narrow(0, part * rows, rows).map(|rows| (input.name.clone(), rows)))
            });
            let inputs = inputs.collect::<candle_core::Result<Inputs>>().map_err(EngineError::from)?;
            let values = Values::of(graph.clone(), (&proof.start, &inputs), (proof.learning_rate, 1), None)?;
            let losses = proof.whole.losses.iter().zip(values.losses.into_iter().flatten());
            let losses = losses.map(|((name, _), loss)| (Key::Scalar(0, name.clone()), vec![loss]));
            let gradients = values.tensors.into_iter().filter(|(key, _)| matches!(key, Key::Gradient(..)));
            for (key, values) in gradients.chain(losses) {
                let sum = mean.entry(key).or_insert_with(|| vec![0.0; values.len()]);
                // A part without labels has no mean, and adds nothing.
                let terms = values.into_iter().map(|x| if x.is_nan() { 0.0 } else { x / parts as f64 });
                sum.iter_mut().zip(terms).for_each(|(sum, x)| *sum += x);
            }
        }
        let known = recorded.kept.iter().filter(|(key, _)| mean.contains_key(key)).collect::<Vec<_>>();
        let near = |(key, values): &(&Key, &Replicas)| is_near(values, &vec![(0, mean[*key].clone())], proof, key);
        if !known.is_empty() && known.iter().all(near) {
            return Ok(Some(format!("the mean of the means of {parts} {word}")));
        }
    }
    Ok(None)
}

/// What a fault does: the first values that differ, and what is said of all of them.
pub(super) struct Trace {
    fault: String,
    kept: BTreeMap<Key, Replicas>,
    verdicts: BTreeMap<Key, bool>,
}

/// Values that differ and are kept of a trace.
pub(super) const KEPT: usize = 6;

impl Trace {
    /// Of a comparison that keeps the first values that differ.
    pub fn new(fault: &str, comparison: &Comparison<'_>) -> Self {
        let verdicts = comparison.verdicts().map(|(key, differs)| (key.clone(), differs)).collect();
        Self { fault: fault.to_owned(), kept: comparison.kept.clone(), verdicts }
    }

    /// The faults among these that do the same.
    pub fn alike(&self, others: &[Self], proof: &Proof) -> String {
        let same = |other: &&Self| {
            self.verdicts == other.verdicts
                && self.kept.keys().eq(other.kept.keys())
                && self.kept.iter().all(|(key, values)| is_near(values, &other.kept[key], proof, key))
        };
        let names: Vec<&str> = others.iter().filter(same).take(NAMED).map(|other| other.fault.as_str()).collect();
        names.join(", or ")
    }
}

/// Whether recorded values are those with a fault.
fn is_near(recorded: &Replicas, planted: &Replicas, proof: &Proof, key: &Key) -> bool {
    let truth = match key {
        Key::Scalar(step, name) => proof.truth.loss_named(&proof.whole, *step, name),
        Key::Start(_) | Key::Output(_) | Key::Gradient(..) | Key::Variable(..) => proof.truth.of_key(key),
    };
    let Some(truth) = truth else { return false };
    recorded.iter().all(|(rank, values)| {
        let own = planted.iter().find(|(other, _)| other == rank).or(planted.first().filter(|_| planted.len() == 1));
        own.is_some_and(|(_, own)| {
            // Numbers that are none are equal to none.
            if own.iter().map(|x| x.to_bits()).eq(values.iter().map(|x| x.to_bits())) {
                return true;
            }
            let (from_fault, from_truth) = (distance(values, own), distance(values, &truth.values));
            own.len() == values.len() && (from_fault <= NEAR * from_truth || truth.within(own, values))
        })
    })
}
