//! Finds the smallest set of operators that must stay f32, so that the step loses nothing to the range of half
//! precision.
//!
//! Rounds of the search keep all nodes that lose values by themselves in f32, until nothing is lost. Then the search
//! removes the nodes that are not needed from the set, first by halves and finally one by one (delta debugging,
//! Zeller 1999).

use super::{DeviceOptions, NodeReport, OnDevice, judge};
use crate::{GoldenError, bound::Bound, compare::Precision, golden::Golden, report::Verdict};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use zoo_recipe::Recipe;

/// Rounds after which the search stops. Each round adds all nodes that lose values.
const ROUNDS: usize = 12;

/// Result of the search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bisection {
    /// Nodes that must stay f32, in the order of the step; empty if the step passes without them.
    pub keep: Vec<Kept>,
    /// Whether the step passes with these nodes in f32.
    pub passes: bool,
    /// Number of steps that were run.
    pub steps: usize,
}

/// A node that has to stay f32.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name, as in `npu.keep_fp32`.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
}

/// Searches. `progress` is told what is done, and about how many steps remain.
///
/// # Errors
/// As [`super::check_device`].
pub fn bisect(
    recipe: &Recipe,
    golden: &Golden,
    options: &DeviceOptions<'_>,
    progress: &mut dyn FnMut(&str, usize),
) -> Result<Bisection, GoldenError> {
    let bound = Bound::new(recipe, golden, Precision::F32, options.engine)?;
    let mut steps = 0;
    let mut attempt = |keep: &BTreeSet<String>, more: usize| -> Result<Vec<NodeReport>, GoldenError> {
        steps += 1;
        progress(&format!("step {steps} on the device, {} nodes in f32", keep.len()), more);
        let mut arithmetic = options.arithmetic.clone();
        arithmetic.policy.keep.extend(keep.iter().cloned());
        Ok(judge::nodes(options, &OnDevice::run(&bound, options, &arithmetic)?, HashMap::new()))
    };
    let pass = |nodes: &[NodeReport]| nodes.iter().all(|node| node.verdict == Verdict::Pass);
    let mut keep = BTreeSet::new();
    let mut nodes = attempt(&keep, 0)?;
    for _ in 0..ROUNDS {
        let before = keep.len();
        keep.extend(nodes.iter().filter(|n| n.verdict == Verdict::Fail && n.own).map(|n| layer(&n.node)));
        if keep.len() == before {
            break;
        }
        nodes = attempt(&keep, to_give_back(keep.len()))?;
    }
    let passes = pass(&nodes);
    if passes {
        let mut size = keep.len().div_ceil(2);
        while size > 0 && !keep.is_empty() {
            let all: Vec<String> = keep.iter().cloned().collect();
            for (n, part) in all.chunks(size).enumerate() {
                let rest: BTreeSet<String> = keep.iter().filter(|name| !part.contains(name)).cloned().collect();
                let more = all.len().div_ceil(size) - n - 1 + if size > 1 { to_give_back(size) } else { 0 };
                if pass(&attempt(&rest, more)?) {
                    keep = rest;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
    let graph = &bound.graph;
    let kept = |name: String| {
        let op = graph.nodes.iter().find(|node| node.name == name).map_or("", |node| node.op.name());
        Kept { node: name, op }
    };
    let place = |name: &String| graph.nodes.iter().position(|node| node.name == *name);
    let mut names: Vec<String> = keep.into_iter().collect();
    names.sort_by_key(place);
    Ok(Bisection { keep: names.into_iter().map(kept).collect(), passes, steps })
}

/// Estimated number of steps to reduce a set of `nodes` nodes, if only a part of one size is needed.
fn to_give_back(nodes: usize) -> usize {
    std::iter::successors(Some(nodes.div_ceil(2)), |size| (*size > 1).then(|| size.div_ceil(2)))
        .map(|size| nodes.min(2 * size).div_ceil(size.max(1)))
        .sum()
}

/// The node to which a cast belongs: the cast exists because a neighbour of this node computes in half precision.
fn layer(node: &str) -> String {
    node.split("/cast_").next().unwrap_or(node).to_owned()
}
