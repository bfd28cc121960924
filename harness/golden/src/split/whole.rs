//! The step on one device, before it runs.

use super::{LEARNING_RATE, SplitOptions};
use crate::{
    GoldenError, Precision,
    bound::{self, Bound, with_parts_of_golden},
    manifest::Manifest,
    record::{REFERENCE, RecordOptions, conditions::conditions, inputs::MadeInputs, start_values},
};
use candle_core::{Device, Tensor};
use zoo_engine::{EngineError, Inputs};
use zoo_graph::{DType, Graph, Op, Variable};
use zoo_recipe::{BuildOptions, Mode, Parallel, Recipe, ResolvedModel, SplitStep, build_split};

/// The step on one device.
pub(super) struct Whole {
    pub recipe: Recipe,
    pub model: ResolvedModel,
    /// The step in f64, and what it is for.
    pub graph: Graph,
    pub build: BuildOptions,
    bound: Option<Bound>,
}

impl Whole {
    /// # Errors
    /// A recipe without such a step, or another golden.
    pub fn of(recipe: &Recipe, options: &SplitOptions) -> Result<Self, GoldenError> {
        let bound = options.golden.as_ref().map(|golden| Bound::new(recipe, golden, Precision::F64, REFERENCE));
        let bound = bound.transpose()?;
        let recipe = bound.as_ref().map_or_else(|| with_parts_of_golden(recipe), |bound| bound.recipe.clone());
        let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
        let (batch, dropout) = (options.batch, options.dropout);
        let build = match &bound {
            Some(bound) => bound::build_options(&recipe, &model, &bound.golden, Precision::F64),
            None => BuildOptions { mode: Mode::Train, batch, dtype: DType::F64, dropout, epoch: 0 },
        };
        let graph = zoo_recipe::build(&recipe, &model, &build)?;
        Ok(Self { recipe, model, graph, build, bound })
    }

    /// The step of each rank in an arithmetic.
    ///
    /// # Errors
    /// A split that does not fit.
    pub fn split(&self, parallel: &Parallel, precision: Precision) -> Result<SplitStep, GoldenError> {
        let dtype = match precision {
            Precision::F64 => DType::F64,
            Precision::F32 => DType::F32,
        };
        Ok(build_split(&self.recipe, &self.model, &BuildOptions { dtype, ..self.build }, parallel)?)
    }

    /// The step in f32.
    ///
    /// # Errors
    /// As [`zoo_recipe::build`].
    pub fn in_f32(&self) -> Result<Graph, GoldenError> {
        Ok(zoo_recipe::build(&self.recipe, &self.model, &BuildOptions { dtype: DType::F32, ..self.build })?)
    }

    /// What the first step begins with: that of the golden, or what follows from names.
    ///
    /// # Errors
    /// An input without a rule.
    pub fn start(&self) -> Result<Begin, GoldenError> {
        let graph = &self.graph;
        if let Some(bound) = &self.bound {
            let step = bound.step()?;
            let of = |(_, tensor): (_, Tensor)| tensor.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1();
            let variables = step.variables()?.into_iter().map(of).collect::<candle_core::Result<_>>();
            let manifest = bound.golden.manifest.clone();
            return Ok(Begin { variables: variables.map_err(EngineError::from)?, inputs: bound.inputs()?, manifest });
        }
        let (batch, learning_rate) = (self.build.batch, LEARNING_RATE);
        let recorded = RecordOptions { batch, learning_rate, salt: String::new(), samples: 0 };
        let made = MadeInputs::of(&self.recipe, graph, self.model.classes, &recorded.salt);
        let manifest = conditions(&self.recipe, graph, &made, &recorded);
        let inputs = uneven(graph, made.tensors(graph)?)?;
        let values = |v: &Variable| start_values(&manifest, &v.name, graph.ty(v.value).shape.numel(), false);
        let variables = graph.variables.iter().map(values).collect();
        Ok(Begin { variables, inputs, manifest })
    }
}

/// What the first step begins with.
pub(super) struct Begin {
    /// The variables, in the order of the graph.
    pub variables: Vec<Vec<f32>>,
    pub inputs: Inputs,
    pub manifest: Manifest,
}

/// Labels of which ranks have different numbers: of the first sample one counts, of the last none. Only where a loss
/// ignores a label.
fn uneven(graph: &Graph, inputs: Inputs) -> Result<Inputs, GoldenError> {
    let mut changed = Inputs::new();
    for input in &graph.inputs {
        let Some(tensor) = inputs.get(&input.name) else { continue };
        let ignored = graph.nodes.iter().find_map(|node| match &node.op {
            Op::SoftmaxCrossEntropy(op) if node.inputs.get(1) == Some(&input.value) => op.ignored,
            _ => None,
        });
        let shape = &graph.ty(input.value).shape;
        let tensor = match ignored {
            Some(ignored) if shape.len() > 1 && shape[0] > 1 => {
                let uneven = || -> candle_core::Result<Tensor> {
                    let mut labels: Vec<u32> = tensor.flatten_all()?.to_vec1()?;
                    let row = labels.len() / shape[0];
                    let (first, last) = (labels.iter().take(row).position(|l| *l != ignored), labels.len() - row);
                    for (n, label) in labels.iter_mut().enumerate() {
                        if n >= last || n < row && Some(n) != first {
                            *label = ignored;
                        }
                    }
                    Tensor::from_vec(labels, &shape[..], &Device::Cpu)
                };
                uneven().map_err(EngineError::from)?
            }
            _ => tensor.clone(),
        };
        changed = changed.with(&input.name, tensor);
    }
    Ok(changed)
}
