//! The outline of an architecture for a picture: chains of layers as one box, modules as frames, repeated parts once.

use crate::cmd::show::layers::{computed, parameters};
use std::collections::BTreeSet;
use zoo_graph::{Graph, Node, Shape};
use zoo_recipe::layers::{Description, Work};
use zoo_recipe::{ResolvedLayer, ResolvedModel};

/// An architecture in order of execution.
#[derive(Debug)]
pub(super) struct Outline {
    /// The network, from its first input on.
    pub body: Vec<Part>,
    /// Number of trained parameters.
    pub parameters: u64,
}

/// A part of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// An input of the network.
    Input { name: String, shape: String },
    /// Consecutive layers in a box.
    Box(Unit),
    /// A module with its content.
    Frame { title: String, body: Vec<Part> },
    /// Branches that start from one value, and their join.
    Branches { lanes: Vec<Vec<Part>>, join: Unit },
    /// The current value is named.
    Tap { name: String, output: Option<String>, shape: String },
    /// The following layers continue from a named value.
    From(String),
    /// The current value is an output of the network.
    Output { name: String, shape: String },
}

impl Part {
    /// Shape of its output, if known.
    fn shape(&self) -> Option<String> {
        match self {
            Self::Box(unit) | Self::Branches { join: unit, .. } => Some(unit.shape.clone()),
            Self::Frame { body, .. } => body.iter().rev().find_map(Part::shape),
            Self::Input { shape, .. } | Self::Tap { shape, .. } | Self::Output { shape, .. } => Some(shape.clone()),
            Self::From(_) => None,
        }
        .filter(|shape| !shape.is_empty())
    }
}

/// Consecutive layers that are drawn as one box.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unit {
    /// Module name within its frame.
    pub name: String,
    /// Its description, with a line for each step.
    pub lines: Vec<String>,
    /// The kind of work of the first layer.
    pub work: Work,
    /// Whether it can share the box of the previous step.
    rides: bool,
    /// Shape of its result, without the batch.
    pub shape: String,
    /// Named values that it reads in addition to its input.
    pub reads: Vec<String>,
}

impl Outline {
    /// The outline of a network and its graph.
    pub fn new(model: &ResolvedModel, graph: &Graph) -> Self {
        let leaves = computed(model, graph);
        let parameters = leaves.iter().flat_map(|(_, nodes)| nodes).map(|node| parameters(graph, node)).sum();
        let mut drawn = Drawn { graph, leaves: leaves.into_iter(), model, used: BTreeSet::new() };
        used(&model.body, &mut drawn.used);
        let shape = |index: usize| graph.inputs.get(index).map(|input| dims(&graph.ty(input.value).shape));
        let first = model.inputs.keys().next().cloned().unwrap_or_default();
        let mut body = vec![Part::Input { name: first, shape: shape(0).unwrap_or_default() }];
        body.extend(drawn.list(&model.body, ""));
        if let ([(name, value)], true) = (graph.outputs.as_slice(), model.outputs.is_empty()) {
            body.push(Part::Output { name: name.clone(), shape: dims(&graph.ty(*value).shape) });
        }
        Self { body, parameters }
    }
}

/// Names of taps from which other layers continue.
fn used(layers: &[ResolvedLayer], names: &mut BTreeSet<String>) {
    for layer in layers {
        match layer.kind.describe() {
            Description::From(name) => {
                names.insert(name.to_owned());
            }
            Description::Step(step) => names.extend(step.reads.into_iter().map(str::to_owned)),
            Description::Tap(_) | Description::Unused(_) => {}
            inside @ (Description::Row(_) | Description::Again(_) | Description::Branches { .. }) => {
                inside.inside().into_iter().for_each(|list| used(list, names));
            }
        }
    }
}

struct Drawn<'a, I> {
    graph: &'a Graph,
    /// Layers that are not containers, in the order of visits.
    leaves: I,
    model: &'a ResolvedModel,
    used: BTreeSet<String>,
}

impl<'a, I: Iterator<Item = (&'a ResolvedLayer, Vec<&'a Node>)>> Drawn<'a, I> {
    fn list(&mut self, layers: &[ResolvedLayer], within: &str) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for layer in layers {
            for part in self.layer(layer, within) {
                let joined = match (parts.last_mut(), &part) {
                    (Some(Part::Box(before)), Part::Box(unit)) => before.take(unit),
                    _ => false,
                };
                if !joined {
                    parts.push(part);
                }
            }
        }
        once(parts)
    }

    fn layer(&mut self, layer: &ResolvedLayer, within: &str) -> Vec<Part> {
        let name = layer.name.clone().unwrap_or_default();
        let short = short(&name, within);
        match layer.kind.describe() {
            Description::Row(body) => self.frame(&name, within, body),
            Description::Again(called) => called.iter().flat_map(|module| self.again(module, within)).collect(),
            Description::Branches { lanes, join, .. } => {
                let lanes = lanes.into_iter().map(|lane| self.list(lane, within)).collect();
                let join = Unit { shape: self.shape(), ..Unit::new(String::new(), join, Work::Join) };
                vec![Part::Branches { lanes, join }]
            }
            Description::Tap(tap) => {
                let shape = self.shape();
                let output = self.model.outputs.iter().find(|(_, value)| *value == tap).map(|(name, _)| name.clone());
                match output.is_some() || self.used.contains(tap) {
                    true => vec![Part::Tap { name: tap.to_owned(), output, shape }],
                    false => vec![],
                }
            }
            Description::From(from) => {
                self.shape();
                let (name, input) = (from.to_owned(), self.graph.inputs.iter().find(|input| input.name == from));
                vec![match input {
                    Some(input) => Part::Input { name, shape: dims(&self.graph.ty(input.value).shape) },
                    None => Part::From(name),
                }]
            }
            Description::Unused(_) => {
                self.shape();
                vec![]
            }
            Description::Step(step) => {
                let reads = step.reads.into_iter().map(str::to_owned).collect();
                let unit = Unit::new(short, step.text, step.work);
                vec![Part::Box(Unit { shape: self.shape(), reads, rides: step.rides, ..unit })]
            }
        }
    }

    /// A module in a frame; a module with a single box is drawn as that box.
    fn frame(&mut self, name: &str, within: &str, body: &[ResolvedLayer]) -> Vec<Part> {
        let mut inside = self.list(body, if name.is_empty() { within } else { name });
        if name.is_empty() {
            return inside;
        }
        let title = short(name, within);
        if let [Part::Box(unit)] = inside.as_mut_slice() {
            unit.name = title;
            return inside;
        }
        vec![Part::Frame { title, body: inside }]
    }

    /// A repeated call of a module: one box, unless values inside it are used elsewhere.
    fn again(&mut self, module: &ResolvedLayer, within: &str) -> Vec<Part> {
        let parts = self.layer(module, within);
        let name = short(module.name.as_deref().unwrap_or_default(), within);
        let shape = parts.iter().rev().find_map(Part::shape).unwrap_or_default();
        let frame = |part| match part {
            Part::Frame { title, body } => Part::Frame { title: format!("{title}, again"), body },
            part => part,
        };
        if has_taps(&parts) {
            return parts.into_iter().map(frame).collect();
        }
        vec![Part::Box(Unit { shape, ..Unit::new(name, "again, with the same weights", Work::Other) })]
    }

    /// Shape of the output of the next layer, without the batch; empty if it computes nothing.
    fn shape(&mut self) -> String {
        let Some((_, nodes)) = self.leaves.next() else { return String::new() };
        let value = nodes.last().and_then(|node| node.outputs.first());
        value.map(|value| dims(&self.graph.ty(*value).shape)).unwrap_or_default()
    }
}

impl Unit {
    /// A box of one step.
    fn new(name: String, line: impl Into<String>, work: Work) -> Self {
        let lines = vec![line.into()];
        Self { name, lines, work, rides: false, shape: String::new(), reads: Vec::new() }
    }

    /// The text of its box: its description, preceded by its name if that differs.
    pub fn text(&self) -> impl Iterator<Item = &str> {
        let says_more = !self.name.is_empty() && self.lines.first() != Some(&self.name);
        says_more.then_some(self.name.as_str()).into_iter().chain(self.lines.iter().map(String::as_str))
    }

    /// Adds a step that needs no separate box; returns whether it did.
    fn take(&mut self, next: &Unit) -> bool {
        let starts = self.work != Work::Join || self.lines.len() == 1;
        if !next.rides || !starts {
            return false;
        }
        let riding = self.lines.len() > 1;
        // Steps that ride along share a line.
        match self.lines.last_mut() {
            Some(last) if riding => {
                last.push_str(", ");
                last.push_str(&next.lines.join(", "));
            }
            _ => self.lines.extend(next.lines.iter().cloned()),
        }
        if !next.shape.is_empty() {
            self.shape.clone_from(&next.shape);
        }
        true
    }
}

/// Merges consecutive equal frames into one with all their names.
fn once(parts: Vec<Part>) -> Vec<Part> {
    let mut kept: Vec<(Part, usize, String)> = Vec::new();
    for part in parts {
        if let Part::Frame { title, body } = &part
            && let Some((Part::Frame { body: before, .. }, times, last)) = kept.last_mut()
            && alike(body, before)
            && !has_taps(body)
        {
            *times += 1;
            last.clone_from(title);
            continue;
        }
        kept.push((part, 1, String::new()));
    }
    let title = |(part, times, last): (Part, usize, String)| match part {
        Part::Frame { title, body } if times > 1 => {
            Part::Frame { title: format!("{title} to {last}, {times} times"), body }
        }
        part => part,
    };
    kept.into_iter().map(title).collect()
}

/// Whether two modules are equal except for names.
fn alike(a: &[Part], b: &[Part]) -> bool {
    let unit = |a: &Unit, b: &Unit| (&a.lines, &a.shape, a.work) == (&b.lines, &b.shape, b.work);
    let same = |a: &Part, b: &Part| match (a, b) {
        (Part::Box(a), Part::Box(b)) => unit(a, b),
        (Part::Frame { body: a, .. }, Part::Frame { body: b, .. }) => alike(a, b),
        (Part::Branches { lanes: a, join: c }, Part::Branches { lanes: b, join: d }) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)) && unit(c, d)
        }
        _ => false,
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

fn has_taps(parts: &[Part]) -> bool {
    parts.iter().any(|part| match part {
        Part::Tap { .. } | Part::From(_) => true,
        Part::Frame { body, .. } => has_taps(body),
        Part::Branches { lanes, .. } => lanes.iter().any(|lane| has_taps(lane)),
        Part::Input { .. } | Part::Box(_) | Part::Output { .. } => false,
    })
}

/// A module's name relative to another: the remainder after it. If the remainder is only a number, the other's last
/// name precedes it.
fn short(name: &str, within: &str) -> String {
    let inside = name.strip_prefix(within).map(|rest| rest.trim_start_matches('.'));
    let rest = inside.filter(|rest| !rest.is_empty()).unwrap_or(name);
    match within.rsplit('.').next() {
        Some(outer) if !outer.is_empty() && !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{outer}.{rest}")
        }
        _ => rest.to_owned(),
    }
}

/// A shape without the batch.
fn dims(shape: &Shape) -> String {
    shape.iter().skip(1).map(usize::to_string).collect::<Vec<_>>().join("×")
}
