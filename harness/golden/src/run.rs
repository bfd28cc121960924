//! Runs three steps under a golden's conditions, and its variants, and compares each tensor.

use crate::{
    GoldenError,
    bound::{Bound, set_weights},
    compare::{Precision, repeats},
    golden::{GRAD, Golden, LIFTED, OUT},
    items,
    kernels::Judge,
    probe::{Probe, Reading},
    report::{Item, Stage},
    variants,
};
use std::collections::{BTreeMap, HashMap};
use zoo_engine::{Inputs, Step};
use zoo_graph::{Graph, Phase, TapState, ValueId};
use zoo_recipe::Recipe;

/// A run with all its comparisons.
pub(crate) struct Run<'a> {
    bound: &'a Bound,
    pub step: Step,
    inputs: Inputs,
    /// What was compared, in the order of the step.
    pub items: BTreeMap<Stage, Vec<Item>>,
    /// Module outputs that fusions absorbed; their items come from the unfused run.
    pub fused: Vec<String>,
    /// Total loss of the first step.
    pub first_loss: Option<f64>,
    /// The graph value of each item.
    pub values: HashMap<(Stage, String), ValueId>,
}

impl<'a> Run<'a> {
    /// Prepares a run.
    pub fn new(bound: &'a Bound) -> Result<Self, GoldenError> {
        let step = bound.step()?;
        Ok(Self {
            inputs: bound.inputs()?,
            items: BTreeMap::new(),
            fused: fused_taps(step.graph()).map(|(key, pass)| format!("{key} ({pass})")).collect(),
            first_loss: None,
            values: values(&bound.graph),
            bound,
            step,
        })
    }

    /// Forward, loss, backward and update of the first step.
    pub fn first_step(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), GoldenError> {
        let (bound, precision) = (self.bound, self.bound.precision);
        let (golden, scalars) = (&bound.golden, bound.scalars(0));
        progress(&format!("step 1 of {}", golden.manifest.losses_f64.len()));
        let mut probe = probe(self.step.graph(), golden, None, |_| true)?;
        let result = match precision {
            Precision::F64 => self.step.run(&self.inputs, scalars, &mut probe)?,
            Precision::F32 => {
                let graph = self.step.graph().clone();
                let mut judge = Judge::new(&graph, bound.engine, scalars, probe);
                let result = self.step.run(&self.inputs, scalars, &mut judge)?;
                let kernels;
                (probe, kernels) = judge.finish()?;
                self.items.insert(Stage::Kernels, kernels.into_iter().map(|(_, item)| item).collect());
                result
            }
        };
        self.first_loss = result.losses.first().map(|l| l.1);
        let read = |key: &str| probe.measured(key);
        let outputs = items::outputs(&bound.graph, &bound.not_given(), golden, None, precision, read);
        let (of_losses, forward): (Vec<Item>, _) = outputs.into_iter().partition(|item| self.is_of_losses(item));
        let (mut update, mut loss): (Vec<Item>, Vec<Item>) =
            items::losses(&result, golden, None, 0, precision).into_iter().partition(items::is_of_gradients);
        loss.extend(of_losses);
        update.extend(items::changes(&self.step, golden, 1, precision)?);
        let backward = items::gradients(&bound.graph, golden, None, precision, read);
        self.items.extend([
            (Stage::Forward, forward),
            (Stage::Loss, loss),
            (Stage::Backward, backward),
            (Stage::Update, update),
        ]);
        if !self.fused.is_empty() {
            progress("unfused step");
            self.cover_fused()?;
        }
        Ok(())
    }

    /// The steps after the first, the lifted variant if the golden has it, and the losses of other variants. `recipe`
    /// is the recipe as written.
    pub fn later_steps(&mut self, recipe: &Recipe, progress: &mut dyn FnMut(&str)) -> Result<(), GoldenError> {
        let trajectory = self.trajectory(progress)?;
        let lifted = self.lifted(progress)?;
        let mut variants = Vec::new();
        for (variant, recipe) in variants::recipes(recipe, &self.bound.recipe, &self.bound.golden) {
            progress(variant);
            variants.extend(losses(&self.bound.variant(recipe)?, variant)?);
        }
        self.items.extend([(Stage::Trajectory, trajectory), (Stage::Lifted, lifted), (Stage::Variants, variants)]);
        Ok(())
    }

    fn trajectory(&mut self, progress: &mut dyn FnMut(&str)) -> Result<Vec<Item>, GoldenError> {
        let Bound { golden, precision, .. } = self.bound;
        let steps = golden.manifest.losses_f64.len();
        let mut items = Vec::new();
        for n in 1..steps {
            progress(&format!("step {} of {steps}", n + 1));
            let result = self.step.run(&self.inputs, self.bound.scalars(n as u64), &mut ())?;
            items.extend(items::losses(&result, golden, None, n, *precision));
        }
        if steps > 1 {
            items.extend(items::changes(&self.step, golden, steps, *precision)?);
        }
        Ok(items)
    }

    fn lifted(&mut self, progress: &mut dyn FnMut(&str)) -> Result<Vec<Item>, GoldenError> {
        let (bound, precision) = (self.bound, self.bound.precision);
        let golden = &bound.golden;
        if !golden.manifest.variants.contains_key(LIFTED) {
            return Ok(Vec::new());
        }
        progress("lifted variant");
        set_weights(&mut self.step, golden, true)?;
        let mut probe = probe(self.step.graph(), golden, Some(LIFTED), |_| true)?;
        let result = self.step.run(&self.inputs, bound.scalars(0), &mut probe)?;
        let read = |key: &str| probe.measured(key);
        let fused: Vec<String> = fused_taps(self.step.graph()).map(|(key, _)| key).collect();
        // Outputs that a fusion absorbs are judged in the unfused run of the main step.
        let mut items = items::outputs(&bound.graph, &bound.not_given(), golden, Some(LIFTED), precision, read);
        items.retain(|i| !fused.contains(&i.name));
        items.extend(items::losses(&result, golden, Some(LIFTED), 0, precision));
        items.extend(items::gradients(&bound.graph, golden, Some(LIFTED), precision, read));
        Ok(items)
    }

    /// Whether an item with this name exists and passes.
    pub fn passed(&self, stage: Stage, name: &str) -> bool {
        let limit = self.bound.precision.limit();
        self.items.get(&stage).is_some_and(|items| items.iter().any(|i| i.name == name && i.ratio <= limit))
    }

    /// Whether an output of the reference's network is a loss or part of one: some networks compute their own.
    fn is_of_losses(&self, item: &Item) -> bool {
        let value = self.values.get(&(Stage::Forward, item.name.clone()));
        value.and_then(|v| self.bound.graph.producer(*v)).is_some_and(|node| node.phase == Phase::Loss)
    }

    /// Judges the module outputs that fusions absorbed, with a step without fusion.
    fn cover_fused(&mut self) -> Result<(), GoldenError> {
        let bound = self.bound;
        let mut step = bound.at_start(Step::new(bound.graph.forward(), bound.engine.without_fusion())?)?;
        let absorbed: Vec<String> = fused_taps(self.step.graph()).map(|(key, _)| key).collect();
        let mut probe = probe(step.graph(), &bound.golden, None, |tap| absorbed.contains(tap))?;
        step.run(&self.inputs, bound.scalars(0), &mut probe)?;
        let read = |key: &str| probe.measured(key);
        let unfused = items::outputs(&bound.graph, &bound.not_given(), &bound.golden, None, bound.precision, read);
        for (item, covered) in self.items.entry(Stage::Forward).or_default().iter_mut().zip(unfused) {
            if absorbed.contains(&item.name) && item.name == covered.name {
                *item = covered;
            }
        }
        Ok(())
    }
}

/// The value of a graph for each item.
fn values(graph: &Graph) -> HashMap<(Stage, String), ValueId> {
    let outputs = graph.taps.iter().filter_map(|tap| match tap.state {
        TapState::Value(value) => Some(((Stage::Forward, tap.key()), value)),
        TapState::Fused(_) => None,
    });
    let losses = graph.losses.iter().map(|(name, value)| ((Stage::Loss, name.clone()), *value));
    let gradients =
        graph.gradients.iter().map(|(id, value)| ((Stage::Backward, graph.variable(*id).name.clone()), *value));
    let changes = graph.variables.iter().flat_map(|variable| {
        let of = |stage| variable.next.map(|next| ((stage, variable.name.clone()), next));
        [of(Stage::Update), of(Stage::Trajectory)].into_iter().flatten()
    });
    outputs.chain(losses).chain(gradients).chain(changes).collect()
}

/// Losses, step by step, of a variant for which the golden records nothing else.
fn losses(bound: &Bound, variant: &str) -> Result<Vec<Item>, GoldenError> {
    let golden = &bound.golden;
    let steps = golden.manifest.variants.get(variant).map_or(0, |v| v.losses_f64.len());
    let (mut step, inputs) = (bound.step()?, bound.inputs()?);
    let mut items = Vec::new();
    for n in 0..steps {
        let result = step.run(&inputs, bound.scalars(n as u64), &mut ())?;
        items.extend(items::losses(&result, golden, Some(variant), n, bound.precision));
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
            let mut positions = golden.samples(&key, variant, facts.shape.iter().product())?.positions;
            let shape = &graph.ty(value).shape;
            if key.starts_with(OUT) && repeats(shape, &facts.shape).is_some() {
                positions.iter_mut().for_each(|place| *place %= shape.numel());
            }
            probe.ask(value, Reading { key, positions });
        }
    }
    Ok(probe)
}
