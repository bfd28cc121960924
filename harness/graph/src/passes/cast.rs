//! Determines the element type in which each operator computes, and inserts the casts.
//!
//! What: a [`PrecisionPolicy`] assigns an element type to every operator. An operand with another type is cast, at
//! most once per value and type. Parameters, optimizer slots and the whole update stay f32 (master weights), and so
//! do the per-channel operands of normalisations; the network's outputs are f32. Why: the matrix unit computes only
//! in half precision (or much faster), and half the bytes move in half the time. When not: graphs with another type
//! than f32 (f64 of the golden check), and class indices.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Phase, Scope, Source, ValueId},
    ops::{Cast, Element, Op},
    origin::Origin,
    tensor::{DType, TensorType},
};
use serde::Serialize;
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
};

/// How the element types are chosen (CANN's `precision_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrecisionMode {
    /// By the lists: white is reduced, black is f32, and others (grey) have the type of their producer
    /// (`allow_mix_precision`).
    Mixed,
    /// f32 if the device has the operator in f32, otherwise reduced (`allow_fp32_to_fp16`).
    PreferF32,
    /// Everything is reduced except master weights (`force_fp16`).
    Reduced,
    /// Everything in f32; an operator that the device lacks in f32 is an error (`must_keep_origin_dtype`, fp32).
    KeepF32,
}

/// The element types of operators.
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
    /// Operators that the device only has in the reduced type.
    pub reduced_only: BTreeSet<String>,
    /// Operators (device names), layers or nodes that stay f32 in every mode.
    pub keep: BTreeSet<String>,
}

/// Why an operator computes in its element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It belongs to the update, which uses f32 master weights.
    Update,
    /// The recipe requires it (`npu.keep_fp32`).
    Kept,
    /// It is on the white list.
    White,
    /// It is on the black list.
    Black,
    /// It is on neither list, so it computes in the type of its first operand.
    Grey,
    /// The device only has it in the reduced type.
    ReducedOnly,
    /// The mode requires it for all operators.
    Mode,
    /// It has no operand that could be reduced.
    NoOperand,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Update => "master weights",
            Self::Kept => "npu.keep_fp32",
            Self::White => "white list",
            Self::Black => "black list",
            Self::Grey => "grey: as its producer",
            Self::ReducedOnly => "no f32 form",
            Self::Mode => "the mode",
            Self::NoOperand => "no operand",
        })
    }
}

impl PrecisionPolicy {
    /// The type in which a node computes, and the reason. `first` is the type of its first data operand, if it has
    /// one.
    fn choose(&self, node: &Node, first: Option<DType>) -> (DType, Why) {
        let listed = |list: &BTreeSet<String>| list.contains(node.op.name());
        if node.phase == Phase::Update {
            return (DType::F32, Why::Update);
        }
        let Some(first) = first else { return (DType::F32, Why::NoOperand) };
        if self.keeps(node) {
            return (DType::F32, Why::Kept);
        }
        match self.mode {
            PrecisionMode::Mixed if listed(&self.white) => (self.reduced, Why::White),
            PrecisionMode::Mixed if listed(&self.black) => (DType::F32, Why::Black),
            PrecisionMode::Mixed => (first, Why::Grey),
            PrecisionMode::PreferF32 if listed(&self.reduced_only) => (self.reduced, Why::ReducedOnly),
            PrecisionMode::PreferF32 | PrecisionMode::KeepF32 => (DType::F32, Why::Mode),
            PrecisionMode::Reduced => (self.reduced, Why::Mode),
        }
    }

    /// The types in which the nodes of a graph in f32 compute, with reasons, in order.
    ///
    /// # Errors
    /// As [`PlaceCasts`].
    pub fn choices(&self, graph: &Graph) -> Result<Vec<(DType, Why)>, GraphError> {
        Ok(Placement::of(graph, self)?.choices)
    }

    /// Whether a node stays f32, by its operator, its name, or the name of an enclosing layer.
    pub fn keeps(&self, node: &Node) -> bool {
        self.keep.contains(node.op.name()) || self.keep.iter().any(|name| is_within(&node.name, name))
    }

    /// Returns an error if one of these names (each with its entry in the recipe) is not the name of a device
    /// operator, or of a layer or node in a training step. The suffix of a node after its layer is ignored, because
    /// which gradients exist depends on the trained parts.
    ///
    /// # Errors
    /// The first unknown name, with a suggestion.
    pub fn refuse_unknown<'a>(
        graph: &Graph,
        names: impl IntoIterator<Item = (&'a str, Option<Origin>)>,
    ) -> Result<(), GraphError> {
        if graph.gradients.is_empty() {
            return Ok(());
        }
        let known = |name: &str| {
            let layer = name.split('/').next().unwrap_or(name);
            Op::names().any(|known| known == name) || graph.nodes.iter().any(|node| is_within(&node.name, layer))
        };
        let Some((unknown, origin)) = names.into_iter().find(|(name, _)| !known(name)) else { return Ok(()) };
        let operators: Vec<&str> = Op::names().collect();
        let candidates = graph.nodes.iter().map(|node| node.name.as_str()).chain(operators);
        let hint = crate::did_you_mean(unknown, candidates).map(|name| format!(": did you mean `{name}`?"));
        let message = format!(
            "npu.keep_fp32 names `{unknown}`, but there is no operator, layer or node with this name{}",
            hint.unwrap_or_default()
        );
        Err(GraphError::Model { origin, message })
    }

    /// Returns an error if operators of the graph have to compute in f32 but the device lacks them in f32. It lists
    /// them with their lines in the recipe.
    fn refuse_unavailable(&self, graph: &Graph) -> Result<(), GraphError> {
        if self.mode != PrecisionMode::KeepF32 {
            return Ok(());
        }
        let mut found: Vec<(&'static str, Vec<String>)> = Vec::new();
        for node in graph.nodes.iter().filter(|node| self.reduced_only.contains(node.op.name())) {
            let line = node.origin.as_ref().map(|origin| origin.span.to_string());
            match found.iter_mut().find(|(name, _)| *name == node.op.name()) {
                Some((_, lines)) => lines.extend(line.filter(|line| !lines.contains(line))),
                None => found.push((node.op.name(), line.into_iter().collect())),
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        let named = found.iter().map(|(name, lines)| format!("{name} ({})", lines.join(", ")));
        let message = format!(
            "this device has no f32 form of {}: choose `allow_fp32_to_fp16` or `allow_mix_precision`",
            named.collect::<Vec<_>>().join(", ")
        );
        Err(GraphError::Model { origin: None, message })
    }
}

/// Whether a node is the layer or node of this name, or part of it.
fn is_within(node: &str, name: &str) -> bool {
    node.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
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
        PrecisionPolicy::refuse_unknown(graph, self.0.keep.iter().map(|name| (name.as_str(), None)))?;
        self.0.refuse_unavailable(graph)?;
        let mut placement = Placement::of(graph, &self.0)?;
        placement.finish()?;
        let label = format!("{} casts", placement.casts.len());
        Ok(placement.draft.finish(label))
    }
}

struct Placement<'g> {
    graph: &'g Graph,
    policy: &'g PrecisionPolicy,
    draft: Draft<'g>,
    /// Element types decided so far, by value of the graph.
    dtypes: Vec<DType>,
    casts: HashMap<(ValueId, DType), ValueId>,
    /// The type in which each node computes, and the reason.
    choices: Vec<(DType, Why)>,
}

impl<'g> Placement<'g> {
    /// Decides for every node.
    fn of(graph: &'g Graph, policy: &'g PrecisionPolicy) -> Result<Self, GraphError> {
        let dtypes = graph.values.iter().map(|v| v.ty.dtype).collect();
        let (draft, casts, choices) = (Draft::new(graph), HashMap::new(), Vec::new());
        let mut placement = Self { graph, policy, draft, dtypes, casts, choices };
        for n in 0..graph.nodes.len() {
            placement.place(n)?;
        }
        Ok(placement)
    }

    /// Decides the types of the operands and results of node `n`.
    fn place(&mut self, n: usize) -> Result<(), GraphError> {
        let node = &self.graph.nodes[n];
        let data = |i: &usize| {
            node.op.rules().operand(*i).element == Element::Computed && self.dtypes[node.inputs[*i].0].is_float()
        };
        let first = (0..node.inputs.len()).find(data);
        let (dtype, why) = self.policy.choose(node, first.map(|i| self.dtypes[node.inputs[i].0]));
        self.choices.push((dtype, why));
        let gradient_place = |v: ValueId| match self.graph.value(v).source {
            Source::Node(made_by, _) if node.phase == Phase::Update => made_by.0,
            Source::Node(..) | Source::Variable(_) | Source::Input(_) => n,
        };
        let places: Vec<usize> = node.inputs.iter().map(|v| gradient_place(*v)).collect();
        let mut inputs = node.inputs.clone();
        for (i, v) in inputs.iter_mut().enumerate() {
            let wanted = match node.op.rules().operand(i).element {
                Element::Computed => dtype,
                Element::F32 => DType::F32,
                Element::AsIs => continue,
            };
            if self.dtypes[v.0].is_float() {
                *v = self.converted(*v, wanted, places[i])?;
            }
        }
        self.settle(n, inputs)
    }

    /// Sets the operands of a node, and the types of its results.
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

    /// The value in another type; a cast is inserted near position `near` if there is none yet.
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

    /// Converts the network's outputs to f32.
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
    /// Adds a cast of a value whose type this pass has already changed.
    fn cast(&mut self, near: usize, scope: &Scope, name: String, v: ValueId, ty: TensorType, to: DType) -> ValueId {
        self.add_typed(near, scope, name, Cast { to }.into(), vec![v], ty.with_dtype(to))
    }
}
