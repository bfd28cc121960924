//! The golden format: a JSON manifest and a safetensors file with the same stem.
//!
//! `golden/README.md` describes the format for exporters of other frameworks.

use crate::error::GoldenError;
use crate::manifest::{MAKER, Manifest, Optimizer};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use zoo_datasets::files;
use zoo_datasets::hash::sample_positions;

/// Prefix of the golden's keys of module outputs.
pub(crate) const OUT: &str = "out/";
/// Prefix of the golden's keys of the outputs of the whole network.
pub(crate) const ROOT: &str = "out/@root";
/// Prefix of the golden's keys of gradients.
pub(crate) const GRAD: &str = "grad/";

/// The variant in which hardly any ReLU input is near zero.
pub(crate) const LIFTED: &str = "lifted";

/// If a tensor has at most this many elements, its samples are all elements in order.
const STORED_IN_ORDER: usize = 64;

/// Largest number of stored elements of an output of the network. With at most this many, all are stored in order.
pub(crate) const STORED_OF_ROOT: usize = 4096;

/// Flat positions of the `count` stored elements of a tensor. They are in order if the tensor is small, or an output
/// of the network of which all elements are stored.
pub(crate) fn positions(key: &str, numel: usize, count: usize) -> Vec<usize> {
    match numel <= STORED_IN_ORDER || (key.starts_with(ROOT) && count == numel) {
        true => (0..numel).collect(),
        false => sample_positions(key, numel, count).collect(),
    }
}

/// The number of steps in a prefix of keys such as `param3`; empty for `out` and `grad`.
pub(crate) fn steps_of(kind: &str) -> &str {
    kind.trim_start_matches(|c: char| !c.is_ascii_digit())
}

/// Whether a check compares tensors of a key with this prefix, if the run has this number of steps.
fn is_compared(kind: &str, steps: usize) -> bool {
    let after = steps_of(kind);
    is_of_pass(kind) || (after.len() < kind.len() && (after == "1" || after == steps.to_string()))
}

/// Whether this is the prefix of module outputs or gradients.
fn is_of_pass(kind: &str) -> bool {
    [OUT, GRAD].iter().any(|prefix| prefix.strip_suffix('/') == Some(kind))
}

/// Prefix of stored initial values.
const INIT: &str = "init/";

/// Most elements of a tensor.
const MOST_ELEMENTS: usize = 1 << 31;

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

/// Values of an array in the tensor file.
#[derive(Clone, Debug)]
enum Array {
    Float(Vec<f64>),
    Integer(Vec<i64>),
}

impl Golden {
    /// Whether this project recorded it. Then it is a baseline: it detects regressions, but proves nothing about a
    /// reference framework.
    pub fn is_baseline(&self) -> bool {
        self.manifest.made_with.contains_key(MAKER)
    }

    /// Reads a manifest and its tensor file.
    ///
    /// # Errors
    /// A file that cannot be read or has another format, a tensor of the manifest that the file lacks, or an additional
    /// tensor.
    pub fn read(path: &Path) -> Result<Self, GoldenError> {
        let manifest: Manifest = serde_json::from_slice(&read_capped(path)?)
            .map_err(|e| crate::error::malformed(path, format!("not a golden: {e}")))?;
        let tensors = path.with_extension("safetensors");
        let bytes = read_capped(&tensors)?;
        let malformed = |message: String| crate::error::malformed(&tensors, message);
        let file = SafeTensors::deserialize(&bytes).map_err(|e| malformed(e.to_string()))?;
        let mut arrays = HashMap::new();
        for (key, view) in file.iter() {
            let array = Array::decode(view.dtype(), view.data())
                .ok_or_else(|| malformed(format!("`{key}` has element type {:?}", view.dtype())))?;
            arrays.insert(key.to_string(), array);
        }
        let golden = Self { path: path.into(), manifest, arrays };
        golden.expect_complete().map_err(|message| crate::error::malformed(path, message))?;
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
        let missing = |message: &str| crate::error::malformed(&self.path, format!("`{stored}`: {message}"));
        let Some(Array::Float(values)) = self.arrays.get(&stored) else {
            return Err(missing("no samples in floating point"));
        };
        if values.is_empty() || numel == 0 {
            return Err(missing("no elements"));
        }
        if numel <= STORED_IN_ORDER && values.len() != numel {
            return Err(missing("not all elements are stored"));
        }
        Ok(Samples { positions: positions(key, numel, values.len()), values })
    }

    /// A stored input, such as labels. Integers are exact.
    ///
    /// # Errors
    /// The input is not stored.
    pub fn stored(&self, key: &str) -> Result<Vec<f64>, GoldenError> {
        match self.arrays.get(key) {
            Some(Array::Integer(values)) => Ok(values.iter().map(|v| *v as f64).collect()),
            Some(Array::Float(values)) => Ok(values.clone()),
            None => Err(crate::error::malformed(&self.path, format!("no array `{key}`"))),
        }
    }

    /// The stored initial value of a running statistic with `numel` elements, if no rule gives it. A recipe with
    /// another shape fails by its shape.
    pub fn start(&self, name: &str, numel: usize) -> Option<&[f64]> {
        match self.arrays.get(&format!("{INIT}{name}")) {
            Some(Array::Float(values)) => Some(values.as_slice()).filter(|values| values.len() == numel),
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
            crate::error::malformed(&self.path, message)
        })?;
        (bound.manifest.losses_f64, bound.manifest.losses_f32) = (facts.losses_f64, facts.losses_f32);
        bound.manifest.losses_moved = facts.losses_moved;
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

    /// Checks that every listed tensor exists and no other, and that a check compares each: the check fails closed.
    /// Also limits the size of all shapes.
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
        let listed: HashSet<String> = self.manifest.tensors.keys().cloned().chain(in_variants).collect();
        if let Some(key) = listed.iter().filter(|key| !self.arrays.contains_key(*key)).min() {
            return Err(format!("tensor `{key}` is listed, and missing from the tensor file"));
        }
        let known = ["init_head/", "input_head/", "input/", INIT];
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
        self.expect_starts()?;
        self.expect_compared()
    }

    /// Checks the stored initial values: each is the start of a parameter or buffer, with all its elements.
    fn expect_starts(&self) -> Result<(), String> {
        for (key, array) in &self.arrays {
            let Some(name) = key.strip_prefix(INIT) else { continue };
            let Some(shape) = self.manifest.shapes.get(name) else {
                return Err(format!("`{key}` is stored, and `shapes` has no `{name}`"));
            };
            let Array::Float(values) = array else { return Err(format!("`{key}` is not in floating point")) };
            let numel: usize = shape.iter().product();
            if values.len() != numel {
                return Err(format!("`{key}` has {} elements, and its shape {shape:?} has {numel}", values.len()));
            }
        }
        Ok(())
    }

    /// Checks that no tensor has a kind or a step that no check compares, and that variants have all their losses.
    fn expect_compared(&self) -> Result<(), String> {
        let kind = |key: &str| key.split('/').next().unwrap_or_default().to_owned();
        let steps = self.manifest.losses_f64.len();
        let refused = |key: &String| format!("no check compares `{key}`: its kind or its step is unknown");
        if let Some(key) = self.manifest.tensors.keys().find(|key| !is_compared(&kind(key), steps)) {
            return Err(refused(key));
        }
        for (name, variant) in &self.manifest.variants {
            let steps = variant.losses_f64.len();
            if steps != variant.losses_f32.len() {
                return Err(format!("variant `{name}`: losses in f64 and f32 must be there for the same steps"));
            }
            let compared = |kind: &str| is_compared(kind, steps) && (name != LIFTED || is_of_pass(kind));
            if let Some(key) = variant.tensors.keys().find(|key| !compared(&kind(key))) {
                return Err(format!("variant `{name}`: {}", refused(key)));
            }
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

/// Reads a file of bounded size.
pub(crate) fn read_capped(path: &Path) -> Result<Vec<u8>, GoldenError> {
    files::read(path, MAX_FILE_BYTES).map_err(GoldenError::unreadable(path))
}
