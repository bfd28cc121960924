//! What layers add nodes with; the outputs of modules become taps.

use super::{BuildOptions, Mode, ROOT};
use crate::site::Site;
use crate::values::{Part, Training};
use std::collections::HashMap;
use zoo_graph::formula::Formula;
use zoo_graph::ops::{self, DeviceName};
use zoo_graph::{
    DType, Graph, GraphError, Init, Layout, Op, Origin, Phase, Scope, Shape, Source, Tap, TapState, TensorType,
    ValueId, VariableId, VariableRole,
};

/// A network that is being built.
pub(crate) struct Network<'n> {
    pub(crate) graph: &'n mut Graph,
    options: &'n BuildOptions,
    /// What is trained differently from the rest.
    parts: &'n [Part],
    /// Values that the recipe keeps under a name, model inputs among them.
    pub(crate) taps: HashMap<String, ValueId>,
    /// Variables by name.
    variables: HashMap<String, VariableId>,
    /// Calls of each module so far.
    calls: HashMap<String, usize>,
    /// Streams of random numbers so far.
    streams: u64,
    /// Whether a module is called again, so that its parameters already exist.
    again: bool,
    /// Shapes of the input and the output of each layer, in the order of their calls.
    pub(crate) shapes: Vec<[Shape; 2]>,
    /// The routing of each mixture of experts.
    pub(crate) routings: Vec<Routing>,
}

/// How tokens are assigned to experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing {
    /// The score of each expert for each token, `[tokens, experts]`.
    pub scores: ValueId,
    /// 1 for the experts that a token uses, otherwise 0.
    pub chosen: ValueId,
}

impl<'n> Network<'n> {
    /// A network without nodes.
    pub(crate) fn new(graph: &'n mut Graph, parts: &'n [Part], options: &'n BuildOptions) -> Self {
        Self {
            graph,
            options,
            parts,
            taps: HashMap::new(),
            variables: HashMap::new(),
            calls: HashMap::new(),
            streams: 0,
            again: false,
            shapes: Vec::new(),
            routings: Vec::new(),
        }
    }

    /// What its layers add nodes with.
    pub(crate) fn builder(&mut self) -> Builder<'_, 'n> {
        let scope = Scope { phase: Phase::Forward, origin: None };
        Builder { network: self, module: ROOT.to_owned(), name: ROOT.to_owned(), scope, gives: Gives::Result }
    }

    /// Keeps a value as the output of a call of a module.
    pub(crate) fn tap(&mut self, module: &str, value: ValueId, origin: Option<Origin>) {
        let calls = self.calls.entry(module.to_string()).or_default();
        let tap = Tap { module: module.to_string(), call: *calls, part: None, state: TapState::Value(value), origin };
        *calls += 1;
        self.graph.taps.push(tap);
    }

    /// Taps of a module with several return values.
    fn tap_parts(&mut self, module: &str, parts: Vec<(String, ValueId)>, origin: &Origin) {
        let calls = self.calls.entry(module.to_string()).or_default();
        let call = *calls;
        *calls += 1;
        let tap = |(key, value)| Tap {
            module: module.to_string(),
            call,
            part: Some(key),
            state: TapState::Value(value),
            origin: Some(origin.clone()),
        };
        self.graph.taps.extend(parts.into_iter().map(tap));
    }
}

/// The output of the module of a layer in the reference framework, which is compared with goldens.
pub(crate) enum Gives {
    /// The output of the layer.
    Result,
    /// Another value.
    Value(ValueId),
    /// Several values by key.
    Parts(Vec<(String, ValueId)>),
    /// A value, after those of modules inside by their names.
    Inside(Vec<(&'static str, ValueId)>, ValueId),
    /// Nothing: it is a parameter there, no module.
    Nothing,
}

/// Adds the nodes of one layer.
pub(crate) struct Builder<'b, 'n> {
    network: &'b mut Network<'n>,
    /// Module name of the layer, or its place in the recipe if it has none.
    module: String,
    /// Name of its nodes: the name of the module, with the number of the call for repeated calls.
    name: String,
    scope: Scope,
    gives: Gives,
}

impl Builder<'_, '_> {
    pub(crate) fn graph(&mut self) -> &mut Graph {
        self.network.graph
    }

    /// Shape of a value, batch included.
    pub(crate) fn shape(&self, value: ValueId) -> &Shape {
        &self.network.graph.ty(value).shape
    }

    /// Number of axes of a value, batch included.
    pub(crate) fn rank(&self, value: ValueId) -> usize {
        self.shape(value).len()
    }

    /// Samples, tokens and numbers per token of a value.
    pub(crate) fn tokens(&self, value: ValueId) -> Result<[usize; 3], GraphError> {
        let message = || {
            format!("expected tokens, [T, E], for each sample; this value is {} including the batch", self.shape(value))
        };
        self.shape(value)[..].try_into().map_err(|_| self.refuse(message()))
    }

    /// Declares that the output of the module differs from the output of the layer.
    pub(crate) fn gives(&mut self, gives: Gives) {
        self.gives = gives;
    }

    /// Whether a value is a constant of zeros.
    pub(crate) fn is_zero(&self, value: ValueId) -> bool {
        let graph = &self.network.graph;
        match graph.value(value).source {
            Source::Node(node, _) => matches!(&graph.node(node).op, Op::Fill(fill) if fill.value == 0.0),
            Source::Input(_) | Source::Variable(_) => false,
        }
    }

    /// The type of real numbers.
    pub(crate) fn dtype(&self) -> DType {
        self.network.options.dtype
    }

    /// What the graph is for.
    pub(crate) fn mode(&self) -> Mode {
        self.network.options.mode
    }

    /// How the module is trained.
    pub(crate) fn training(&self) -> Training {
        Training::of(self.network.parts, &self.module, self.network.options.epoch)
    }

    /// Whether random layers are active.
    pub(crate) fn left_to_chance(&self) -> bool {
        self.network.options.mode == Mode::Train && self.network.options.dropout
    }

    /// A stream of random numbers of the layer's own; every layer that may need one takes it, so that one that is not
    /// used moves no other.
    pub(crate) fn stream(&mut self) -> u64 {
        self.network.streams += 1;
        self.network.streams - 1
    }

    /// Adds a node with one result.
    pub(crate) fn add(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId, GraphError> {
        self.network.graph.add(&self.scope, self.name.clone(), op, operands)
    }

    /// Adds a formula over these operands, which broadcast from their last axes; values per channel, `[C]` or `[C, 1,
    /// 1]`, must be reshaped first. Returns the first result.
    pub(crate) fn formula(
        &mut self,
        formula: Formula,
        name: DeviceName,
        operands: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        let map = self.map(formula, operands)?.named(name);
        self.add(map, operands)
    }

    /// As [`Self::formula`], for one of several nodes of the layer.
    pub(crate) fn formula_part(
        &mut self,
        part: &str,
        formula: Formula,
        name: DeviceName,
        operands: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        let map = self.map(formula, operands)?.named(name);
        self.add_part(part, map, operands)
    }

    /// As [`Self::formula`], for one that is not an operator of devices.
    pub(crate) fn unnamed(&mut self, formula: Formula, operands: &[ValueId]) -> Result<ValueId, GraphError> {
        let map = self.map(formula, operands)?;
        self.add(map, operands)
    }

    /// As [`Self::unnamed`], for one of several nodes of the layer.
    pub(crate) fn unnamed_part(
        &mut self,
        part: &str,
        formula: Formula,
        operands: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        let map = self.map(formula, operands)?;
        self.add_part(part, map, operands)
    }

    /// An operator on values of one shape, or, where axes of one element are repeated for the other value, the same as
    /// a formula. part: the name of the node, if it is one of several of the layer.
    pub(crate) fn broadcast(
        &mut self,
        part: Option<&str>,
        op: impl Into<Op>,
        formula: Formula,
        operands: [ValueId; 2],
    ) -> Result<ValueId, GraphError> {
        let [a, b] = operands.map(|operand| self.shape(operand).to_vec());
        let repeats = a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || *a == 1 || *b == 1);
        let op = if repeats && a != b { self.map(formula, &operands)?.into() } else { op.into() };
        match part {
            Some(part) => self.add_part(part, op, &operands),
            None => self.add(op, &operands),
        }
    }

    fn map(&self, formula: Formula, operands: &[ValueId]) -> Result<ops::Map, GraphError> {
        let types: Vec<&TensorType> = operands.iter().map(|v| self.network.graph.ty(*v)).collect();
        ops::Map::over(formula, &types).map_err(|source| GraphError::Shape {
            name: self.name.clone(),
            origin: self.scope.origin.clone(),
            source,
        })
    }

    /// The axes of a value in another order, the batch among them.
    pub(crate) fn transposed(&mut self, part: &str, order: &[usize], x: ValueId) -> Result<ValueId, GraphError> {
        self.add_part(part, ops::Transpose { permutation: order.to_vec() }, &[x])
    }

    /// As [`Self::add`], for one of several nodes of the layer.
    pub(crate) fn add_part(
        &mut self,
        part: &str,
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        self.network.graph.add(&self.scope, format!("{}/{part}", self.name), op, operands)
    }

    /// As [`Self::add_part`], for a node with several results or of another phase.
    pub(crate) fn add_parts(
        &mut self,
        part: &str,
        phase: Phase,
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        let scope = Scope { phase, ..self.scope.clone() };
        self.network.graph.add_node(&scope, format!("{}/{part}", self.name), op, operands)
    }

    /// Adds the nodes of a layer inside, from the value `x`.
    pub(crate) fn layer(
        &mut self,
        layer: Site<'_>,
        x: ValueId,
        build: impl FnOnce(&mut Builder<'_, '_>) -> Result<ValueId, GraphError>,
    ) -> Result<ValueId, GraphError> {
        let network = &mut *self.network;
        let origin = Origin { path: layer.path.to_string(), span: layer.span.clone() };
        let module = layer.name.map_or_else(|| layer.path.to_string(), str::to_owned);
        let name = match network.calls.get(&module) {
            Some(call) if network.again => format!("{module}#{call}"),
            _ => module.clone(),
        };
        let scope = Scope { phase: Phase::Forward, origin: Some(origin.clone()) };
        let (shape, place) = (network.graph.ty(x).shape.clone(), network.shapes.len());
        network.shapes.push([shape.clone(), shape]);
        let mut builder = Builder { network: &mut *network, module, name, scope, gives: Gives::Result };
        let y = build(&mut builder)?;
        builder.network.shapes[place][1] = builder.shape(y).clone();
        let returned = layer.returns.iter().map(|(key, tap)| Ok((key.clone(), builder.tapped(tap)?)));
        let returned = returned.collect::<Result<Vec<_>, GraphError>>()?;
        let gives = if returned.is_empty() { builder.gives } else { Gives::Parts(returned) };
        if let Some(name) = layer.name.filter(|_| layer.is_module) {
            match gives {
                Gives::Result => network.tap(name, y, Some(origin)),
                Gives::Value(value) => network.tap(name, value, Some(origin)),
                Gives::Parts(parts) => network.tap_parts(name, parts, &origin),
                Gives::Inside(parts, value) => {
                    for (inside, value) in parts {
                        network.tap(&format!("{name}.{inside}"), value, Some(origin.clone()));
                    }
                    network.tap(name, value, Some(origin));
                }
                Gives::Nothing => {}
            }
        }
        Ok(y)
    }

    /// Adds nodes of layers that have been called before, on the same parameters.
    pub(crate) fn again<T>(&mut self, add: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.network.again, true);
        let y = add(self);
        self.network.again = outer;
        y
    }

    /// Declares the parameters of layers as if they were called, without calling them.
    pub(crate) fn declare(
        &mut self,
        add: impl FnOnce(&mut Builder<'_, '_>) -> Result<ValueId, GraphError>,
    ) -> Result<(), GraphError> {
        let known = self.network.graph.variables.len();
        let mut elsewhere = self.network.graph.clone();
        let mut network = Network {
            graph: &mut elsewhere,
            taps: self.network.taps.clone(),
            variables: self.network.variables.clone(),
            calls: self.network.calls.clone(),
            shapes: std::mem::take(&mut self.network.shapes),
            routings: Vec::new(),
            ..*self.network
        };
        add(&mut network.builder())?;
        self.network.shapes = std::mem::take(&mut network.shapes);
        for variable in &elsewhere.variables[known..] {
            let ty = elsewhere.ty(variable.value).clone();
            let (name, role) = (variable.name.clone(), variable.role.clone());
            self.add_variable(name, role, ty, variable.init.clone(), variable.origin.clone());
        }
        Ok(())
    }

    /// Keeps a value under the full name of a tap.
    pub(crate) fn keep(&mut self, tap: &str, value: ValueId) {
        self.network.taps.insert(tap.to_owned(), value);
    }

    /// Notes the routing of a mixture of experts, for terms of the loss.
    pub(crate) fn routed(&mut self, routing: Routing) {
        self.network.routings.push(routing);
    }

    /// The value that was kept under a name.
    pub(crate) fn tapped(&self, tap: &str) -> Result<ValueId, GraphError> {
        let known = self.network.taps.get(tap).copied();
        known.ok_or_else(|| self.refuse(format!("no tap or input `{tap}` before this layer")))
    }

    /// The value of a trained variable `<module>.<leaf>`.
    pub(crate) fn parameter(
        &mut self,
        leaf: &str,
        role: VariableRole,
        shape: &[usize],
        init: &Init,
    ) -> Result<ValueId, GraphError> {
        let id = self.variable(leaf, role, shape, init)?;
        Ok(self.network.graph.variable(id).value)
    }

    /// The value of a trained variable of this full name.
    pub(crate) fn parameter_called(
        &mut self,
        name: String,
        role: VariableRole,
        shape: &[usize],
        init: &Init,
    ) -> Result<ValueId, GraphError> {
        let id = self.variable_called(name, role, shape, init)?;
        Ok(self.network.graph.variable(id).value)
    }

    /// A variable `<module>.<leaf>`, or `<module>` without a leaf; the existing one if the module is called again.
    pub(crate) fn variable(
        &mut self,
        leaf: &str,
        role: VariableRole,
        shape: &[usize],
        init: &Init,
    ) -> Result<VariableId, GraphError> {
        let name = if leaf.is_empty() { self.module.clone() } else { format!("{}.{leaf}", self.module) };
        self.variable_called(name, role, shape, init)
    }

    fn variable_called(
        &mut self,
        name: String,
        role: VariableRole,
        shape: &[usize],
        init: &Init,
    ) -> Result<VariableId, GraphError> {
        let dtype = self.network.options.dtype;
        let ty = TensorType { shape: shape.to_vec().into(), dtype, layout: Layout::Plain };
        if let Some(known) = self.network.variables.get(&name).copied() {
            let theirs = &self.network.graph.ty(self.network.graph.variable(known).value).shape;
            return match self.network.again {
                true if *theirs == ty.shape => Ok(known),
                true => Err(self.refuse(format!("`{name}` has shape {theirs}, but this call needs {}", ty.shape))),
                false => Err(self.refuse(format!("`{name}` already exists: give this layer a unique name"))),
            };
        }
        if ty.shape.checked_numel().is_none_or(|n| n == 0 || n > 1 << 40) {
            return Err(self.refuse(format!("`{name}` would have shape {}", ty.shape)));
        }
        Ok(self.add_variable(name, role, ty, init.clone(), self.scope.origin.clone()))
    }

    fn add_variable(
        &mut self,
        name: String,
        role: VariableRole,
        ty: TensorType,
        init: Init,
        origin: Option<Origin>,
    ) -> VariableId {
        let id = self.network.graph.add_variable(name.clone(), role, ty, init, origin);
        self.network.variables.insert(name, id);
        id
    }

    /// Why the layer cannot be built.
    pub(crate) fn refuse(&self, message: String) -> GraphError {
        GraphError::Model { origin: self.scope.origin.clone(), message }
    }
}
