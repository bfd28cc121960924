//! The faults that can be planted in a split step.

use super::proof::Proof;
use std::collections::BTreeSet;
use zoo_engine::lockstep::Disturbance;
use zoo_graph::{
    Graph, NodeId, Op, Phase, Place, Scope, Source, ValueId, VariableId, VariableRole,
    formula::Formula,
    ops::{Collective, Exchange, Map, Scale, Update},
    parallel::MeshAxis,
};

/// A split step with a fault.
pub(super) struct Plant {
    pub operator: &'static str,
    pub fault: String,
    pub harmless: bool,
    pub graph: Graph,
    pub disturbed: Vec<(NodeId, Disturbance)>,
}

/// A class of collectives or gradients that a fault can hit together.
struct Class {
    name: String,
    members: Vec<usize>,
}

impl Class {
    /// The first member, and all of them if there are several.
    fn sets(&self, named: impl Fn(usize) -> String) -> Vec<(String, Vec<usize>)> {
        let one = self.members.first().map(|first| (named(*first), vec![*first]));
        one.into_iter().chain(self.all().filter(|(_, members)| members.len() > 1)).collect()
    }

    /// All members, if there are any.
    fn all(&self) -> impl Iterator<Item = (String, Vec<usize>)> {
        let all = (!self.members.is_empty()).then(|| (format!("all {}", self.name), self.members.clone()));
        all.into_iter()
    }
}

/// All faults that are possible.
pub(super) fn all(proof: &Proof) -> Vec<Plant> {
    let graph = proof.graph();
    let faults = Faults { proof, graph };
    [
        faults.skipped(),
        faults.scaled(),
        faults.other_groups(),
        faults.local_counts(),
        faults.first_parts(),
        faults.norms(),
        faults.lost(),
        faults.random(),
        faults.updates(),
        faults.harmless(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

struct Faults<'p> {
    proof: &'p Proof,
    graph: &'p Graph,
}

/// A word for the role of a parameter.
fn role(role: &VariableRole) -> &'static str {
    match role {
        VariableRole::Weight => "weights",
        VariableRole::Bias => "biases",
        VariableRole::NormWeight | VariableRole::NormBias => "parameters of normalisations",
        VariableRole::RunningMean | VariableRole::RunningVar => "running statistics",
        VariableRole::Slot { .. } | VariableRole::Average { .. } => "slots",
    }
}

impl Faults<'_> {
    fn plant(&self, operator: &'static str, fault: String, graph: Graph) -> Plant {
        Plant { operator, fault, harmless: false, graph, disturbed: Vec::new() }
    }

    fn disturbed(&self, operator: &'static str, fault: String, nodes: &[usize], by: Disturbance) -> Plant {
        let disturbed = nodes.iter().map(|n| (NodeId(*n), by)).collect();
        Plant { operator, fault, harmless: false, graph: self.graph.clone(), disturbed }
    }

    /// Collectives that sum over the ranks.
    fn sums(&self) -> impl Iterator<Item = (usize, &Collective)> {
        self.graph.nodes.iter().enumerate().filter_map(|(n, node)| match &node.op {
            Op::Collective(op) if matches!(op.exchange, Exchange::Sum | Exchange::SumPart(_)) => Some((n, op)),
            _ => None,
        })
    }

    /// The parameter whose gradient a node computes.
    fn gradient_of(&self, n: usize) -> Option<VariableId> {
        let outputs = &self.graph.nodes[n].outputs;
        self.graph.gradients.iter().find(|(_, value)| outputs.contains(value)).map(|(id, _)| *id)
    }

    /// Sums in classes: what is summed, and over which axis.
    fn classes(&self) -> Vec<Class> {
        let mut classes: Vec<Class> = Vec::new();
        for (n, op) in self.sums() {
            let what = match (self.gradient_of(n), self.graph.nodes[n].phase) {
                (Some(id), _) => format!("gradients of {}", role(&self.graph.variable(id).role)),
                (None, Phase::Forward) => "activations".to_owned(),
                (None, Phase::Loss) => "terms of the loss".to_owned(),
                (None, Phase::Backward) => "gradients of activations".to_owned(),
                (None, Phase::Update) => "norms".to_owned(),
            };
            let name = format!("{what} over {}", op.over);
            match classes.iter_mut().find(|class| class.name == name) {
                Some(class) => class.members.push(n),
                None => classes.push(Class { name, members: vec![n] }),
            }
        }
        classes
    }

    fn name(&self, n: usize) -> String {
        self.graph.nodes[n].name.clone()
    }

    /// A graph in which nodes have another operator.
    fn with_ops(&self, nodes: &[usize], op: impl Fn(&Collective) -> Collective) -> Graph {
        let mut graph = self.graph.clone();
        for n in nodes {
            if let Op::Collective(old) = &self.graph.nodes[*n].op {
                graph.nodes[*n].op = op(old).into();
            }
        }
        graph
    }

    /// M1: a sum is left out.
    fn skipped(&self) -> Vec<Plant> {
        let without = |op: &Collective| match &op.exchange {
            Exchange::SumPart(part) => Collective { exchange: Exchange::Own(part.clone()), ..op.clone() },
            _ => Collective { exchange: Exchange::Copy, ..op.clone() },
        };
        let classes = self.classes();
        let everything = Class { name: "sums".to_owned(), members: self.sums().map(|(n, _)| n).collect() };
        let sets = classes.iter().flat_map(|class| class.sets(|n| self.name(n))).chain(everything.all());
        let plant = |(name, nodes): (String, Vec<usize>)| {
            // Every rank has a norm, also one without a gradient of that kind.
            match nodes.iter().all(|n| self.graph.nodes[*n].phase == Phase::Update) {
                true => {
                    let fault = format!("each rank takes the norm of its own part (no sum: {name})");
                    self.disturbed("M1", fault, &nodes, Disturbance::OwnTerm)
                }
                false => self.plant("M1", format!("no sum: {name}"), self.with_ops(&nodes, without)),
            }
        };
        sets.map(plant).chain(self.last_terms()).collect()
    }

    /// The gradients of the last micro-batch alone.
    fn last_terms(&self) -> impl Iterator<Item = Plant> {
        let accumulated =
            self.sums().filter(|(n, op)| op.over == MeshAxis::MicroBatch && self.gradient_of(*n).is_some());
        let all = Class { name: "gradients".to_owned(), members: accumulated.map(|(n, _)| n).collect() };
        let plant = |(name, nodes): (String, Vec<usize>)| {
            self.disturbed("M1", format!("{name} are those of the last micro-batch"), &nodes, Disturbance::LastTerm)
        };
        all.all().map(plant).collect::<Vec<_>>().into_iter()
    }

    /// M2: gradients are multiplied by the size of a group, or divided by it.
    fn scaled(&self) -> Vec<Plant> {
        let mut classes: Vec<Class> = Vec::new();
        for (n, (id, _)) in self.graph.gradients.iter().enumerate() {
            let divided = if self.proof.split.variable(*id).placements.is_empty() { "whole" } else { "divided" };
            let name = format!("gradients of {divided} {}", role(&self.graph.variable(*id).role));
            match classes.iter_mut().find(|class| class.name == name) {
                Some(class) => class.members.push(n),
                None => classes.push(Class { name, members: vec![n] }),
            }
        }
        let everything = Class { name: "gradients".to_owned(), members: (0..self.graph.gradients.len()).collect() };
        let named = |n: usize| format!("the gradient of {}", self.graph.variable(self.graph.gradients[n].0).name);
        let mut plants = Vec::new();
        for (axis, ranks) in self.proof.split.mesh.axes() {
            for (name, members) in classes.iter().flat_map(|class| class.sets(named)).chain(everything.all()) {
                for (factor, word) in [(*ranks as f64, "times"), (1.0 / *ranks as f64, "divided by")] {
                    let graph = self.with_factor(&members, factor);
                    plants.extend(graph.map(|graph| self.plant("M2", format!("{name} {word} {axis}"), graph)));
                }
            }
        }
        plants
    }

    /// A graph in which gradients are multiplied by a factor before they are used.
    fn with_factor(&self, members: &[usize], factor: f64) -> Option<Graph> {
        let mut graph = self.graph.clone();
        for n in members {
            let (id, value) = graph.gradients[*n];
            insert(&mut graph, value, Scale { factor })?;
            let scaled = ValueId(graph.values.len() - 1);
            graph.gradients[*n] = (id, scaled);
        }
        Some(graph)
    }

    /// M3: another group of the same size.
    fn other_groups(&self) -> Vec<Plant> {
        let axes = self.proof.split.mesh.axes();
        let other = |axis: MeshAxis| {
            let extent = self.proof.split.mesh.extent(axis);
            axes.iter().find(|(other, ranks)| *other != axis && *ranks == extent).map(|(other, _)| *other)
        };
        let mut plants = Vec::new();
        for class in self.classes() {
            let Some(first) = class.members.first() else { continue };
            let Op::Collective(op) = &self.graph.nodes[*first].op else { continue };
            let Some(over) = other(op.over) else { continue };
            for (name, nodes) in class.sets(|n| self.name(n)) {
                let graph = self.with_ops(&nodes, |op| Collective { over, ..op.clone() });
                plants.push(self.plant("M3", format!("summed over the {over} group: {name}"), graph));
            }
        }
        plants
    }

    /// M4: the mean over local labels, instead of that over all labels.
    fn local_counts(&self) -> Vec<Plant> {
        let mut plants = Vec::new();
        for (n, node) in self.graph.nodes.iter().enumerate() {
            let Op::Collective(op) = &node.op else { continue };
            let counts = node.phase == Phase::Loss
                && op.exchange == Exchange::Sum
                && self.graph.producer(node.inputs[0]).is_some_and(|by| matches!(by.op, Op::Reshape(_)));
            if counts {
                plants.extend(self.mean_of_means(n, op));
            }
        }
        plants
    }

    /// The mean of the ranks' means: every rank that has labels counts one, and all of them count as many as they are.
    /// The gradients follow, because they read these numbers.
    fn mean_of_means(&self, counted: usize, op: &Collective) -> Option<Plant> {
        let node = &self.graph.nodes[counted];
        let map = |formula| Map::over(formula, &[self.graph.ty(node.inputs[0])]).ok();
        let ranks = op.ranks as f64;
        let mut graph = self.graph.clone();
        graph.nodes[counted].op = map(Formula::define(0, |[count]| [count * 0.0 + ranks]))?.into();
        insert(&mut graph, node.inputs[0], map(Formula::define(0, |[count]| [count.select(1.0, 0.0)]))?)?;
        Some(self.plant("M4", format!("the mean of the means of {} ranks ({})", op.over, node.name), graph))
    }

    /// M5: ranks take the part of the first one.
    fn first_parts(&self) -> Vec<Plant> {
        let own = |exchange: &Exchange| matches!(exchange, Exchange::Own(_) | Exchange::Spread(_));
        let members = self.graph.nodes.iter().enumerate().filter(|(_, node)| match &node.op {
            Op::Collective(op) => own(&op.exchange),
            _ => false,
        });
        let class = Class { name: "parts".to_owned(), members: members.map(|(n, _)| n).collect() };
        let sets = class.sets(|n| self.name(n));
        let plant = |(name, nodes): (String, Vec<usize>)| {
            self.disturbed("M5", format!("every rank takes the part of rank 0: {name}"), &nodes, Disturbance::FirstPart)
        };
        sets.into_iter().map(plant).collect()
    }

    /// M6: the norm of the gradients counts wrongly.
    fn norms(&self) -> Vec<Plant> {
        let mut plants = Vec::new();
        for (n, node) in self.graph.nodes.iter().enumerate() {
            let Op::ClipByGlobalNorm(op) = &node.op else { continue };
            if !op.bound.is_finite() || node.inputs.len() < 2 {
                continue;
            }
            let mut twice = self.graph.clone();
            twice.nodes[n].inputs.push(node.inputs[0]);
            plants.push(self.plant("M6", "the norm counts the first gradient twice".to_owned(), twice));
            // The last operands are the norms of divided gradients.
            let whole = node.inputs.len() - self.divided_norms(node);
            for (axis, ranks) in self.proof.split.mesh.axes().iter().filter(|_| whole > 0) {
                let mut again = self.graph.clone();
                for _ in 1..*ranks {
                    again.nodes[n].inputs.extend(node.inputs[..whole].iter().copied());
                }
                plants.push(self.plant("M6", format!("the norm counts whole gradients once per {axis} rank"), again));
            }
            let mut without = self.graph.clone();
            without.nodes[n].inputs.pop();
            plants.push(self.plant("M6", "the norm leaves out divided gradients".to_owned(), without));
        }
        plants
    }

    /// The operands of a norm that are norms themselves, of gradients of which each rank has a part.
    fn divided_norms(&self, norm: &zoo_graph::Node) -> usize {
        let is_gradient = |value: &ValueId| self.graph.gradients.iter().any(|(_, gradient)| gradient == value);
        norm.inputs.iter().rev().take_while(|value| !is_gradient(value)).count()
    }

    /// M7: old or lost data.
    fn lost(&self) -> Vec<Plant> {
        let mut plants = Vec::new();
        for class in self.classes() {
            for (name, nodes) in class.sets(|n| self.name(n)) {
                let zero = format!("zero instead of {name}");
                plants.push(self.disturbed("M7", zero, &nodes, Disturbance::Zero));
                let stale = format!("that of the step before instead of {name}");
                plants.push(self.disturbed("M7", stale, &nodes, Disturbance::Stale));
            }
        }
        plants
    }

    /// M8: ranks draw different numbers for what they ought to have together.
    fn random(&self) -> Vec<Plant> {
        let dropouts = self.graph.nodes.iter().enumerate();
        let dropouts = dropouts.filter(|(_, node)| matches!(&node.op, Op::Dropout(op) if op.rate > 0.0));
        let class = Class { name: "dropouts".to_owned(), members: dropouts.map(|(n, _)| n).collect() };
        let plant = |(name, nodes): (String, Vec<usize>)| {
            self.disturbed("M8", format!("each rank draws its own mask: {name}"), &nodes, Disturbance::OwnSeed)
        };
        class.sets(|n| self.name(n)).into_iter().map(plant).collect()
    }

    /// What is no fault: another order of the same sums.
    fn harmless(&self) -> Vec<Plant> {
        let sums = Class { name: "sums in another order".to_owned(), members: self.sums().map(|(n, _)| n).collect() };
        let plant = |(name, nodes): (String, Vec<usize>)| Plant {
            harmless: true,
            ..self.disturbed("none", name, &nodes, Disturbance::OtherOrder)
        };
        sums.all().map(plant).collect()
    }

    /// M9: the rule of the update.
    fn updates(&self) -> Vec<Plant> {
        let members = self.graph.nodes.iter().enumerate();
        let updates = members.filter(|(_, node)| matches!(node.op.update(), Some(Update::Optimizer { .. })));
        let class = Class { name: "updates".to_owned(), members: updates.map(|(n, _)| n).collect() };
        let mut plants = Vec::new();
        for (name, nodes) in class.sets(|n| self.name(n)) {
            let mut graph = self.graph.clone();
            let kept: BTreeSet<ValueId> =
                nodes.iter().filter_map(|n| graph.nodes[*n].outputs.first().copied()).collect();
            for variable in &mut graph.variables {
                if variable.next.is_some_and(|next| kept.contains(&next)) {
                    variable.next = None;
                }
            }
            plants.push(self.plant("M9", format!("not updated: {name}"), graph));
            plants.push(self.disturbed(
                "M9",
                format!("counts one step too many: {name}"),
                &nodes,
                Disturbance::NextStep,
            ));
        }
        plants
    }
}

/// Inserts an operator between a value and its readers. The new value is the last one of the graph.
fn insert(graph: &mut Graph, value: ValueId, op: impl Into<Op>) -> Option<()> {
    let Source::Node(NodeId(by), _) = graph.value(value).source else { return None };
    let node = graph.nodes[by].clone();
    let scope = Scope { phase: node.phase, origin: node.origin.clone() };
    let scaled = graph.add(&scope, format!("{}/planted", node.name), op, &[value]).ok()?;
    let planted = graph.nodes.pop()?;
    for reader in &mut graph.nodes[by + 1..] {
        reader.inputs.iter_mut().filter(|input| **input == value).for_each(|input| *input = scaled);
    }
    graph.nodes.insert(by + 1, zoo_graph::Node { place: Place::Device, ..planted });
    for (n, node) in graph.nodes.iter().enumerate() {
        for (i, output) in node.outputs.iter().enumerate() {
            graph.values[output.0].source = Source::Node(NodeId(n), i);
        }
    }
    Some(())
}
