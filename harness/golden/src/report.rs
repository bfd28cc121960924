//! The verdict of a check, for people and for scripts.

use crate::{
    compare::Precision,
    conditions::{COMPARED, Difference},
    golden::Golden,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use zoo_recipe::Recipe;

/// Result of a part of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Everything is within tolerance.
    Pass,
    /// Something is not within tolerance.
    Fail,
    /// Everything compared is within tolerance, and not everything was compared.
    Partial,
    /// There are no data for it.
    Absent,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Partial => "partial",
            Self::Absent => "absent",
        })
    }
}

/// Parts of a check, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Recipe and golden describe the same step.
    Conditions,
    /// Evaluation preprocessing of stored images.
    Preprocess,
    /// Learning rates over the whole training.
    Schedule,
    /// Names, shapes and initial values.
    Init,
    /// In f32, each node against the same operator in f64 on the same operands.
    Kernels,
    /// Module outputs.
    Forward,
    /// Loss and its components.
    Loss,
    /// Gradients of the parameters.
    Backward,
    /// Changes of parameters, momentum and running statistics in one step.
    Update,
    /// The same after three steps, and the losses of these steps.
    Trajectory,
    /// Forward, loss and backward of the variant in which hardly any ReLU input is near zero.
    Lifted,
    /// Losses of variants without some of the rules: without clipping, or with the recipe's own freezing.
    Variants,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conditions => "conditions",
            Self::Preprocess => "preprocess",
            Self::Schedule => "schedule",
            Self::Init => "init",
            Self::Kernels => "kernels",
            Self::Forward => "forward",
            Self::Loss => "loss",
            Self::Backward => "backward",
            Self::Update => "update",
            Self::Trajectory => "trajectory",
            Self::Lifted => "lifted",
            Self::Variants => "variants",
        })
    }
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// Its name within the stage.
    pub name: String,
    /// Relative error; infinite if it is missing, additional, of another shape, or NaN.
    #[serde(serialize_with = "finite_or_null")]
    pub error: f64,
    /// The error that counts as one floor.
    pub floor: f64,
    /// Error in floors.
    #[serde(serialize_with = "finite_or_null")]
    pub ratio: f64,
    /// What is wrong, if a number does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether it counts in the median.
    #[serde(skip)]
    pub counts: bool,
}

/// JSON has no infinity.
fn finite_or_null<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.serialize_none() }
}

impl Item {
    /// A numeric comparison.
    pub fn measured(name: impl Into<String>, error: f64, floor: f64) -> Self {
        let error = if error.is_nan() { f64::INFINITY } else { error };
        Self { name: name.into(), error, floor, ratio: error / floor, note: None, counts: true }
    }

    /// A failure without a number.
    pub fn wrong(name: impl Into<String>, note: impl Into<String>) -> Self {
        let note = Some(note.into());
        Self { name: name.into(), error: f64::INFINITY, floor: 1.0, ratio: f64::INFINITY, note, counts: true }
    }
}

/// Verdict of one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// Number of comparisons.
    pub tensors: usize,
    /// Module outputs that a fusion absorbed; the unfused run of this check judges them.
    pub fused: usize,
    /// The worst item, by its ratio, of those that count or fail.
    pub worst: Option<Item>,
    /// Median of the errors in floors.
    #[serde(serialize_with = "optional_finite")]
    pub median_ratio: Option<f64>,
    /// The limit of the median, if the median exceeds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_limit: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// The smallest limit, in floors per tensor, with which it would have passed; none if the median fails.
    #[serde(serialize_with = "optional_finite")]
    pub would_pass_at: Option<f64>,
    /// All failures, in graph order.
    pub failed: Vec<Item>,
    /// The worst item in f32, if f32 exceeds the limits and f64 has decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_f32: Option<Item>,
}

fn optional_finite<S: serde::Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(v) if v.is_finite() => serializer.serialize_some(v),
        _ => serializer.serialize_none(),
    }
}

impl StageReport {
    /// The stage of the conditions.
    pub(crate) fn of_conditions(differences: &[Difference]) -> Self {
        let counts = differences.iter().filter(|d| d.declared.is_none());
        let wrong = |d: &Difference| {
            Item::wrong(&d.path, format!("the recipe has {}, the golden was made with {}", d.recipe, d.golden))
        };
        let failed: Vec<Item> = counts.map(wrong).collect();
        Self {
            stage: Stage::Conditions,
            tensors: COMPARED,
            fused: 0,
            worst: failed.first().cloned(),
            median_ratio: None,
            verdict: if failed.is_empty() { Verdict::Pass } else { Verdict::Fail },
            median_limit: None,
            would_pass_at: None,
            failed,
            in_f32: None,
        }
    }

    /// The verdict on `items`, which are in graph order. Absent if there are none.
    pub fn of(stage: Stage, items: Vec<Item>, limit: f64, median_limit: Option<f64>) -> Self {
        let fails = |item: &&Item| item.ratio.is_nan() || item.ratio > limit;
        let shown = items.iter().filter(|item| item.counts || fails(item));
        let worst = shown.max_by(|a, b| a.ratio.total_cmp(&b.ratio)).or(items.first()).cloned();
        let mut ratios: Vec<f64> = items.iter().filter(|item| item.counts).map(|item| item.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let median_ratio = ratios.get(ratios.len() / 2).copied();
        let failed: Vec<Item> = items.iter().filter(fails).cloned().collect();
        let median_limit = median_limit.filter(|limit| median_ratio.is_some_and(|median| median > *limit));
        let verdict = match items.is_empty() {
            true => Verdict::Absent,
            false if failed.is_empty() && median_limit.is_none() => Verdict::Pass,
            false => Verdict::Fail,
        };
        let would_pass_at = worst.as_ref().map(|worst| worst.ratio).filter(|_| median_limit.is_none());
        Self {
            stage,
            tensors: items.len(),
            fused: 0,
            worst,
            median_ratio,
            median_limit,
            verdict,
            would_pass_at,
            failed,
            in_f32: None,
        }
    }
}

/// The first failure, in the order of the stages and of the graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// The stage.
    pub stage: Stage,
    /// The tensor, by its golden name without the prefix of the stage.
    pub tensor: String,
    /// The node that computes it.
    pub node: Option<String>,
    /// Whether the fault is in this layer, because everything that it depends on is proven. `None` if unknown.
    pub local: Option<bool>,
    /// Nodes that may be at fault, nearest first.
    pub suspects: Vec<String>,
    /// `file:line:column` of the recipe.
    pub line: Option<String>,
    /// Possible explanations.
    pub hints: Vec<String>,
}

/// The whole check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of this structure.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The golden's manifest.
    pub golden: String,
    /// Whether this project recorded the golden itself. Then a pass shows that nothing has changed, and proves
    /// nothing about a reference framework.
    pub baseline: bool,
    /// The arithmetic that was judged.
    pub dtype: Precision,
    /// Overall verdict.
    pub verdict: Verdict,
    /// Verdict by stage.
    pub stages: Vec<StageReport>,
    /// The first failure.
    pub first_divergence: Option<Divergence>,
    /// Conditions in which recipe and golden differ.
    pub conditions_differ: Vec<Difference>,
    /// Module outputs that fusions absorbed, by pass.
    pub fused: Vec<String>,
}

impl Report {
    /// Without any stage.
    pub(crate) fn new(recipe: &Recipe, golden: &Golden, dtype: Precision) -> Self {
        Self {
            schema_version: 1,
            recipe: recipe.name.clone(),
            golden: golden.path.display().to_string(),
            baseline: golden.is_baseline(),
            dtype,
            verdict: Verdict::Absent,
            stages: Vec::new(),
            first_divergence: None,
            conditions_differ: Vec::new(),
            fused: Vec::new(),
        }
    }

    /// Whether no stage fails.
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> StageReport {
        let items = ratios.iter().map(|ratio| Item::measured("x", *ratio, 1.0)).collect();
        StageReport::of(Stage::Forward, items, 10.0, Some(3.0))
    }

    #[test]
    fn a_median_fails_by_its_own_limit() {
        let failed = of(&[5.0, 5.9, 6.0]);
        assert_eq!((failed.verdict, failed.failed.len()), (Verdict::Fail, 0));
        assert_eq!((failed.median_ratio, failed.median_limit, failed.would_pass_at), (Some(5.9), Some(3.0), None));
        let passed = of(&[1.0, 2.0, 9.0]);
        assert_eq!((passed.verdict, passed.median_limit, passed.would_pass_at), (Verdict::Pass, None, Some(9.0)));
    }

    #[test]
    fn the_worst_item_is_one_that_fails_even_if_it_does_not_count() {
        let item = |name: &str, ratio| Item { counts: false, ..Item::measured(name, ratio, 1.0) };
        let of = |ratio| {
            let items = vec![Item::measured("counted", 2.0, 1.0), item("degenerate", ratio)];
            StageReport::of(Stage::Backward, items, 10.0, Some(3.0))
        };
        let failed = of(40.0);
        assert_eq!((failed.worst.unwrap().name.as_str(), failed.would_pass_at), ("degenerate", Some(40.0)));
        assert_eq!((failed.failed.len(), failed.median_ratio), (1, Some(2.0)));
        let passed = of(4.0);
        assert_eq!((passed.worst.unwrap().name.as_str(), passed.would_pass_at), ("counted", Some(2.0)));
    }
}
