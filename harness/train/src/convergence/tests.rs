use super::*;
use crate::elsewhere::Elsewhere;
use crate::event::{Evaluated, Event, GoldenVerdict, RunResult, Started};
use zoo_recipe::{
    Library, LoadOptions, Recipe,
    schema::{ClassFolders, Idx, Score, Source},
};

fn recipe(target: &str, seed: u64) -> Recipe {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recipes");
    let sets = vec![format!("target={target}"), format!("train.seed={seed}")];
    Library::new([root]).load("tiny", &LoadOptions { profile: None, sets }).unwrap().recipe
}

fn started(recipe: &Recipe) -> Event {
    let environment = crate::Environment::detect(1, "fast");
    Event::Started(Box::new(Started {
        schema_version: 1,
        recipe: recipe.name.clone(),
        resumed_at: None,
        parameters: 1,
        batch: 16,
        ranks: 1,
        epochs: 2,
        steps_per_epoch: 6,
        steps: 12,
        data: "digits".into(),
        train_samples: 96,
        val_samples: 40,
        classes: 10,
        seed: recipe.train.seed,
        target: recipe.target.clone(),
        linear_baseline: None,
        baselines: vec![],
        golden: GoldenVerdict::Pass,
        device: "host".into(),
        environment,
    }))
}

/// A run with this result.
fn run(target: &str, seed: u64, achieved: f64) -> RunRecord {
    let recipe = recipe(target, seed);
    let score = |metric| Score { metric, value: achieved, of: None };
    let evaluated = Evaluated {
        step: 12,
        epoch: 2.0,
        samples: 40,
        loss: Some(achieved),
        scores: vec![score(Metric::Top1), score(Metric::Top5)],
        seconds: 1.0,
    };
    let result = RunResult {
        schema_version: 1,
        metric: Metric::Top1,
        target: None,
        achieved: Some(achieved),
        met: None,
        also: vec![],
        epochs: 2,
        steps: 12,
        seconds: 1.0,
        linear_baseline: None,
        baselines: vec![],
        golden: GoldenVerdict::Pass,
        device: "host".into(),
        skipped_steps: 0,
        not_finite: Vec::new(),
    };
    let events = vec![started(&recipe), Event::Evaluated(evaluated), Event::Result(result)];
    RunRecord { folder: format!("runs/{seed}").into(), yaml: String::new(), recipe, events }
}

const REFERENCE: &str = "{metric: top1, value: 88%, reference: {mean: 91%, sigma: 1%, runs: 3, source: paper}}";

fn runs(target: &str, achieved: &[f64]) -> Vec<RunRecord> {
    achieved.iter().zip(0..).map(|(value, seed)| run(target, seed, *value)).collect()
}

fn verdict(target: &str, achieved: &[f64]) -> Convergence {
    judge(&runs(target, achieved), &Rules::default()).unwrap()
}

#[test]
fn runs_like_the_reference_pass() {
    let found = verdict(REFERENCE, &[0.90, 0.91, 0.92]);
    // Both deviations are 1 %: t = 3 / sqrt(2/3) = 3.674 with 4 degrees of freedom.
    assert!((found.test.unwrap().statistic.unwrap() - 3.674).abs() < 1e-3);
    assert_eq!(found.verdict, ConvergenceVerdict::Pass);
    assert!((found.margin.unwrap() - 0.03).abs() < 1e-12 && (found.bound - 0.88).abs() < 1e-12);
    assert_eq!(found.more_runs, None);
}

#[test]
fn bad_runs_are_missed_and_few_are_inconclusive() {
    assert_eq!(verdict(REFERENCE, &[0.80, 0.81, 0.82]).verdict, ConvergenceVerdict::Missed);
    let between = verdict(REFERENCE, &[0.885, 0.875, 0.895]);
    assert_eq!(between.verdict, ConvergenceVerdict::Inconclusive);
    let one = verdict("{metric: top1, value: 50%}", &[0.9]);
    assert_eq!((one.verdict, one.test, one.more_runs), (ConvergenceVerdict::Inconclusive, None, Some(2)));
    assert_eq!(verdict("{metric: top1, value: 50%}", &[0.9, 0.91]).verdict, ConvergenceVerdict::Pass);
}

/// A metric for which less is better and without an upper limit: the mirror image of one for which more is better.
#[test]
fn of_a_falling_metric_less_is_better() {
    let target = "{metric: cross_entropy, value: 1.88, also: [{metric: cross_entropy, value: 2}], \
                  reference: {mean: 1.85, sigma: 0.01, runs: 3, source: paper}}";
    let found = verdict(target, &[1.84, 1.85, 1.86]);
    // Both deviations are 0.01: t = 3 / sqrt(2/3) = 3.674 with 4 degrees of freedom.
    assert!((found.test.unwrap().statistic.unwrap() - 3.674).abs() < 1e-3);
    assert_eq!((found.verdict, found.also[0].met), (ConvergenceVerdict::Pass, true));
    assert!((found.margin.unwrap() - 0.03).abs() < 1e-12 && (found.bound - 1.88).abs() < 1e-12);
    assert!((found.mean.unwrap() - 1.85).abs() < 1e-12);
    assert_eq!(
        found.hypotheses.null,
        "the mean of such runs is above 1.8800, the mean of the reference plus a margin of 0.0300"
    );
    assert_eq!(found.hypotheses.alternative, "the mean of such runs is at most 1.8800");
    let worse = verdict(target, &[21.4, 21.5, 21.6]);
    assert_eq!(worse.verdict, ConvergenceVerdict::Missed);
    assert!(!worse.also[0].met);
    assert_eq!(verdict("{metric: cross_entropy, value: 1.88}", &[1.7, 1.71]).verdict, ConvergenceVerdict::Pass);
    assert_eq!(
        verdict("{metric: cross_entropy, value: 1.88}", &[2.1, 2.11]).because,
        "the mean is significantly above"
    );
}

/// Those of another metric, recipe, number of steps or of samples do not count.
#[test]
fn trainings_of_another_framework_replace_the_reference() {
    let training = |value: f64| Elsewhere {
        recipe: "tiny".into(),
        by: "PyTorch".into(),
        metric: Metric::Top1,
        value,
        seconds: 1.0,
        seed: 0,
        steps: 12,
        held_out: 40,
    };
    let others = [
        Elsewhere { recipe: "tiny2".into(), ..training(0.1) },
        Elsewhere { metric: Metric::Top5, ..training(0.1) },
        Elsewhere { steps: 11, ..training(0.1) },
        Elsewhere { held_out: 41, ..training(0.1) },
    ];
    let rules = |found: &[f64]| Rules {
        margin: Some(0.03),
        against: Some(found.iter().map(|value| training(*value)).chain(others.clone()).collect()),
        ..Rules::default()
    };
    // The figures of `runs_like_the_reference_pass`, moved by 20 %, with another reference in the recipe.
    let mut set = runs(REFERENCE, &[0.70, 0.71, 0.72]);
    let found = judge(&set, &rules(&[0.70, 0.71, 0.72])).unwrap();
    assert!((found.test.unwrap().statistic.unwrap() - 3.674).abs() < 1e-3);
    let reference = found.reference.unwrap();
    assert_eq!((reference.runs, reference.source.as_str()), (3, "PyTorch"));
    let refused = judge(&set, &rules(&[0.70])).unwrap_err().to_string();
    assert!(refused.contains("1 of tiny with 12 steps and top1 of 40 held-out samples"), "{refused}");
    // A run that failed is judged, whichever it is.
    set[0].events.pop();
    set[0].events.push(Event::Failed { step: 3, message: "the loss is NaN".into() });
    assert_eq!(judge(&set, &rules(&[0.70, 0.71, 0.72])).unwrap().verdict, ConvergenceVerdict::Missed);
}

/// Seeds may be trained on several machines.
#[test]
fn the_same_data_may_lie_in_different_places() {
    let mut set = runs(REFERENCE, &[0.91, 0.92, 0.90]);
    for run in &mut set {
        run.recipe.data.source = Source::ClassFolders(ClassFolders { root: run.folder.join("data") });
    }
    assert_eq!(judge(&set, &Rules::default()).unwrap().verdict, ConvergenceVerdict::Pass);
    set[1].recipe.data.source = Source::Idx(Idx { root: "data".into() });
    let refused = judge(&set, &Rules::default()).unwrap_err();
    assert!(refused.to_string().contains("data.source"), "{refused}");
}

#[test]
fn an_outlier_is_named_and_counts() {
    let found = verdict(REFERENCE, &[0.91, 0.9101, 0.9099, 0.6]);
    assert_eq!(found.runs.iter().map(|run| run.outlier).collect::<Vec<_>>(), [false, false, false, true]);
    assert!((found.mean.unwrap() - 0.8325).abs() < 1e-12);
    assert_ne!(found.verdict, ConvergenceVerdict::Pass);
}

#[test]
fn a_failed_run_fails_the_set_and_an_open_one_is_refused() {
    let mut set = runs(REFERENCE, &[0.91, 0.92, 0.90]);
    set[1].events.pop();
    let refused = judge(&set, &Rules::default()).unwrap_err();
    assert!(refused.to_string().contains("is not finished; `zoo run --resume"), "{refused}");
    set[1].events.push(Event::Failed { step: 3, message: "the loss is NaN\nand so on".into() });
    let found = judge(&set, &Rules::default()).unwrap();
    assert_eq!((found.verdict, found.runs[1].achieved), (ConvergenceVerdict::Missed, None));
    assert_eq!(found.runs[1].failed.as_deref(), Some("after step 3: the loss is NaN"));
}

/// As in a log: a value that is not finite is null. Earlier evaluations of the run were good enough.
#[test]
fn a_run_that_ends_with_no_finite_value_fails_the_set() {
    let mut set = runs("{metric: cross_entropy, value: 60}", &[50.0, 51.0, 52.0]);
    for run in &mut set {
        run.recipe.target.as_mut().unwrap().metric = Metric::Perplexity;
        for event in &mut run.events {
            match event {
                Event::Evaluated(evaluated) => evaluated.scores[0].metric = Metric::Perplexity,
                Event::Result(result) => result.metric = Metric::Perplexity,
                _ => {}
            }
        }
    }
    assert_eq!(judge(&set, &Rules::default()).unwrap().verdict, ConvergenceVerdict::Pass);
    let [Event::Evaluated(last), Event::Result(result)] = &mut set[1].events[1..] else { panic!("{:?}", set[1]) };
    let mut diverged = last.clone();
    diverged.scores[0].value = f64::INFINITY;
    result.achieved = Some(f64::INFINITY);
    set[1].events.insert(2, Event::Evaluated(diverged));
    let line = |event: &Event| serde_json::to_string(event).unwrap();
    let read: Vec<Event> = set[1].events.iter().map(|event| serde_json::from_str(&line(event)).unwrap()).collect();
    for events in [set[1].events.clone(), read] {
        set[1].events = events;
        let found = judge(&set, &Rules::default()).unwrap();
        assert_eq!((found.verdict, found.runs[1].achieved), (ConvergenceVerdict::Missed, None));
        assert_eq!(found.because, "1 of 3 runs did not reach a finite perplexity");
        assert_eq!(found.runs[1].failed.as_deref(), Some("to reach a finite perplexity"));
    }
}

#[test]
fn a_run_without_a_success_fails_the_set() {
    type Spoil = fn(&mut RunResult);
    let cases: [(Spoil, &str); 2] = [
        (|result| result.not_finite = vec![Metric::CrossEntropy], "reach a finite cross_entropy"),
        (|result| result.skipped_steps = result.steps, "update anything"),
    ];
    for (spoil, not_done) in cases {
        let mut set = runs("{metric: cross_entropy, value: 60}", &[50.0, 51.0, 52.0]);
        for event in &mut set[2].events {
            if let Event::Result(result) = event {
                result.steps = 9;
                spoil(result);
            }
        }
        let found = judge(&set, &Rules::default()).unwrap();
        assert_eq!((found.verdict, found.runs[2].achieved), (ConvergenceVerdict::Missed, None));
        assert_eq!(found.because, format!("1 of 3 runs did not {not_done}"));
    }
}

#[test]
fn other_goals_have_to_be_reached_as_well() {
    let target = REFERENCE.replace("value: 88%", "value: 88%, also: [{metric: top5, value: 99%}]");
    let found = verdict(&target, &[0.90, 0.91, 0.92]);
    assert_eq!((found.verdict, found.also[0].met), (ConvergenceVerdict::Missed, false));
}

#[test]
fn runs_that_are_no_set_are_refused_with_what_differs() {
    let mut set = runs(REFERENCE, &[0.91, 0.92]);
    set[1].recipe.train.batch = 8;
    set[1].recipe.engine.threads = Some(3);
    let text = judge(&set, &Rules::default()).unwrap_err().to_string();
    assert!(text.ends_with("they differ in:\n  train.batch: 16 -> 8"), "{text}");
    let twins = [run(REFERENCE, 0, 0.9), run(REFERENCE, 0, 0.9)];
    assert!(judge(&twins, &Rules::default()).unwrap_err().to_string().contains("the same seed, 0"));
    assert_eq!(judge(&[], &Rules::default()).unwrap_err().to_string(), "there are no runs to judge");
    let mut aimless = run(REFERENCE, 0, 0.9);
    aimless.recipe.target = None;
    let refused = judge(&[aimless], &Rules::default()).unwrap_err().to_string();
    assert!(refused.ends_with("its recipe has no target to judge by"), "{refused}");
}

#[test]
fn a_reference_at_its_target_needs_a_margin() {
    let target = REFERENCE.replace("value: 88%", "value: 91%");
    let set = runs(&target, &[0.90, 0.91, 0.92]);
    assert!(judge(&set, &Rules::default()).unwrap_err().to_string().contains("so no margin follows from it"));
    let found = judge(&set, &Rules { margin: Some(0.03), ..Rules::default() }).unwrap();
    assert_eq!(found.verdict, ConvergenceVerdict::Pass);
    let own = REFERENCE.replace("value: 88%", "value: 91%, margin: 0.03");
    assert_eq!(verdict(&own, &[0.90, 0.91, 0.92]).verdict, ConvergenceVerdict::Pass);
}
