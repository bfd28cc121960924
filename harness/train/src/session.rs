//! A network in training: the step with its variables, and a step counter.

use candle_core::Tensor;
use std::collections::{BTreeMap, BTreeSet};
use zoo_engine::{Arithmetic, Inputs, Observer, Options, Scalars, Step, StepResult};
use zoo_graph::{
    EMA, Graph, VariableRole,
    ops::{Assign, Op, Update},
};
use zoo_ranks::Ranks;
use zoo_recipe::{BuildOptions, Recipe, ResolvedModel, schema};
use zoo_tasks::Batch;

use crate::{
    TrainError,
    checkpoint::{Checkpoint, Progress},
    inputs::inputs,
    lookahead::SlowWeights,
    loss_scale::LossScale,
    weights::{Fit, Naming, Weights},
};

/// A network in training: one [`Step`], the same as in the golden check, with the counter and the seed that make its
/// dropout reproducible.
pub struct Session {
    step: Step,
    seed: u64,
    done: u64,
    rule: schema::LossScale,
    loss_scale: LossScale,
    /// Updates before the last reset of the optimizer, which its bias correction does not count.
    updates_before_reset: u64,
    /// Empty without `train.lookahead`.
    slow: SlowWeights,
    ranks: Ranks,
}

impl Session {
    /// The recipe's step with the recipe's batch size and initial variables.
    ///
    /// # Errors
    /// A recipe from which no step can be built, or one that the kernels cannot compute.
    pub fn start(recipe: &Recipe, model: &ResolvedModel, arithmetic: Option<&Arithmetic>) -> Result<Self, TrainError> {
        Self::across(recipe, model, arithmetic, Ranks::alone())
    }

    /// As [`Session::start`], for one of several ranks that share each batch. Its step processes this rank's part of
    /// the batch, and updates with the gradients of all ranks.
    ///
    /// # Errors
    /// As [`Session::start`], and a batch that the ranks cannot share.
    pub fn across(
        recipe: &Recipe,
        model: &ResolvedModel,
        arithmetic: Option<&Arithmetic>,
        ranks: Ranks,
    ) -> Result<Self, TrainError> {
        let step = step(graph(recipe, model, 0, &ranks)?, recipe, arithmetic, 0, &ranks)?;
        let rule = if arithmetic.is_some() { recipe.npu.loss_scale.clone() } else { schema::LossScale::None };
        let loss_scale = LossScale::start(&rule);
        Ok(Self { rule, loss_scale, ranks, ..Self::new(step, recipe.train.seed) })
    }

    /// Switches to the parts that are trained from this epoch on: another graph with the same weights, statistics and
    /// averages. If parameters join, the optimizer is reset, as in the reference of SiamMask: its slots, and its count
    /// of updates.
    ///
    /// # Errors
    /// As [`Session::start`].
    pub fn enter(
        &mut self,
        recipe: &Recipe,
        model: &ResolvedModel,
        arithmetic: Option<&Arithmetic>,
        epoch: usize,
    ) -> Result<(), TrainError> {
        let graph = graph(recipe, model, epoch, &self.ranks)?;
        let names: Vec<(String, VariableRole)> =
            graph.variables.iter().map(|v| (v.name.clone(), v.role.clone())).collect();
        let known = |name: &str| self.step.graph().find_variable(name).is_some();
        let join = names.iter().any(|(name, role)| matches!(role, VariableRole::Slot { .. }) && !known(name));
        let before = if join { self.done - self.loss_scale.skipped } else { self.updates_before_reset };
        let mut step = step(graph, recipe, arithmetic, before, &self.ranks)?;
        for (name, role) in names {
            let from = match role {
                VariableRole::Average { parameter } => match self.step.graph().find_variable(&name) {
                    Some(_) => name.clone(),
                    // An average that starts now has the current value of the parameter.
                    None => step.graph().variable(parameter).name.clone(),
                },
                VariableRole::Slot { .. } if join => continue,
                VariableRole::Slot { .. }
                | VariableRole::Weight
                | VariableRole::Bias
                | VariableRole::NormWeight
                | VariableRole::NormBias
                | VariableRole::RunningMean
                | VariableRole::RunningVar => name.clone(),
            };
            step.set_variable(&name, &self.step.variable(&from)?)?;
        }
        self.step = step;
        self.updates_before_reset = before;
        Ok(())
    }

    /// Prepares for [`Session::restore`] of a training that has entered the parts of this epoch.
    ///
    /// # Errors
    /// As [`Session::start`].
    pub(crate) fn reenter(
        &mut self,
        recipe: &Recipe,
        model: &ResolvedModel,
        arithmetic: Option<&Arithmetic>,
        epoch: usize,
        progress: &Progress,
    ) -> Result<(), TrainError> {
        let graph = graph(recipe, model, epoch, &self.ranks)?;
        self.step = step(graph, recipe, arithmetic, progress.updates_before_reset, &self.ranks)?;
        Ok(())
    }

    /// Loads weights and running statistics from a file, or from the newest checkpoint in a run folder, if the network
    /// has them with the same shape. Their moving averages start from the loaded values.
    ///
    /// # Errors
    /// A file that cannot be read, or that contains nothing for this network.
    pub fn init_from(&mut self, source: &schema::InitFrom) -> Result<Fit, TrainError> {
        let weights = Weights::read(&source.checkpoint, None, self.step.graph(), &Naming::from(source))?;
        let Weights { fit, tensors, .. } = weights;
        if !fit.not_finite.is_empty() || !fit.untied.is_empty() {
            return Err(TrainError::Misfit(Box::new(fit)));
        }
        for name in &fit.taken {
            let Some(tensor) = tensors.get(name) else { continue };
            self.set(name, tensor)?;
        }
        if fit.taken.is_empty() {
            let file = fit.file.display();
            let hint = fit.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            return Err(TrainError::Variables(format!("{file} has no tensors that fit this network{hint}")));
        }
        Ok(fit)
    }

    /// Training with a step whose variables are already initialised.
    pub fn new(step: Step, seed: u64) -> Self {
        let rule = schema::LossScale::None;
        let (loss_scale, slow) = (LossScale::start(&rule), SlowWeights::default());
        Self { step, seed, done: 0, loss_scale, rule, updates_before_reset: 0, slow, ranks: Ranks::alone() }
    }

    /// Replaces the initial value of a parameter or statistic, and of its average.
    ///
    /// # Errors
    /// There is no such parameter, or it has another shape.
    pub(crate) fn set(&mut self, parameter: &str, value: &Tensor) -> Result<(), TrainError> {
        self.step.set_variable(parameter, value)?;
        let average = format!("{parameter}/{EMA}");
        if self.step.graph().find_variable(&average).is_some() {
            self.step.set_variable(&average, value)?;
        }
        Ok(())
    }

    /// Starts the slow weights of `train.lookahead` from the current weights.
    ///
    /// # Errors
    /// Errors of the engine while it converts values to row-major order.
    pub fn start_lookahead(&mut self) -> Result<(), TrainError> {
        self.slow = SlowWeights::of(&self.step)?;
        Ok(())
    }

    /// Changes the slow weights, of which the share `decay` is kept, and continues from them.
    ///
    /// # Errors
    /// Errors of the engine while it converts values.
    pub fn look_back(&mut self, decay: f64) -> Result<(), TrainError> {
        self.slow.pull(&mut self.step, decay)
    }

    /// The loss scale, and the number of skipped updates.
    pub fn loss_scale(&self) -> LossScale {
        self.loss_scale
    }

    /// Updates before the last reset of the optimizer.
    pub fn updates_before_reset(&self) -> u64 {
        self.updates_before_reset
    }

    /// Steps done.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The step.
    pub fn step(&self) -> &Step {
        &self.step
    }

    /// One update with the given inputs and learning rate; an observer sees the values it wants.
    ///
    /// # Errors
    /// Inputs that do not fit, or a node that cannot be computed; the variables are then unspecified.
    pub fn train_step(
        &mut self,
        inputs: &Inputs,
        learning_rate: f64,
        observer: &mut dyn Observer,
    ) -> Result<StepResult, TrainError> {
        let LossScale { scale, skipped, .. } = self.loss_scale;
        // Steps that the optimizer does not count. The number of the step stays, because dropout is drawn from it.
        let skipped = skipped + self.updates_before_reset;
        let part = self.ranks.rank() as u64;
        let scalars = Scalars { learning_rate, step: self.done, seed: self.seed, skipped, loss_scale: scale, part };
        let result = self.step.run(inputs, scalars, observer)?;
        self.done += 1;
        let overflow = self.step.findings().is_some_and(|findings| findings.overflow);
        self.loss_scale = self.loss_scale.after(&self.rule, overflow, result.skipped);
        Ok(result)
    }

    /// One update with a full batch of the loader.
    ///
    /// # Errors
    /// As [`Session::train_step`].
    pub fn train_batch(
        &mut self,
        batch: Batch,
        learning_rate: f64,
        observer: &mut dyn Observer,
    ) -> Result<StepResult, TrainError> {
        let inputs = inputs(self.step.graph(), batch.fields)?;
        self.train_step(&inputs, learning_rate, observer)
    }

    /// All variables by name, and the slow weights.
    ///
    /// # Errors
    /// Errors of the engine while it converts values to row-major order.
    pub fn variables(&self) -> Result<BTreeMap<String, Tensor>, TrainError> {
        let own = self.step.variables()?.into_iter().map(|(variable, tensor)| (variable.name.clone(), tensor));
        Ok(own.chain(self.slow.named()).collect())
    }

    /// Restores the state in a checkpoint.
    ///
    /// # Errors
    /// Variables are missing, unknown, or have another shape or type.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let Progress { step, loss_scale, updates_before_reset, .. } = checkpoint.progress;
        let mut variables = checkpoint.variables.clone();
        let slow = SlowWeights::take(&mut variables);
        let own: BTreeSet<String> = self.step.graph().variables.iter().map(|v| v.name.clone()).collect();
        let given: BTreeSet<String> = variables.keys().cloned().collect();
        let list = |names: Vec<&String>| names.into_iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let missing: Vec<&String> = own.difference(&given).collect();
        let unknown: Vec<&String> = given.difference(&own).collect();
        if !missing.is_empty() {
            return Err(TrainError::Variables(format!("it lacks {}", list(missing))));
        }
        if !unknown.is_empty() {
            return Err(TrainError::Variables(format!("the network has no {}", list(unknown))));
        }
        for (name, tensor) in &variables {
            self.step.set_variable(name, tensor)?;
        }
        self.slow = slow;
        self.done = step;
        self.loss_scale = loss_scale.unwrap_or_else(|| LossScale::start(&self.rule));
        self.updates_before_reset = updates_before_reset;
        Ok(())
    }
}

/// The graph of the recipe's step with the parts that are trained from this epoch on.
fn graph(recipe: &Recipe, model: &ResolvedModel, epoch: usize, ranks: &Ranks) -> Result<Graph, TrainError> {
    let (batch, size) = (recipe.train.batch, ranks.size());
    if !batch.is_multiple_of(size) {
        return Err(TrainError::Share { batch, ranks: size });
    }
    let options = BuildOptions { epoch, ..BuildOptions::train(batch / size) };
    let mut graph = zoo_recipe::build(recipe, model, &options)?;
    zoo_recipe::across(size, recipe).run(&mut graph, None)?;
    Ok(graph)
}

/// The step of this graph with initial variables. Its optimizer does not count the updates `before` its last reset.
fn step(
    mut graph: Graph,
    recipe: &Recipe,
    arithmetic: Option<&Arithmetic>,
    before: u64,
    ranks: &Ranks,
) -> Result<Step, TrainError> {
    if let Some(decay) = recipe.train.ema.filter(|_| recipe.train.ema_warmup && before > 0) {
        continue_warmup(&mut graph, decay, before);
    }
    let mut step = match arithmetic {
        Some(arithmetic) => Step::simulated(graph, Options::of(recipe), arithmetic)?,
        None => Step::new(graph, Options::of(recipe))?,
    };
    step.join(ranks.clone());
    step.initialize(recipe.train.seed)?;
    Ok(step)
}

/// Makes the averages count the updates `before` the last reset of the optimizer too: they are not reset.
fn continue_warmup(graph: &mut Graph, decay: f64, before: u64) {
    for node in &mut graph.nodes {
        if let Op::Assign(assign) = &mut node.op
            && assign.update == Update::Average
        {
            *assign = Assign::average_with_warmup(decay, before);
        }
    }
}
