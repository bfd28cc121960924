//! Compares the tensors of a run with the golden. Missing tensors, additional ones and other shapes fail.

mod changes;
mod degenerate;
mod init;
mod losses;

pub(crate) use changes::{change_key, changes, slot_key};
pub(crate) use init::init_items;
pub(crate) use losses::{is_of_gradients, losses};

use crate::compare::{self, Distance, Measured, Precision};
use crate::golden::{GRAD, Golden, OUT, ROOT};
use crate::manifest::TensorFacts;
use crate::report::Item;
use std::borrow::Cow;
use std::collections::BTreeMap;
use zoo_graph::{Graph, Shape, Source, Tap, ValueId};

/// Tensors of the main run, or of a variant.
pub(crate) fn tensors<'g>(golden: &'g Golden, variant: Option<&str>) -> Option<&'g BTreeMap<String, TensorFacts>> {
    match variant {
        None => Some(&golden.manifest.tensors),
        Some(name) => golden.manifest.variants.get(name).map(|v| &v.tensors),
    }
}

/// Module outputs, in the order in which modules return. Missing and additional ones fail.
pub(crate) fn outputs<'m>(
    graph: &Graph,
    not_given: &[&str],
    golden: &Golden,
    variant: Option<&str>,
    precision: Precision,
    read: impl Fn(&str) -> Option<&'m Measured>,
) -> Vec<Item> {
    let Some(tensors) = tensors(golden, variant) else { return Vec::new() };
    let taps: Vec<String> = graph.taps.iter().map(Tap::key).collect();
    let mut items: Vec<Item> =
        taps.iter().map(|tap| judge(tap, &format!("{OUT}{tap}"), golden, variant, tensors, precision, &read)).collect();
    let listed = tensors.keys().filter_map(|k| k.strip_prefix(OUT)).filter(|k| !not_given.contains(k));
    items.extend(
        listed.filter(|k| !taps.iter().any(|t| t == k)).map(|k| Item::wrong(k, "the recipe has no such module call")),
    );
    degenerate::forgive(&mut items, OUT, tensors, precision, degenerate::rounding_level_of_value, &read);
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
        Source::Node(n, i) => (n.0, i),
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
    degenerate::forgive(&mut items, GRAD, tensors, precision, degenerate::rounding_level, &read);
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
    let numel = facts.shape.iter().product();
    let mut facts = Cow::Borrowed(facts);
    if key.starts_with(OUT) {
        let times = compare::repeats(&found.shape, &facts.shape);
        if times.is_some() || compare::joins_rows(&found.shape, &facts.shape) {
            let facts = facts.to_mut();
            facts.shape.clone_from(&found.shape);
            facts.l2 /= (times.unwrap_or(1) as f64).sqrt();
        }
    }
    if !compare::same_shape(&found.shape, &facts.shape) {
        let [ours, theirs] = [&found.shape, &facts.shape].map(|s| Shape::from(s.as_slice()));
        return Item::wrong(name, format!("shape {ours}, the reference has {theirs}"));
    }
    match golden.samples(key, variant, numel) {
        Ok(truth) => {
            let Distance { error, floor } = compare::compare(found, &facts, &truth, precision);
            Item::measured(name, error, floor)
        }
        Err(error) => Item::wrong(name, error.to_string()),
    }
}

/// Whether a module output is an output of the whole network.
pub(crate) fn is_of_network(item: &Item) -> bool {
    format!("{OUT}{}", item.name).starts_with(ROOT)
}
