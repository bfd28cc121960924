//! The inputs of a recorded step: values from the hash, with rules that the manifest describes.

use crate::{GoldenError, manifest::Input};
use candle_core::{Device, Tensor};
use safetensors::Dtype;
use std::collections::BTreeMap;
use zoo_datasets::hash::NameHash;
use zoo_engine::{EngineError, Inputs, candle_dtype};
use zoo_graph::{Graph, Node, Op, ValueId};
use zoo_recipe::{Recipe, schema};

/// How to generate the values of an input from the hash `h` of its name, and from `s`, the same between -1 and 1; see
/// golden/README.md.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// `2 s`. The only rule whose values are not stored.
    Image,
    /// `h` modulo this number of classes.
    Label(u64),
    /// `h` modulo the number of classes plus one; the last value becomes the ignored label.
    LabelOr(u64, u32),
    /// -1, 0 or 1.
    SignOrZero,
    /// -1 or 1.
    Sign,
    /// `s`.
    Symmetric,
    /// `s`, shifted to 0..1.
    Fraction,
    /// One in four is 1, and the others are 0.
    Quarter,
}

impl Rule {
    /// The rule for the recipe's use of an input. `classes` is the number of classes for indices that no node reads.
    fn of(name: &str, value: ValueId, recipe: &Recipe, graph: &Graph, classes: usize) -> Self {
        let schema::Loss {
            select_cross_entropy,
            mask_soft_margin,
            weighted_l1,
            masked_l1,
            sigmoid_focal,
            smooth_l1,
            giou,
            ..
        } = &recipe.loss;
        if !graph.ty(value).dtype.is_float() {
            graph
                .nodes
                .iter()
                .find_map(|node| Self::read(node, value, graph))
                .unwrap_or(Self::Label(classes.max(1) as u64))
        } else if recipe.model.inputs.get(name).is_some_and(|input| input.image().is_some()) {
            Self::Image
        } else if select_cross_entropy.as_ref().is_some_and(|term| term.label == name)
            || sigmoid_focal.as_ref().is_some_and(|term| term.label == name)
        {
            Self::SignOrZero
        } else if mask_soft_margin.as_ref().is_some_and(|term| term.target == name) {
            Self::Sign
        } else if weighted_l1.as_ref().is_some_and(|term| term.target == name)
            || smooth_l1.as_ref().is_some_and(|term| term.target == name)
            || giou.as_ref().is_some_and(|term| term.target == name)
        {
            Self::Symmetric
        } else if masked_l1.as_ref().is_some_and(|term| term.target == name) {
            Self::Fraction
        } else {
            Self::Quarter
        }
    }

    /// The rule for indices that a node reads: rows of a table, or classes.
    fn read(node: &Node, indices: ValueId, graph: &Graph) -> Option<Self> {
        let [table, _] = node.inputs[..].try_into().ok().filter(|[_, read]: &[ValueId; 2]| *read == indices)?;
        let shape = &graph.ty(table).shape;
        match &node.op {
            Op::Gather(_) => Some(Self::Label(*shape.first()? as u64)),
            Op::SoftmaxCrossEntropy(entropy) => {
                let classes = *shape.last()? as u64;
                Some(entropy.ignored.map_or(Self::Label(classes), |label| Self::LabelOr(classes, label)))
            }
            _ => None,
        }
    }

    /// The description of the rule in the manifest.
    fn told(self, name: &str) -> String {
        let values = match self {
            Self::Image => "image[-2,2)",
            Self::Label(classes) => return format!("h % {classes} of 'input.{name}'"),
            Self::LabelOr(classes, label) => {
                return format!("h % {} of 'input.{name}', {classes} is {label}", classes + 1);
            }
            Self::SignOrZero => "-1, 0 or 1",
            Self::Sign => "-1 or 1",
            Self::Symmetric => "uniform[-1,1)",
            Self::Fraction => "uniform[0,1)",
            Self::Quarter => "1 in 4 is 1, else 0",
        };
        format!("{values} of 'input.{name}'")
    }

    /// The value of an element. All values are exact in f32; labels are integers.
    fn value(self, hash: &NameHash, element: u64) -> f64 {
        match self {
            Self::Image => f64::from(2.0 * hash.s(element)),
            Self::Label(classes) => (hash.h(element) % classes) as f64,
            Self::LabelOr(classes, label) => match hash.h(element) % (classes + 1) {
                class if class == classes => f64::from(label),
                class => class as f64,
            },
            Self::SignOrZero => (hash.h(element) % 3) as f64 - 1.0,
            Self::Sign => 2.0 * (hash.h(element) % 2) as f64 - 1.0,
            Self::Symmetric => f64::from(hash.s(element)),
            Self::Fraction => f64::from(0.5 + 0.5 * hash.s(element)),
            Self::Quarter => f64::from(u8::from(hash.h(element).is_multiple_of(4))),
        }
    }
}

/// All inputs of a step.
pub(crate) struct MadeInputs {
    salt: String,
    rules: BTreeMap<String, (Rule, Vec<usize>)>,
}

/// An input as stored in a file.
pub(super) struct Stored {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl MadeInputs {
    /// The inputs of this graph.
    pub(crate) fn of(recipe: &Recipe, graph: &Graph, classes: usize, salt: &str) -> Self {
        let rules = graph.inputs.iter().map(|input| {
            let rule = Rule::of(&input.name, input.value, recipe, graph, classes);
            (input.name.clone(), (rule, graph.ty(input.value).shape.to_vec()))
        });
        Self { salt: salt.to_owned(), rules: rules.collect() }
    }

    /// Their descriptions in the manifest.
    pub(super) fn described(&self) -> BTreeMap<String, Input> {
        let describe = |(name, (rule, shape)): (&String, &(Rule, Vec<usize>))| {
            let stored = *rule != Rule::Image;
            (name.clone(), Input { shape: shape.clone(), rule: Some(rule.told(name)), stored })
        };
        self.rules.iter().map(describe).collect()
    }

    /// The input tensors of a step.
    ///
    /// # Errors
    /// If memory for them cannot be allocated.
    pub(crate) fn tensors(&self, graph: &Graph) -> Result<Inputs, GoldenError> {
        let mut inputs = Inputs::new();
        for input in &graph.inputs {
            let Some((rule, shape)) = self.rules.get(&input.name) else { continue };
            let tensor = Tensor::from_vec(self.values(&input.name, *rule, shape), shape.clone(), &Device::Cpu)
                .and_then(|tensor| tensor.to_dtype(candle_dtype(graph.ty(input.value).dtype)));
            inputs = inputs.with(&input.name, tensor.map_err(EngineError::from)?);
        }
        Ok(inputs)
    }

    /// The inputs that a golden stores: labels as i32, the others as f32.
    pub(super) fn stored(&self) -> impl Iterator<Item = Stored> {
        self.rules.iter().filter(|(_, (rule, _))| *rule != Rule::Image).map(|(name, (rule, shape))| {
            let values = self.values(name, *rule, shape).into_iter();
            let (dtype, bytes) = match rule {
                Rule::Label(_) | Rule::LabelOr(..) => {
                    (Dtype::I32, values.flat_map(|v| (v as i32).to_le_bytes()).collect())
                }
                _ => (Dtype::F32, values.flat_map(|v| (v as f32).to_le_bytes()).collect()),
            };
            Stored { name: name.clone(), dtype, shape: shape.clone(), bytes }
        })
    }

    fn values(&self, name: &str, rule: Rule, shape: &[usize]) -> Vec<f64> {
        let hash = NameHash::new(&format!("{}input.{name}", self.salt));
        (0..shape.iter().product::<usize>() as u64).map(|element| rule.value(&hash, element)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rule gives exactly the values of its description, with the right mean.
    #[test]
    fn values_are_what_the_manifest_says() {
        let few: [(Rule, &[f64]); 5] = [
            (Rule::Label(3), &[0.0, 1.0, 2.0]),
            (Rule::LabelOr(2, 255), &[0.0, 1.0, 255.0]),
            (Rule::SignOrZero, &[-1.0, 0.0, 1.0]),
            (Rule::Sign, &[-1.0, 1.0]),
            (Rule::Quarter, &[0.0, 1.0]),
        ];
        let hash = NameHash::new("input.it");
        let values = |rule: Rule| (0..4096).map(|i| rule.value(&hash, i)).collect::<Vec<_>>();
        for (rule, allowed) in few {
            let mut found = values(rule);
            found.sort_by(f64::total_cmp);
            found.dedup();
            assert_eq!(found, allowed, "{rule:?}");
        }
        let ones = values(Rule::Quarter).iter().sum::<f64>();
        assert!((ones / 4096.0 - 0.25).abs() < 0.04, "{ones} of 4096");
        for (rule, bounds) in [(Rule::Image, -2.0..2.0), (Rule::Symmetric, -1.0..1.0), (Rule::Fraction, 0.0..1.0)] {
            let found = values(rule);
            assert!(found.iter().all(|v| bounds.contains(v) && f64::from(*v as f32) == *v), "{rule:?}");
            let middle = found.iter().sum::<f64>() / 4096.0 - f64::midpoint(bounds.start, bounds.end);
            assert!(middle.abs() < 0.05 * (bounds.end - bounds.start), "{rule:?}: {middle} off the middle");
        }
    }
}
