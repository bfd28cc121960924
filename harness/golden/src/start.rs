//! The start of a golden's step, as tensors for other programs.

use crate::{
    GoldenError,
    bound::Bound,
    compare::Precision,
    foreign::SPELLINGS,
    golden::Golden,
    manifest::{Hyper, Optimizer},
    weights,
};
use serde::Serialize;
use std::collections::BTreeMap;
use zoo_engine::Options;
use zoo_graph::VariableRole;
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
    pub golden: String,
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
    let mut weights: Vec<(String, Array)> = Vec::new();
    for variable in graph.variables.iter().filter(|v| v.role.is_parameter() || v.role.is_statistic()) {
        let shape = graph.ty(variable.value).shape.to_vec();
        let numel = shape.iter().product();
        let values = match (golden.start(&variable.name, numel), manifest.init.get(&variable.name)) {
            (Some(stored), _) => stored.to_vec(),
            (None, Some(rule)) => {
                let values = weights::initial(rule, &manifest.salt, &variable.name, numel);
                values.into_iter().map(f64::from).collect()
            }
            (None, None) => vec![0.0; numel],
        };
        let name = spelt(&variable.name, &variable.role, spelling);
        weights.push((name, Array { dtype: ElementType::F32, shape, values }));
    }
    if spelling == Spelling::PyTorch {
        let counters = manifest.shapes.keys().filter(|name| name.ends_with(COUNTER));
        let zero = || Array { dtype: ElementType::I64, shape: Vec::new(), values: vec![0.0] };
        weights.extend(counters.map(|name| (name.clone(), zero())));
    }
    let mut inputs = Vec::new();
    for input in &graph.inputs {
        let ty = graph.ty(input.value);
        let dtype = match (ty.dtype.is_float(), spelling) {
            (true, _) => ElementType::F32,
            (false, Spelling::PyTorch) => ElementType::I64,
            (false, Spelling::MindSpore) => ElementType::I32,
        };
        let values = weights::input(&golden, &input.name)?;
        inputs.push((input.name.clone(), Array { dtype, shape: ty.shape.to_vec(), values }));
    }
    let conditions = Conditions {
        schema_version: 1,
        recipe: recipe.name.clone(),
        golden: golden.path.display().to_string(),
        loss: serde_json::to_value(&recipe.loss).unwrap_or_default(),
        optimizer: manifest.optimizer.clone(),
        hyper: manifest.hyper.clone(),
        losses: manifest.losses_f64.first().cloned().unwrap_or_default(),
        outputs: manifest.output_order.clone(),
    };
    Ok(Start { weights, inputs, conditions })
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
