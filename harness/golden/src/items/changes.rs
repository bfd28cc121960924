//! What a step leaves behind: parameters, optimizer slots and running statistics.

use super::degenerate::{of_size, rms, rounding_level, rounding_level_of_value};
use crate::GoldenError;
use crate::compare::{self, Distance, Measured, Noise, Precision, TENSOR_FLOOR};
use crate::golden::{GRAD, Golden, Samples, steps_of};
use crate::manifest::TensorFacts;
use crate::report::Item;
use crate::stats::Stats;
use crate::weights;
use candle_core::{DType, Tensor, WithDType};
use rayon::prelude::*;
use zoo_engine::{Elements, EngineError, Step};
use zoo_graph::ops::{DecayTerm, LongestStep};
use zoo_graph::{Graph, Optimized, Variable, VariableRole};

/// The golden's name of an optimizer slot.
pub(crate) fn slot_key(slot: &'static str) -> &'static str {
    if slot == "momentum_buffer" { "momentum" } else { slot }
}

/// Changes of parameters since the start, and optimizer slots and running statistics after `steps` steps.
pub(crate) fn changes(
    step: &Step,
    golden: &Golden,
    steps: usize,
    precision: Precision,
) -> Result<Vec<Item>, GoldenError> {
    let tensors = &golden.manifest.tensors;
    // The golden may omit a kind altogether, but has all tensors of every other kind.
    let has = |key: &str| {
        let kind = &key[..=key.find('/').unwrap_or_default()];
        tensors.keys().any(|known| known.starts_with(kind))
    };
    let keyed = |(variable, tensor)| change_key(step.graph(), variable, steps).map(|key| (key, variable, tensor));
    let mut kept: Vec<(String, &Variable, Tensor)> = step.variables()?.into_iter().filter_map(keyed).collect();
    kept.retain(|(key, ..)| has(key));
    let changing = Changing { golden, graph: step.graph(), steps, precision };
    let items = kept.par_iter().map(|(key, variable, tensor)| changing.item(key, variable, tensor));
    let items = items.collect::<Result<Vec<_>, GoldenError>>()?;
    let after = |key: &&String| {
        let kind = key.split('/').next().unwrap_or_default();
        steps_of(kind) == steps.to_string()
    };
    let missing = tensors.keys().filter(after).filter(|key| !kept.iter().any(|(ours, ..)| ours == *key));
    let missing = missing.map(|key| Item::wrong(key, "the step leaves no such tensor"));
    Ok(items.into_iter().flatten().chain(missing).collect())
}

/// The golden's key of a variable after `steps` steps; `None` for variables that goldens do not record.
pub(crate) fn change_key(graph: &Graph, variable: &Variable, steps: usize) -> Option<String> {
    match &variable.role {
        VariableRole::Slot { parameter, slot } => {
            Some(format!("{}{steps}/{}", slot_key(slot), graph.variable(*parameter).name))
        }
        VariableRole::Average { .. } => None,
        role if role.is_statistic() => Some(format!("buffer{steps}/{}", variable.name)),
        _ => Some(format!("param{steps}/{}", variable.name)),
    }
}

/// Relative rounding error of a step in f32, rounded up.
const ROUNDED_STEP: f64 = 1e-6;

/// Compares variables after a number of steps.
struct Changing<'a> {
    golden: &'a Golden,
    graph: &'a Graph,
    steps: usize,
    precision: Precision,
}

impl Changing<'_> {
    /// Compares a variable with the golden's tensor under `key`; `None` if there is none and none is needed.
    fn item(&self, key: &str, variable: &Variable, tensor: &Tensor) -> Result<Option<Item>, GoldenError> {
        let (manifest, name) = (&self.golden.manifest, &variable.name);
        let Some(facts) = manifest.tensors.get(key) else {
            let updated = manifest.optimizer.groups.iter().any(|g| g.params.contains(name));
            let untouched = !updated || manifest.parameters_without_gradient.contains(name);
            let surplus = !(untouched && variable.next.is_none());
            return Ok(surplus.then(|| Item::wrong(name, "the reference has no such tensor")));
        };
        if tensor.dims() != facts.shape {
            return Ok(Some(Item::wrong(name, "has another shape than the reference's")));
        }
        let compared = match tensor.dtype() {
            DType::F32 => self.compared::<f32>(key, variable, tensor, facts)?,
            _ => {
                let tensor = tensor.to_dtype(DType::F64).map_err(EngineError::from)?;
                self.compared::<f64>(key, variable, &tensor, facts)?
            }
        };
        Ok(Some(compared))
    }

    /// Compares a variable whose elements have the type `T` with the facts of the golden's tensor under `key`.
    fn compared<T: WithDType + Into<f64>>(
        &self,
        key: &str,
        variable: &Variable,
        tensor: &Tensor,
        facts: &TensorFacts,
    ) -> Result<Item, GoldenError> {
        let Self { golden, graph, steps, precision } = *self;
        let (manifest, name) = (&golden.manifest, &variable.name);
        let elements = Elements::of(tensor).map_err(EngineError::from)?;
        let now = elements.slice::<T>().map_err(EngineError::from)?;
        let truth = golden.samples(key, None, facts.shape.iter().product())?;
        let trained = variable.role.kept_beside().map_or(name, |parameter| &graph.variable(parameter).name);
        let gradient = manifest.tensors.get(&format!("{GRAD}{trained}"));
        let level = gradient.and_then(|gradient| rounding_level(gradient, precision));
        let is_parameter = !variable.role.is_statistic() && !matches!(variable.role, VariableRole::Slot { .. });
        let rule = manifest.init.get(name).filter(|_| is_parameter);
        let start = rule.map(|rule| weights::initial(rule, &manifest.salt, name, now.len()));
        if level.is_some() {
            let mut updates = graph.nodes.iter().filter_map(|node| graph.optimized(node));
            let update = updates.find(|update| graph.variable(update.parameter).name == *trained);
            if is_parameter {
                let start = start.as_deref().unwrap_or_default();
                let rate = manifest.optimizer.lr_of(name);
                if let Some(longest) = update.and_then(|update| longest_change(update, rate, steps, start)) {
                    return Ok(bounded_change(name, now, start, longest, precision));
                }
            } else if let (true, Some(LongestStep::Rates(rates))) =
                (is_velocity(&variable.role), update.map(|update| update.longest))
            {
                return Ok(bounded_change(name, now, &vec![0.0; now.len()], rates, precision));
            }
        }
        if !is_parameter && let Some(level) = rounding_level_of_value(facts, precision) {
            let size = rms(Stats::of(now).l2, &facts.shape);
            return Ok(of_size(name, size, level, precision));
        }
        let item = match (facts.delta_l2, facts.delta_f32_rel, &start) {
            (Some(delta_l2), Some(in_f32), Some(start)) => {
                let noise = Noise { in_f32, in_f64: facts.delta_f64_rel.unwrap_or_default() };
                change(name, now, start, &truth, delta_l2, precision.floor(noise, TENSOR_FLOOR))
            }
            _ => {
                let samples = truth.positions.iter().map(|p| now[*p].into()).collect();
                let found = Measured { shape: facts.shape.clone(), stats: Stats::of(now), samples };
                let Distance { error, floor } = compare::compare(&found, facts, &truth, precision);
                Item::measured(name, error, floor)
            }
        };
        let Some(level) = level else { return Ok(item) };
        let rate = if is_parameter { steps as f64 * manifest.optimizer.lr_of(name) } else { 1.0 };
        let allowed = rate * steps as f64 * level;
        Ok(match facts.delta_l2.filter(|_| is_parameter) {
            // The reference's own change was lost in the last bit of the parameter.
            Some(0.0) => rounding_alone(name, now, start.as_deref().unwrap_or_default(), allowed, precision),
            size => forgive_rounding(item, allowed / rms(size.unwrap_or(facts.l2), &facts.shape), precision),
        })
    }
}

/// Whether a slot keeps the steps of an optimizer. If the optimizer divides gradients by their size, steps of a
/// degenerate gradient are as long as others, in random directions.
fn is_velocity(role: &VariableRole) -> bool {
    matches!(role, VariableRole::Slot { slot: "momentum_buffer", .. })
}

/// Allows the effect of a degenerate gradient, `allowed`, relative to its size. With SGD, the momentum may differ by
/// one such gradient per step, and the parameter by the learning rate times that, once more per step. Decay is still
/// judged if it is larger than this.
fn forgive_rounding(item: Item, allowed: f64, precision: Precision) -> Item {
    let floor = if allowed.is_finite() { item.floor.max(allowed / precision.limit()) } else { item.floor };
    Item { counts: false, ..Item::measured(&item.name, item.error, floor) }
}

/// Judges a parameter that does not change in the reference, because its degenerate gradient is too small. The root
/// mean square of its change may be at most `allowed`, the rounding error of such gradients.
fn rounding_alone<T: Copy + Into<f64> + Sync>(
    name: &str,
    now: &[T],
    start: &[f32],
    allowed: f64,
    precision: Precision,
) -> Item {
    let change = distance(now, start);
    let size = if now.len() == start.len() { rms(change, &[now.len()]) } else { f64::INFINITY };
    of_size(name, size, allowed, precision)
}

/// The euclidean norm of a parameter's change.
fn distance<T: Copy + Into<f64> + Sync>(now: &[T], start: &[f32]) -> f64 {
    const CHUNK: usize = 1 << 15;
    let squares = |(now, start): (&[T], &[f32])| -> f64 {
        now.iter().zip(start).map(|(now, start)| (Into::<f64>::into(*now) - f64::from(*start)).powi(2)).sum()
    };
    let parts: Vec<f64> = now.par_chunks(CHUNK).zip(start.par_chunks(CHUNK)).map(squares).collect();
    parts.into_iter().sum::<f64>().sqrt()
}

/// Compares the change of a parameter; the parameter itself would hide errors of its small changes.
fn change<T: Copy + Into<f64> + Sync>(
    name: &str,
    now: &[T],
    start: &[f32],
    truth: &Samples<'_>,
    delta_l2: f64,
    floor: f64,
) -> Item {
    let delta = |p: &usize| Into::<f64>::into(now[*p]) - f64::from(start[*p]);
    let found: Vec<f64> = truth.positions.iter().map(delta).collect();
    let exact: Vec<f64> = truth.values.iter().zip(&truth.positions).map(|(t, p)| t - f64::from(start[*p])).collect();
    let l2 = distance(now, start);
    let off = if delta_l2 > 0.0 { (l2 - delta_l2).abs() / delta_l2 } else { l2 };
    let sampled = compare::relative_l2(&found, &exact, delta_l2, now.len());
    // f64::max would drop a NaN.
    let error = if sampled.is_nan() || sampled > off { sampled } else { off };
    Item::measured(name, error, floor)
}

/// Largest possible change of an element of a parameter in `steps` steps with random directions; `None` if the size
/// of a step follows the gradient.
fn longest_change(update: Optimized, rate: f64, steps: usize, start: &[f32]) -> Option<f64> {
    match update.longest {
        LongestStep::OfGradient => None,
        LongestStep::Rates(rates) => {
            let along = steps as f64 * rate * rates;
            let decayed = match update.decay {
                DecayTerm::InGradient => 0.0,
                DecayTerm::InRule => steps as f64 * rate * update.group.weight_decay * (peak(start) + along),
            };
            Some(along + decayed)
        }
        LongestStep::OfParameter(share) => {
            let norm = start.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            Some(norm * ((1.0 + rate * share).powi(steps.try_into().unwrap_or(i32::MAX)) - 1.0))
        }
    }
}

/// The largest magnitude.
fn peak(values: &[f32]) -> f64 {
    values.iter().fold(0.0, |peak, value| peak.max(f64::from(value.abs())))
}

/// Judges the change of a parameter whose gradient consists of rounding errors, with an optimizer that divides the
/// gradient by its own size, so that the direction is random. The bound is reached exactly if all directions agree, so
/// that the rounding of steps and of the parameter may exceed it.
fn bounded_change<T: Copy + Into<f64>>(
    name: &str,
    now: &[T],
    start: &[f32],
    longest: f64,
    precision: Precision,
) -> Item {
    let largest = now.iter().zip(start).fold(0.0f64, |largest, (now, start)| {
        let change = (Into::<f64>::into(*now) - f64::from(*start)).abs();
        if change.is_nan() || change > largest { change } else { largest }
    });
    let bound = longest * (1.0 + ROUNDED_STEP) + precision.from_f64(f64::EPSILON) * (peak(start) + longest);
    let complete = if now.len() == start.len() { largest / bound } else { f64::INFINITY };
    Item { counts: false, ..Item::measured(name, complete * precision.limit(), 1.0) }
}

#[cfg(test)]
mod tests {
    use super::super::degenerate::tests::facts;
    use super::*;
    use zoo_graph::{ValueId, VariableId, ops::Group};

    /// A bias of 0.5 that three steps of 0.01 change by 1e-17 each stays the same with one order of summation, and
    /// changes in its last bit with another. A decay of 1e-4 changes it by 1.5e-6.
    #[test]
    fn a_change_that_is_lost_in_the_last_bit_may_be_found_and_no_more() {
        let level = rounding_level(&facts(2e-16, 5e8), Precision::F64).unwrap();
        let judged = |moved: f64| {
            let item = rounding_alone("bias", &[0.5 + moved; 4], &[0.5; 4], 0.01 * 9.0 * level, Precision::F64);
            item.ratio <= Precision::F64.limit()
        };
        assert!(judged(0.0) && judged(f64::EPSILON / 2.0));
        assert!(!judged(1.5e-6) && !judged(f64::NAN));
        assert_eq!(rounding_alone("bias", &[0.5; 4], &[], 1.0, Precision::F64).ratio, f64::INFINITY);
    }

    /// Three steps of Lion with a decay of 0.1 for a parameter of 0.5: each takes the learning rate and 5% of it.
    #[test]
    fn decay_of_the_rule_moves_a_parameter_beside_its_steps() {
        let longest = |decay| {
            let group = Group { weight_decay: 0.1, lr_scale: 1.0 };
            let (parameter, gradient) = (VariableId(0), ValueId(0));
            let update = Optimized { parameter, gradient, group, decay, longest: LongestStep::Rates(1.0) };
            longest_change(update, 0.01, 3, &[0.5, -0.2]).unwrap()
        };
        assert!((longest(DecayTerm::InGradient) - 0.03).abs() < 1e-15);
        assert!((longest(DecayTerm::InRule) - 0.03 - 0.003 * 0.53).abs() < 1e-15);
    }

    /// Adam's first step is the learning rate for every element, whatever the gradient.
    #[test]
    fn a_step_of_a_random_direction_may_reach_its_bound_and_be_rounded() {
        let judged = |moved: f64| {
            let item = bounded_change("bias", &[0.5 + moved; 4], &[0.5; 4], 0.01, Precision::F64);
            item.ratio <= Precision::F64.limit()
        };
        assert!(judged(0.01) && judged(-0.01) && judged(0.01 + 1e-15));
        assert!(!judged(0.0101) && !judged(f64::NAN));
    }
}
