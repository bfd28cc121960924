//! Assigns measured kernels to lines by operator, shape and order, where nothing was marked: tables of an NPU's
//! kernels.
//!
//! First, both are laid beside each other in order, so that as much time as possible has a partner of the same family
//! and sizes. Gradients come in another order than in the graph, so of what is left, kernels and operators with the
//! same family and sizes form groups, in which the n-th part of the kernels belongs to the n-th operator. The rest is
//! held against operators of other families that go over the same number of elements, because frameworks divide
//! element-wise work in other ways than the clock, and against the update, if it goes over all parameters at once.

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
    let mut taken = vec![false; profile.graph.nodes.len()];
    for step in 0..recording.steps.len() {
        let of_step = (0..kernels.len()).filter(|k| computes(k) && kernels[*k].step as usize == step);
        for (k, operator) in in_order(&of_step.collect::<Vec<_>>(), kernels, &found, &sizes, &nodes) {
            put(&mut found[k], profile, nodes[operator].node);
            taken[nodes[operator].node] = true;
        }
    }
    let left: Vec<usize> = (0..kernels.len()).filter(|k| computes(k) && !found[*k].matched).collect();
    let (free, used): (Vec<&Operator>, Vec<&Operator>) = nodes.iter().partition(|operator| !taken[operator.node]);
    let same = |family: Family, sizes: &Sizes| Some((family, sizes.clone()));
    let cousin = |family: Family, sizes: &Sizes| Some((cousins(family)?, vec![*sizes.first()?]));
    let left = by_group(&mut found, left, &sizes, &free, profile, same);
    let left = by_group(&mut found, left, &sizes, &used, profile, same);
    let left = by_group(&mut found, left, &sizes, &free, profile, cousin);
    let left = by_group(&mut found, left, &sizes, &used, profile, cousin);
    let parameters: u64 = profile.graph.parameters().map(|(_, v)| profile.graph.ty(v.value).shape.numel() as u64).sum();
    let update = nodes.iter().find(|operator| operator.family == Family::Update);
    for k in left {
        if let (Some(update), true) =
            (update, sizes[k].as_ref().is_some_and(|sizes| sizes.first() == Some(&parameters)))
        {
            let family = found[k].family;
            put(&mut found[k], profile, update.node);
            found[k].family = family;
        }
    }
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
    let mut outputs = elements(recording.text(kernel.outputs))?;
    if kernel.unit == Unit::Random {
        // A random mask has a bit for each element, in bytes.
        outputs.iter_mut().for_each(|bytes| *bytes = bytes.saturating_mul(8));
    }
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

/// A kernel belongs to a node.
fn put(found: &mut Found, profile: &Profile, node: usize) {
    found.node = Some(node);
    let node = &profile.graph.nodes[node];
    found.line = node.origin.as_ref().map(line);
    found.phase = Some(node.phase);
    found.family = family(node.op.name());
    found.matched = true;
}

/// The most kernels times operators that are laid beside each other.
const MOST: usize = 1 << 26;

/// Pairs of kernels and operators in the order of both, so that paired kernels have the longest time: the longest
/// common subsequence, weighted.
fn in_order(
    of_step: &[usize],
    kernels: &[Kernel],
    found: &[Found],
    sizes: &[Option<Sizes>],
    operators: &[Operator],
) -> Vec<(usize, usize)> {
    let width = operators.len() + 1;
    if (of_step.len() + 1).saturating_mul(width) > MOST {
        return Vec::new();
    }
    let fits = |k: usize, operator: &Operator| {
        found[k].family == Some(operator.family) && sizes[k].as_ref() == Some(&operator.sizes)
    };
    let mut before = vec![0i64; width];
    // Whether the best of the first i kernels and j operators pairs the last of both, or leaves out the last operator.
    let mut choices: Vec<Choice> = Vec::with_capacity((of_step.len() + 1) * width);
    choices.resize(width, Choice::Operator);
    for k in of_step {
        let mut row = vec![0i64; width];
        choices.push(Choice::Kernel);
        for (j, operator) in operators.iter().enumerate() {
            let paired = if fits(*k, operator) { before[j] + 1 + kernels[*k].duration } else { i64::MIN };
            let (kernel, other) = (before[j + 1], row[j]);
            let best = paired.max(kernel).max(other);
            row[j + 1] = best;
            choices.push(match () {
                () if best == paired => Choice::Pair,
                () if best == kernel => Choice::Kernel,
                () => Choice::Operator,
            });
        }
        before = row;
    }
    let (mut i, mut j, mut pairs) = (of_step.len(), operators.len(), Vec::new());
    while i > 0 && j > 0 {
        match choices[i * width + j] {
            Choice::Pair => {
                pairs.push((of_step[i - 1], j - 1));
                (i, j) = (i - 1, j - 1);
            }
            Choice::Kernel => i -= 1,
            Choice::Operator => j -= 1,
        }
    }
    pairs
}

/// What is left out.
#[derive(Clone, Copy)]
enum Choice {
    Pair,
    Kernel,
    Operator,
}

/// Assigns the kernels that have operators in their group; returns the others.
fn by_group(
    found: &mut [Found],
    kernels: Vec<usize>,
    sizes: &[Option<Sizes>],
    operators: &[&Operator],
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
            put(&mut found[*k], profile, nodes[i * nodes.len() / kernels.len()]);
        }
    }
    left
}
