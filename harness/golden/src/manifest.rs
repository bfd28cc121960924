//! The golden format: a JSON manifest and a safetensors file with the same stem.
//!
//! `golden/README.md` describes the format for exporters of other frameworks.

use crate::error::GoldenError;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};
use zoo_datasets::{files, hash::sample_positions};

/// If a tensor has at most this many elements, its samples are all elements in order.
pub(crate) const STORED_IN_ORDER: usize = 64;

/// Most elements of a tensor.
const MOST_ELEMENTS: usize = 1 << 31;

/// Name of this project in [`Manifest::made_with`].
pub(crate) const MAKER: &str = "zoo";

/// Largest manifest or tensor file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// A golden, read from its two files.
#[derive(Clone, Debug)]
pub struct Golden {
    /// Path of the manifest.
    pub path: PathBuf,
    /// The manifest.
    pub manifest: Manifest,
    arrays: HashMap<String, Array>,
}

impl Golden {
    /// Whether this project recorded it. Then it is a baseline: it detects regressions, but proves nothing about a
    /// reference framework.
    pub fn is_baseline(&self) -> bool {
        self.manifest.made_with.contains_key(MAKER)
    }
}

/// Whether the golden with this manifest is a baseline ([`Golden::is_baseline`]); `None` if it cannot be read.
pub fn is_baseline(manifest: &Path) -> Option<bool> {
    #[derive(Deserialize)]
    struct Made {
        #[serde(default)]
        made_with: BTreeMap<String, serde::de::IgnoredAny>,
    }
    let text = read_capped(manifest).ok()?;
    let made: Made = serde_json::from_slice(&text).ok()?;
    Some(made.made_with.contains_key(MAKER))
}

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
    fn of_rule(rule: &str, main: &Self) -> Option<Self> {
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

/// Values of an array in the tensor file.
#[derive(Clone, Debug)]
enum Array {
    Float(Vec<f64>),
    Integer(Vec<i64>),
}

impl Golden {
    /// Reads a manifest and its tensor file.
    ///
    /// # Errors
    /// A file that cannot be read or has another format, a tensor of the manifest that the file lacks, an additional
    /// tensor, or test vectors of the hash that do not match.
    pub fn read(path: &Path) -> Result<Self, GoldenError> {
        let manifest: Manifest = serde_json::from_slice(&read_capped(path)?)
            .map_err(|e| GoldenError::Malformed { path: path.into(), message: format!("not a golden: {e}") })?;
        let tensors = path.with_extension("safetensors");
        let bytes = read_capped(&tensors)?;
        let malformed = |message: String| GoldenError::Malformed { path: tensors.clone(), message };
        let file = SafeTensors::deserialize(&bytes).map_err(|e| malformed(e.to_string()))?;
        let mut arrays = HashMap::new();
        for (key, view) in file.iter() {
            let array = Array::decode(view.dtype(), view.data())
                .ok_or_else(|| malformed(format!("`{key}` has element type {:?}", view.dtype())))?;
            arrays.insert(key.to_string(), array);
        }
        let golden = Self { path: path.into(), manifest, arrays };
        golden.expect_complete().map_err(|message| GoldenError::Malformed { path: path.into(), message })?;
        Ok(golden)
    }

    /// Samples of a tensor with their flat positions. `variant` is `None` for the main run.
    ///
    /// # Errors
    /// There are no samples, or more than the tensor has elements.
    pub fn samples(&self, key: &str, variant: Option<&str>, numel: usize) -> Result<Samples<'_>, GoldenError> {
        let stored = match variant {
            Some(variant) => format!("variant.{variant}/{key}"),
            None => key.to_string(),
        };
        let missing = |message: &str| GoldenError::Malformed {
            path: self.path.clone(),
            message: format!("`{stored}`: {message}"),
        };
        let Some(Array::Float(values)) = self.arrays.get(&stored) else {
            return Err(missing("no samples in floating point"));
        };
        if values.is_empty() || numel == 0 {
            return Err(missing("no elements"));
        }
        let in_order = numel <= STORED_IN_ORDER || values.len() == numel;
        if in_order && values.len() != numel {
            return Err(missing("not all elements are stored"));
        }
        let positions = match in_order {
            true => (0..numel).collect(),
            false => sample_positions(key, numel, values.len()).collect(),
        };
        Ok(Samples { positions, values })
    }

    /// A stored input, such as labels. Integers are exact.
    ///
    /// # Errors
    /// The input is not stored.
    pub fn stored(&self, key: &str) -> Result<Vec<f64>, GoldenError> {
        match self.arrays.get(key) {
            Some(Array::Integer(values)) => Ok(values.iter().map(|v| *v as f64).collect()),
            Some(Array::Float(values)) => Ok(values.clone()),
            None => Err(GoldenError::Malformed { path: self.path.clone(), message: format!("no array `{key}`") }),
        }
    }

    /// The stored initial value of a running statistic, if no rule gives it.
    pub fn start(&self, name: &str) -> Option<&[f64]> {
        match self.arrays.get(&format!("init/{name}")) {
            Some(Array::Float(values)) => Some(values),
            Some(Array::Integer(_)) | None => None,
        }
    }

    /// The golden of a variant with another optimizer, in the form of a main run: weights, inputs, and outputs and
    /// gradients of the first step are those of the main run; losses, and parameters after the step, are those of the
    /// variant. Without such a variant, the golden is unchanged.
    ///
    /// # Errors
    /// The rule of the variant does not name a known optimizer.
    pub fn bound_to(&self, variant: &str) -> Result<Self, GoldenError> {
        let mut bound = self.clone();
        let Some(facts) = bound.manifest.variants.remove(variant) else { return Ok(bound) };
        let rule = facts.rule.as_deref().unwrap_or_default();
        bound.manifest.optimizer = Optimizer::of_rule(rule, &self.manifest.optimizer).ok_or_else(|| {
            let message = format!("the rule of the variant `{variant}` names no optimizer: `{rule}`");
            GoldenError::Malformed { path: self.path.clone(), message }
        })?;
        (bound.manifest.losses_f64, bound.manifest.losses_f32) = (facts.losses_f64, facts.losses_f32);
        let before_the_update = ["out/", "grad/", "buffer1/"];
        bound.manifest.tensors.retain(|key, _| before_the_update.iter().any(|prefix| key.starts_with(prefix)));
        for (key, facts) in facts.tensors {
            if let Some(array) = bound.arrays.remove(&format!("variant.{variant}/{key}")) {
                bound.arrays.insert(key.clone(), array);
                bound.manifest.tensors.insert(key, facts);
            }
        }
        Ok(bound)
    }

    /// First values of tensors that are generated with the hash: `init_head/<name>` and `input_head/<name>`.
    pub fn heads(&self, prefix: &str) -> Vec<(&str, &[f64])> {
        let mut heads: Vec<_> = self
            .arrays
            .iter()
            .filter_map(|(key, array)| match (key.strip_prefix(prefix), array) {
                (Some(name), Array::Float(values)) => Some((name, values.as_slice())),
                _ => None,
            })
            .collect();
        heads.sort_unstable_by_key(|(name, _)| *name);
        heads
    }

    /// Checks that every listed tensor exists and no other: the check fails closed. Also limits the size of all
    /// shapes.
    fn expect_complete(&self) -> Result<(), String> {
        let manifest = &self.manifest;
        let facts = manifest.variants.values().flat_map(|variant| &variant.tensors).chain(&manifest.tensors);
        let inputs = manifest.inputs.iter().map(|(name, input)| (name, &input.shape));
        let shapes = facts.map(|(name, facts)| (name, &facts.shape)).chain(inputs).chain(&manifest.shapes);
        for (name, shape) in shapes {
            let numel = shape.iter().try_fold(1, |numel: usize, side| numel.checked_mul(*side));
            if numel.is_none_or(|numel| numel > MOST_ELEMENTS) {
                return Err(format!("`{name}` has the shape {shape:?}: more than {MOST_ELEMENTS} elements"));
            }
        }
        let variants = self.manifest.variants.iter();
        let in_variants =
            variants.flat_map(|(v, facts)| facts.tensors.keys().map(move |key| format!("variant.{v}/{key}")));
        let listed: std::collections::HashSet<String> =
            self.manifest.tensors.keys().cloned().chain(in_variants).collect();
        if let Some(key) = listed.iter().filter(|key| !self.arrays.contains_key(*key)).min() {
            return Err(format!("tensor `{key}` is listed, and missing from the tensor file"));
        }
        let known = ["init_head/", "input_head/", "input/", "init/"];
        let surplus = self.arrays.keys().filter(|k| !listed.contains(*k) && !known.iter().any(|p| k.starts_with(p)));
        if let Some(key) = surplus.min() {
            return Err(format!("tensor `{key}` is in the tensor file, and not listed"));
        }
        if let Some(key) = self.manifest.output_order.iter().find(|k| !self.manifest.tensors.contains_key(*k)) {
            return Err(format!("output `{key}` is ordered, and not listed"));
        }
        if self.manifest.losses_f64.is_empty() || self.manifest.losses_f64.len() != self.manifest.losses_f32.len() {
            return Err("losses in f64 and f32 must be there for the same steps".into());
        }
        Ok(())
    }
}

/// Stored elements of a tensor.
#[derive(Clone, Debug)]
pub struct Samples<'g> {
    /// Flat row-major positions; may repeat.
    pub positions: Vec<usize>,
    /// The reference's values at these positions.
    pub values: &'g [f64],
}

impl Array {
    fn decode(dtype: Dtype, data: &[u8]) -> Option<Self> {
        fn each<const N: usize, T>(data: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
            data.as_chunks::<N>().0.iter().map(|b| read(*b)).collect()
        }
        Some(match dtype {
            Dtype::F64 => Self::Float(each(data, f64::from_le_bytes)),
            Dtype::F32 => Self::Float(each(data, |b| f64::from(f32::from_le_bytes(b)))),
            Dtype::I64 => Self::Integer(each(data, i64::from_le_bytes)),
            Dtype::I32 => Self::Integer(each(data, |b| i64::from(i32::from_le_bytes(b)))),
            Dtype::I8 => Self::Integer(each(data, |b| i64::from(i8::from_le_bytes(b)))),
            Dtype::U8 => Self::Integer(each(data, |b: [u8; 1]| i64::from(b[0]))),
            _ => return None,
        })
    }
}

/// Reads a file of bounded size.
pub(crate) fn read_capped(path: &Path) -> Result<Vec<u8>, GoldenError> {
    files::read(path, MAX_FILE_BYTES).map_err(|source| GoldenError::Unreadable { path: path.into(), source })
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
