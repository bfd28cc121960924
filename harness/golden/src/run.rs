//! Runs three steps under a golden's conditions, and its lifted variant, and compares each tensor.

use crate::{
    GoldenError,
    check::{CheckOptions, build_options},
    compare::Precision,
    golden::Golden,
    items::{self, GRAD, OUT},
    kernels::Judge,
    mutants::Fault,
    probe::{Probe, Reading},
    report::{Item, Stage},
    weights,
};
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use std::collections::HashMap;
use zoo_engine::{Inputs, Scalars, Step};
use zoo_graph::{Graph, GraphError, NodeId, Phase, Shape, TapState, ValueId, Variable, VariableRole};
use zoo_recipe::{Recipe, ResolvedModel};

/// A recipe's step under a golden's conditions.
pub(crate) struct Setup {
    graph: Graph,
    /// Outputs of the reference's network that, as the recipe declares, it does not have.
    not_given: Vec<String>,
}

impl Setup {
    /// Builds the graph.
    pub fn new(recipe: &Recipe, golden: &Golden, options: &CheckOptions) -> Result<Self, GoldenError> {
        let model = resolve(recipe)?;
        let graph = zoo_recipe::build(recipe, &model, &build_options(recipe, &model, golden, options.precision))?;
        expect_inputs(&graph, golden)?;
        Ok(Self { graph, not_given: declared(recipe) })
    }

    /// Builds the graph with a fault in the model or the graph; `None` if the fault cannot be planted.
    pub fn with_fault(
        recipe: &Recipe,
        golden: &Golden,
        options: &CheckOptions,
        fault: Option<Fault>,
    ) -> Result<Option<Self>, GoldenError> {
        let mut model = resolve(recipe)?;
        if let Some(Fault::Model(plant)) = fault
            && !plant(&mut model)
        {
            return Ok(None);
        }
        let mut graph = zoo_recipe::build(recipe, &model, &build_options(recipe, &model, golden, options.precision))?;
        if let Some(Fault::Graph(plant)) = fault
            && !plant(&mut graph)
        {
            return Ok(None);
        }
        expect_inputs(&graph, golden)?;
        Ok(Some(Self { graph, not_given: declared(recipe) }))
    }

    /// Whether an output of the reference's network is a loss or part of one: some networks compute their own.
    fn is_of_losses(&self, item: &Item) -> bool {
        let tap = self.graph.taps.iter().find(|tap| tap.key() == item.name);
        let value = tap.and_then(|tap| if let TapState::Value(v) = tap.state { Some(v) } else { None });
        value.and_then(|v| self.graph.producer(v)).is_some_and(|node| node.phase == Phase::Loss)
    }

    /// The step before any pass.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}

/// Checks that the golden has every input of the step, with the same shape.
fn expect_inputs(graph: &Graph, golden: &Golden) -> Result<(), GoldenError> {
    for input in &graph.inputs {
        let (name, shape) = (&input.name, &graph.ty(input.value).shape);
        let theirs = golden.manifest.inputs.get(name).map(|input| Shape::from(input.shape.as_slice()));
        if theirs.as_ref() != Some(shape) {
            let theirs = theirs.map_or("none".to_string(), |shape| shape.to_string());
            let message = format!("the step takes the input `{name}` as {shape}, the golden has {theirs}");
            return Err(GraphError::Model { origin: None, message }.into());
        }
    }
    Ok(())
}

/// The differences that the recipe's golden section declares.
fn declared(recipe: &Recipe) -> Vec<String> {
    recipe.golden.iter().flat_map(|golden| &golden.declares).map(|difference| difference.path.clone()).collect()
}

fn resolve(recipe: &Recipe) -> Result<ResolvedModel, GoldenError> {
    recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))
}

/// A run with all its comparisons, in graph order.
pub(crate) struct Run<'a> {
    setup: &'a Setup,
    golden: &'a Golden,
    options: &'a CheckOptions,
    pub step: Step,
    inputs: Inputs,
    /// In f32, one item per node.
    pub kernels: Vec<(NodeId, Item)>,
    pub forward: Vec<Item>,
    pub loss: Vec<Item>,
    pub backward: Vec<Item>,
    pub update: Vec<Item>,
    pub trajectory: Vec<Item>,
    pub lifted: Vec<Item>,
    /// Module outputs that fusions absorbed; their items come from the unfused run.
    pub fused: Vec<String>,
    /// Total loss of the first step.
    pub first_loss: Option<f64>,
    /// The graph value of each item.
    pub values: HashMap<(Stage, String), ValueId>,
}

/// The variant in which hardly any ReLU input is near zero.
pub(crate) const LIFTED: &str = "lifted";

impl<'a> Run<'a> {
    /// Prepares a run.
    pub fn new(setup: &'a Setup, golden: &'a Golden, options: &'a CheckOptions) -> Result<Self, GoldenError> {
        let step = Step::new(setup.graph.clone(), options.engine())?;
        let fused = fused_taps(step.graph()).map(|(key, pass)| format!("{key} ({pass})")).collect();
        let mut run = Self {
            inputs: inputs(golden, setup.graph())?,
            setup,
            golden,
            options,
            step,
            kernels: Vec::new(),
            forward: Vec::new(),
            loss: Vec::new(),
            backward: Vec::new(),
            update: Vec::new(),
            trajectory: Vec::new(),
            lifted: Vec::new(),
            fused,
            first_loss: None,
            values: HashMap::new(),
        };
        run.name_values(setup.graph());
        Ok(run)
    }

    fn scalars(&self, step: u64) -> Scalars {
        scalars(self.golden, step)
    }

    /// Forward, loss, backward and update of the first step.
    pub fn first_step(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), GoldenError> {
        let (golden, precision) = (self.golden, self.options.precision);
        progress(&format!("step 1 of {}", golden.manifest.losses_f64.len()));
        set_weights(&mut self.step, golden, false)?;
        let mut probe = probe(self.step.graph(), golden, None, |_| true)?;
        let scalars = self.scalars(0);
        let result = match precision {
            Precision::F64 => self.step.run(&self.inputs, scalars, &mut probe)?,
            Precision::F32 => {
                let graph = self.step.graph().clone();
                let mut judge = Judge::new(&graph, self.options.engine(), scalars, probe);
                let result = self.step.run(&self.inputs, scalars, &mut judge)?;
                (probe, self.kernels) = judge.finish()?;
                result
            }
        };
        self.first_loss = result.losses.first().map(|l| l.1);
        let outputs = items::outputs(&self.setup.graph, &self.setup.not_given, golden, None, precision, |key| {
            probe.measured(key)
        });
        let (of_losses, forward) = outputs.into_iter().partition(|item| self.setup.is_of_losses(item));
        self.forward = forward;
        let (of_gradients, loss): (Vec<Item>, Vec<Item>) =
            items::losses(&result, golden, None, 0, precision).into_iter().partition(items::is_of_gradients);
        self.loss = loss;
        self.loss.extend::<Vec<Item>>(of_losses);
        self.backward = items::gradients(self.setup.graph(), golden, None, precision, |key| probe.measured(key));
        self.update = of_gradients;
        self.update.extend(items::changes(&self.step, golden, 1, precision)?);
        if !self.fused.is_empty() {
            progress("unfused step");
            self.cover_fused()?;
        }
        Ok(())
    }

    /// The steps after the first.
    pub fn later_steps(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), GoldenError> {
        let (golden, precision) = (self.golden, self.options.precision);
        let steps = golden.manifest.losses_f64.len();
        for n in 1..steps {
            progress(&format!("step {} of {steps}", n + 1));
            let scalars = self.scalars(n as u64);
            let result = self.step.run(&self.inputs, scalars, &mut ())?;
            self.trajectory.extend(items::losses(&result, golden, None, n, precision));
        }
        if steps > 1 {
            self.trajectory.extend(items::changes(&self.step, golden, steps, precision)?);
        }
        Ok(())
    }

    /// The lifted variant, if the golden has it.
    pub fn lifted(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), GoldenError> {
        let (golden, precision) = (self.golden, self.options.precision);
        if !golden.manifest.variants.contains_key(LIFTED) {
            return Ok(());
        }
        progress("lifted variant");
        set_weights(&mut self.step, golden, true)?;
        let mut probe = probe(self.step.graph(), golden, Some(LIFTED), |_| true)?;
        let scalars = self.scalars(0);
        let result = self.step.run(&self.inputs, scalars, &mut probe)?;
        let read = |key: &str| probe.measured(key);
        let fused: Vec<String> = fused_taps(self.step.graph()).map(|(key, _)| key).collect();
        // Outputs that a fusion absorbs are judged in the unfused run of the main step.
        let mut items = items::outputs(&self.setup.graph, &self.setup.not_given, golden, Some(LIFTED), precision, read);
        items.retain(|i| !fused.contains(&i.name));
        items.extend(items::losses(&result, golden, Some(LIFTED), 0, precision));
        items.extend(items::gradients(self.setup.graph(), golden, Some(LIFTED), precision, read));
        self.lifted = items;
        Ok(())
    }

    /// Whether an item with this name exists and passes.
    pub fn passed(&self, stage: Stage, name: &str) -> bool {
        let items = match stage {
            Stage::Forward => &self.forward,
            Stage::Loss => &self.loss,
            Stage::Backward => &self.backward,
            Stage::Update => &self.update,
            _ => return false,
        };
        items.iter().any(|i| i.name == name && i.ratio <= self.options.precision.limit())
    }

    fn name_values(&mut self, graph: &Graph) {
        for tap in &graph.taps {
            if let TapState::Value(value) = tap.state {
                self.values.insert((Stage::Forward, tap.key()), value);
            }
        }
        for (name, value) in &graph.losses {
            self.values.insert((Stage::Loss, name.clone()), *value);
        }
        for (id, value) in &graph.gradients {
            self.values.insert((Stage::Backward, graph.variable(*id).name.clone()), *value);
        }
        for variable in &graph.variables {
            if let Some(next) = variable.next {
                self.values.insert((Stage::Update, variable.name.clone()), next);
                self.values.insert((Stage::Trajectory, variable.name.clone()), next);
            }
        }
    }

    /// Judges the module outputs that fusions absorbed, with a step without fusion.
    fn cover_fused(&mut self) -> Result<(), GoldenError> {
        let mut step = Step::new(self.setup.graph.forward(), self.options.engine().without_fusion())?;
        set_weights(&mut step, self.golden, false)?;
        let absorbed: Vec<String> = fused_taps(self.step.graph()).map(|(key, _)| key).collect();
        let mut probe = probe(step.graph(), self.golden, None, |tap| absorbed.contains(tap))?;
        step.run(&self.inputs, self.scalars(0), &mut probe)?;
        let unfused = items::outputs(
            &self.setup.graph,
            &self.setup.not_given,
            self.golden,
            None,
            self.options.precision,
            |key| probe.measured(key),
        );
        for (item, covered) in self.forward.iter_mut().zip(unfused) {
            if absorbed.contains(&item.name) && item.name == covered.name {
                *item = covered;
            }
        }
        Ok(())
    }
}

/// Scalars of a step. All steps of a golden have the same learning rate.
pub(crate) fn scalars(golden: &Golden, step: u64) -> Scalars {
    Scalars { learning_rate: golden.manifest.optimizer.base_lr(), step, seed: 0, ..Scalars::default() }
}

/// Losses, step by step, of a variant for which the golden records nothing else. `setup` is its step.
pub(crate) fn variant_losses(
    setup: &Setup,
    golden: &Golden,
    variant: &str,
    options: &CheckOptions,
) -> Result<Vec<Item>, GoldenError> {
    let steps = golden.manifest.variants.get(variant).map_or(0, |v| v.losses_f64.len());
    let mut step = Step::new(setup.graph.clone(), options.engine())?;
    set_weights(&mut step, golden, false)?;
    let inputs = inputs(golden, setup.graph())?;
    let mut items = Vec::new();
    for n in 0..steps {
        let result = step.run(&inputs, scalars(golden, n as u64), &mut ())?;
        items.extend(items::losses(&result, golden, Some(variant), n, options.precision));
    }
    items.iter_mut().for_each(|item| item.name = format!("{variant}: {}", item.name));
    Ok(items)
}

/// Module outputs inside a fused operator, with the pass that placed it.
fn fused_taps(graph: &Graph) -> impl Iterator<Item = (String, &'static str)> + '_ {
    graph.taps.iter().filter_map(|tap| match tap.state {
        TapState::Fused(pass) => Some((tap.key(), pass)),
        TapState::Value(_) => None,
    })
}

/// A probe for every gradient and every wanted output that the golden has.
pub(crate) fn probe(
    graph: &Graph,
    golden: &Golden,
    variant: Option<&str>,
    wanted: impl Fn(&String) -> bool,
) -> Result<Probe, GoldenError> {
    let mut probe = Probe::default();
    let Some(tensors) = items::tensors(golden, variant) else { return Ok(probe) };
    let taps = graph.taps.iter().filter(|tap| wanted(&tap.key())).filter_map(|tap| match tap.state {
        TapState::Value(v) => Some((format!("{OUT}{}", tap.key()), v)),
        TapState::Fused(_) => None,
    });
    let gradients = graph.gradients.iter().map(|(id, v)| (format!("{GRAD}{}", graph.variable(*id).name), *v));
    for (key, value) in taps.chain(gradients) {
        if let Some(facts) = tensors.get(&key) {
            let positions = golden.samples(&key, variant, facts.shape.iter().product())?.positions;
            probe.ask(value, Reading { key, positions });
        }
    }
    Ok(probe)
}

/// The golden's inputs, with the types of the graph.
pub(crate) fn inputs(golden: &Golden, graph: &Graph) -> Result<Inputs, GoldenError> {
    let mut inputs = Inputs::new();
    for input in &graph.inputs {
        let ty = graph.ty(input.value);
        let shape = golden.manifest.inputs.get(&input.name).map(|i| i.shape.clone()).unwrap_or_default();
        let values = weights::input(golden, &input.name)?;
        let tensor = match ty.dtype.is_float() {
            true => Tensor::from_vec(values, shape, &Device::Cpu)
                .and_then(|t| t.to_dtype(zoo_engine::candle_dtype(ty.dtype))),
            false => Tensor::from_vec(indices(golden, &input.name, &values)?, shape, &Device::Cpu),
        };
        inputs = inputs.with(&input.name, tensor.map_err(zoo_engine::EngineError::from)?);
    }
    Ok(inputs)
}

/// Values of an input as class indices.
fn indices(golden: &Golden, name: &str, values: &[f64]) -> Result<Vec<u32>, GoldenError> {
    let index = |v: &f64| (*v >= 0.0 && *v <= f64::from(u32::MAX) && v.fract() == 0.0).then_some(*v as u32);
    values.iter().map(index).collect::<Option<_>>().ok_or_else(|| GoldenError::Malformed {
        path: golden.path.clone(),
        message: format!("input `{name}` has values that are no classes"),
    })
}

/// Sets all variables to the golden's initial values. Without a rule, slots become zero, and other variables keep
/// their values.
pub(crate) fn set_weights(step: &mut Step, golden: &Golden, lifted: bool) -> Result<(), GoldenError> {
    let manifest = &golden.manifest;
    let graph = step.graph();
    // A moving average starts as its parameter.
    let starts_as = |v: &Variable| {
        let of = if let VariableRole::Average { parameter } = v.role { graph.variable(parameter) } else { v };
        of.name.clone()
    };
    let variables: Vec<(String, String, VariableRole, zoo_graph::TensorType)> = graph
        .variables
        .iter()
        .map(|v| (v.name.clone(), starts_as(v), v.role.clone(), graph.ty(v.value).clone()))
        .collect();
    for (name, start, role, ty) in variables {
        let mut values: Vec<f32> = match (golden.start(&start, ty.shape.numel()), manifest.init.get(&start)) {
            (Some(stored), _) => stored.iter().map(|v| *v as f32).collect(),
            (None, Some(rule)) => weights::initial(rule, &manifest.salt, &start, ty.shape.numel()),
            (None, None) => vec![0.0; ty.shape.numel()],
        };
        let scale = name.strip_suffix(".bias").and_then(|layer| manifest.init.get(&format!("{layer}.weight")));
        if let (true, VariableRole::NormBias, Some(scale)) = (lifted, &role, scale) {
            weights::lift(&mut values, scale);
        }
        let shape = ty.shape.to_vec();
        let tensor = match zoo_engine::candle_dtype(ty.dtype) {
            // candle converts on one thread.
            DType::F64 => {
                let values: Vec<f64> = values.par_iter().map(|value| f64::from(*value)).collect();
                Tensor::from_vec(values, shape, &Device::Cpu)
            }
            dtype => Tensor::from_vec(values, shape, &Device::Cpu).and_then(|tensor| tensor.to_dtype(dtype)),
        };
        let tensor = tensor.map_err(zoo_engine::EngineError::from)?;
        step.set_variable(&name, &tensor)?;
    }
    Ok(())
}
