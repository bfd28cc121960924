//! Assigns measured kernels to lines by operator, shape and order, where nothing was marked: tables of an NPU's kernels.
//!
//! Kernels and operators of the graph with the same family and sizes form a group; in a group, the n-th part of the
//! kernels belongs to the n-th operator. What is left over is held against operators of other families that go over the
//! same number of elements: frameworks divide element-wise work in other ways than the clock.

use super::{
    by_module::Found,
    family::{Family, family},
};
use crate::profile::{Profile, line};
use std::collections::HashMap;
use zoo_measured::{Kernel, Recording, Unit};

/// Sizes that tell operators of a family apart: numbers of elements, the largest first.
type Sizes = Vec<u64>;

/// Operands of an operator with more than these stand for themselves: a norm over all gradients.
const FEW: usize = 3;

/// Assigns all kernels; collectives have no place in the recipe.
pub(super) fn assign(recording: &Recording, profile: &Profile) -> Vec<Found> {
    let kernels = &recording.kernels;
    let mut found: Vec<Found> = kernels
        .iter()
        .map(|k| Found { family: family(recording.names.text(k.operator)), ..Found::default() })
        .collect();
    let computes = |k: &usize| kernels[*k].unit != Unit::Link;
    let sizes: Vec<Option<Sizes>> =
        kernels.iter().zip(&found).map(|(kernel, found)| measured_sizes(recording, kernel, found.family)).collect();
    let nodes = operators(profile);
    let all: Vec<usize> = (0..kernels.len()).filter(computes).collect();
    let left = by_group(&mut found, all, &sizes, &nodes, profile, |family, sizes| Some((family, sizes.clone())));
    by_group(&mut found, left, &sizes, &nodes, profile, |family, sizes| {
        Some((cousins(family)?, vec![*sizes.first()?]))
    });
    found
}

/// An operator of the graph that a kernel runs, with its family and sizes.
struct Operator {
    node: usize,
    family: Family,
    sizes: Sizes,
}

fn operators(profile: &Profile) -> Vec<Operator> {
    let graph = &profile.graph;
    let mut all = Vec::new();
    for node in profile.kernels.iter().flat_map(|kernel| &kernel.nodes).copied() {
        let of = &graph.nodes[node];
        let Some(family) = family(of.op.name()) else { continue };
        let elements = |values: &[zoo_graph::ValueId]| -> Sizes {
            values.iter().map(|value| graph.ty(*value).shape.numel() as u64).collect()
        };
        let (inputs, outputs) = (elements(&of.inputs), elements(&of.outputs));
        if inputs.len() > FEW && family == Family::Reduction {
            all.extend(inputs.into_iter().map(|size| Operator { node, family, sizes: vec![size] }));
        } else {
            all.push(Operator { node, family, sizes: significant(family, inputs, outputs) });
        }
    }
    all.sort_by_key(|operator| operator.node);
    all
}

/// Operands and result of products, the largest tensor of others.
fn significant(family: Family, inputs: Sizes, outputs: Sizes) -> Sizes {
    let mut sizes: Sizes = match family {
        Family::Convolution | Family::Product => {
            inputs.into_iter().take(2).chain(outputs.into_iter().take(1)).collect()
        }
        Family::Attention
        | Family::Normalisation
        | Family::Activation
        | Family::Pool
        | Family::Softmax
        | Family::Sum
        | Family::Elementwise
        | Family::Reduction
        | Family::Gather
        | Family::Layout
        | Family::Cast
        | Family::Dropout
        | Family::Loss
        | Family::Update
        | Family::Fill
        | Family::Resize
        | Family::Collective => vec![inputs.into_iter().chain(outputs).max().unwrap_or(0)],
    };
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// The sizes of a measured kernel; `None` without shapes.
fn measured_sizes(recording: &Recording, kernel: &Kernel, family: Option<Family>) -> Option<Sizes> {
    let elements = |text: &str| -> Option<Sizes> {
        let shapes = text.split(';').filter(|shape| !shape.trim().is_empty());
        shapes.map(|s| s.split(',').try_fold(1u64, |all, axis| all.checked_mul(axis.trim().parse().ok()?))).collect()
    };
    let inputs = elements(recording.text(kernel.inputs))?;
    let outputs = elements(recording.text(kernel.outputs))?;
    let sizes = significant(family?, inputs, outputs);
    (sizes.first()? > &0).then_some(sizes)
}

/// Families that divide element-wise work among each other.
fn cousins(family: Family) -> Option<Family> {
    match family {
        Family::Sum
        | Family::Elementwise
        | Family::Activation
        | Family::Reduction
        | Family::Dropout
        | Family::Softmax
        | Family::Normalisation
        | Family::Update
        | Family::Loss => Some(Family::Elementwise),
        Family::Convolution
        | Family::Product
        | Family::Attention
        | Family::Pool
        | Family::Gather
        | Family::Layout
        | Family::Cast
        | Family::Fill
        | Family::Resize
        | Family::Collective => None,
    }
}

/// Assigns the kernels that have operators in their group; returns the others.
fn by_group(
    found: &mut [Found],
    kernels: Vec<usize>,
    sizes: &[Option<Sizes>],
    operators: &[Operator],
    profile: &Profile,
    key: impl Fn(Family, &Sizes) -> Option<(Family, Sizes)>,
) -> Vec<usize> {
    let mut groups: HashMap<(Family, Sizes), [Vec<usize>; 2]> = HashMap::new();
    let mut left = Vec::new();
    for k in kernels {
        match found[k].family.zip(sizes[k].as_ref()).and_then(|(family, sizes)| key(family, sizes)) {
            Some(key) => groups.entry(key).or_default()[0].push(k),
            None => left.push(k),
        }
    }
    for operator in operators {
        if let Some(group) = key(operator.family, &operator.sizes).and_then(|key| groups.get_mut(&key)) {
            group[1].push(operator.node);
        }
    }
    for [kernels, nodes] in groups.into_values() {
        if nodes.is_empty() {
            left.extend(kernels);
            continue;
        }
        for (i, k) in kernels.iter().enumerate() {
            let node = &profile.graph.nodes[nodes[i * nodes.len() / kernels.len()]];
            found[*k].line = node.origin.as_ref().map(line);
            found[*k].phase = Some(node.phase);
            found[*k].family = family(node.op.name());
            found[*k].matched = true;
        }
    }
    left
}
