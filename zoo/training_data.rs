//! The data of a training, and the settings that the recipe takes from them.

use crate::Failure;
use crate::memory::{MemoryArgs, beyond_now};
use crate::numbers::percent;
use crate::progress::Progress;
use std::path::Path;
use tracing::{info, warn};
use zoo_graph::Bytes;
use zoo_recipe::{
    ConfigPath, Recipe,
    schema::{Metric, Target},
};
use zoo_tasks::{Baseline, DataSets};
use zoo_train::Job;

/// Opens the data of the recipe, or those in `given`. Then sets the number of classes and, if the preprocessing does
/// not produce images of the input size, adds a resize. Reports the changes.
///
/// The target is kept only if the data can be those of the recipe: a folder with the same number of classes.
///
/// # Errors
/// Data that are missing or unreadable.
pub fn open(recipe: &mut Recipe, overridden: &[ConfigPath], given: Option<&Path>) -> Result<DataSets, Failure> {
    let sets = zoo_tasks::open(recipe, given)?;
    let Some(root) = given else {
        sets.samples.settle(recipe);
        return Ok(sets);
    };
    let classes = match sets.samples.classes() {
        [] => recipe.model.classes,
        named => named.len(),
    };
    let generated = recipe.data.source.generated();
    let own_target = overridden.iter().any(|path| path.as_str().starts_with("target"));
    if (generated || classes != recipe.model.classes) && !own_target && recipe.target.take().is_some() {
        info!("no target: the target of the recipe is for other data (set one with --set target.value=...)");
    }
    if classes != recipe.model.classes {
        info!(
            "model.classes is {classes}, the number of classes in {}, instead of {}",
            root.display(),
            recipe.model.classes
        );
        recipe.model.classes = classes;
    }
    let task = zoo_tasks::task(recipe.data.source.kind());
    // An absolute path, because the run stores it.
    let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    recipe.data.source = task.source_in(&absolute, &recipe.data.source);
    sets.samples.settle(recipe);
    sets.samples.fit(recipe).iter().for_each(|changed| info!("{changed}"));
    Ok(sets)
}

/// Refuses to train on the evaluation samples: results on them are meaningless.
///
/// # Errors
/// The data are not divided.
pub fn expect_divided(sets: &DataSets) -> Result<(), Failure> {
    if !sets.samples.is_undivided() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{}: the same {} would be used for training and for evaluation. Divide them: train/images with train/gts, and \
         test/images with test/gts. (`zoo eval --data` evaluates on all of them.)",
        sets.description,
        sets.samples.noun()
    )))
}

/// The linear baseline is only measured up to this number of samples, because it is slow.
const BASELINE_SAMPLES: usize = 20_000;

/// Top-1 accuracy of a linear classifier on the same data, unless there are too many samples.
pub fn linear_baseline(
    recipe: &Recipe,
    sets: &DataSets,
    memory: MemoryArgs,
    progress: &Progress,
) -> Result<Option<f64>, Failure> {
    let baseline = sets.samples.linear_baseline(recipe).filter(|baseline| baseline.samples() <= BASELINE_SAMPLES);
    let Some(baseline) = baseline else { return Ok(None) };
    let needed = beyond_now(Bytes(baseline.bytes()));
    if let Some(limit) = memory.limit().filter(|limit| needed > limit.bytes) {
        info!("no linear baseline: it needs {needed}, but {} is {}", limit.by, limit.bytes);
        return Ok(None);
    }
    let (used, all) = (baseline.used(), baseline.samples());
    if used < all {
        info!("the linear baseline is measured on {used} of {all} images: all would take too long");
    }
    let mut watch = progress.counted("the linear baseline");
    Ok(Some(baseline.measure(&mut watch)?))
}

/// Scores of other trivial answers on the same data, unless there are too many samples.
pub fn trivial_answers(job: Job<'_>, progress: &Progress) -> Result<Vec<Baseline>, Failure> {
    if job.data.samples.val_len() > BASELINE_SAMPLES {
        return Ok(Vec::new());
    }
    let mut answers = zoo_train::trivial_answers(job, &mut progress.counted("trivial answers"))?;
    // Such as the mean over classes that never occur.
    answers.retain(|answer| answer.score.value.is_finite());
    Ok(answers)
}

/// Classes that are listed.
const LISTED: usize = 5;

/// Warns of classes that never occur: they cannot be learned, or not be judged.
pub fn warn_of_absent_classes(sets: &DataSets) {
    for (part, (name, samples)) in sets.samples.parts().into_iter().enumerate() {
        let absent = sets.samples.absent_classes(part);
        if absent.is_empty() || samples == 0 {
            continue;
        }
        let (all, noun) = (sets.samples.classes().len(), sets.samples.noun());
        let more = if absent.len() > LISTED { ", ..." } else { "" };
        let named = absent.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
        warn!("{} of {all} classes have no {noun} in {name}: {named}{more}", absent.len());
    }
}

/// What to say of a target that says little, because an answer that ignores or hardly reads the sample comes within the
/// spread of the runs that the target was taken from, or reaches it.
fn near(target: &Target, answer: &str, metric: Metric, value: f64) -> Option<String> {
    let goal = target.goals().find(|goal| goal.metric == metric)?;
    let sigma = target.sigma.or(target.reference.as_ref().map(|runs| runs.sigma));
    let sigma = sigma.filter(|_| metric == target.metric).unwrap_or(0.0);
    let [wanted, reached, spread] = [goal.value, value, sigma].map(|value| metric.format(value));
    if metric.reaches(value, goal.value) {
        return Some(format!(
            "{answer} reaches {metric} {reached}, which meets the target of {wanted}: meeting it shows nothing"
        ));
    }
    let is_near = (value - goal.value).abs() < sigma;
    is_near.then(|| {
        format!("{answer} reaches {metric} {reached}, nearer to the target of {wanted} than one sigma ({spread})")
    })
}

/// Prints the training data and the target.
pub fn announce(recipe: &Recipe, sets: &DataSets, baseline: Option<f64>, others: &[Baseline]) {
    let samples = &sets.samples;
    let classes = match samples.classes() {
        [] => String::new(),
        classes => format!(", {} classes", classes.len()),
    };
    info!("data: {} ({} + {} {}{classes})", sets.description, samples.train_len(), samples.val_len(), samples.noun());
    if sets.skipped > 0 {
        info!("{} unusable entries are skipped", sets.skipped);
    }
    let target = recipe.target.as_ref().map(|target| {
        let goals: Vec<String> = target.goals().map(|goal| goal.to_string()).collect();
        format!("target: {}", goals.join(" and "))
    });
    for Baseline { answer, score } in others {
        info!("{answer} reaches {score}");
    }
    let linear = baseline.map(|baseline| format!("a linear classifier reaches {}", percent(baseline)));
    let parts: Vec<String> = target.into_iter().chain(linear).collect();
    if !parts.is_empty() {
        info!("{}", parts.join("; "));
    }
    let Some(target) = &recipe.target else { return };
    let linear = baseline.map(|value| ("a linear classifier", Metric::Top1, value));
    let answers = linear
        .into_iter()
        .chain(others.iter().map(|Baseline { answer, score }| (answer.as_str(), score.metric, score.value)));
    for warning in answers.filter_map(|(answer, metric, value)| near(target, answer, metric, value)) {
        warn!("{warning}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_near_within_one_sigma_of_a_trivial_answer() {
        let target = |value: f64| Target {
            metric: Metric::Top1,
            value,
            also: Vec::new(),
            sigma: Some(0.03),
            of: None,
            reference: None,
            margin: None,
        };
        let said = |wanted: f64, reached: f64| near(&target(wanted), "guessing", Metric::Top1, reached);
        assert_eq!(said(0.95, 0.1), None);
        assert_eq!(said(0.13, 0.0999), None);
        let told = said(0.12, 0.1).unwrap();
        assert_eq!(told, "guessing reaches top1 10.0 %, nearer to the target of 12.0 % than one sigma (3.0 %)");
        assert!(said(0.08, 0.1).unwrap().contains("meets the target of 8.0 %"));
        // A score of another metric says nothing of this target.
        assert_eq!(near(&target(0.12), "guessing", Metric::Top5, 0.5), None);
    }
}
