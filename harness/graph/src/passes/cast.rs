//! Decides in which element type each operator computes, and places the casts between them.
//!
//! What: by a [`PrecisionPolicy`]. Every operator gets one element type; an operand of another type is cast, at most once
//! per value and type. Parameters, optimizer slots and all that belongs to the update stay f32 (master weights), and so do
//! the per-channel operands of normalisations; the network's outputs are given in f32.
//! Why: the matrix unit computes in half precision only (or very much faster), and half the bytes move in half the time.
//! When not: a graph in another type than f32 (f64 of the golden check), and class indices.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Origin, Phase, Scope, Source, ValueId},
    ops::{Cast, Op},
    tensor::{DType, TensorType},
};
use std::collections::{BTreeSet, HashMap};

/// How the element types are chosen (CANN's `precision_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrecisionMode {
    /// By the lists: white reduced, black f32, what is in neither (grey) as its producer (`allow_mix_precision`).
    Mixed,
    /// f32 wherever the device has the operator in f32, reduced elsewhere (`allow_fp32_to_fp16`).
    PreferF32,
    /// Reduced wherever numbers are not master weights (`force_fp16`).
    Reduced,
    /// f32 throughout; an operator that the device lacks in f32 is an error (`must_keep_origin_dtype`, fp32).
    KeepF32,
}

/// Which operators compute in which element type.
#[derive(Clone, Debug, PartialEq)]
pub struct PrecisionPolicy {
    /// How the lists are used.
    pub mode: PrecisionMode,
    /// The half-precision type of the device.
    pub reduced: DType,
    /// Operators (device names) that may be reduced.
    pub white: BTreeSet<String>,
    /// Operators that must stay f32.
    pub black: BTreeSet<String>,
    /// Operators that the device has in the reduced type only.
    pub reduced_only: BTreeSet<String>,
    /// Operators (device names), layers or nodes that stay f32 whatever the mode says.
    pub keep: BTreeSet<String>,
}

impl PrecisionPolicy {
    /// The type in which a node computes; `first` is the type of its first operand of data.
    fn dtype(&self, node: &Node, first: DType) -> DType {
        let listed = |list: &BTreeSet<String>| list.contains(node.op.name());
        if node.phase == Phase::Update || self.keeps(node) {
            return DType::F32;
        }
        match self.mode {
            PrecisionMode::Mixed if listed(&self.white) => self.reduced,
            PrecisionMode::Mixed if listed(&self.black) => DType::F32,
            PrecisionMode::Mixed => first,
            PrecisionMode::PreferF32 if listed(&self.reduced_only) => self.reduced,
            PrecisionMode::PreferF32 | PrecisionMode::KeepF32 => DType::F32,
            PrecisionMode::Reduced => self.reduced,
        }
    }

    /// Whether a node stays f32: by its operator, its own name, or that of a layer around it.
    fn keeps(&self, node: &Node) -> bool {
        let named = |name: &String| {
            let inside = node.name.strip_prefix(name.as_str());
            inside.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
        };
        self.keep.contains(node.op.name()) || self.keep.iter().any(named)
    }

    /// Operators of the graph that would have to compute in f32 and cannot on this device, each once, with the recipe
    /// entry of the first.
    pub fn unavailable<'g>(&self, graph: &'g Graph) -> Vec<(&'static str, Option<&'g Origin>)> {
        let mut found: Vec<(&'static str, Option<&Origin>)> = Vec::new();
        if self.mode != PrecisionMode::KeepF32 {
            return found;
        }
        for node in graph.nodes.iter().filter(|node| self.reduced_only.contains(node.op.name())) {
            if !found.iter().any(|(name, _)| *name == node.op.name()) {
                found.push((node.op.name(), node.origin.as_ref()));
            }
        }
        found
    }
}

/// See the module's documentation.
pub struct PlaceCasts(pub PrecisionPolicy);

impl Pass for PlaceCasts {
    fn name(&self) -> &'static str {
        "place_casts"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let other = |v: &crate::Value| v.ty.dtype.is_float() && v.ty.dtype != DType::F32;
        if graph.values.iter().any(other) {
            return Ok(Vec::new());
        }
        let unavailable = self.0.unavailable(graph);
        if let Some((_, origin)) = unavailable.first() {
            let names: Vec<_> = unavailable.iter().map(|(name, _)| *name).collect();
            let message = format!(
                "this device has no f32 form of {}: choose `allow_fp32_to_fp16` or `allow_mix_precision`",
                names.join(", ")
            );
            return Err(GraphError::Model { origin: origin.cloned(), message });
        }
        let mut placement = Placement::new(graph, &self.0);
        for n in 0..graph.nodes.len() {
            placement.place(n)?;
        }
        placement.finish()?;
        let label = format!("{} casts", placement.casts.len());
        Ok(placement.draft.finish(label))
    }
}

struct Placement<'g> {
    graph: &'g Graph,
    policy: &'g PrecisionPolicy,
    draft: Draft<'g>,
    /// Element types as decided so far, by value of the graph.
    dtypes: Vec<DType>,
    casts: HashMap<(ValueId, DType), ValueId>,
}

impl<'g> Placement<'g> {
    fn new(graph: &'g Graph, policy: &'g PrecisionPolicy) -> Self {
        let dtypes = graph.values.iter().map(|v| v.ty.dtype).collect();
        Self { graph, policy, draft: Draft::new(graph), dtypes, casts: HashMap::new() }
    }

    /// Decides the types around the node at place `n`.
    fn place(&mut self, n: usize) -> Result<(), GraphError> {
        let node = &self.graph.nodes[n];
        let data = |i: &usize| role(&node.op, *i) == Role::Data && self.dtypes[node.inputs[*i].0].is_float();
        let first = (0..node.inputs.len()).find(data);
        let dtype = first.map_or(DType::F32, |i| self.policy.dtype(node, self.dtypes[node.inputs[i].0]));
        let gradient_place = |v: ValueId| match self.graph.value(v).source {
            Source::Node(made_by, _) if node.phase == Phase::Update => made_by.0,
            _ => n,
        };
        let places: Vec<usize> = node.inputs.iter().map(|v| gradient_place(*v)).collect();
        let mut inputs = node.inputs.clone();
        for (i, v) in inputs.iter_mut().enumerate() {
            let wanted = match role(&node.op, i) {
                Role::Data => dtype,
                Role::Statistic => DType::F32,
                Role::Free => continue,
            };
            if self.dtypes[v.0].is_float() {
                *v = self.converted(*v, wanted, places[i])?;
            }
        }
        self.settle(n, inputs)
    }

    /// Gives the node its operands, and its results the types that follow.
    fn settle(&mut self, n: usize, inputs: Vec<ValueId>) -> Result<(), GraphError> {
        let node = &self.graph.nodes[n];
        let types: Vec<TensorType> = inputs.iter().map(|v| self.ty(*v)).collect();
        let outputs = node.op.infer(&types.iter().collect::<Vec<_>>()).map_err(|source| GraphError::Shape {
            name: node.name.clone(),
            origin: node.origin.clone(),
            source,
        })?;
        for (v, ty) in node.outputs.iter().zip(outputs) {
            if self.dtypes[v.0] != ty.dtype {
                self.dtypes[v.0] = ty.dtype;
                self.draft.patch.retype.push((*v, ty));
            }
        }
        if inputs != node.inputs {
            if node.phase == Phase::Update {
                let moved = node.inputs.iter().zip(&inputs).filter(|(from, to)| from != to);
                self.draft.patch.redirect.extend(moved.map(|(from, to)| (*from, *to)));
            }
            self.draft.replace(n, Node { inputs, ..node.clone() });
        }
        Ok(())
    }

    fn ty(&self, v: ValueId) -> TensorType {
        match self.dtypes.get(v.0) {
            Some(dtype) => self.graph.ty(v).with_dtype(*dtype),
            None => self.draft.ty(v).clone(),
        }
    }

    /// The value in another type, cast near place `near` if nobody has yet.
    fn converted(&mut self, v: ValueId, to: DType, near: usize) -> Result<ValueId, GraphError> {
        if self.ty(v).dtype == to {
            return Ok(v);
        }
        if let Some(known) = self.casts.get(&(v, to)) {
            return Ok(*known);
        }
        let (name, scope) = match self.graph.value(v).source {
            Source::Node(made_by, _) => {
                let node = self.graph.node(made_by);
                (node.name.clone(), Scope { phase: node.phase, origin: node.origin.clone() })
            }
            Source::Variable(id) => {
                let variable = self.graph.variable(id);
                (variable.name.clone(), Scope { phase: Phase::Forward, origin: variable.origin.clone() })
            }
            Source::Input(i) => (self.graph.inputs[i].name.clone(), Scope { phase: Phase::Forward, origin: None }),
        };
        let cast = self.draft.cast(near, &scope, format!("{name}/cast_{to}"), v, self.ty(v), to);
        self.casts.insert((v, to), cast);
        Ok(cast)
    }

    /// The network's outputs leave the graph in f32.
    fn finish(&mut self) -> Result<(), GraphError> {
        for (_, v) in self.graph.outputs.clone() {
            let converted = self.converted(v, DType::F32, self.graph.nodes.len())?;
            if converted != v {
                self.draft.patch.redirect.push((v, converted));
            }
        }
        Ok(())
    }
}

impl Draft<'_> {
    /// Adds a cast of a value whose type this pass has changed already.
    fn cast(&mut self, near: usize, scope: &Scope, name: String, v: ValueId, ty: TensorType, to: DType) -> ValueId {
        self.add_typed(near, scope, name, Cast { to }.into(), vec![v], ty.with_dtype(to))
    }
}

/// What an operand is to the choice of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Computed with: cast to the operator's type.
    Data,
    /// A value per channel, kept in f32 beside data of any type.
    Statistic,
    /// A scalar or index that is read as it is.
    Free,
}

/// The role of operand `i`. Operators that are not named here compute with all their operands.
fn role(op: &Op, i: usize) -> Role {
    let data_until = |n: usize| if i < n { Role::Data } else { Role::Statistic };
    match op {
        Op::BnInfer(_) | Op::BnInferGrad(_) => data_until(1),
        Op::BnTrainingUpdate(_) if i == 5 => Role::Data,
        Op::BnTrainingUpdate(_) => data_until(1),
        Op::BnTrainingUpdateGrad(_) | Op::BnTrainingReduceGrad(_) => data_until(2),
        Op::BnTrainingGrad(op) if i == 5 && op.relu == crate::ops::GradRelu::Output => Role::Data,
        Op::BnTrainingGrad(_) => data_until(2),
        Op::BnRunningUpdate(_) | Op::ApplyAdam(_) | Op::ApplyMomentum(_) | Op::WeightedSum(_) => Role::Statistic,
        Op::ScaleBy(_) if i == 1 => Role::Free,
        Op::SoftmaxCrossEntropy(_) if i == 1 => Role::Free,
        _ => Role::Data,
    }
}
