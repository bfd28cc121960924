//! The quantities of a step that a recording may contain, in the order of the graph.

use crate::{foreign::Quantity, items::slot_key, report::Stage};
use std::collections::HashMap;
use zoo_graph::{EMA, Graph, Op, Origin, Source, Tap, TapState, ValueId, VariableRole};
use zoo_recipe::Recipe;

/// A quantity of the step.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The stage that compares it.
    pub stage: Stage,
    /// The quantity.
    pub quantity: Quantity,
    /// Its name in the stage, as in `zoo check`.
    pub name: String,
    /// Its value in the graph.
    pub value: ValueId,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Whether a recording need not have it: its module computes nothing itself, or it is part of another quantity.
    pub optional: bool,
}

/// All quantities of a step.
#[derive(Debug)]
pub(crate) struct Targets {
    pub list: Vec<Target>,
    places: HashMap<Quantity, usize>,
    /// Operands of modules that are inputs of the step.
    operands: HashMap<Quantity, Quantity>,
}

impl Targets {
    /// The quantities of a step of the recipe.
    pub fn of(graph: &Graph, recipe: &Recipe) -> Self {
        let mut targets = Self { list: Vec::new(), places: HashMap::new(), operands: HashMap::new() };
        let state = |role: &VariableRole| role.is_parameter() || role.is_statistic();
        for variable in graph.variables.iter().filter(|variable| state(&variable.role)) {
            targets.add(graph, Stage::Init, Quantity::Start(variable.name.clone()), &variable.name, variable.value);
        }
        for input in &graph.inputs {
            targets.add(graph, Stage::Init, Quantity::Input(input.name.clone()), &input.name, input.value);
        }
        for tap in &graph.taps {
            if let TapState::Value(value) = tap.state {
                targets.add(graph, Stage::Forward, Quantity::Output(tap.key()), &tap.key(), value);
                targets.may_lack(!computes(graph, tap, value));
                targets.reads(graph, recipe, &format!("{}#{}", tap.module, tap.call), value);
            }
        }
        for (name, value) in &graph.losses {
            targets.add(graph, Stage::Loss, Quantity::Loss(name.clone()), name, *value);
            targets.may_lack(name != "loss");
        }
        let place = |value: ValueId| match graph.value(value).source {
            Source::Node(node, result) => (node.0, result),
            Source::Input(_) | Source::Variable(_) => (0, 0),
        };
        let mut gradients = graph.gradients.clone();
        gradients.sort_by_key(|(_, value)| place(*value));
        for (id, value) in gradients {
            let name = &graph.variable(id).name;
            targets.add(graph, Stage::Backward, Quantity::Gradient(name.clone()), name, value);
        }
        for variable in &graph.variables {
            let Some(next) = variable.next else { continue };
            let (kind, name) = match &variable.role {
                VariableRole::Slot { parameter, slot } => (slot_key(slot), &graph.variable(*parameter).name),
                VariableRole::Average { parameter } => (EMA, &graph.variable(*parameter).name),
                VariableRole::RunningMean | VariableRole::RunningVar => ("buffer", &variable.name),
                VariableRole::Weight | VariableRole::Bias | VariableRole::NormWeight | VariableRole::NormBias => {
                    (PARAMETER, &variable.name)
                }
            };
            let quantity = Quantity::After { kind: kind.to_owned(), name: name.clone() };
            targets.add(graph, Stage::Update, quantity, &variable.name, next);
        }
        targets
    }

    fn add(&mut self, graph: &Graph, stage: Stage, quantity: Quantity, name: &str, value: ValueId) {
        self.places.insert(quantity.clone(), self.list.len());
        let shape = graph.ty(value).shape.to_vec();
        self.list.push(Target { stage, quantity, name: name.to_owned(), value, shape, optional: false });
    }

    /// Whether a recording may lack the quantity that was added last.
    fn may_lack(&mut self, optional: bool) {
        if let Some(target) = self.list.last_mut() {
            target.optional = optional;
        }
    }

    /// Records the operands of a module that are inputs of the step.
    fn reads(&mut self, graph: &Graph, recipe: &Recipe, module: &str, output: ValueId) {
        let operand = |operand| Quantity::Into { module: module.to_owned(), operand };
        if module.starts_with("@root") {
            let inputs = recipe.model.inputs.keys().enumerate();
            self.operands.extend(inputs.map(|(n, name)| (operand(n), Quantity::Input(name.clone()))));
            return;
        }
        let first = graph.producer(output).and_then(|node| node.inputs.first());
        let input = first.and_then(|value| graph.inputs.iter().find(|input| input.value == *value));
        if let Some(input) = input {
            self.operands.insert(operand(0), Quantity::Input(input.name.clone()));
        }
    }

    /// The place of a quantity, with the PyTorch or MindSpore name.
    pub fn find(&self, quantity: &Quantity) -> Option<usize> {
        let quantity = self.operands.get(quantity).unwrap_or(quantity);
        let place = |quantity: &Quantity| self.places.get(quantity).copied();
        place(quantity).or_else(|| place(&quantity.in_pytorch()?))
    }

    /// Places by value.
    pub fn by_value(&self) -> HashMap<ValueId, Vec<usize>> {
        let mut by_value: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (n, target) in self.list.iter().enumerate() {
            by_value.entry(target.value).or_default().push(n);
        }
        by_value
    }
}

/// Whether a module computes its result itself. Containers and dropouts, which goldens leave out, return the result of
/// another layer; paddings and reshapes only move elements.
fn computes(graph: &Graph, tap: &Tap, value: ValueId) -> bool {
    let Some(node) = graph.producer(value) else { return false };
    let path = |origin: &Option<Origin>| origin.as_ref().map(|origin| origin.path.clone());
    let moves = node.op.rules().is_view() || matches!(node.op, Op::Pad(_) | Op::Transpose(_));
    path(&node.origin) == path(&tap.origin) && !moves
}

/// The kind of parameters after the step.
pub(super) const PARAMETER: &str = "param";
