//! Three steps under a golden's conditions, and the variant with lifted shifts, each tensor compared.

use crate::{
    GoldenError,
    check::{CheckOptions, build_options},
    compare::{self, DEGENERATE_FACTOR, Distance, LOSS_FLOOR, Measured, Precision, TENSOR_FLOOR},
    manifest::{Golden, Samples, TensorFacts},
    mutants::Fault,
    probe::{Probe, Reading, to_f64},
    report::{Item, Stage},
    stats::Stats,
    weights,
};
use candle_core::{Device, Tensor};
use std::collections::{BTreeMap, HashMap};
use zoo_engine::{Inputs, Scalars, Step, StepResult};
use zoo_graph::{Graph, GraphError, Phase, Shape, TapState, ValueId, VariableRole};
use zoo_recipe::{Recipe, ResolvedModel};

/// A recipe's step under a golden's conditions.
pub(crate) struct Setup {
    graph: Graph,
    /// Outputs of the reference's network that the recipe declares it does not give.
    not_given: Vec<String>,
}

impl Setup {
    /// Builds the graph.
    pub fn new(recipe: &Recipe, golden: &Golden, options: &CheckOptions) -> Result<Self, GoldenError> {
        let model = resolve(recipe)?;
        let graph = zoo_graph::build(recipe, &model, &build_options(recipe, &model, golden, options.precision))?;
        expect_inputs(&graph, golden)?;
        Ok(Self { graph, not_given: declared(recipe) })
    }

    /// Builds the graph with a fault in the model or the graph; `None` where there is no place for it.
    pub fn with_fault(
        recipe: &Recipe,
        golden: &Golden,
        options: &CheckOptions,
        fault: Fault,
    ) -> Result<Option<Self>, GoldenError> {
        let mut model = resolve(recipe)?;
        if let Fault::Model(plant) = fault
            && !plant(&mut model)
        {
            return Ok(None);
        }
        let mut graph = zoo_graph::build(recipe, &model, &build_options(recipe, &model, golden, options.precision))?;
        if let Fault::Graph(plant) = fault
            && !plant(&mut graph)
        {
            return Ok(None);
        }
        expect_inputs(&graph, golden)?;
        Ok(Some(Self { graph, not_given: declared(recipe) }))
    }

    /// Whether an output of the reference's network is a loss or of one: some networks compute their own.
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

/// The golden has every input that the step takes, in its shape.
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

/// What the recipe's golden section declares.
fn declared(recipe: &Recipe) -> Vec<String> {
    recipe.golden.iter().flat_map(|golden| &golden.declares).map(|difference| difference.path.clone()).collect()
}

fn resolve(recipe: &Recipe) -> Result<ResolvedModel, GoldenError> {
    recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))
}

/// A run and every comparison of it, in graph order.
pub(crate) struct Run<'a> {
    setup: &'a Setup,
    golden: &'a Golden,
    options: &'a CheckOptions,
    step: Step,
    inputs: Inputs,
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
    /// The value behind each item.
    pub values: HashMap<(Stage, String), ValueId>,
}

/// Prefix of the golden's keys of module outputs.
const OUT: &str = "out/";
/// Prefix of the golden's keys of gradients.
const GRAD: &str = "grad/";
/// The variant in which hardly any ReLU input is near zero.
const LIFTED: &str = "lifted";

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
        let result = self.step.run(&self.inputs, scalars, &mut probe)?;
        self.first_loss = result.losses.first().map(|l| l.1);
        let outputs = outputs(self.setup, golden, None, precision, |key| probe.measured(key));
        let (of_losses, forward) = outputs.into_iter().partition(|item| self.setup.is_of_losses(item));
        self.forward = forward;
        let (of_gradients, loss): (Vec<Item>, Vec<Item>) =
            losses(&result, golden, None, 0, precision).into_iter().partition(is_of_gradients);
        self.loss = loss;
        self.loss.extend::<Vec<Item>>(of_losses);
        self.backward = gradients(self.setup.graph(), golden, None, precision, |key| probe.measured(key));
        self.update = of_gradients;
        self.update.extend(changes(&self.step, golden, 1, precision)?);
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
            self.trajectory.extend(losses(&result, golden, None, n, precision));
        }
        if steps > 1 {
            self.trajectory.extend(changes(&self.step, golden, steps, precision)?);
        }
        Ok(())
    }

    /// The variant with lifted shifts, where the golden has it.
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
        let mut items = outputs(self.setup, golden, Some(LIFTED), precision, read);
        items.retain(|i| !fused.contains(&i.name));
        items.extend(losses(&result, golden, Some(LIFTED), 0, precision));
        items.extend(gradients(self.setup.graph(), golden, Some(LIFTED), precision, read));
        self.lifted = items;
        Ok(())
    }

    /// Whether an item of this name is there and passes.
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

    /// Judges the module outputs that fusions absorbed, by a step without fusion.
    fn cover_fused(&mut self) -> Result<(), GoldenError> {
        let mut step = Step::new(self.setup.graph.forward(), self.options.engine().without_fusion())?;
        set_weights(&mut step, self.golden, false)?;
        let absorbed: Vec<String> = fused_taps(self.step.graph()).map(|(key, _)| key).collect();
        let mut probe = probe(step.graph(), self.golden, None, |tap| absorbed.contains(tap))?;
        step.run(&self.inputs, self.scalars(0), &mut probe)?;
        let unfused = outputs(self.setup, self.golden, None, self.options.precision, |key| probe.measured(key));
        for (item, covered) in self.forward.iter_mut().zip(unfused) {
            if absorbed.contains(&item.name) && item.name == covered.name {
                *item = covered;
            }
        }
        Ok(())
    }
}

/// All steps of a golden have one learning rate.
pub(crate) fn scalars(golden: &Golden, step: u64) -> Scalars {
    Scalars { learning_rate: golden.manifest.optimizer.base_lr(), step, seed: 0, ..Scalars::default() }
}

/// Losses of a variant of the golden that records nothing else, step by step; `setup` is its step.
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
        items.extend(losses(&result, golden, Some(variant), n, options.precision));
    }
    items.iter_mut().for_each(|item| item.name = format!("{variant}: {}", item.name));
    Ok(items)
}

/// Module outputs that are inside a fused operator, with the pass that put them there.
fn fused_taps(graph: &Graph) -> impl Iterator<Item = (String, &'static str)> + '_ {
    graph.taps.iter().filter_map(|tap| match tap.state {
        TapState::Fused(pass) => Some((tap.key(), pass)),
        TapState::Value(_) => None,
    })
}

/// Facts of the main run, or of a variant.
fn tensors<'g>(golden: &'g Golden, variant: Option<&str>) -> Option<&'g BTreeMap<String, TensorFacts>> {
    match variant {
        None => Some(&golden.manifest.tensors),
        Some(name) => golden.manifest.variants.get(name).map(|v| &v.tensors),
    }
}

/// Asks for every gradient and every wanted output that the golden has.
fn probe(
    graph: &Graph,
    golden: &Golden,
    variant: Option<&str>,
    wanted: impl Fn(&String) -> bool,
) -> Result<Probe, GoldenError> {
    let mut probe = Probe::default();
    let Some(tensors) = tensors(golden, variant) else { return Ok(probe) };
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

/// The golden's inputs, as the graph takes them.
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

/// Sets all variables as the golden starts; what it has no rule for starts at zero (slots) or stays.
pub(crate) fn set_weights(step: &mut Step, golden: &Golden, lifted: bool) -> Result<(), GoldenError> {
    let manifest = &golden.manifest;
    let graph = step.graph();
    let variables: Vec<(String, VariableRole, zoo_graph::TensorType)> =
        graph.variables.iter().map(|v| (v.name.clone(), v.role.clone(), graph.ty(v.value).clone())).collect();
    for (name, role, ty) in variables {
        let mut values: Vec<f32> = match (golden.start(&name), manifest.init.get(&name)) {
            (Some(stored), _) => stored.iter().map(|v| *v as f32).collect(),
            (None, Some(rule)) => weights::initial(rule, &manifest.salt, &name, ty.shape.numel()),
            (None, None) => vec![0.0; ty.shape.numel()],
        };
        let scale = name.strip_suffix(".bias").and_then(|layer| manifest.init.get(&format!("{layer}.weight")));
        if let (true, VariableRole::NormBias, Some(scale)) = (lifted, &role, scale) {
            weights::lift(&mut values, scale);
        }
        let tensor = Tensor::from_vec(values, ty.shape.to_vec(), &Device::Cpu)
            .and_then(|t| t.to_dtype(zoo_engine::candle_dtype(ty.dtype)))
            .map_err(zoo_engine::EngineError::from)?;
        step.set_variable(&name, &tensor)?;
    }
    Ok(())
}

/// Names, shapes, counts, hash test vectors and first values of weights and inputs.
pub(crate) fn init_items(graph: &Graph, golden: &Golden) -> Vec<Item> {
    let manifest = &golden.manifest;
    let mut items = Vec::new();
    for name in weights::broken_hash_vectors(golden) {
        items.push(Item::wrong(format!("hash of `{name}`"), "its test vectors do not hold"));
    }
    let state = |v: &&zoo_graph::Variable| v.role.is_parameter() || v.role.is_statistic();
    for variable in graph.variables.iter().filter(state) {
        let shape = &graph.ty(variable.value).shape;
        items.push(match manifest.shapes.get(&variable.name) {
            Some(theirs) if **shape == theirs[..] && manifest.init.contains_key(&variable.name) => {
                Item::measured(&variable.name, 0.0, 1.0)
            }
            Some(theirs) if **shape == theirs[..] => Item::wrong(&variable.name, "the golden has no rule for it"),
            Some(theirs) => {
                let theirs = zoo_graph::Shape::from(theirs.as_slice());
                Item::wrong(&variable.name, format!("shape {shape}, the reference has {theirs}"))
            }
            None => Item::wrong(&variable.name, "the reference has no such parameter"),
        });
    }
    let untrained = |name: &String| name.ends_with("num_batches_tracked");
    for name in manifest.shapes.keys().filter(|n| !untrained(n) && graph.find_variable(n).is_none()) {
        items.push(Item::wrong(name, "the recipe has no such parameter"));
    }
    let count: u64 = graph.parameters().map(|(_, v)| graph.ty(v.value).shape.numel() as u64).sum();
    items.push(match count == manifest.parameter_count {
        true => Item::measured("parameter count", 0.0, 1.0),
        false => Item::wrong("parameter count", format!("{count}, the reference has {}", manifest.parameter_count)),
    });
    for (name, head) in golden.heads("init_head/") {
        if let Some(rule) = manifest.init.get(name) {
            let ours = weights::initial(rule, &manifest.salt, name, head.len());
            let same = ours.iter().zip(head).all(|(a, b)| f64::from(*a) == *b);
            items.push(if same {
                Item::measured(format!("first values of {name}"), 0.0, 1.0)
            } else {
                Item::wrong(format!("first values of {name}"), "the hash rule gives others")
            });
        }
    }
    for (name, head) in golden.heads("input_head/") {
        let same = weights::input(golden, name).is_ok_and(|ours| ours.iter().zip(head).all(|(a, b)| a == b));
        items.push(if same {
            Item::measured(format!("first values of input {name}"), 0.0, 1.0)
        } else {
            Item::wrong(format!("first values of input {name}"), "the hash rule gives others")
        });
    }
    items
}

/// Module outputs, in the order of the modules' return; missing and surplus ones fail.
fn outputs<'m>(
    setup: &Setup,
    golden: &Golden,
    variant: Option<&str>,
    precision: Precision,
    read: impl Fn(&str) -> Option<&'m Measured>,
) -> Vec<Item> {
    let Some(tensors) = tensors(golden, variant) else { return Vec::new() };
    let taps: Vec<String> = setup.graph.taps.iter().map(zoo_graph::Tap::key).collect();
    let mut items: Vec<Item> =
        taps.iter().map(|tap| judge(tap, &format!("{OUT}{tap}"), golden, variant, tensors, precision, &read)).collect();
    let listed = tensors.keys().filter_map(|k| k.strip_prefix(OUT)).filter(|k| !setup.not_given.iter().any(|d| d == k));
    items.extend(
        listed.filter(|k| !taps.iter().any(|t| t == k)).map(|k| Item::wrong(k, "the recipe has no such module call")),
    );
    items
}

/// Gradients in the order in which the backward pass computes them; missing and surplus ones fail.
fn gradients<'m>(
    graph: &Graph,
    golden: &Golden,
    variant: Option<&str>,
    precision: Precision,
    read: impl Fn(&str) -> Option<&'m Measured>,
) -> Vec<Item> {
    let Some(tensors) = tensors(golden, variant) else { return Vec::new() };
    let place = |v: ValueId| match graph.value(v).source {
        zoo_graph::Source::Node(n, i) => (n.0, i),
        _ => (0, 0),
    };
    let mut ordered = graph.gradients.clone();
    ordered.sort_by_key(|(_, v)| place(*v));
    let names: Vec<&str> = ordered.iter().map(|(id, _)| graph.variable(*id).name.as_str()).collect();
    let mut items: Vec<Item> = names
        .iter()
        .map(|name| judge(name, &format!("{GRAD}{name}"), golden, variant, tensors, precision, &read))
        .collect();
    let listed = tensors.keys().filter_map(|k| k.strip_prefix(GRAD));
    items.extend(listed.filter(|k| !names.contains(k)).map(|k| Item::wrong(k, "the step computes no such gradient")));
    forgive_degenerate(&mut items, GRAD, tensors, precision, &read);
    items
}

/// One tensor against its truth.
fn judge<'m>(
    name: &str,
    key: &str,
    golden: &Golden,
    variant: Option<&str>,
    tensors: &BTreeMap<String, TensorFacts>,
    precision: Precision,
    read: &impl Fn(&str) -> Option<&'m Measured>,
) -> Item {
    let Some(facts) = tensors.get(key) else { return Item::wrong(name, "the reference has no such tensor") };
    let Some(found) = read(key) else { return Item::wrong(name, "was not computed") };
    if found.shape != facts.shape {
        let [ours, theirs] = [&found.shape, &facts.shape].map(|s| zoo_graph::Shape::from(s.as_slice()));
        return Item::wrong(name, format!("shape {ours}, the reference has {theirs}"));
    }
    match golden.samples(key, variant, facts.shape.iter().product()) {
        Ok(truth) => {
            let Distance { error, floor } = compare::compare(found, facts, &truth, precision);
            Item::measured(name, error, floor)
        }
        Err(error) => Item::wrong(name, error.to_string()),
    }
}

/// Degenerate tensors, whose truth is zero but for rounding, are only asked to be at rounding level.
fn forgive_degenerate<'m>(
    items: &mut [Item],
    prefix: &str,
    tensors: &BTreeMap<String, TensorFacts>,
    precision: Precision,
    read: &impl Fn(&str) -> Option<&'m Measured>,
) {
    let rms = |l2: f64, shape: &[usize]| l2 / (shape.iter().product::<usize>().max(1) as f64).sqrt();
    let of_stage = tensors.iter().filter(|(k, t)| k.starts_with(prefix) && !t.degenerate);
    let mut sizes: Vec<f64> = of_stage.map(|(_, t)| rms(t.l2, &t.shape)).collect();
    sizes.sort_by(f64::total_cmp);
    let Some(median) = sizes.get(sizes.len() / 2).copied() else { return };
    let eps = match precision {
        Precision::F64 => f64::EPSILON,
        Precision::F32 => f64::from(f32::EPSILON),
    };
    for item in items {
        let key = format!("{prefix}{}", item.name);
        if tensors.get(&key).is_some_and(|t| t.degenerate) {
            let size = read(&key).map_or(f64::INFINITY, |m| rms(m.stats.l2, &m.shape));
            let level = DEGENERATE_FACTOR * eps * median;
            *item = Item { counts: false, ..Item::measured(&item.name, size / level * precision.limit(), 1.0) };
        }
    }
}

/// The losses before update `n`; alternatives that the golden records beside (`loss_...`) are not components.
fn losses(result: &StepResult, golden: &Golden, variant: Option<&str>, n: usize, precision: Precision) -> Vec<Item> {
    let manifest = &golden.manifest;
    let (truth, rounded) = match variant.and_then(|v| manifest.variants.get(v)) {
        Some(v) => (&v.losses_f64, &v.losses_f32),
        None => (&manifest.losses_f64, &manifest.losses_f32),
    };
    let (Some(truth), Some(rounded)) = (truth.get(n), rounded.get(n)) else { return Vec::new() };
    let component = |name: &str| !name.starts_with("loss_") && !DIAGNOSTICS.contains(&name);
    let label = |name: &str| if n == 0 { name.to_string() } else { format!("{name} of step {}", n + 1) };
    let mut items = Vec::new();
    // What a step reports beside its losses counts where the golden knows it.
    let metrics = result.metrics.iter().filter(|(name, _)| truth.contains_key(name));
    let found = result.losses.iter().chain(metrics);
    for (name, found) in found.clone() {
        items.push(match truth.get(name) {
            Some(t) => {
                let scale = if *t == 0.0 { 1.0 } else { t.abs() };
                let rounding = rounded.get(name).map_or(0.0, |r| (r - t).abs() / scale);
                Item::measured(label(name), (found - t).abs() / scale, precision.floor(rounding, LOSS_FLOOR))
            }
            None => Item::wrong(label(name), "the reference has no such loss"),
        });
    }
    let missing = truth.keys().filter(|k| component(k) && !found.clone().any(|(name, _)| name == *k));
    items.extend(missing.map(|name| Item::wrong(label(name), "the recipe has no such loss")));
    items
}

/// Whether a quantity that is recorded with the losses is one of the gradients.
pub(crate) fn is_of_gradients(item: &Item) -> bool {
    ["grad_norm", "clip_coef"].contains(&item.name.as_str())
}

/// What the golden records of a step to say how well conditioned it is, and what is no quantity of the step: the distance
/// between the last picked negative's loss and the next one's.
const DIAGNOSTICS: [&str; 1] = ["ohem_gap_to_next"];

/// Changes of parameters since the start, momentum and running statistics after `steps` steps.
fn changes(step: &Step, golden: &Golden, steps: usize, precision: Precision) -> Result<Vec<Item>, GoldenError> {
    let manifest = &golden.manifest;
    let graph = step.graph();
    let has = |kind: &str| manifest.tensors.keys().any(|k| k.starts_with(&format!("{kind}{steps}/")));
    let mut items = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for (variable, tensor) in step.variables()? {
        let (key, is_parameter) = match &variable.role {
            VariableRole::Slot { parameter, slot: "momentum_buffer" } => {
                (format!("momentum{steps}/{}", graph.variable(*parameter).name), false)
            }
            VariableRole::Slot { .. } => continue,
            role if role.is_statistic() => (format!("buffer{steps}/{}", variable.name), false),
            _ => (format!("param{steps}/{}", variable.name), true),
        };
        let kind = key.split('/').next().unwrap_or_default().trim_end_matches(char::is_numeric);
        if !has(kind) {
            continue;
        }
        seen.push(key.clone());
        let Some(facts) = manifest.tensors.get(&key) else {
            let updated = manifest.optimizer.groups.iter().any(|g| g.params.contains(&variable.name));
            let untouched = !updated || manifest.parameters_without_gradient.contains(&variable.name);
            if !(untouched && variable.next.is_none()) {
                items.push(Item::wrong(&variable.name, "the reference has no such tensor"));
            }
            continue;
        };
        let now = to_f64(&tensor).map_err(zoo_engine::EngineError::from)?;
        let truth = golden.samples(&key, None, facts.shape.iter().product())?;
        if tensor.dims() != facts.shape {
            items.push(Item::wrong(&variable.name, "has another shape than the reference's"));
            continue;
        }
        let own_gradient = manifest.tensors.get(&format!("{GRAD}{}", variable.name));
        if is_parameter && own_gradient.is_some_and(|g| g.degenerate) && manifest.optimizer.betas.is_some() {
            let start = manifest.init.get(&variable.name);
            let start = start.map(|rule| weights::initial(rule, &manifest.salt, &variable.name, now.len()));
            items.push(bounded_change(&variable.name, &now, &start.unwrap_or_default(), steps, golden, precision));
            continue;
        }
        items.push(match (is_parameter, facts.delta_l2, facts.delta_f32_rel, manifest.init.get(&variable.name)) {
            (true, Some(delta_l2), Some(rounding), Some(rule)) => {
                let start = weights::initial(rule, &manifest.salt, &variable.name, now.len());
                change(&variable.name, &now, &start, &truth, delta_l2, precision.floor(rounding, TENSOR_FLOOR))
            }
            _ => {
                let samples = truth.positions.iter().map(|p| now[*p]).collect();
                let found = Measured { shape: facts.shape.clone(), stats: Stats::of(&now), samples };
                let Distance { error, floor } = compare::compare(&found, facts, &truth, precision);
                Item::measured(&variable.name, error, floor)
            }
        });
    }
    let kinds = ["param", "momentum", "buffer"].map(|k| format!("{k}{steps}/"));
    let listed = manifest.tensors.keys().filter(|k| kinds.iter().any(|p| k.starts_with(p)));
    items.extend(listed.filter(|k| !seen.contains(k)).map(|k| Item::wrong(k, "the step leaves no such tensor")));
    Ok(items)
}

/// Compares the change of a parameter: the parameter itself would hide errors of its small changes.
fn change(name: &str, now: &[f64], start: &[f32], truth: &Samples<'_>, delta_l2: f64, floor: f64) -> Item {
    let delta = |p: &usize| now[*p] - f64::from(start[*p]);
    let found: Vec<f64> = truth.positions.iter().map(delta).collect();
    let exact: Vec<f64> = truth.values.iter().zip(&truth.positions).map(|(t, p)| t - f64::from(start[*p])).collect();
    let l2 = (0..now.len()).map(|p| delta(&p).powi(2)).sum::<f64>().sqrt();
    let off = if delta_l2 > 0.0 { (l2 - delta_l2).abs() / delta_l2 } else { l2 };
    let sampled = compare::relative_l2(&found, &exact, delta_l2, now.len());
    // f64::max would drop a NaN.
    let error = if sampled.is_nan() || sampled > off { sampled } else { off };
    Item::measured(name, error, floor)
}

/// The change of a parameter whose gradient is nothing but rounding, under Adam: it divides the rounding by its own size, so
/// that the direction is chance, but no step is longer than the learning rate over `1 - beta1`.
fn bounded_change(name: &str, now: &[f64], start: &[f32], steps: usize, golden: &Golden, precision: Precision) -> Item {
    let optimizer = &golden.manifest.optimizer;
    let beta1 = optimizer.betas.map_or(0.0, |betas| betas.0);
    let longest = steps as f64 * optimizer.base_lr() / (1.0 - beta1);
    let largest = now.iter().zip(start).fold(0.0f64, |largest, (now, start)| {
        let change = (now - f64::from(*start)).abs();
        if change.is_nan() || change > largest { change } else { largest }
    });
    let complete = if now.len() == start.len() { largest / longest } else { f64::INFINITY };
    Item { counts: false, ..Item::measured(name, complete * precision.limit(), 1.0) }
}
