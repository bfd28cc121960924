//! Which parameters and inputs are split.

use super::{Call, MeshAxis, Need, Outcome, Part, Slot};
use crate::{
    graph::{Graph, Node, Source, ValueId, VariableId},
    ops::{Collective, Exchange, Indices, Op},
    origin::Origin,
    tensor::Shape,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the ranks along an axis have of parameters and inputs.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The split variables.
    pub variables: BTreeMap<VariableId, Part>,
    /// The split inputs, by their number.
    pub inputs: BTreeMap<usize, Part>,
    /// Variables that are divided only between their uses: every reader gets all of them (ZeRO, stage 3).
    pub gathered: BTreeSet<VariableId>,
    /// Operands that are divided in this way whatever they are: by node, the number of the operand.
    pub operands: BTreeMap<usize, (usize, Part)>,
    /// Nodes whose operands are put together first, although they could be computed in parts.
    pub whole: BTreeSet<usize>,
    /// The axis along which a sum over the ranks is kept in parts, for activations with this many axes or more. `None`:
    /// all ranks have the whole sum.
    pub home: Option<Home>,
}

/// Where activations are divided that are not divided inside a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Along the tokens of `[samples, tokens, width]` (Megatron-LM's sequence parallelism).
    Tokens,
    /// Along the samples.
    Samples,
}

/// Parameters that could be split if an extent were a multiple of the number of ranks.
#[derive(Clone, Debug)]
pub struct Unsplit {
    /// The parameter from which the search began.
    pub parameter: String,
    /// Its entry in the recipe.
    pub origin: Option<Origin>,
    /// The value that cannot be divided.
    pub at: String,
    /// The extents that ought to be multiples of the number of ranks.
    pub runs: Vec<usize>,
}

/// Why a set of axes cannot be split together.
enum Obstacle {
    /// An operator or an input needs all of an axis.
    Open,
    /// The extent is no multiple of the number of ranks.
    Indivisible { at: String, runs: Vec<usize> },
}

impl Plan {
    /// All inputs along their samples.
    pub fn samples(graph: &Graph) -> Self {
        let part = |(n, input): (usize, &crate::graph::Input)| {
            let shape = &graph.ty(input.value).shape;
            (!shape.is_empty()).then(|| (n, Part::of(shape, 0)))
        };
        Self { inputs: graph.inputs.iter().enumerate().filter_map(part).collect(), ..Self::default() }
    }

    /// All inputs of sequences along their tokens, which are their second axis. `None`: there are no inputs of tokens.
    pub fn tokens(graph: &Graph) -> Option<Self> {
        let shape = |input: &crate::graph::Input| &graph.ty(input.value).shape;
        let is_sequence =
            |input: &&crate::graph::Input| shape(input).len() == 2 && !graph.ty(input.value).dtype.is_float();
        let tokens = shape(graph.inputs.iter().find(is_sequence)?)[1];
        let inputs = graph.inputs.iter().enumerate().filter(|(_, input)| shape(input).get(1) == Some(&tokens));
        let inputs = inputs.map(|(n, input)| (n, Part::of(shape(input), 1))).collect();
        Some(Self { inputs, ..Self::default() })
    }

    /// Inputs along their samples, and experts: each rank gets the tokens of all ranks for its own experts. `None`: there
    /// are no experts.
    pub fn experts(graph: &Graph) -> Option<Self> {
        let mut plan = Self { home: Some(Home::Samples), ..Self::samples(graph) };
        for (n, node) in graph.nodes.iter().enumerate() {
            let grouped = matches!(node.op, Op::GroupedMatMul(_));
            if !grouped && !matches!(node.op, Op::Dispatch(_) | Op::Combine(_)) {
                continue;
            }
            let routing = if grouped { 2 } else { 1 };
            plan.operands.insert(n, (routing, Part::of(&graph.ty(node.inputs[routing]).shape, 1)));
            if let Some(id) = stored_in(graph, node.inputs[1]).filter(|_| grouped) {
                plan.variables.insert(id, Part::of(&graph.ty(node.inputs[1]).shape, 0));
            }
        }
        (!plan.operands.is_empty()).then_some(plan)
    }

    /// As this plan, with every parameter divided between its uses that can be, along its first axis.
    #[must_use]
    pub fn with_gathered_parameters(mut self, graph: &Graph, ranks: usize) -> Self {
        for (id, variable) in graph.parameters() {
            let shape = &graph.ty(variable.value).shape;
            if shape.first().is_some_and(|extent| extent.is_multiple_of(ranks)) && !self.variables.contains_key(&id) {
                self.variables.insert(id, Part::of(shape, 0));
                self.gathered.insert(id);
            }
        }
        self
    }

    /// Parameters along the units inside of layers.
    ///
    /// A set of axes is split if it begins at products whose terms are summed over it, and everything that goes together
    /// with it ends at parameters: the hidden units of an MLP, the heads of an attention. So the only communication is
    /// that sum, and the gradients at the begin. The classes of the loss are split, and the rows of the tables of tokens.
    pub fn units(graph: &Graph, ranks: usize) -> (Self, Vec<Unsplit>) {
        let mut search = Search { graph, ranks, readers: readers(graph), plan: Self::default(), unsplit: Vec::new() };
        for node in &graph.nodes {
            if let Some((parameter, part)) = search.summed(node) {
                search.region(parameter, part);
            }
        }
        for node in &graph.nodes {
            if let Some((parameter, part)) = search.classes(node) {
                search.region(parameter, part);
            }
        }
        for node in &graph.nodes {
            if let Some((parameter, part)) = search.rows(node) {
                search.region(parameter, part);
            }
        }
        search.whole_choices();
        (search.plan, search.unsplit)
    }

    /// The part of a sum of this shape that a rank keeps.
    pub(super) fn home(&self, shape: &Shape, ranks: usize) -> Option<Part> {
        match self.home? {
            Home::Tokens => (shape.len() == 3).then(|| Part::of(shape, 1)),
            Home::Samples => (shape.len() > 1).then(|| Part::of(shape, 0)).filter(|part| part.divides(ranks)),
        }
    }
}

/// The variable that a value is, or is a copy of.
pub(super) fn stored_in(graph: &Graph, value: ValueId) -> Option<VariableId> {
    match graph.value(value).source {
        Source::Variable(id) => Some(id),
        Source::Input(_) => None,
        Source::Node(by, _) => {
            let node = graph.node(by);
            let copy = |op: &Collective| matches!(op.exchange, Exchange::Copy | Exchange::CopyAt(_));
            let is_copy = if let Op::Collective(op) = &node.op { copy(op) } else { false };
            is_copy.then(|| stored_in(graph, node.inputs[0])).flatten()
        }
    }
}

/// The nodes that read each value, with the number of the operand.
fn readers(graph: &Graph) -> Vec<Vec<(usize, usize)>> {
    let mut readers = vec![Vec::new(); graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        for (operand, value) in node.inputs.iter().enumerate() {
            readers[value.0].push((n, operand));
        }
    }
    readers
}

struct Search<'g> {
    graph: &'g Graph,
    ranks: usize,
    readers: Vec<Vec<(usize, usize)>>,
    plan: Plan,
    unsplit: Vec<Unsplit>,
}

impl Search<'_> {
    /// The parameter that is the n-th operand of a node, if no part of it has been planned.
    fn parameter(&self, node: &Node, n: usize) -> Option<(VariableId, &Shape)> {
        let value = *node.inputs.get(n)?;
        let id = stored_in(self.graph, value)?;
        let free = self.graph.variable(id).role.is_parameter() && !self.plan.variables.contains_key(&id);
        free.then(|| (id, &self.graph.ty(value).shape))
    }

    /// The matrix of a product, along the terms of its sums.
    fn summed(&self, node: &Node) -> Option<(VariableId, Part)> {
        let transposed = if let Op::MatMul(op) = &node.op {
            op.transpose_b
        } else if let Op::GroupedMatMul(op) = &node.op {
            op.transpose
        } else {
            return None;
        };
        let (id, shape) = self.parameter(node, 1)?;
        Some((id, Part::of(shape, shape.len() - if transposed { 1 } else { 2 })))
    }

    /// The matrix of a product whose results are the logits of a loss, along its classes.
    fn classes(&self, node: &Node) -> Option<(VariableId, Part)> {
        let Op::MatMul(op) = &node.op else { return None };
        let readers = &self.readers[node.outputs[0].0];
        let loss = |(n, _): &(usize, usize)| matches!(self.graph.nodes[*n].op, Op::SoftmaxCrossEntropy(_));
        let (id, shape) = self.parameter(node, 1)?;
        let axis = shape.len() - if op.transpose_b { 2 } else { 1 };
        (!readers.is_empty() && readers.iter().all(loss)).then(|| (id, Part::of(shape, axis)))
    }

    /// A table whose rows are selected by an input. Tables with fewer rows than columns stay whole: kinds of tokens,
    /// positions.
    fn rows(&self, node: &Node) -> Option<(VariableId, Part)> {
        let Op::Gather(op) = &node.op else { return None };
        let (id, shape) = self.parameter(node, 0)?;
        let columns: usize = shape[1..].iter().product();
        (op.indices == Indices::Operand && shape[0] > columns).then(|| (id, Part::of(shape, 0)))
    }

    /// Ranks that have parts of experts' matrices need the rows of all choices in one order: that of all tokens.
    fn whole_choices(&mut self) {
        let mut routings = BTreeSet::new();
        for node in &self.graph.nodes {
            let planned = |value| stored_in(self.graph, value).is_some_and(|id| self.plan.variables.contains_key(&id));
            if matches!(node.op, Op::GroupedMatMul(_)) && planned(node.inputs[1]) {
                routings.insert(node.inputs[2]);
            }
        }
        for (n, node) in self.graph.nodes.iter().enumerate() {
            if matches!(node.op, Op::Dispatch(_) | Op::Combine(_)) && routings.contains(&node.inputs[1]) {
                self.plan.whole.insert(n);
            }
        }
    }

    /// Plans a parameter and all that goes together with it.
    fn region(&mut self, parameter: VariableId, part: Part) {
        let begin = self.graph.variable(parameter);
        match self.together(begin.value, part) {
            Ok(found) => self.plan.variables.extend(found),
            Err(Obstacle::Open) => {}
            Err(Obstacle::Indivisible { at, runs }) => {
                let (parameter, origin) = (begin.name.clone(), begin.origin.clone());
                self.unsplit.push(Unsplit { parameter, origin, at, runs });
            }
        }
    }

    /// The variables that are split if a value is.
    fn together(&self, value: ValueId, part: Part) -> Result<BTreeMap<VariableId, Part>, Obstacle> {
        let mut known: HashMap<ValueId, Part> = HashMap::new();
        let mut found = BTreeMap::new();
        let mut open = vec![(value, part)];
        while let Some((value, part)) = open.pop() {
            match known.get(&value) {
                Some(other) if *other == part => continue,
                Some(_) => return Err(Obstacle::Open),
                None => {}
            }
            known.insert(value, part.clone());
            let mut uses: Vec<(&Node, Slot)> = Vec::new();
            let at = match self.graph.value(value).source {
                Source::Input(_) => return Err(Obstacle::Open),
                Source::Variable(id) => {
                    if self.plan.variables.get(&id).is_some_and(|planned| *planned != part) {
                        return Err(Obstacle::Open);
                    }
                    found.insert(id, part.clone());
                    &self.graph.variable(id).name
                }
                Source::Node(by, n) => {
                    uses.push((self.graph.node(by), Slot::Result(n)));
                    &self.graph.node(by).name
                }
            };
            if !part.divides(self.ranks) {
                return Err(Obstacle::Indivisible { at: at.clone(), runs: part.runs });
            }
            let readers =
                self.readers[value.0].iter().map(|(n, operand)| (&self.graph.nodes[*n], Slot::Operand(*operand)));
            for (node, slot) in uses.into_iter().chain(readers) {
                self.follow(node, slot, &part, &mut open)?;
            }
        }
        Ok(found)
    }

    /// Adds what goes together with an operand or a result of a node.
    fn follow(&self, node: &Node, slot: Slot, part: &Part, open: &mut Vec<(ValueId, Part)>) -> Result<(), Obstacle> {
        let (inputs, outputs) = (self.graph.types(&node.inputs), self.graph.types(&node.outputs));
        let call = Call { inputs: &inputs, outputs: &outputs, over: MeshAxis::Tensor, ranks: self.ranks };
        if matches!((&node.op, slot), (Op::Dropout(_), _)) {
            open.push((node.inputs[0], part.clone()));
            open.push((node.outputs[0], part.clone()));
            return Ok(());
        }
        let Some(way) = node.op.rules().way(call, slot, part) else {
            // The loss puts the classes together.
            let loss = matches!(node.op, Op::SoftmaxCrossEntropy(_)) && slot == Slot::Operand(0);
            return if loss { Ok(()) } else { Err(Obstacle::Open) };
        };
        for (value, need) in node.inputs.iter().zip(way.operands) {
            if let Need::Part(part) = need {
                open.push((*value, part));
            }
        }
        for (value, outcome) in node.outputs.iter().zip(way.results) {
            if let Outcome::Part(part) = outcome {
                open.push((*value, part));
            }
        }
        Ok(())
    }
}
