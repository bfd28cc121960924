//! The start of a step: names, shapes, counts and rules of parameters.

use crate::golden::Golden;
use crate::report::Item;
use crate::weights;
use zoo_graph::{Graph, Shape, Variable};

/// Names, shapes, counts, test vectors of the hash, and first values of weights and inputs.
pub(crate) fn init_items(graph: &Graph, golden: &Golden) -> Vec<Item> {
    let manifest = &golden.manifest;
    let mut items = Vec::new();
    for name in weights::broken_hash_vectors(golden) {
        items.push(Item::wrong(format!("hash of `{name}`"), "its test vectors do not hold"));
    }
    let state = |v: &&Variable| v.role.is_parameter() || v.role.is_statistic();
    for variable in graph.variables.iter().filter(state) {
        let shape = &graph.ty(variable.value).shape;
        items.push(match manifest.shapes.get(&variable.name) {
            Some(theirs) if **shape == theirs[..] => {
                same(&variable.name, manifest.init.contains_key(&variable.name), "the golden has no rule for it")
            }
            Some(theirs) => {
                let theirs = Shape::from(theirs.as_slice());
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
    let differs = format!("{count}, the reference has {}", manifest.parameter_count);
    items.push(same("parameter count", count == manifest.parameter_count, &differs));
    for (name, head) in golden.heads("init_head/") {
        if let Some(rule) = manifest.init.get(name) {
            let ours = weights::initial(rule, &manifest.salt, name, head.len());
            let is_same = ours.iter().zip(head).all(|(a, b)| f64::from(*a) == *b);
            items.push(same(&format!("first values of {name}"), is_same, "the hash rule gives others"));
        }
    }
    for (name, head) in golden.heads("input_head/") {
        let is_same = weights::input(golden, name).is_ok_and(|ours| ours.iter().zip(head).all(|(a, b)| a == b));
        items.push(same(&format!("first values of input {name}"), is_same, "the hash rule gives others"));
    }
    items
}

/// Whether a fact is the reference's.
fn same(name: &str, is_same: bool, otherwise: &str) -> Item {
    if is_same { Item::measured(name, 0.0, 1.0) } else { Item::wrong(name, otherwise) }
}
