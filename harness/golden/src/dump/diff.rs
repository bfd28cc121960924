//! Compares two dumps of one step.
//!
//! Both steps started with the same weights and inputs, so every difference has a cause. The difference of a node
//! from the other dump is inherited from its operands if its [own error](super::Own) is within that of rounding. If
//! it is larger, the node is at fault in the dump with the larger own error. If neither dump shows such an error, but
//! bit-identical operands give different results, the dumps have different operators.

use super::{
    Dump, DumpedNode, DumpedValue, Own,
    own::{F32_LEVEL, TOLERANCE},
};
use crate::{
    GoldenError,
    compare::relative_l2,
    report::{Stage, Verdict},
};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// A compared dump.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DumpFacts {
    /// Its folder.
    pub folder: String,
    /// The device, or `host`.
    pub device: String,
    /// Element type of the step, before the casts for a device.
    pub dtype: String,
    /// Version of zoo that wrote it.
    pub zoo: String,
    /// Factor on the loss.
    pub loss_scale: f64,
    /// Total loss; null if it is not finite.
    pub loss: Option<f64>,
    /// Hash of the step's losses and of its variables.
    pub hash: String,
}

/// The dump in which an operator is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The first.
    A,
    /// The second.
    B,
    /// Both, in different ways.
    Both,
    /// Neither: both compute their operators correctly, but the operators differ.
    Between,
}

/// A node of both dumps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeDifference {
    /// Its name.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// Part of the step.
    pub stage: Stage,
    /// Line of the recipe.
    pub line: Option<String>,
    /// Element types of its result; null if only the other dump has the node (for example, a cast).
    pub dtype: [Option<String>; 2],
    /// Relative distance between its results in the two dumps; null if it is not finite.
    pub error: Option<f64>,
    /// The largest such distance of its operands.
    pub inherited: Option<f64>,
    /// Its own error in each dump.
    pub own: [Option<Own>; 2],
    /// Share of the elements that became zero, in each dump.
    pub underflow: [f64; 2],
    /// Share of the elements that exceed the largest number, in each dump.
    pub overflow: [f64; 2],
    /// Whether it is at fault, and in which dump.
    pub fault: Option<Fault>,
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this structure.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The first dump.
    pub a: DumpFacts,
    /// The second.
    pub b: DumpFacts,
    /// Passes if no operator is at fault and both dumps have the same operators.
    pub verdict: Verdict,
    /// Whether losses and variables are bit-identical.
    pub identical: bool,
    /// The first operator that is at fault.
    pub first: Option<NodeDifference>,
    /// Operators that only the first dump has.
    pub only_in_a: Vec<String>,
    /// Operators that only the second dump has.
    pub only_in_b: Vec<String>,
    /// Every node, in order.
    pub nodes: Vec<NodeDifference>,
}

/// Compares two dumps.
///
/// # Errors
/// Dumps of different steps, or values that cannot be read.
pub fn diff(a: &Dump, b: &Dump, progress: &mut dyn FnMut(usize, usize)) -> Result<Comparison, GoldenError> {
    let foreign = |message: String| GoldenError::Foreign { a: a.folder.clone(), b: b.folder.clone(), message };
    if a.manifest.recipe != b.manifest.recipe {
        return Err(foreign(format!("one is of {}, the other of {}", a.manifest.recipe, b.manifest.recipe)));
    }
    same_start(a, b, &foreign)?;
    let mut walk = Walk { sides: [Side::of(a), Side::of(b)], errors: Default::default(), nodes: Vec::new() };
    let (sources, attached) = walk.attached();
    for node in sources {
        walk.visit([Some(node), None])?;
    }
    for (n, node) in b.manifest.nodes.iter().enumerate() {
        progress(n + 1, b.manifest.nodes.len());
        let in_a = walk.sides[0].nodes.get(node.writes.first().map_or("", |w| w.name.as_str())).copied();
        walk.visit([in_a, Some(node)])?;
        for cast in node.writes.iter().filter_map(|value| attached.get(value.name.as_str())).flatten() {
            walk.visit([Some(cast), None])?;
        }
    }
    let [only_in_a, only_in_b] = [(0, 1), (1, 0)].map(|(own, other)| walk.surplus(own, other));
    let nodes = walk.nodes;
    let first = nodes.iter().find(|node| node.fault.is_some()).cloned();
    let passes = first.is_none() && only_in_a.is_empty() && only_in_b.is_empty();
    Ok(Comparison {
        schema_version: 1,
        recipe: a.manifest.recipe.clone(),
        a: facts(a),
        b: facts(b),
        verdict: if passes { Verdict::Pass } else { Verdict::Fail },
        identical: a.manifest.hash == b.manifest.hash,
        first,
        only_in_a,
        only_in_b,
        nodes,
    })
}

fn facts(dump: &Dump) -> DumpFacts {
    let manifest = &dump.manifest;
    DumpFacts {
        folder: dump.folder.display().to_string(),
        device: manifest.device.clone(),
        dtype: manifest.dtype.clone(),
        zoo: manifest.zoo.clone(),
        loss_scale: manifest.loss_scale,
        loss: manifest.losses.first().and_then(|(_, loss)| *loss),
        hash: manifest.hash.clone(),
    }
}

/// Fails unless both steps start with the same inputs and variables.
fn same_start(a: &Dump, b: &Dump, foreign: &impl Fn(String) -> GoldenError) -> Result<(), GoldenError> {
    let names = |dump: &Dump| dump.manifest.sources.iter().map(|s| s.name.clone()).collect::<HashSet<String>>();
    if let Some(name) = names(a).symmetric_difference(&names(b)).min() {
        return Err(foreign(format!("only one has the {name}")));
    }
    for source in &a.manifest.sources {
        let name = &source.name;
        if a.shape(name) != b.shape(name) {
            return Err(foreign(format!("the {name} has the shapes {:?} and {:?}", a.shape(name), b.shape(name))));
        }
        // A step in f64 may start with numbers that f32 rounds.
        let (x, y) = (a.read(name)?, b.read(name)?);
        if x.iter().zip(&y).any(|(x, y)| *x as f32 != *y as f32) {
            return Err(foreign(format!("the {name} has other values")));
        }
    }
    Ok(())
}

/// A dump, with its nodes and values by name.
struct Side<'a> {
    dump: &'a Dump,
    nodes: HashMap<&'a str, &'a DumpedNode>,
    values: HashMap<&'a str, &'a DumpedValue>,
}

impl<'a> Side<'a> {
    fn of(dump: &'a Dump) -> Self {
        let written = |node: &'a DumpedNode| node.writes.iter().map(move |value| (value.name.as_str(), node));
        let values = dump.manifest.nodes.iter().flat_map(|node| &node.writes).chain(&dump.manifest.sources);
        Self {
            dump,
            nodes: dump.manifest.nodes.iter().flat_map(written).collect(),
            values: values.map(|value| (value.name.as_str(), value)).collect(),
        }
    }

    /// Elements of a value, without the loss scale.
    fn read(&self, value: &DumpedValue) -> Result<Vec<f64>, GoldenError> {
        let mut elements = self.dump.read(&value.name)?;
        if value.scaled {
            elements.iter_mut().for_each(|x| *x /= self.dump.manifest.loss_scale);
        }
        Ok(elements)
    }
}

/// Relative distance; infinite instead of NaN.
fn distance(found: &[f64], truth: &[f64]) -> f64 {
    let norm = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
    let error = relative_l2(found, truth, norm, truth.len());
    if error.is_nan() { f64::INFINITY } else { error }
}

struct Walk<'a> {
    sides: [Side<'a>; 2],
    /// Distance of each visited value from its counterpart, by dump and name; infinite instead of NaN.
    errors: [HashMap<String, f64>; 2],
    nodes: Vec<NodeDifference>,
}

impl<'a> Walk<'a> {
    /// Conversions that only the first dump has: those of inputs and variables, and those of each other value.
    fn attached(&self) -> (Vec<&'a DumpedNode>, HashMap<&'a str, Vec<&'a DumpedNode>>) {
        let (mut sources, mut attached) = (Vec::new(), HashMap::<&str, Vec<&DumpedNode>>::new());
        for node in self.sides[0].dump.manifest.nodes.iter().filter(|node| node.converts) {
            let Some(value) = node.writes.first() else { continue };
            if self.sides[1].nodes.contains_key(value.name.as_str()) {
                continue;
            }
            match self.sides[0].nodes.contains_key(value.exact.as_str()) {
                true => attached.entry(value.exact.as_str()).or_default().push(node),
                false => sources.push(node),
            }
        }
        (sources, attached)
    }

    /// Judges a node that one or both dumps have.
    fn visit(&mut self, pair: [Option<&'a DumpedNode>; 2]) -> Result<(), GoldenError> {
        let mut worst = 0.0f64;
        for (own, node) in pair.iter().enumerate() {
            let Some(node) = node else { continue };
            for value in &node.writes {
                // A cast that only one dump has is compared with its operand.
                let other = &self.sides[1 - own].values;
                let same = other.get(value.name.as_str()).copied();
                let Some(counterpart) = same.or_else(|| other.get(value.exact.as_str()).copied()) else { continue };
                let known = same.and_then(|same| self.errors[1 - own].get(&same.name).copied());
                let error = match known {
                    Some(error) => error,
                    None => {
                        let (x, y) = (self.sides[own].read(value)?, self.sides[1 - own].read(counterpart)?);
                        // Relative to the first dump.
                        let (found, truth) = if own == 0 { (y, x) } else { (x, y) };
                        distance(&found, &truth)
                    }
                };
                self.errors[own].insert(value.name.clone(), error);
                worst = worst.max(error);
            }
        }
        let Some(node) = pair[1].or(pair[0]) else { return Ok(()) };
        let reads = pair.iter().enumerate().flat_map(|(side, node)| {
            let errors = &self.errors[side];
            node.iter().flat_map(|node| &node.reads).filter_map(|name| errors.get(name.as_str()).copied())
        });
        let inherited = reads.fold(0.0, f64::max);
        let own = pair.map(|node| node.and_then(|node| node.own));
        let at_fault = |side: usize| {
            let overflows = pair[side].is_some_and(|node| node.overflow > 0.0);
            own[side].is_some_and(|own| own.is_fault()) || overflows
        };
        let expected = own.iter().flatten().filter_map(|own| own.expected).fold(F32_LEVEL, f64::max);
        let fault = match (at_fault(0), at_fault(1)) {
            _ if worst <= F32_LEVEL => None,
            (true, false) => Some(Fault::A),
            (false, true) => Some(Fault::B),
            (true, true) => Some(Fault::Both),
            (false, false) if inherited == 0.0 && worst > TOLERANCE * expected => Some(Fault::Between),
            (false, false) => None,
        };
        let finite = |x: f64| x.is_finite().then_some(x);
        self.nodes.push(NodeDifference {
            node: node.node.clone(),
            op: node.op.clone(),
            stage: node.stage,
            line: node.line.clone(),
            dtype: pair.map(|node| node.and_then(|node| node.writes.first()).map(|value| value.dtype.clone())),
            error: finite(worst),
            inherited: finite(inherited),
            own,
            underflow: pair.map(|node| node.map_or(0.0, |node| node.underflow)),
            overflow: pair.map(|node| node.map_or(0.0, |node| node.overflow)),
            fault,
        });
        Ok(())
    }

    /// Operators of one dump that the other lacks, except conversions.
    fn surplus(&self, own: usize, other: usize) -> Vec<String> {
        let nodes = self.sides[own].dump.manifest.nodes.iter().filter(|node| !node.converts);
        let lacks = |node: &&DumpedNode| node.writes.iter().any(|w| !self.sides[other].values.contains_key(&*w.name));
        nodes.filter(lacks).map(|node| node.node.clone()).collect()
    }
}
