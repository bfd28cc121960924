//! Compares the tensors of a run with the golden. Missing tensors, additional ones and other shapes fail.

use crate::{
    GoldenError,
    compare::{
        self, DEGENERATE_FACTOR, Distance, F64_TOLERANCE, LOSS_FLOOR, Measured, Noise, Precision, TENSOR_FLOOR,
        is_degenerate,
    },
    manifest::{Golden, Samples, TensorFacts},
    report::Item,
    stats::Stats,
    weights,
};
use candle_core::{DType, Tensor, WithDType};
use rayon::prelude::*;
use std::collections::BTreeMap;
use zoo_engine::{Elements, EngineError, Step, StepResult};
use zoo_graph::{Graph, ValueId, Variable, VariableRole, ops::LongestStep};

/// Prefix of the golden's keys of module outputs.
pub(crate) const OUT: &str = "out/";
/// Prefix of the golden's keys of the outputs of the whole network.
const ROOT: &str = "out/@root";
/// Prefix of the golden's keys of gradients.
pub(crate) const GRAD: &str = "grad/";

/// Tensors of the main run, or of a variant.
pub(crate) fn tensors<'g>(golden: &'g Golden, variant: Option<&str>) -> Option<&'g BTreeMap<String, TensorFacts>> {
    match variant {
        None => Some(&golden.manifest.tensors),
        Some(name) => golden.manifest.variants.get(name).map(|v| &v.tensors),
    }
}

/// Names, shapes, counts, test vectors of the hash, and first values of weights and inputs.
pub(crate) fn init_items(graph: &Graph, golden: &Golden) -> Vec<Item> {
    let manifest = &golden.manifest;
    let mut items = Vec::new();
    for name in weights::broken_hash_vectors(golden) {
        items.push(Item::wrong(format!("hash of `{name}`"), "its test vectors do not hold"));
    }
    let state = |v: &&zoo_graph::Variable| v.role.is_parameter() || v.role.is_statistic();
    for variable in graph.variables.iter().filter(state) {
        let shape = &graph.ty(variable.value).shape;
        items.push(match manifest.shapes.get(&variable.name) {
            Some(theirs) if **shape == theirs[..] && manifest.init.contains_key(&variable.name) => {
                Item::measured(&variable.name, 0.0, 1.0)
            }
            Some(theirs) if **shape == theirs[..] => Item::wrong(&variable.name, "the golden has no rule for it"),
            Some(theirs) => {
                let theirs = zoo_graph::Shape::from(theirs.as_slice());
                Item::wrong(&variable.name, format!("shape {shape}, the reference has {theirs}"))
            }
            None => Item::wrong(&variable.name, "the reference has no such parameter"),
        });
    }
    // Counters and tables of indices have no rule for their start.
    let trained = |name: &&String| manifest.init.contains_key(*name);
    for name in manifest.shapes.keys().filter(trained).filter(|name| graph.find_variable(name).is_none()) {
        items.push(Item::wrong(name, "the recipe has no such parameter"));
    }
    let count: u64 = graph.parameters().map(|(_, v)| graph.ty(v.value).shape.numel() as u64).sum();
    items.push(match count == manifest.parameter_count {
        true => Item::measured("parameter count", 0.0, 1.0),
        false => Item::wrong("parameter count", format!("{count}, the reference has {}", manifest.parameter_count)),
    });
    for (name, head) in golden.heads("init_head/") {
        if let Some(rule) = manifest.init.get(name) {
            let ours = weights::initial(rule, &manifest.salt, name, head.len());
            let same = ours.iter().zip(head).all(|(a, b)| f64::from(*a) == *b);
            items.push(if same {
                Item::measured(format!("first values of {name}"), 0.0, 1.0)
            } else {
                Item::wrong(format!("first values of {name}"), "the hash rule gives others")
            });
        }
    }
    for (name, head) in golden.heads("input_head/") {
        let same = weights::input(golden, name).is_ok_and(|ours| ours.iter().zip(head).all(|(a, b)| a == b));
        items.push(if same {
            Item::measured(format!("first values of input {name}"), 0.0, 1.0)
        } else {
            Item::wrong(format!("first values of input {name}"), "the hash rule gives others")
        });
    }
    items
}

/// Module outputs, in the order in which modules return. Missing and additional ones fail.
pub(crate) fn outputs<'m>(
    graph: &Graph,
    not_given: &[String],
    golden: &Golden,
    variant: Option<&str>,
    precision: Precision,
    read: impl Fn(&str) -> Option<&'m Measured>,
) -> Vec<Item> {
    let Some(tensors) = tensors(golden, variant) else { return Vec::new() };
    let taps: Vec<String> = graph.taps.iter().map(zoo_graph::Tap::key).collect();
    let mut items: Vec<Item> =
        taps.iter().map(|tap| judge(tap, &format!("{OUT}{tap}"), golden, variant, tensors, precision, &read)).collect();
    let listed = tensors.keys().filter_map(|k| k.strip_prefix(OUT)).filter(|k| !not_given.iter().any(|d| d == k));
    items.extend(
        listed.filter(|k| !taps.iter().any(|t| t == k)).map(|k| Item::wrong(k, "the recipe has no such module call")),
    );
    items
}

/// Gradients, in the order in which the backward pass computes them. Missing and additional ones fail.
pub(crate) fn gradients<'m>(
    graph: &Graph,
    golden: &Golden,
    variant: Option<&str>,
    precision: Precision,
    read: impl Fn(&str) -> Option<&'m Measured>,
) -> Vec<Item> {
    let Some(tensors) = tensors(golden, variant) else { return Vec::new() };
    let place = |v: ValueId| match graph.value(v).source {
        zoo_graph::Source::Node(n, i) => (n.0, i),
        _ => (0, 0),
    };
    let mut ordered = graph.gradients.clone();
    ordered.sort_by_key(|(_, v)| place(*v));
    let names: Vec<&str> = ordered.iter().map(|(id, _)| graph.variable(*id).name.as_str()).collect();
    let mut items: Vec<Item> = names
        .iter()
        .map(|name| judge(name, &format!("{GRAD}{name}"), golden, variant, tensors, precision, &read))
        .collect();
    let listed = tensors.keys().filter_map(|k| k.strip_prefix(GRAD));
    items.extend(listed.filter(|k| !names.contains(k)).map(|k| Item::wrong(k, "the step computes no such gradient")));
    forgive_degenerate(&mut items, GRAD, tensors, precision, &read);
    items
}

/// Compares one tensor with its reference values.
fn judge<'m>(
    name: &str,
    key: &str,
    golden: &Golden,
    variant: Option<&str>,
    tensors: &BTreeMap<String, TensorFacts>,
    precision: Precision,
    read: &impl Fn(&str) -> Option<&'m Measured>,
) -> Item {
    let Some(facts) = tensors.get(key) else { return Item::wrong(name, "the reference has no such tensor") };
    let Some(found) = read(key) else { return Item::wrong(name, "was not computed") };
    if !compare::same_shape(&found.shape, &facts.shape) {
        let [ours, theirs] = [&found.shape, &facts.shape].map(|s| zoo_graph::Shape::from(s.as_slice()));
        return Item::wrong(name, format!("shape {ours}, the reference has {theirs}"));
    }
    match golden.samples(key, variant, facts.shape.iter().product()) {
        Ok(truth) => {
            let Distance { error, floor } = compare::compare(found, facts, &truth, precision);
            Item::measured(name, error, floor)
        }
        Err(error) => Item::wrong(name, error.to_string()),
    }
}

/// Degenerate tensors have an exact value of zero, so they only have to be as small as their rounding errors.
fn forgive_degenerate<'m>(
    items: &mut [Item],
    prefix: &str,
    tensors: &BTreeMap<String, TensorFacts>,
    precision: Precision,
    read: &impl Fn(&str) -> Option<&'m Measured>,
) {
    for item in items {
        let key = format!("{prefix}{}", item.name);
        if let Some(level) = tensors.get(&key).and_then(|facts| rounding_level(facts, precision)) {
            let size = read(&key).map_or(f64::INFINITY, |m| rms(m.stats.l2, &m.shape));
            *item = Item { counts: false, ..Item::measured(&item.name, size / level * precision.limit(), 1.0) };
        }
    }
}

/// Root mean square of a tensor.
fn rms(l2: f64, shape: &[usize]) -> f64 {
    l2 / (shape.iter().product::<usize>().max(1) as f64).sqrt()
}

/// Largest allowed root mean square of a degenerate tensor, from its facts; `None` for other tensors. In f64 it is at
/// least [`compare::ORDERS`] times that of the reference's f64 run: if rounding errors cancel by chance in f32, the f32
/// error says little about f64.
fn rounding_level(facts: &TensorFacts, precision: Precision) -> Option<f64> {
    let rounding = (DEGENERATE_FACTOR * precision.rounding(facts.f32_rel)).max(compare::ORDERS);
    let rounding = rounding * rms(facts.l2, &facts.shape);
    is_degenerate(facts.f32_rel).then_some(rounding)
}

/// Relative error of the reference's f32 run in the network's outputs. The error of a loss is a single number that
/// can be small by chance, so the error of what it is computed from is used instead.
fn outputs_rounding(golden: &Golden, variant: Option<&str>) -> f64 {
    let outputs = tensors(golden, variant).into_iter().flatten().filter(|(key, _)| key.starts_with(ROOT));
    outputs.map(|(_, facts)| facts.f32_rel).fold(0.0, f64::max)
}

/// What the error of a loss is relative to: the loss, if it is not near 0.
///
/// A loss near 0 is the difference of terms (of cross entropy: logits and their log-sum-exp) that are at least as large
/// as the `first` loss. In f64 it is not known better than a few roundings of these: four of them are at most
/// [`F64_TOLERANCE`] of the scale.
fn loss_scale(loss: f64, first: Option<f64>) -> f64 {
    let scale = loss.abs().max(first.unwrap_or(0.0).abs() * (4.0 * f64::EPSILON / F64_TOLERANCE));
    if scale == 0.0 { 1.0 } else { scale }
}

/// The losses before update `n`. Alternatives that the golden also records (`loss_...`) are not components.
pub(crate) fn losses(
    result: &StepResult,
    golden: &Golden,
    variant: Option<&str>,
    n: usize,
    precision: Precision,
) -> Vec<Item> {
    let manifest = &golden.manifest;
    let (truth, rounded, moved) = match variant.and_then(|v| manifest.variants.get(v)) {
        Some(v) => (&v.losses_f64, &v.losses_f32, &v.losses_moved),
        None => (&manifest.losses_f64, &manifest.losses_f32, &manifest.losses_moved),
    };
    let start = truth.first();
    let (Some(truth), Some(rounded)) = (truth.get(n), rounded.get(n)) else { return Vec::new() };
    let least = LOSS_FLOOR.max(outputs_rounding(golden, variant));
    let component = |name: &str| !name.starts_with("loss_") && !DIAGNOSTICS.contains(&name);
    let label = |name: &str| if n == 0 { name.to_string() } else { format!("{name} of step {}", n + 1) };
    let mut items = Vec::new();
    // Metrics that a step reports with its losses count if the golden has them.
    let metrics = result.metrics.iter().filter(|(name, _)| truth.contains_key(name));
    let found = result.losses.iter().chain(metrics);
    for (name, found) in found.clone() {
        items.push(match truth.get(name) {
            Some(t) => {
                let scale = loss_scale(*t, start.and_then(|start| start.get(name)).copied());
                let off = |other: Option<&f64>| other.map_or(0.0, |other| (other - t).abs() / scale);
                let in_f64 = off(moved.get(n).and_then(|moved| moved.get(name)));
                let noise = Noise { in_f32: off(rounded.get(name)), in_f64 };
                Item::measured(label(name), (found - t).abs() / scale, precision.floor(noise, least))
            }
            None => Item::wrong(label(name), "the reference has no such loss"),
        });
    }
    let missing = truth.keys().filter(|k| component(k) && !found.clone().any(|(name, _)| name == *k));
    items.extend(missing.map(|name| Item::wrong(label(name), "the recipe has no such loss")));
    items
}

/// Whether a module output is an output of the whole network.
pub(crate) fn is_of_network(item: &Item) -> bool {
    format!("{OUT}{}", item.name).starts_with(ROOT)
}

/// Whether a quantity recorded with the losses belongs to the gradients.
pub(crate) fn is_of_gradients(item: &Item) -> bool {
    ["grad_norm", "clip_coef"].contains(&item.name.as_str())
}

/// Values that the golden records to show how well-conditioned the step is, and that are not quantities of the step:
/// the distance between the loss of the last selected negative and that of the next one.
const DIAGNOSTICS: [&str; 1] = ["ohem_gap_to_next"];

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
        kind.trim_start_matches(|c: char| !c.is_ascii_digit()) == steps.to_string()
    };
    let missing = tensors.keys().filter(after).filter(|key| !kept.iter().any(|(ours, ..)| ours == *key));
    let missing = missing.map(|key| Item::wrong(key, "the step leaves no such tensor"));
    Ok(items.into_iter().flatten().chain(missing).collect())
}

/// The golden's key of a variable after `steps` steps; `None` for variables that goldens do not record.
fn change_key(graph: &Graph, variable: &Variable, steps: usize) -> Option<String> {
    match &variable.role {
        VariableRole::Slot { parameter, slot } => {
            Some(format!("{}{steps}/{}", slot_key(slot), graph.variable(*parameter).name))
        }
        VariableRole::Average { .. } => None,
        role if role.is_statistic() => Some(format!("buffer{steps}/{}", variable.name)),
        _ => Some(format!("param{steps}/{}", variable.name)),
    }
}

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
        if is_parameter && level.is_some() {
            let start = start.as_deref().unwrap_or_default();
            let mut updates = graph.nodes.iter().filter_map(|node| graph.optimized(node));
            let update = updates.find(|update| graph.variable(update.parameter).name == *name);
            let rate = manifest.optimizer.lr_of(name);
            if let Some(longest) = update.and_then(|update| longest_change(update.longest, rate, steps, start)) {
                return Ok(bounded_change(name, now, start, longest, precision));
            }
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
    Item { counts: false, ..Item::measured(name, size / allowed * precision.limit(), 1.0) }
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
fn longest_change(longest: LongestStep, rate: f64, steps: usize, start: &[f32]) -> Option<f64> {
    match longest {
        LongestStep::OfGradient => None,
        LongestStep::Rates(rates) => Some(steps as f64 * rate * rates),
        LongestStep::OfParameter(share) => {
            let norm = start.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            Some(norm * ((1.0 + rate * share).powi(steps.try_into().unwrap_or(i32::MAX)) - 1.0))
        }
    }
}

/// Judges the change of a parameter whose gradient consists of rounding errors, with an optimizer that divides the
/// gradient by its own size, so that the direction is random.
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
    let complete = if now.len() == start.len() { largest / longest } else { f64::INFINITY };
    Item { counts: false, ..Item::measured(name, complete * precision.limit(), 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(l2: f64, f32_rel: f64) -> TensorFacts {
        TensorFacts {
            shape: vec![4],
            mean: 0.0,
            std: l2 / 2.0,
            absmax: l2,
            l2,
            f32_rel,
            f32_max: f32_rel,
            delta_l2: None,
            f64_rel: 0.0,
            delta_f32_rel: None,
            delta_f64_rel: None,
            class: None,
            degenerate: false,
        }
    }

    /// The rounding error is 2e-16 in f64 and 1e-7 in f32.
    #[test]
    fn a_loss_near_zero_is_not_known_better_than_its_terms() {
        assert_eq!((loss_scale(2.0, Some(3.0)), loss_scale(-2.0, None), loss_scale(0.0, None)), (2.0, 2.0, 1.0));
        assert_eq!(loss_scale(1e-5, Some(3.0)), 1e-5);
        // Four roundings of 4.0 are 3.6e-15, which is 1e-9 of this scale.
        assert!((loss_scale(5e-12, Some(4.0)) - 4.0 * 4.0 * f64::EPSILON / 1e-9).abs() < 1e-20);
    }

    #[test]
    fn a_gradient_that_is_rounding_is_known_by_its_f32_run() {
        let tensors = BTreeMap::from([("grad/bias".to_owned(), facts(2e-16, 5e8))]);
        let judged = |l2: f64, precision| {
            let found =
                Measured { shape: vec![4], stats: Stats { mean: 0.0, std: 0.0, absmax: l2, l2 }, samples: Vec::new() };
            let mut items = vec![Item::measured("bias", f64::INFINITY, 1.0)];
            forgive_degenerate(&mut items, GRAD, &tensors, precision, &|_: &str| Some(&found));
            items.remove(0).ratio <= precision.limit()
        };
        // Ten times the reference's rounding error is accepted; a millionth of a real gradient of 1 is not.
        assert!(judged(2e-15, Precision::F64) && !judged(1e-6, Precision::F64));
        assert!(judged(1e-6, Precision::F32) && !judged(1e-3, Precision::F32));
        assert!(!judged(f64::NAN, Precision::F64) && !judged(f64::INFINITY, Precision::F32));
    }

    /// If errors cancelled by chance in f32, the f32 error is a ten-thousandth of the usual one. The reference's own
    /// tensor must still pass.
    #[test]
    fn a_gradient_that_is_rounding_may_be_what_it_was() {
        let facts = facts(2e-16, 5e4);
        assert!(rounding_level(&facts, Precision::F64).unwrap() >= rms(facts.l2, &facts.shape));
        assert!(rounding_level(&facts, Precision::F64).unwrap() < 1e-14);
    }

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

    #[test]
    fn a_gradient_that_flipped_relus_move_is_none() {
        let tensors = BTreeMap::from([("grad/weight".to_owned(), facts(1.0, 0.034))]);
        let mut items = vec![Item::measured("weight", 0.5, 1e-9)];
        forgive_degenerate(&mut items, GRAD, &tensors, Precision::F64, &|_: &str| None);
        assert_eq!(items, vec![Item::measured("weight", 0.5, 1e-9)]);
    }
}
