//! A network in training: the step with its variables, and how often it was run.

use candle_core::{Device, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use zoo_datasets::Batch;
use zoo_engine::{Arithmetic, Inputs, Observer, Options, Scalars, Step, StepResult, candle_dtype};
use zoo_graph::{BuildOptions, DType, EMA, Graph, LABEL, VariableRole};
use zoo_recipe::{Recipe, ResolvedModel, schema};

use crate::{TrainError, loss_scale::LossScale};

/// A network in training: one [`Step`], the same that the golden check runs, with the counter and the seed that make its
/// dropout reproducible.
pub struct Session {
    step: Step,
    seed: u64,
    done: u64,
    rule: schema::LossScale,
    loss_scale: LossScale,
}

impl Session {
    /// The recipe's step in the recipe's batch size, with initial variables.
    ///
    /// # Errors
    /// A recipe that makes no step, or one that the kernels cannot compute.
    pub fn start(recipe: &Recipe, model: &ResolvedModel, arithmetic: Option<&Arithmetic>) -> Result<Self, TrainError> {
        let step = initial(recipe, model, arithmetic, 0)?;
        let rule = if arithmetic.is_some() { recipe.npu.loss_scale.clone() } else { schema::LossScale::None };
        let loss_scale = LossScale::start(&rule);
        Ok(Self { rule, loss_scale, ..Self::new(step, recipe.train.seed) })
    }

    /// Goes on with the parts that are trained from this epoch on: another graph with the same weights, statistics and
    /// averages. The optimizer starts anew, as it does in the reference when parameters join it.
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
        let mut step = initial(recipe, model, arithmetic, epoch)?;
        let names: Vec<(String, VariableRole)> =
            step.graph().variables.iter().map(|v| (v.name.clone(), v.role.clone())).collect();
        for (name, role) in names {
            let from = match role {
                VariableRole::Slot { slot: EMA, .. } => match self.step.graph().find_variable(&name) {
                    Some(_) => name.as_str(),
                    // An average that begins now begins with the parameter as it is.
                    None => name.trim_end_matches(EMA).trim_end_matches('/'),
                },
                VariableRole::Slot { .. } => continue,
                _ => name.as_str(),
            };
            step.set_variable(&name, &self.step.variable(from)?)?;
        }
        self.step = step;
        Ok(())
    }

    /// Takes weights and running statistics of a file, as far as the network has them in the same shape. Returns how many,
    /// and the names of those in the file's part of the network that stay as they are.
    ///
    /// # Errors
    /// A file that cannot be read, or one with nothing for this network.
    pub fn init_from(&mut self, source: &schema::InitFrom) -> Result<(usize, Vec<String>), TrainError> {
        let tensors = candle_core::safetensors::load(&source.checkpoint, &Device::Cpu)?;
        let graph = self.step.graph();
        let kept = graph.variables.iter().filter(|v| !matches!(v.role, VariableRole::Slot { .. }));
        let wanted: Vec<(String, Vec<usize>)> = kept
            .filter(|v| source.source_of(&v.name).is_some())
            .map(|v| (v.name.clone(), graph.ty(v.value).shape.to_vec()))
            .collect();
        let (mut taken, mut left) = (0, Vec::new());
        for (name, shape) in wanted {
            let found = source.source_of(&name).and_then(|theirs| tensors.get(theirs));
            match found.filter(|tensor| tensor.dims() == shape) {
                Some(tensor) => {
                    let tensor = tensor.to_dtype(candle_core::DType::F32)?;
                    self.step.set_variable(&name, &tensor)?;
                    let average = format!("{name}/{EMA}");
                    if self.step.graph().find_variable(&average).is_some() {
                        self.step.set_variable(&average, &tensor)?;
                    }
                    taken += 1;
                }
                None => left.push(name),
            }
        }
        if taken == 0 {
            let file = source.checkpoint.display();
            return Err(TrainError::Variables(format!("{file} has nothing that this network could start from")));
        }
        Ok((taken, left))
    }

    /// Training with a step that has its variables already, whatever it was built from.
    pub fn new(step: Step, seed: u64) -> Self {
        let rule = schema::LossScale::None;
        Self { step, seed, done: 0, loss_scale: LossScale::start(&rule), rule }
    }

    /// The loss scale, and how many updates were left out.
    pub fn loss_scale(&self) -> LossScale {
        self.loss_scale
    }

    /// Steps done.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The step.
    pub fn step(&self) -> &Step {
        &self.step
    }

    /// The step, for setting variables.
    pub fn step_mut(&mut self) -> &mut Step {
        &mut self.step
    }

    /// One update with the given inputs and learning rate; an observer sees the values it wants.
    ///
    /// # Errors
    /// Inputs that do not fit, or a node that cannot be computed; what the variables hold then is up to the kernels.
    pub fn train_step(
        &mut self,
        inputs: &Inputs,
        learning_rate: f64,
        observer: &mut dyn Observer,
    ) -> Result<StepResult, TrainError> {
        let LossScale { scale, skipped, .. } = self.loss_scale;
        let scalars = Scalars { learning_rate, step: self.done, seed: self.seed, skipped, loss_scale: scale };
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
    pub fn train_batch(&mut self, batch: Batch, learning_rate: f64) -> Result<StepResult, TrainError> {
        let Batch { images, labels, .. } = batch;
        let labels = Tensor::from_vec(labels, labels_len(self.step.graph())?, &Device::Cpu)?;
        let inputs = image_input(self.step.graph(), images)?.with(LABEL, labels);
        self.train_step(&inputs, learning_rate, &mut ())
    }

    /// All variables by name.
    ///
    /// # Errors
    /// What the engine cannot bring into row-major order.
    pub fn variables(&self) -> Result<BTreeMap<String, Tensor>, TrainError> {
        Ok(self.step.variables()?.into_iter().map(|(variable, tensor)| (variable.name.clone(), tensor)).collect())
    }

    /// Goes back, or on, to a state that [`Session::variables`] gave after `done` steps.
    ///
    /// # Errors
    /// Variables that are missing, unknown, or of another shape or type.
    pub fn restore(
        &mut self,
        variables: &BTreeMap<String, Tensor>,
        done: u64,
        loss_scale: Option<LossScale>,
    ) -> Result<(), TrainError> {
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
        for (name, tensor) in variables {
            self.step.set_variable(name, tensor)?;
        }
        self.done = done;
        self.loss_scale = loss_scale.unwrap_or_else(|| LossScale::start(&self.rule));
        Ok(())
    }
}

/// The recipe's step with the parts that are trained from an epoch on, with initial variables.
fn initial(
    recipe: &Recipe,
    model: &ResolvedModel,
    arithmetic: Option<&Arithmetic>,
    epoch: usize,
) -> Result<Step, TrainError> {
    let options = BuildOptions { epoch, ..BuildOptions::train(recipe.train.batch) };
    let graph = zoo_graph::build(recipe, model, &options)?;
    let mut step = match arithmetic {
        Some(arithmetic) => Step::simulated(graph, Options::of(recipe), arithmetic)?,
        None => Step::new(graph, Options::of(recipe))?,
    };
    step.initialize(recipe.train.seed)?;
    Ok(step)
}

/// Images of a batch as the graph's first input, in its shape and element type.
pub(crate) fn image_input(graph: &Graph, images: Vec<f32>) -> Result<Inputs, TrainError> {
    let input = graph.inputs.first().ok_or_else(|| TrainError::Mismatch("the network has no input".into()))?;
    let ty = graph.ty(input.value);
    if ty.shape.numel() != images.len() || !ty.dtype.is_float() {
        let message = format!("`{}` is {ty}, but a batch has {} numbers", input.name, images.len());
        return Err(TrainError::Mismatch(message));
    }
    let tensor = Tensor::from_vec(images, ty.shape.to_vec(), &Device::Cpu)?;
    let tensor = if ty.dtype == DType::F32 { tensor } else { tensor.to_dtype(candle_dtype(ty.dtype))? };
    Ok(Inputs::new().with(input.name.clone(), tensor))
}

/// How many labels a step takes.
fn labels_len(graph: &Graph) -> Result<usize, TrainError> {
    let label = graph.inputs.iter().find(|input| input.name == LABEL);
    let label = label.ok_or_else(|| TrainError::Mismatch("the step takes no labels".into()))?;
    Ok(graph.ty(label.value).shape.numel())
}
