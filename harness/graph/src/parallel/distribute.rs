//! Splits a forward pass and its loss along one axis of a mesh.

use super::{Call, MeshAxis, Need, Outcome, Part, Placement, Plan, Slot, Way, plan::stored_in};
use crate::{
    error::GraphError,
    formula::Formula,
    graph::{Graph, Node, Scope, Source, ValueId, VariableId},
    ops::{Collective, Dropout, Exchange, Fill, Map, Op, Reshape, Scale},
    tensor::{Shape, TensorType},
};
use std::collections::HashMap;

/// A graph that each rank along an axis runs.
#[derive(Clone, Debug)]
pub struct Distributed {
    /// The graph of a rank. Inputs, variables, losses, metrics, outputs and taps are those of the whole graph, in the
    /// same order.
    pub graph: Graph,
    /// For each value of the whole graph, the value of a rank and how it is placed. `None`: no node computes it.
    pub places: Vec<Option<(ValueId, Placement)>>,
}

/// Splits a graph without gradients over the ranks along an axis.
///
/// Losses, metrics and outputs of one number are whole on every rank: means over samples or tokens are means over those
/// of all ranks.
///
/// # Errors
/// An operator that cannot be computed with the parts of a rank: a defect of its [`Way`].
pub fn distribute(graph: &Graph, over: MeshAxis, ranks: usize, plan: &Plan) -> Result<Distributed, GraphError> {
    let needs = crate::differentiate::needs_gradient(graph, &graph.parameters().map(|(id, _)| id).collect::<Vec<_>>());
    let places = vec![None; graph.values.len()];
    let mut split =
        Split { whole: graph, own: Graph::default(), over, ranks, plan, needs, places, made: HashMap::new() };
    split.begin();
    for (n, node) in graph.nodes.iter().enumerate() {
        split.node(n, node)?;
    }
    split.finish()
}

/// A conversion of a value of a rank.
type Conversion = (ValueId, Exchange);

struct Split<'g> {
    whole: &'g Graph,
    own: Graph,
    over: MeshAxis,
    ranks: usize,
    plan: &'g Plan,
    /// Whether each value depends on a parameter.
    needs: Vec<bool>,
    places: Vec<Option<(ValueId, Placement)>>,
    /// Conversions that were made.
    made: HashMap<Conversion, ValueId>,
}

impl Split<'_> {
    /// Adds inputs and variables.
    fn begin(&mut self) {
        let place = |ty: &TensorType, part: Option<&Part>| match part {
            Some(part) => (ty.with_shape(part.local(&ty.shape, self.ranks)), Placement::Split(part.clone())),
            None => (ty.clone(), Placement::Whole),
        };
        for (n, input) in self.whole.inputs.iter().enumerate() {
            let (ty, placement) = place(self.whole.ty(input.value), self.plan.inputs.get(&n));
            self.places[input.value.0] = Some((self.own.add_input(&input.name, ty), placement));
        }
        for (n, variable) in self.whole.variables.iter().enumerate() {
            let (ty, placement) = place(self.whole.ty(variable.value), self.plan.variables.get(&VariableId(n)));
            let (name, role) = (variable.name.clone(), variable.role.clone());
            let id = self.own.add_variable(name, role, ty, variable.init.clone(), variable.origin.clone());
            self.places[variable.value.0] = Some((self.own.variable(id).value, placement));
        }
    }

    fn place(&self, value: ValueId) -> Result<&(ValueId, Placement), GraphError> {
        let missing = || GraphError::Invariant { after: None, message: format!("value {} has no place", value.0) };
        self.places[value.0].as_ref().ok_or_else(missing)
    }

    fn node(&mut self, index: usize, node: &Node) -> Result<(), GraphError> {
        if node.op.rules().is_view()
            && let (value, Placement::Partial) = self.place(node.inputs[0])?.clone()
        {
            // A sum of views is the view of the sum.
            let made = self.emit(node, &node.name, node.op.clone(), &[value])?;
            self.places[node.outputs[0].0] = Some((made, Placement::Partial));
            return Ok(());
        }
        for value in &node.inputs {
            self.settle(*value)?;
        }
        if let Op::Dropout(op) = &node.op {
            return self.dropout(node, op);
        }
        let way = if self.plan.whole.contains(&index) { None } else { self.way(index, node)? };
        match way {
            Some(way) => self.parted(node, way),
            None => {
                let operands = node.inputs.iter().map(|v| self.convert(*v, &Need::Whole, false));
                let operands = operands.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect::<Vec<_>>();
                let results = self.own.add_node(&scope(node), &node.name, node.op.clone(), &operands)?;
                for (old, new) in node.outputs.iter().zip(results) {
                    self.places[old.0] = Some((new, Placement::Whole));
                }
                Ok(())
            }
        }
    }

    /// The first way that fits a divided operand. Parameters are where they are; activations follow them.
    fn way(&self, index: usize, node: &Node) -> Result<Option<Way>, GraphError> {
        let (inputs, outputs) = (self.whole.types(&node.inputs), self.whole.types(&node.outputs));
        let call = Call { inputs: &inputs, outputs: &outputs, over: self.over, ranks: self.ranks };
        let places = node.inputs.iter().map(|v| self.place(*v)).collect::<Result<Vec<_>, _>>()?;
        let stored = |n: usize| stored_in(self.whole, node.inputs[n]);
        let divided = |n: usize| match places[n] {
            (_, Placement::Split(part)) if stored(n).is_none_or(|id| !self.plan.gathered.contains(&id)) => {
                Some((n, part))
            }
            _ => None,
        };
        let planned = self.plan.operands.get(&index).map(|(n, part)| (*n, part));
        let (variables, others): (Vec<usize>, Vec<usize>) = (0..inputs.len()).partition(|n| stored(*n).is_some());
        for (n, part) in planned.into_iter().chain(variables.into_iter().chain(others).filter_map(divided)) {
            let Some(way) = node.op.rules().way(call, Slot::Operand(n), part) else { continue };
            let mut fits = true;
            for (value, need) in node.inputs.iter().zip(&way.operands) {
                let Need::Part(part) = need else { continue };
                // No kernel moves indices.
                let moves = !matches!(self.place(*value)?, (_, Placement::Split(own)) if own == part);
                fits &= part.divides(self.ranks) && (!moves || self.whole.ty(*value).dtype.is_float());
            }
            if fits {
                return Ok(Some(way));
            }
        }
        if places.iter().any(|(_, placement)| *placement == Placement::Local) {
            // What ranks compute with values of their own is their own.
            let need = |(_, placement): &&(ValueId, Placement)| match placement {
                Placement::Local => Need::Local,
                Placement::Whole | Placement::Split(_) | Placement::Partial => Need::Whole,
            };
            let operands = places.iter().map(need).collect();
            return Ok(Some(Way { op: node.op.clone(), operands, results: vec![Outcome::Local; outputs.len()] }));
        }
        Ok(None)
    }

    /// Adds the operator of a rank.
    fn parted(&mut self, node: &Node, way: Way) -> Result<(), GraphError> {
        let mut operands = Vec::new();
        for (value, need) in node.inputs.iter().zip(&way.operands) {
            operands.extend(self.convert(*value, need, true)?);
        }
        let results = self.own.add_node(&scope(node), &node.name, way.op, &operands)?;
        let own = results.clone();
        for ((old, new), outcome) in node.outputs.iter().zip(results).zip(way.results) {
            let place = match outcome {
                Outcome::Whole => (new, Placement::Whole),
                Outcome::Part(part) => (new, Placement::Split(part)),
                Outcome::Partial => (new, Placement::Partial),
                Outcome::Local => (new, Placement::Local),
                Outcome::Mean => {
                    let factor = 1.0 / self.ranks as f64;
                    (self.emit(node, &format!("{}/part", node.name), Scale { factor }, &[new])?, Placement::Partial)
                }
                Outcome::Variance => (self.variance(node, own[0], new)?, Placement::Partial),
                Outcome::MeanOf { operand, ignored } => {
                    let (elements, _) = self.place(node.inputs[operand])?.clone();
                    (self.mean_of(node, new, elements, ignored)?, Placement::Whole)
                }
            };
            self.places[old.0] = Some(place);
        }
        for (value, _) in node.inputs.iter().zip(&way.operands).filter(|(_, need)| **need == Need::AddedLater) {
            self.add_later(node, *value)?;
        }
        Ok(())
    }

    /// Adds a bias to the first result of a node, after its parts have been summed.
    fn add_later(&mut self, node: &Node, bias: ValueId) -> Result<(), GraphError> {
        let result = node.outputs[0];
        self.settle(result)?;
        let (sum, placement) = self.place(result)?.clone();
        let bias = self.convert(bias, &Need::Whole, placement != Placement::Whole)?;
        let operands: Vec<ValueId> = std::iter::once(sum).chain(bias).collect();
        let name = format!("{}/bias", node.name);
        let add = self.over(node, &name, Formula::define(0, |[x, bias]| [x + bias]), &operands)?;
        self.places[result.0] = Some((add, placement));
        Ok(())
    }

    /// The part of a rank in the variance over all ranks, from mean and variance of the rank: the mean of `var + (own
    /// mean - mean)^2`, which has no cancellation. Source: as [`crate::ops::GatherStatistics`].
    fn variance(&mut self, node: &Node, own_mean: ValueId, own: ValueId) -> Result<ValueId, GraphError> {
        self.settle(node.outputs[0])?;
        let (mean, _) = self.place(node.outputs[0])?.clone();
        let factor = 1.0 / self.ranks as f64;
        let pooled = Formula::define(0, |[var, own, mean]| [(var + (own - mean).square()) * factor]);
        self.over(node, &format!("{}/part_of_variance", node.name), pooled, &[own, own_mean, mean])
    }

    /// The mean over the elements of all ranks, from that over the elements of a rank. A rank without elements has a
    /// mean that is not a number, and it adds nothing.
    fn mean_of(&mut self, node: &Node, mean: ValueId, elements: ValueId, ignored: u32) -> Result<ValueId, GraphError> {
        let axes = self.own.ty(elements).shape.len();
        let name = |part: &str| format!("{}/{part}", node.name);
        // The mean gives the result its type.
        let counted = Formula::define(0, |[elements, _]| [elements.number(1.0) - elements.equal(f64::from(ignored))]);
        let counted = counted.summed((0..axes).collect());
        let count = self.over(node, &name("count"), counted, &[elements, mean])?;
        let scalar = Reshape { shape: Shape::scalar() };
        let count = self.emit(node, &name("scalar_count"), scalar, &[count])?;
        let part = Formula::define(0, |[mean, count]| [count.select(mean * count, 0.0)]);
        let part = self.over(node, &name("part"), part, &[mean, count])?;
        let sum = self.exchange(node, part, Exchange::Sum)?;
        let count = self.exchange(node, count, Exchange::Sum)?;
        self.over(node, &name("mean"), Formula::define(0, |[sum, count]| [sum / count]), &[sum, count])
    }

    /// A dropout has one mask, whoever computes which part of it: each rank multiplies by its part.
    fn dropout(&mut self, node: &Node, op: &Dropout) -> Result<(), GraphError> {
        let (x, placement) = self.place(node.inputs[0])?.clone();
        let result = match &placement {
            Placement::Whole | Placement::Partial | Placement::Local => {
                self.emit(node, &node.name, op.clone(), &[x])?
            }
            Placement::Split(part) => {
                let name = |part: &str| format!("{}/{part}", node.name);
                let ty = self.whole.ty(node.inputs[0]).clone();
                let ones = self.emit(node, &name("ones"), Fill { value: 1.0, ty }, &[])?;
                let mask = self.emit(node, &name("mask"), op.clone(), &[ones])?;
                let own = self.exchange(node, mask, Exchange::Own(part.clone()))?;
                self.over(node, &node.name, Formula::define(0, |[x, mask]| [x * mask]), &[x, own])?
            }
        };
        self.places[node.outputs[0].0] = Some((result, placement));
        Ok(())
    }

    /// Sums a partial sum: each rank gets the part that the plan keeps, or all of it.
    fn settle(&mut self, value: ValueId) -> Result<(), GraphError> {
        let (own, placement) = self.place(value)?.clone();
        if placement != Placement::Partial {
            return Ok(());
        }
        let by = self.made_by(value).clone();
        let place = match self.plan.home(&self.whole.ty(value).shape, self.ranks) {
            Some(part) if !part.divides(self.ranks) => {
                let (extent, ranks, over) = (part.runs[0], self.ranks, self.over);
                let message = format!(
                    "`{}` has {extent} elements along axis {}, which {ranks} {over} ranks cannot share equally",
                    by.name, part.axis
                );
                return Err(GraphError::Model { origin: by.origin, message });
            }
            Some(part) => (self.exchange(&by, own, Exchange::SumPart(part.clone()))?, Placement::Split(part)),
            None => (self.exchange(&by, own, Exchange::Sum)?, Placement::Whole),
        };
        self.places[value.0] = Some(place);
        Ok(())
    }

    /// A value as a reader needs it. `varies`: the ranks compute different things with it.
    fn convert(&mut self, value: ValueId, need: &Need, varies: bool) -> Result<Option<ValueId>, GraphError> {
        let (own, placement) = self.place(value)?.clone();
        let copied = varies && self.needs[value.0];
        let exchange = match (placement, need) {
            (_, Need::AddedLater) => return Ok(None),
            (Placement::Whole, Need::Whole | Need::Partial) if !copied => return Ok(Some(own)),
            (Placement::Whole, Need::Whole | Need::Partial) => Exchange::Copy,
            (Placement::Whole, Need::Part(part)) => Exchange::Own(part.clone()),
            (Placement::Split(part), Need::Whole) if copied => Exchange::GatherCopy(part),
            (Placement::Split(part), Need::Whole) => Exchange::Gather(part),
            (Placement::Split(part), Need::Part(other)) if part == *other => return Ok(Some(own)),
            (Placement::Split(from), Need::Part(to)) => Exchange::Swap { from, to: to.clone() },
            (Placement::Split(part), Need::Partial) => Exchange::Spread(part),
            (Placement::Partial, Need::Partial) | (Placement::Local, Need::Local) => return Ok(Some(own)),
            (from, to) => {
                let message = format!("`{}` is {from} and is needed as {to:?}", self.made_by(value).name);
                return Err(GraphError::Invariant { after: None, message });
            }
        };
        let by = self.made_by(value).clone();
        self.exchange(&by, own, exchange).map(Some)
    }

    /// The node that computes a value, or one in its place for an input or a variable.
    fn made_by(&self, value: ValueId) -> Node {
        let named = |name: &str, origin: Option<&crate::Origin>| Node {
            name: name.to_owned(),
            op: Op::from(Scale { factor: 1.0 }),
            inputs: Vec::new(),
            outputs: Vec::new(),
            phase: crate::Phase::Forward,
            origin: origin.cloned(),
            place: crate::Place::Device,
        };
        match self.whole.value(value).source {
            Source::Node(node, _) => self.whole.node(node).clone(),
            Source::Input(n) => named(&self.whole.inputs[n].name, None),
            Source::Variable(id) => {
                let variable = self.whole.variable(id);
                named(&variable.name, variable.origin.as_ref())
            }
        }
    }

    fn exchange(&mut self, by: &Node, value: ValueId, exchange: Exchange) -> Result<ValueId, GraphError> {
        let key = (value, exchange.clone());
        if let Some(made) = self.made.get(&key) {
            return Ok(*made);
        }
        let name = format!("{}/{}_{}", by.name, self.over, exchange.word());
        let made = self.emit(by, &name, Collective { exchange, over: self.over, ranks: self.ranks }, &[value])?;
        self.made.insert(key, made);
        Ok(made)
    }

    fn emit(
        &mut self,
        node: &Node,
        name: &str,
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        self.own.add(&scope(node), name, op, operands)
    }

    fn over(&mut self, node: &Node, name: &str, formula: Formula, operands: &[ValueId]) -> Result<ValueId, GraphError> {
        let map = Map::over(formula, &self.own.types(operands)).map_err(|source| misfit(node, source))?;
        self.emit(node, name, map, operands)
    }

    fn finish(mut self) -> Result<Distributed, GraphError> {
        let whole = self.whole;
        for (_, value) in whole.losses.iter().chain(&whole.metrics).chain(&whole.outputs) {
            self.settle(*value)?;
        }
        let places = &self.places;
        self.own.carry_over(whole, |value| places[value.0].as_ref().map(|(value, _)| *value))?;
        Ok(Distributed { graph: self.own, places: self.places })
    }
}

fn scope(node: &Node) -> Scope {
    Scope { phase: node.phase, origin: node.origin.clone() }
}

fn misfit(node: &Node, source: crate::OpError) -> GraphError {
    GraphError::Shape { name: node.name.clone(), origin: node.origin.clone(), source }
}
