//! The manifest of a golden, a JSON file.
//!
//! `golden/README.md` describes the format for exporters of other frameworks.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of this project in [`Manifest::made_with`].
pub(crate) const MAKER: &str = "zoo";

/// All parts of a golden except its arrays. Keys that are only informative for people are not read.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Manifest {
    /// The reference's name of the model.
    pub model: String,
    /// Prefix of the names of weights and inputs before hashing.
    #[serde(default)]
    pub salt: String,
    /// Description of the precision of reference values and floors.
    #[serde(default)]
    pub precision: String,
    /// Versions of the software that computed it.
    #[serde(default)]
    pub made_with: BTreeMap<String, String>,
    /// The update rule.
    pub optimizer: Optimizer,
    /// Hyper-parameters that do not belong to the optimizer.
    #[serde(default)]
    pub hyper: Hyper,
    /// Number of trained elements.
    pub parameter_count: u64,
    /// The `(eps, momentum)` pairs of all normalisations.
    #[serde(default)]
    pub bn: Vec<(f64, f64)>,
    /// Test vectors of the hash.
    #[serde(default)]
    pub hash_vectors: BTreeMap<String, HashVectors>,
    /// Inputs of the step.
    pub inputs: BTreeMap<String, Input>,
    /// Shapes of all parameters and buffers.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Initial values of parameters and buffers.
    pub init: BTreeMap<String, Init>,
    /// Parameters that the step does not update.
    #[serde(default)]
    pub parameters_without_gradient: Vec<String>,
    /// Loss and components before each update, in f64.
    pub losses_f64: Vec<BTreeMap<String, f64>>,
    /// The same in f32.
    pub losses_f32: Vec<BTreeMap<String, f64>>,
    /// The same in f64, from inputs and parameters changed in their last place; omitted if the differences are small.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses_moved: Vec<BTreeMap<String, f64>>,
    /// Keys of module outputs, in the order in which modules return.
    pub output_order: Vec<String>,
    /// Facts of each tensor.
    pub tensors: BTreeMap<String, TensorFacts>,
    /// Variants of the run.
    #[serde(default)]
    pub variants: BTreeMap<String, Variant>,
    /// The recipe's own learning rates, if they are not in a `schedule.json` next to the golden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleTable>,
}

/// Learning rates at some steps of a training.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ScheduleTable {
    /// Steps of an epoch.
    pub steps_per_epoch: usize,
    /// Epochs of the training.
    pub epochs: usize,
    /// Samples of a step.
    pub batch: usize,
    /// Learning rate by step, from 0.
    pub lr: BTreeMap<String, f64>,
}

/// The update rule.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Optimizer {
    /// The rule in words and formulas; starts with its name.
    pub kind: String,
    /// Momentum of SGD, if there are no `settings`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// Whether it is Nesterov's momentum.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nesterov: bool,
    /// Adam's decay rates of the moments, if there are no `settings`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub betas: Option<(f64, f64)>,
    /// Adam's epsilon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    /// The settings of the rule, with their names in recipes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, serde_json::Value>,
    /// Limit of the norm of all gradients.
    #[serde(default)]
    pub clip_grad_norm: Option<f64>,
    /// The learning rate that those of the groups are multiples of, if it is not the largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
    /// Parameters, grouped by learning rate and decay.
    pub groups: Vec<Group>,
}

impl Optimizer {
    /// The optimizer of a variant, read from a rule such as `Adam lr 1e-3, betas 0.9/0.999, eps 1e-8, no weight decay`,
    /// for the parameters of the main run.
    pub(crate) fn of_rule(rule: &str, main: &Self) -> Option<Self> {
        let rest = rule.strip_prefix("Adam ")?;
        let value = |key: &str| rest.split(", ").find_map(|part| part.strip_prefix(key));
        let lr: f64 = value("lr ")?.parse().ok()?;
        let (beta1, beta2) = value("betas ")?.split_once('/')?;
        let weight_decay = match value("weight decay ") {
            Some(decay) => decay.parse().ok()?,
            None => 0.0,
        };
        let group = |group: &Group| Group { lr, weight_decay, params: group.params.clone() };
        Some(Self {
            kind: rule.to_string(),
            momentum: None,
            nesterov: false,
            betas: Some((beta1.parse().ok()?, beta2.parse().ok()?)),
            eps: Some(value("eps ")?.parse().ok()?),
            settings: BTreeMap::new(),
            clip_grad_norm: main.clip_grad_norm,
            lr: None,
            groups: main.groups.iter().map(group).collect(),
        })
    }

    /// The name of the rule in recipes.
    pub fn tag(&self) -> String {
        let name = self.kind.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        name.to_ascii_lowercase()
    }

    /// The settings of the rule, with their names in recipes.
    pub fn settings(&self) -> BTreeMap<String, serde_json::Value> {
        let mut settings = self.settings.clone();
        if settings.is_empty() {
            let mut set = |key: &str, value: serde_json::Value| settings.insert(key.to_owned(), value);
            match self.betas {
                Some((beta1, beta2)) => {
                    set("beta1", beta1.into());
                    set("beta2", beta2.into());
                    set("eps", self.eps.unwrap_or(1e-8).into());
                }
                None => {
                    set("momentum", self.momentum.unwrap_or(0.0).into());
                    set("nesterov", self.nesterov.into());
                }
            }
        }
        settings
    }

    /// The learning rate that the groups have a factor on: by default the largest.
    pub fn base_lr(&self) -> f64 {
        self.lr.unwrap_or_else(|| self.groups.iter().map(|group| group.lr).fold(0.0, f64::max))
    }

    /// The learning rate of a parameter.
    pub fn lr_of(&self, parameter: &str) -> f64 {
        let group = self.groups.iter().find(|group| group.params.iter().any(|name| name == parameter));
        group.map_or_else(|| self.base_lr(), |group| group.lr)
    }
}

/// Parameters that share learning rate and decay.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Group {
    /// Learning rate of all three steps.
    pub lr: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Names.
    pub params: Vec<String>,
}

/// Hyper-parameters that do not belong to the optimizer.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Hyper {
    /// Label smoothing over all classes.
    #[serde(default)]
    pub label_smoothing: Option<f64>,
    /// Weight of the L2 losses of all parameters in the forward loss.
    #[serde(default)]
    pub l2_in_loss: Option<f64>,
    /// Weights of classes, boxes and masks in the loss of a tracker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_weights: Option<[f64; 3]>,
    /// Hard negatives per positive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negative_ratio: Option<f64>,
}

/// Test vectors of the hash for one name.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HashVectors {
    /// fnv1a64 of the name, in hexadecimal.
    pub fnv1a64: String,
    /// The first values of `h`, in hexadecimal.
    pub h: Vec<String>,
    /// The first values of `s`.
    pub s_f32: Vec<f64>,
}

/// An input of the step.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Input {
    /// Its shape.
    pub shape: Vec<usize>,
    /// The rule of its values, which names the hash; none for inputs that are only stored.
    #[serde(default)]
    pub rule: Option<String>,
    /// Whether it is stored as `input/<name>`.
    #[serde(default)]
    pub stored: bool,
}

/// Initial values of a parameter or buffer.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Init {
    /// `s * bound`.
    Uniform {
        /// Exact in f32.
        bound: f64,
    },
    /// `gain * (1 + bound * s)`, one f32 rounding per operation.
    OnePlus {
        /// Exact in f32.
        bound: f64,
        /// Factor.
        gain: f64,
    },
    /// One value.
    Const {
        /// The value.
        value: f64,
    },
}

/// Facts of a tensor, apart from its samples.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct TensorFacts {
    /// Shape.
    pub shape: Vec<usize>,
    /// Mean over all elements.
    pub mean: f64,
    /// Standard deviation over all elements (divided by n).
    pub std: f64,
    /// Largest magnitude.
    pub absmax: f64,
    /// Euclidean norm.
    pub l2: f64,
    /// Relative error of the reference's f32 run; null if the exact value is zero.
    #[serde(default, deserialize_with = "null_is_zero")]
    pub f32_rel: f64,
    /// Largest difference of that run, divided by `absmax`; null if the exact value is zero.
    #[serde(default, deserialize_with = "null_is_zero")]
    pub f32_max: f64,
    /// Relative distance between the reference's f64 run and one with inputs and parameters changed in their last
    /// place; omitted if small.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub f64_rel: f64,
    /// Norm of the rounding errors in f64 if the reference's value is exactly zero, which other orders of summation do
    /// not give; omitted if they do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounding_l2: f64,
    /// Norm of the change since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_l2: Option<f64>,
    /// Relative error of the f32 run's change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_f32_rel: Option<f64>,
    /// Relative distance of the change in that f64 run; omitted if small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_f64_rel: Option<f64>,
    /// Type of the module that returns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Whether its exact value is zero, so that only rounding errors are left.
    #[serde(default)]
    pub degenerate: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// A relative error without a scale counts as zero: a tensor that is zero in the reference must be zero.
fn null_is_zero<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or_default())
}

/// Another run, under changed conditions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Variant {
    /// Description of the difference. That of an optimizer is parsed (see [`Golden::bound_to`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Losses per step, in f64.
    #[serde(default)]
    pub losses_f64: Vec<BTreeMap<String, f64>>,
    /// Losses per step, in f32.
    #[serde(default)]
    pub losses_f32: Vec<BTreeMap<String, f64>>,
    /// Losses per step, in f64 from inputs and parameters changed in their last place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses_moved: Vec<BTreeMap<String, f64>>,
    /// Tensors, stored as `variant.<name>/<key>`.
    #[serde(default)]
    pub tensors: BTreeMap<String, TensorFacts>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimizer_of_a_variant_is_read_from_its_rule() {
        let group = Group { lr: 0.1, weight_decay: 1e-4, params: vec!["w".into()] };
        let main = Optimizer {
            kind: "SGD".into(),
            momentum: Some(0.9),
            nesterov: false,
            betas: None,
            settings: BTreeMap::new(),
            eps: None,
            clip_grad_norm: None,
            lr: None,
            groups: vec![group],
        };
        let rule = "Adam lr 1e-3, betas 0.9/0.999, eps 1e-8, no weight decay, same batch, 3 steps";
        let adam = Optimizer::of_rule(rule, &main).unwrap();
        assert_eq!((adam.betas, adam.eps, adam.base_lr()), (Some((0.9, 0.999)), Some(1e-8), 1e-3));
        assert_eq!((adam.groups[0].weight_decay, adam.groups[0].params.len()), (0.0, 1));
        assert!(Optimizer::of_rule("as the main run but gradients not clipped", &main).is_none());
    }
}
