//! The start of a golden's step, as tensors for other programs.

use crate::{
    GoldenError,
    bound::Bound,
    compare::Precision,
    foreign::SPELLINGS,
    golden::Golden,
    manifest::{Hyper, Manifest, Optimizer},
    weights,
};
use serde::Serialize;
use std::collections::BTreeMap;
use zoo_engine::Options;
use zoo_graph::{Graph, Variable, VariableRole};
use zoo_recipe::Recipe;
use zoo_tensors::{Array, ElementType};

/// Naming convention of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// PyTorch's state_dict.
    PyTorch,
    /// MindSpore's `nn.Cell`.
    MindSpore,
}

/// The start of a step, and its conditions.
#[derive(Clone, Debug)]
pub struct Start {
    /// Parameters and running statistics, in the order of the network.
    pub weights: Vec<(String, Array)>,
    /// Inputs; classes are integers.
    pub inputs: Vec<(String, Array)>,
    /// The conditions.
    pub conditions: Conditions,
}

/// Conditions of a step.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// Version of this structure.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The golden's manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub golden: Option<String>,
    /// The split, if several ranks share the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<String>,
    /// The recipe's loss.
    pub loss: serde_json::Value,
    /// Settings, and learning rates and decays by group of parameters.
    pub optimizer: Optimizer,
    /// Hyper-parameters that do not belong to the optimizer.
    pub hyper: Hyper,
    /// Losses of the step in f64.
    pub losses: BTreeMap<String, f64>,
    /// Keys under which `zoo judge` expects module outputs.
    pub outputs: Vec<String>,
}

/// The start of a golden's first step.
///
/// # Errors
/// A recipe that does not fit the golden, or an input without a known rule.
pub fn start(recipe: &Recipe, golden: &Golden, spelling: Spelling) -> Result<Start, GoldenError> {
    let Bound { golden, recipe, graph, .. } = Bound::new(recipe, golden, Precision::F32, Options::of(recipe))?;
    let manifest = &golden.manifest;
    let of_variable = |variable: &Variable| {
        let numel = graph.ty(variable.value).shape.numel();
        Ok(match (golden.start(&variable.name, numel), manifest.init.get(&variable.name)) {
            (Some(stored), _) => stored.iter().map(|x| *x as f32).collect(),
            (None, Some(rule)) => weights::initial(rule, &manifest.salt, &variable.name, numel),
            (None, None) => vec![0.0; numel],
        })
    };
    let (mut weights, inputs) = arrays(&graph, spelling, of_variable, |name| weights::input(&golden, name))?;
    if spelling == Spelling::PyTorch {
        let counters = manifest.shapes.keys().filter(|name| name.ends_with(COUNTER));
        let zero = || Array { dtype: ElementType::I64, shape: Vec::new(), values: vec![0.0] };
        weights.extend(counters.map(|name| (name.clone(), zero())));
    }
    let golden = Some(golden.path.display().to_string());
    Ok(Start { weights, inputs, conditions: Conditions { golden, ..Conditions::of(&recipe, manifest) } })
}

impl Conditions {
    /// What a manifest says, without its name.
    pub(crate) fn of(recipe: &Recipe, manifest: &Manifest) -> Self {
        Self {
            schema_version: 1,
            recipe: recipe.name.clone(),
            golden: None,
            parallel: None,
            loss: serde_json::to_value(&recipe.loss).unwrap_or_default(),
            optimizer: manifest.optimizer.clone(),
            hyper: manifest.hyper.clone(),
            losses: manifest.losses_f64.first().cloned().unwrap_or_default(),
            outputs: manifest.output_order.clone(),
        }
    }
}

/// Named tensors.
type Arrays = Vec<(String, Array)>;

/// Parameters and running statistics of a step, and its inputs, with these values.
///
/// # Errors
/// Those of `of_variable` and `of_input`.
pub(crate) fn arrays(
    graph: &Graph,
    spelling: Spelling,
    of_variable: impl Fn(&Variable) -> Result<Vec<f32>, GoldenError>,
    of_input: impl Fn(&str) -> Result<Vec<f64>, GoldenError>,
) -> Result<(Arrays, Arrays), GoldenError> {
    let mut weights = Vec::new();
    for variable in graph.variables.iter().filter(|v| v.role.is_parameter() || v.role.is_statistic()) {
        let shape = graph.ty(variable.value).shape.to_vec();
        let values = of_variable(variable)?.into_iter().map(f64::from).collect();
        let name = spelt(&variable.name, &variable.role, spelling);
        weights.push((name, Array { dtype: ElementType::F32, shape, values }));
    }
    let mut inputs = Vec::new();
    for input in &graph.inputs {
        let ty = graph.ty(input.value);
        let dtype = match (ty.dtype.is_float(), spelling) {
            (true, _) => ElementType::F32,
            (false, Spelling::PyTorch) => ElementType::I64,
            (false, Spelling::MindSpore) => ElementType::I32,
        };
        inputs.push((input.name.clone(), Array { dtype, shape: ty.shape.to_vec(), values: of_input(&input.name)? }));
    }
    Ok((weights, inputs))
}

/// PyTorch's counter of batches next to running statistics.
const COUNTER: &str = "num_batches_tracked";

/// The name of a parameter or statistic in this convention.
fn spelt(name: &str, role: &VariableRole, spelling: Spelling) -> String {
    let normalises = matches!(
        role,
        VariableRole::NormWeight | VariableRole::NormBias | VariableRole::RunningMean | VariableRole::RunningVar
    );
    let (Spelling::MindSpore, true, Some((module, last))) = (spelling, normalises, name.rsplit_once('.')) else {
        return name.to_owned();
    };
    let theirs = SPELLINGS.iter().find(|(ours, _)| *ours == last).map_or(last, |(_, theirs)| theirs);
    format!("{module}.{theirs}")
}
