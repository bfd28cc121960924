//! The graph: nodes in execution order, the values between them, and persistent variables.

use crate::{
    error::GraphError,
    init::Init,
    ops::{DecayTerm, Group, LongestStep, Op, OpError, Update},
    origin::Origin,
    tensor::TensorType,
};
use serde::Serialize;
use std::fmt;

/// Index of a [`Node`] in execution order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NodeId(pub usize);

/// Index of a [`Value`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ValueId(pub usize);

/// Index of a [`Variable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct VariableId(pub usize);

/// The part of the step to which a node belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The network.
    Forward,
    /// From the network's output to a scalar.
    Loss,
    /// Gradients.
    Backward,
    /// Optimizer and running statistics.
    Update,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Loss => "loss",
            Self::Backward => "backward",
            Self::Update => "update",
        })
    }
}

/// The machine that runs a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The accelerator.
    #[default]
    Device,
    /// The processor of the host. Values between device and host are copied.
    Host,
}

/// An operator applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// Dotted layer name, with suffixes such as `/grad_input` for nodes that belong to a layer.
    pub name: String,
    /// The operator.
    pub op: Op,
    /// Operands, in the order that the operator documents.
    pub inputs: Vec<ValueId>,
    /// Results, in the order that the operator documents.
    pub outputs: Vec<ValueId>,
    /// Part of the step.
    pub phase: Phase,
    /// Its entry in the recipe; `None` if there is none.
    pub origin: Option<Origin>,
    /// The machine that runs it.
    pub place: Place,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An input of each step: index into [`Graph::inputs`].
    Input(usize),
    /// A variable's value at the start of the step.
    Variable(VariableId),
    /// Computed by a node, as its n-th output.
    Node(NodeId, usize),
}

/// A tensor that flows through the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Shape, element type and layout.
    pub ty: TensorType,
    /// Its source.
    pub source: Source,
}

/// An input of each step.
#[derive(Clone, Debug)]
pub struct Input {
    /// Name in the recipe (`image`, `label`).
    pub name: String,
    /// The value.
    pub value: ValueId,
}

/// Suffix of the name of a moving average: `PARAMETER/ema`.
pub const EMA: &str = "ema";

/// The role of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VariableRole {
    /// Filters of a convolution or the matrix of a dense layer.
    Weight,
    /// Additive parameter of a convolution or a dense layer.
    Bias,
    /// Scale of a normalisation (gamma).
    NormWeight,
    /// Shift of a normalisation (beta).
    NormBias,
    /// Running mean of a normalisation.
    RunningMean,
    /// Running variance of a normalisation.
    RunningVar,
    /// Optimizer state of a parameter, with its name (`momentum`, `exp_avg`, ...).
    Slot {
        /// The parameter to which it belongs.
        parameter: VariableId,
        /// The slot's name in PyTorch's optimizer state.
        slot: &'static str,
    },
    /// The moving average of a parameter, which starts with the value of the parameter.
    Average {
        /// The parameter.
        parameter: VariableId,
    },
}

impl VariableRole {
    /// Whether it is trained.
    pub fn is_parameter(&self) -> bool {
        matches!(self, Self::Weight | Self::Bias | Self::NormWeight | Self::NormBias)
    }

    /// Whether it is a running statistic.
    pub fn is_statistic(&self) -> bool {
        matches!(self, Self::RunningMean | Self::RunningVar)
    }

    /// The parameter to which it belongs, for slots and averages.
    pub fn kept_beside(&self) -> Option<VariableId> {
        match self {
            Self::Slot { parameter, .. } | Self::Average { parameter } => Some(*parameter),
            Self::Weight | Self::Bias | Self::NormWeight | Self::NormBias | Self::RunningMean | Self::RunningVar => {
                None
            }
        }
    }
}

/// A tensor that persists between steps: parameter, running statistic, optimizer slot.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name as in `state_dict`; that of a slot is `<parameter>/<slot>`.
    pub name: String,
    /// Its role.
    pub role: VariableRole,
    /// Its initial distribution.
    pub init: Init,
    /// Its value at the start of a step.
    pub value: ValueId,
    /// Its value at the end of a step; `None` if the step does not change it.
    pub next: Option<ValueId>,
    /// The recipe entry that declares it.
    pub origin: Option<Origin>,
}

/// The location of the output of a named module of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TapState {
    /// In this value.
    Value(ValueId),
    /// Nowhere: the pass with this name computes it inside a fused operator.
    Fused(&'static str),
}

/// The output of one call of a named module, as PyTorch's forward hooks see it.
#[derive(Clone, Debug)]
pub struct Tap {
    /// Dotted module name; `@root` for the whole network.
    pub module: String,
    /// Index of the call of the module in this step, from 0.
    pub call: usize,
    /// One of the module's return values; `None` if there is only one.
    pub part: Option<String>,
    /// Location of its output.
    pub state: TapState,
    /// The recipe entry that it comes from.
    pub origin: Option<Origin>,
}

impl Tap {
    /// Key of the golden tensor: `<module>#<call>`, or `<module>#<call>.<part>`.
    pub fn key(&self) -> String {
        match &self.part {
            Some(part) => format!("{}#{}.{part}", self.module, self.call),
            None => format!("{}#{}", self.module, self.call),
        }
    }
}

/// A whole training step, or an evaluation.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Nodes in execution order: every operand is defined before its use.
    pub nodes: Vec<Node>,
    /// All values, by [`ValueId`].
    pub values: Vec<Value>,
    /// Inputs of each step.
    pub inputs: Vec<Input>,
    /// Persistent variables.
    pub variables: Vec<Variable>,
    /// Module outputs, in the order in which modules return.
    pub taps: Vec<Tap>,
    /// Loss components by name, the total (`loss`) first. Empty in an evaluation graph.
    pub losses: Vec<(String, ValueId)>,
    /// Scalars that a step reports in addition to its losses, by name: counts, shares, the norm of the gradients.
    pub metrics: Vec<(String, ValueId)>,
    /// If the total loss exceeds this value or is NaN, the step does not change parameters, optimizer slots and
    /// averages.
    pub skip_loss_above: Option<f64>,
    /// The start of differentiation: the gradient of the total loss with respect to itself. None in an evaluation.
    pub seed: Option<ValueId>,
    /// Gradients of the parameters, before any clipping. Parameters without a gradient are left out.
    pub gradients: Vec<(VariableId, ValueId)>,
    /// The network's outputs, by name.
    pub outputs: Vec<(String, ValueId)>,
}

/// How a node optimizes a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimized {
    /// The parameter.
    pub parameter: VariableId,
    /// The gradient for the update.
    pub gradient: ValueId,
    /// Its weight decay and learning rate.
    pub group: Group,
    /// Where the rule applies the weight decay.
    pub decay: DecayTerm,
    /// The largest possible step if the direction of the gradient is random, without weight decay.
    pub longest: LongestStep,
}

/// The context for added nodes: phase, name prefix and origin.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Phase of the nodes.
    pub phase: Phase,
    /// Recipe entry of the nodes.
    pub origin: Option<Origin>,
}

impl Graph {
    /// The value with this id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.values[id.0].ty
    }

    /// How many numbers the elements of an input may be: rows of the smallest table or classes that they select.
    /// `None` if nothing selects by them.
    pub fn numbers(&self, id: ValueId) -> Option<usize> {
        let selected = |node: &Node| {
            let (operand, count) = node.op.rules().numbered(&self.types(&node.inputs))?;
            (node.inputs.get(operand) == Some(&id)).then_some(count)
        };
        self.nodes.iter().filter_map(selected).min()
    }

    /// The types of several values.
    pub fn types(&self, ids: &[ValueId]) -> Vec<&TensorType> {
        ids.iter().map(|v| self.ty(*v)).collect()
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// The node that computes a value, if one does.
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        match self.value(id).source {
            Source::Node(node, _) => Some(self.node(node)),
            Source::Input(_) | Source::Variable(_) => None,
        }
    }

    /// The variable with this id.
    pub fn variable(&self, id: VariableId) -> &Variable {
        &self.variables[id.0]
    }

    /// The variable with this name.
    pub fn find_variable(&self, name: &str) -> Option<VariableId> {
        self.variables.iter().position(|v| v.name == name).map(VariableId)
    }

    /// Trained parameters, in the order of their declaration.
    pub fn parameters(&self) -> impl Iterator<Item = (VariableId, &Variable)> {
        self.variables.iter().enumerate().filter(|(_, v)| v.role.is_parameter()).map(|(i, v)| (VariableId(i), v))
    }

    /// Total loss of a step.
    pub fn loss(&self) -> Option<ValueId> {
        self.losses.first().map(|(_, value)| *value)
    }

    /// Adds an input of each step.
    pub fn add_input(&mut self, name: impl Into<String>, ty: TensorType) -> ValueId {
        let value = self.add_value(ty, Source::Input(self.inputs.len()));
        self.inputs.push(Input { name: name.into(), value });
        value
    }

    /// Adds a persistent tensor.
    pub fn add_variable(
        &mut self,
        name: impl Into<String>,
        role: VariableRole,
        ty: TensorType,
        init: Init,
        origin: Option<Origin>,
    ) -> VariableId {
        let id = VariableId(self.variables.len());
        let value = self.add_value(ty, Source::Variable(id));
        self.variables.push(Variable { name: name.into(), role, init, value, next: None, origin });
        id
    }

    /// Appends a node. The shape rule of the operator determines the outputs.
    ///
    /// # Errors
    /// The operator's error about its operands, with the name and the recipe line of the node.
    pub fn add_node(
        &mut self,
        scope: &Scope,
        name: impl Into<String>,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        let (name, op) = (name.into(), op.into());
        let types: Vec<&TensorType> = inputs.iter().map(|&v| self.ty(v)).collect();
        let checked = op.infer(&types).and_then(|outputs| {
            let fits = outputs.iter().all(|t| t.shape.checked_numel().is_some_and(|n| n <= MAX_ELEMENTS));
            if fits { Ok(outputs) } else { Err(OpError::TooLarge) }
        });
        let outputs =
            checked.map_err(|source| GraphError::Shape { name: name.clone(), origin: scope.origin.clone(), source })?;
        let id = NodeId(self.nodes.len());
        let outputs =
            outputs.into_iter().enumerate().map(|(i, ty)| self.add_value(ty, Source::Node(id, i))).collect::<Vec<_>>();
        self.nodes.push(Node {
            name,
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            phase: scope.phase,
            origin: scope.origin.clone(),
            place: Place::Device,
        });
        Ok(outputs)
    }

    /// Adds a node with exactly one output.
    ///
    /// # Errors
    /// As [`Graph::add_node`].
    pub fn add(
        &mut self,
        scope: &Scope,
        name: impl Into<String>,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        let name = name.into();
        match self.add_node(scope, name.clone(), op, inputs)?.as_slice() {
            [one] => Ok(*one),
            outputs => Err(GraphError::Invariant {
                after: None,
                message: format!("`{name}` was to have one output and has {}", outputs.len()),
            }),
        }
    }

    /// Adds a value. The caller must define its source immediately.
    pub(crate) fn add_value(&mut self, ty: TensorType, source: Source) -> ValueId {
        self.values.push(Value { ty, source });
        ValueId(self.values.len() - 1)
    }

    /// How a node optimizes a parameter, if it does.
    pub fn optimized(&self, node: &Node) -> Option<Optimized> {
        let Some(Update::Optimizer { group, decay, longest, .. }) = node.op.update() else { return None };
        let Source::Variable(parameter) = self.value(*node.inputs.first()?).source else { return None };
        Some(Optimized { parameter, gradient: *node.inputs.last()?, group, decay, longest })
    }

    /// Whether a step with this total loss only updates running statistics.
    pub fn skips(&self, loss: f64) -> bool {
        self.skip_loss_above.is_some_and(|bound| !(loss <= bound && loss.is_finite()))
    }

    /// Number of results that a node takes unchanged from the operands at the same positions, given the total loss
    /// and whether there was an overflow on a simulated device. `None`: the node computes its results.
    ///
    /// A skipped step does not change the variables of the optimizer. Running statistics are still updated, as in
    /// PyTorch, unless the loss is NaN: they would become NaN and never recover.
    pub fn keeps(&self, op: &Op, loss: Option<f64>, overflowed: bool) -> Option<usize> {
        let loss = loss.filter(|_| self.skip_loss_above.is_some());
        let update = op.update()?;
        let left_out = match update {
            Update::Optimizer { .. } | Update::Average => overflowed || loss.is_some_and(|loss| self.skips(loss)),
            Update::Statistics => loss.is_some_and(|loss| !loss.is_finite()),
        };
        left_out.then(|| update.results())
    }

    /// Takes losses, metrics, outputs, taps and next values of variables from a graph of which this is another form.
    ///
    /// # Errors
    /// A value of which there is no other form: a defect.
    pub(crate) fn carry_over(
        &mut self,
        from: &Self,
        place: impl Fn(ValueId) -> Option<ValueId>,
    ) -> Result<(), GraphError> {
        let missing =
            |value: ValueId| GraphError::Invariant { after: None, message: format!("value {} is lost", value.0) };
        let there = |value: ValueId| place(value).ok_or_else(|| missing(value));
        let named = |list: &[(String, ValueId)]| {
            list.iter().map(|(name, value)| Ok((name.clone(), there(*value)?))).collect::<Result<Vec<_>, GraphError>>()
        };
        self.losses = named(&from.losses)?;
        self.metrics = named(&from.metrics)?;
        self.outputs = named(&from.outputs)?;
        for tap in &from.taps {
            let state = match &tap.state {
                TapState::Value(value) => TapState::Value(there(*value)?),
                TapState::Fused(pass) => TapState::Fused(pass),
            };
            self.taps.push(Tap { state, ..tap.clone() });
        }
        for (own, variable) in self.variables.iter_mut().zip(&from.variables) {
            own.next = variable.next.map(there).transpose()?;
        }
        Ok(())
    }

    /// Values that must survive to the end of a step: losses, metrics, outputs and the variables' next values.
    pub fn results(&self) -> impl Iterator<Item = ValueId> + '_ {
        let next = self.variables.iter().filter_map(|v| v.next);
        self.losses.iter().chain(&self.metrics).map(|l| l.1).chain(self.outputs.iter().map(|o| o.1)).chain(next)
    }
}

/// Largest tensor of a graph, in elements. With this limit, byte counts never overflow 64 bits, even in f64.
const MAX_ELEMENTS: usize = 1 << 48;
