//! A recipe's step under the conditions of the golden to which it is bound.

use crate::{GoldenError, compare::Precision, conditions::overridden, golden::Golden, weights};
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use zoo_engine::{Arithmetic, Inputs, Kernels, Options, Scalars, Step};
use zoo_graph::{Graph, GraphError, Shape, Variable, VariableRole};
use zoo_recipe::{BuildOptions, MIXED_LABEL, Mode, Recipe, ResolvedLayer, ResolvedModel};

/// Plants a mistake; returns `false` if it cannot be planted.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    Recipe(fn(&mut Recipe) -> bool),
    Model(fn(&mut ResolvedModel) -> bool),
    Graph(fn(&mut Graph) -> bool),
}

/// A recipe's step, and the golden that determines its conditions.
pub(crate) struct Bound {
    /// The main run, or the variant that the recipe names.
    pub golden: Golden,
    /// The recipe with the settings that the golden determines.
    pub recipe: Recipe,
    /// The step before any pass.
    pub graph: Graph,
    pub precision: Precision,
    /// Kernels and threads: in f64 the reference kernels, whichever the training uses.
    pub engine: Options,
}

impl Bound {
    /// Builds the step.
    ///
    /// # Errors
    /// A recipe whose layers do not fit each other under these conditions, or whose inputs the golden does not have.
    pub fn new(recipe: &Recipe, golden: &Golden, precision: Precision, engine: Options) -> Result<Self, GoldenError> {
        let golden = golden_of(recipe, golden)?;
        let recipe = under_conditions(recipe, &golden);
        let model = resolve(&recipe)?;
        Self::build(golden, recipe, &model, precision, engine)
    }

    /// The same with a fault in the model or the graph; `None` if it cannot be planted.
    ///
    /// # Errors
    /// As [`Bound::new`].
    pub fn with_fault(
        recipe: &Recipe,
        golden: &Golden,
        precision: Precision,
        engine: Options,
        fault: Option<Fault>,
    ) -> Result<Option<Self>, GoldenError> {
        let golden = golden_of(recipe, golden)?;
        let recipe = under_conditions(recipe, &golden);
        let mut model = resolve(&recipe)?;
        if let Some(Fault::Model(plant)) = fault
            && !plant(&mut model)
        {
            return Ok(None);
        }
        let mut bound = Self::build(golden, recipe, &model, precision, engine)?;
        let planted = if let Some(Fault::Graph(plant)) = fault { plant(&mut bound.graph) } else { true };
        Ok(planted.then_some(bound))
    }

    /// Another recipe under the same conditions: a variant of this one.
    ///
    /// # Errors
    /// As [`Bound::new`].
    pub fn variant(&self, recipe: Recipe) -> Result<Self, GoldenError> {
        let model = resolve(&recipe)?;
        Self::build(self.golden.clone(), recipe, &model, self.precision, self.engine)
    }

    /// The same step in f32.
    ///
    /// # Errors
    /// As [`Bound::new`].
    pub fn in_f32(&self, engine: Options) -> Result<Self, GoldenError> {
        let model = resolve(&self.recipe)?;
        Self::build(self.golden.clone(), self.recipe.clone(), &model, Precision::F32, engine)
    }

    fn build(
        golden: Golden,
        recipe: Recipe,
        model: &ResolvedModel,
        precision: Precision,
        engine: Options,
    ) -> Result<Self, GoldenError> {
        let graph = zoo_recipe::build(&recipe, model, &build_options(&recipe, model, &golden, precision))?;
        expect_inputs(&graph, &golden)?;
        let engine = match precision {
            Precision::F64 => Options { kernels: Kernels::Reference, ..engine },
            Precision::F32 => engine,
        };
        Ok(Self { golden, recipe, graph, precision, engine })
    }

    /// The step at its start.
    ///
    /// # Errors
    /// An operator that the kernels do not have.
    pub fn step(&self) -> Result<Step, GoldenError> {
        self.at_start(Step::new(self.graph.clone(), self.engine)?)
    }

    /// The step with the arithmetic of a device, at its start, with the scalars of its first step. It does not skip an
    /// update because of an overflow.
    ///
    /// # Errors
    /// An operator that the device does not have.
    pub fn simulated(&self, arithmetic: &Arithmetic, loss_scale: f64) -> Result<(Step, Scalars), GoldenError> {
        let arithmetic = Arithmetic { skips_overflow: false, ..arithmetic.clone() };
        let step = Step::simulated(self.graph.clone(), self.engine.without_fusion(), &arithmetic)?;
        Ok((self.at_start(step)?, Scalars { loss_scale, ..self.scalars(0) }))
    }

    /// Gives a step the golden's initial values.
    ///
    /// # Errors
    /// A step with other variables.
    pub fn at_start(&self, mut step: Step) -> Result<Step, GoldenError> {
        set_weights(&mut step, &self.golden, false)?;
        Ok(step)
    }

    /// The golden's inputs.
    ///
    /// # Errors
    /// Values that cannot be made, or that are no classes where the step needs classes.
    pub fn inputs(&self) -> Result<Inputs, GoldenError> {
        inputs(&self.golden, &self.graph)
    }

    /// Scalars of a step. All steps of a golden have the same learning rate.
    pub fn scalars(&self, step: u64) -> Scalars {
        Scalars { learning_rate: self.golden.manifest.optimizer.base_lr(), step, seed: 0, ..Scalars::default() }
    }

    /// Outputs of the reference's network that, as the recipe declares, it does not have.
    pub fn not_given(&self) -> Vec<&str> {
        self.recipe
            .golden
            .iter()
            .flat_map(|golden| &golden.declares)
            .map(|difference| difference.path.as_str())
            .collect()
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

/// The golden to which the recipe is bound: the main run, or a variant with another optimizer.
fn golden_of(recipe: &Recipe, golden: &Golden) -> Result<Golden, GoldenError> {
    match recipe.golden.as_ref().and_then(|golden| golden.variant.as_deref()) {
        Some(variant) => golden.bound_to(variant),
        None => Ok(golden.clone()),
    }
}

/// The recipe with the settings that the golden determines, except those set on the command line.
fn under_conditions(recipe: &Recipe, golden: &Golden) -> Recipe {
    let mut recipe = with_parts_of_golden(recipe);
    // Classes are the last axis of samples and tokens, and the first axis after the batch for pixels.
    if let Some([_, classes, _, _] | [_, .., classes]) =
        golden.manifest.tensors.get("out/@root#0").map(|t| t.shape.as_slice())
        && !overridden(&recipe, "model.classes")
    {
        recipe.model.classes = *classes;
    }
    if !golden.manifest.inputs.contains_key(MIXED_LABEL) {
        recipe.preprocess.mix = None;
    }
    let spans = recipe.spans.clone();
    for (name, shape) in &mut recipe.model.inputs {
        let path = zoo_recipe::ConfigPath::from(format!("model.inputs.{name}").as_str());
        let Some(input) = golden.manifest.inputs.get(name) else { continue };
        if let ([_, extents @ ..], false) = (input.shape.as_slice(), spans.get(&path).is_override()) {
            shape.set(extents);
        }
    }
    recipe
}

/// The recipe, with the trained parts that its golden section names.
pub(crate) fn with_parts_of_golden(recipe: &Recipe) -> Recipe {
    let mut recipe = recipe.clone();
    if let Some(parts) = recipe.golden.as_ref().and_then(|golden| golden.parts.clone())
        && !overridden(&recipe, "train.parts")
    {
        recipe.train.parts = parts;
    }
    recipe
}

/// Options for the step's graph under the golden's conditions: its batch, and no dropout unless set on the command
/// line.
pub(crate) fn build_options(
    recipe: &Recipe,
    model: &ResolvedModel,
    golden: &Golden,
    precision: Precision,
) -> BuildOptions {
    let batch = golden.manifest.inputs.values().filter_map(|i| i.shape.first().copied()).next().unwrap_or(1);
    let dtype = match precision {
        Precision::F64 => zoo_graph::DType::F64,
        Precision::F32 => zoo_graph::DType::F32,
    };
    BuildOptions { mode: Mode::Train, batch, dtype, dropout: chance_overridden(recipe, &model.body), epoch: 0 }
}

/// Whether the command line sets a probability of a random layer. Goldens leave such layers out.
fn chance_overridden(recipe: &Recipe, layers: &[ResolvedLayer]) -> bool {
    layers.iter().any(|layer| {
        let path = |key| layer.path.key(layer.kind.tag()).key(key);
        layer.kind.chance().is_some_and(|key| recipe.span_of(&path(key)).is_override())
            || layer.kind.describe().inside().into_iter().any(|inside| chance_overridden(recipe, inside))
    })
}

fn resolve(recipe: &Recipe) -> Result<ResolvedModel, GoldenError> {
    recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))
}

/// The golden's inputs, with the types of the graph.
fn inputs(golden: &Golden, graph: &Graph) -> Result<Inputs, GoldenError> {
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
    let unknown = || crate::error::malformed(&golden.path, format!("input `{name}` has values that are no classes"));
    values.iter().map(index).collect::<Option<_>>().ok_or_else(unknown)
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
