//! Parts that join later, moving averages, and weights to start from.

use crate::support::{Case, numbers, recipe, weights, weights_after};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use zoo_tasks::{Element, Input, Numbers};
use zoo_train::weights::{Shaped, Unlike};
use zoo_train::{Checkpoint, CheckpointStore, Outcome, Session, Trainer, Weights, evaluate};

/// The convolution and its normalisation join in the second epoch of three, slowly, on the batch's statistics; an
/// average is kept of everything that trains.
const LATER: [&str; 2] = ["train.parts=[{modules: [conv, bn], from_epoch: 1, lr: 0.5}]", "train.ema=0.8"];

fn bits(variables: &BTreeMap<String, Vec<u32>>, name: &str) -> Vec<u32> {
    variables.get(name).unwrap_or_else(|| panic!("there is no {name}")).clone()
}

#[test]
fn a_part_that_joins_later_stays_as_it_is_until_then() {
    let case = Case::new(&LATER);
    let start = Session::start(&case.recipe, &case.model, None).unwrap();
    let initial = start.variables().unwrap()["conv.weight"].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let initial: Vec<u32> = initial.into_iter().map(f32::to_bits).collect();
    let frozen = tempfile::tempdir().unwrap();
    // Five steps per epoch.
    case.run(frozen.path(), Some(5)).unwrap();
    let checkpoint = CheckpointStore::new(frozen.path().join("checkpoints")).latest().unwrap().unwrap().checkpoint;
    let conv = checkpoint.variables["conv.weight"].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(conv.into_iter().map(f32::to_bits).collect::<Vec<_>>(), initial);
    assert!(
        !checkpoint.variables.keys().any(|name| name.starts_with("conv.weight/")),
        "nothing is kept of what is frozen"
    );
    let whole = tempfile::tempdir().unwrap();
    case.run(whole.path(), None).unwrap();
    let end = weights(whole.path(), &case);
    assert_ne!(bits(&end, "conv.weight"), initial);
    assert!(end.contains_key("conv.weight/momentum_buffer") && end.contains_key("conv.weight/ema"), "{:?}", end.keys());
}

#[test]
fn resumed_runs_are_bit_for_bit_across_a_change_of_stage() {
    let case = Case::new(&LATER);
    let whole = tempfile::tempdir().unwrap();
    case.run(whole.path(), None).unwrap();
    let expected = (numbers(whole.path()), weights(whole.path(), &case));
    // Before, at and after the change, and after every one of these steps.
    for stop in [2, 4, 5, 6, 9, 10, 14] {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(case.run(dir.path(), Some(stop)).unwrap(), Outcome::Interrupted { step: stop });
        case.resume(dir.path(), None).unwrap();
        assert_eq!((numbers(dir.path()), weights(dir.path(), &case)), expected, "stopped after {stop}");
    }
    let dir = tempfile::tempdir().unwrap();
    case.run(dir.path(), Some(4)).unwrap();
    for stop in 5..8 {
        case.resume(dir.path(), Some(stop)).unwrap();
    }
    case.resume(dir.path(), None).unwrap();
    assert_eq!((numbers(dir.path()), weights(dir.path(), &case)), expected);
}

/// As of a new `torch.optim.Adam`: m/(1 - 0.9^t) and v/(1 - 0.999^t) with t = 1 are g and g^2, so each element moves by
/// the learning rate.
#[test]
fn the_first_update_after_a_change_of_stage_is_the_first_of_the_optimizer() {
    let case = Case::new(&[
        "train.parts=[{modules: [conv, bn], from_epoch: 1}]",
        "train.ema=0.999",
        "train.ema_warmup=true",
        "optimizer={adam: {}}",
        "schedule={constant: {base_lr: 0.01}}",
        "gradients.skip_loss_above=1.2",
    ]);
    let whole = tempfile::tempdir().unwrap();
    let Outcome::Finished(result) = case.run(whole.path(), None).unwrap() else { panic!("not finished") };
    let after = |stop| {
        let dir = tempfile::tempdir().unwrap();
        case.run(dir.path(), Some(stop)).unwrap();
        let progress = CheckpointStore::of_run(dir.path()).latest().unwrap().unwrap().checkpoint.progress;
        let floats = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect::<Vec<f32>>();
        let weights = weights_after(dir.path(), stop).into_iter().map(|(name, bits)| (name, floats(bits)));
        (weights.collect::<BTreeMap<_, _>>(), progress)
    };
    // The parts join before the first step of the second epoch that is not skipped.
    let mut stop = 6;
    let ((there, before), (next, progress)) = loop {
        let (before, after) = (after(stop - 1), after(stop));
        if before.0.get("fc.bias") != after.0.get("fc.bias") {
            break (before, after);
        }
        stop += 1;
    };
    let skipped = before.loss_scale.unwrap().skipped;
    assert!(skipped > 0 && result.skipped_steps >= skipped, "{before:?}");
    let updates = stop - 1 - skipped;
    assert_eq!(progress.updates_before_reset, updates);
    for name in ["fc.bias", "fc.weight", "conv.weight"] {
        let moved = there[name].iter().zip(&next[name]).map(|(a, b)| f64::from((a - b).abs()));
        let moved: Vec<f64> = moved.filter(|moved| *moved > 0.0).collect();
        assert!(!moved.is_empty() && moved.iter().all(|moved| (moved / 0.01 - 1.0).abs() < 1e-2), "{name}: {moved:?}");
    }
    // The average is kept, and so is the count of its updates.
    let decay = (1.0 + (updates + 1) as f64) / (10.0 + (updates + 1) as f64);
    for ((average, now), found) in there["fc.bias/ema"].iter().zip(&next["fc.bias"]).zip(&next["fc.bias/ema"]) {
        let expected = decay * f64::from(*average) + (1.0 - decay) * f64::from(*now);
        assert!((expected - f64::from(*found)).abs() < 1e-6, "{found} instead of {expected}");
    }
    let expected = (numbers(whole.path()), weights(whole.path(), &case));
    for stop in [4, 5, 6, stop, 9, 14] {
        let dir = tempfile::tempdir().unwrap();
        case.run(dir.path(), Some(stop)).unwrap();
        case.resume(dir.path(), None).unwrap();
        assert_eq!((numbers(dir.path()), weights(dir.path(), &case)), expected, "stopped after {stop}");
    }
}

/// The average lags behind: with it other scores come out, and `evaluate` gives those of the run.
#[test]
fn averages_are_evaluated_where_there_are_some() {
    let mut case = Case::new(&["train.ema=0.99", "train.epochs=1"]);
    let dir = tempfile::tempdir().unwrap();
    let Outcome::Finished(result) = case.run(dir.path(), None).unwrap() else { panic!("not finished") };
    let mut checkpoint = CheckpointStore::new(dir.path().join("checkpoints")).latest().unwrap().unwrap().checkpoint;
    let never = AtomicBool::new(false);
    let of = |case: &Case, checkpoint: &Checkpoint| {
        let weights = Weights { tensors: checkpoint.variables.clone(), ..case.weights(dir.path()) };
        evaluate(case.job(), &weights, &never, &mut |_| ()).unwrap().unwrap()
    };
    let averaged = of(&case, &checkpoint);
    assert_eq!(Some(averaged.scores[0].value), result.achieved);
    // The same by hand: the averages in place of the parameters.
    let averages: Vec<(String, candle_core::Tensor)> = checkpoint
        .variables
        .iter()
        .filter_map(|(name, tensor)| Some((name.strip_suffix("/ema")?.to_owned(), tensor.clone())))
        .collect();
    assert_eq!(averages.len(), 5, "convolution, normalisation, dense layer");
    let plain: BTreeMap<_, _> = checkpoint
        .variables
        .iter()
        .filter(|(name, _)| !name.contains('/'))
        .map(|(n, t)| (n.clone(), t.clone()))
        .collect();
    checkpoint.variables = plain.clone();
    case.recipe.train.ema = None;
    let latest = of(&case, &checkpoint);
    assert_ne!(latest.loss, averaged.loss);
    checkpoint.variables.extend(averages);
    assert_eq!(of(&case, &checkpoint), averaged);
}

#[test]
fn a_training_starts_from_what_another_has_learnt() {
    let first = Case::new(&["train.epochs=1"]);
    let dir = tempfile::tempdir().unwrap();
    first.run(dir.path(), None).unwrap();
    let learnt = weights(dir.path(), &first);
    let from = format!("train.init_from={{checkpoint: {}}}", dir.path().display());
    // A network with a wider head and one layer more.
    let second = Case::new(&[&from, "train.epochs=1", "model.fc.name=head"]);
    let adopted = {
        let mut session = Session::start(&second.recipe, &second.model, None).unwrap();
        session.init_from(second.recipe.train.init_from.as_ref().unwrap()).unwrap()
    };
    let names = |list: &[Shaped]| list.iter().map(|shaped| shaped.name.clone()).collect::<Vec<_>>();
    assert_eq!(adopted.taken.len(), 5);
    assert_eq!(names(&adopted.missing), ["head.weight", "head.bias"]);
    assert_eq!(names(&adopted.surplus), ["fc.bias", "fc.weight"]);
    assert!(adopted.unlike.is_empty());
    let said = adopted.to_string();
    assert!(said.contains("2 not in the file: head.weight, head.bias"), "{said}");
    assert!(said.contains("2 in the file, not in the network: fc.bias, fc.weight"), "{said}");
    let mut trainer = Trainer::new(second.job()).unwrap();
    trainer.initialise().unwrap();
    let started = trainer.session().variables().unwrap();
    for name in ["conv.weight", "bn.weight", "bn.running_mean"] {
        let found = started[name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(found.into_iter().map(f32::to_bits).collect::<Vec<_>>(), learnt[name], "{name}");
    }
    // Another shape is named, nothing in common is refused.
    let wider = Case::new(&[&from, "model.conv.out=7", "train.epochs=1"]);
    let mut session = Session::start(&wider.recipe, &wider.model, None).unwrap();
    let adopted = session.init_from(wider.recipe.train.init_from.as_ref().unwrap()).unwrap();
    let unlike = Unlike { name: "conv.weight".into(), file: vec![6, 3, 3, 3], network: vec![7, 3, 3, 3] };
    assert_eq!(adopted.unlike[0], unlike);
    let nowhere = format!("train.init_from={{checkpoint: {}, into: conv}}", dir.path().display());
    let case = Case::new(&[&nowhere]);
    let error = Trainer::new(case.job()).unwrap().initialise().unwrap_err().to_string();
    assert!(error.contains("has no tensors that fit this network"), "{error}");
}

/// A part frozen throughout keeps what it was given, to the bit.
#[test]
fn a_frozen_part_keeps_what_it_started_from() {
    let first = Case::new(&["train.epochs=1"]);
    let dir = tempfile::tempdir().unwrap();
    first.run(dir.path(), None).unwrap();
    let learnt = weights(dir.path(), &first);
    let from = format!("train.init_from={{checkpoint: {}}}", dir.path().display());
    let parts = "train.parts=[{modules: [conv, bn], trained: false, statistics: stored}]";
    let second = Case::new(&[&from, parts, "train.epochs=1", "train.seed=9"]);
    let out = tempfile::tempdir().unwrap();
    second.run(out.path(), None).unwrap();
    let end = weights(out.path(), &second);
    for name in ["conv.weight", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"] {
        assert_eq!(end[name], learnt[name], "{name}");
    }
    assert_ne!(end["fc.weight"], learnt["fc.weight"]);
}

#[test]
fn a_loss_above_the_bound_updates_nothing_and_is_counted() {
    let case = Case::new(&["gradients.skip_loss_above=1e-3", "train.epochs=1"]);
    let start = Session::start(&case.recipe, &case.model, None).unwrap().variables().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let Outcome::Finished(result) = case.run(dir.path(), None).unwrap() else { panic!("not finished") };
    assert_eq!(result.skipped_steps, 5);
    let end = weights(dir.path(), &case);
    let fc = start["fc.weight"].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(end["fc.weight"], fc.into_iter().map(f32::to_bits).collect::<Vec<_>>());
}

/// A part that leaves stays as it is from then on, and the momentum of the others goes on.
#[test]
fn a_part_that_leaves_keeps_what_it_has_learnt() {
    let case = Case::new(&["train.parts=[{modules: [conv.weight], until_epoch: 1}]"]);
    let until = |stop| {
        let dir = tempfile::tempdir().unwrap();
        case.run(dir.path(), Some(stop)).unwrap();
        weights_after(dir.path(), stop)
    };
    // Five steps per epoch.
    let (there, after, end) = (until(5), until(6), until(15));
    let initial = Session::start(&case.recipe, &case.model, None).unwrap().variables().unwrap()["conv.weight"].clone();
    let initial = initial.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_ne!(bits(&there, "conv.weight"), initial.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    assert_eq!(bits(&end, "conv.weight"), bits(&there, "conv.weight"));
    assert!(there.contains_key("conv.weight/momentum_buffer") && !end.contains_key("conv.weight/momentum_buffer"));
    // v = 0.9*v + g: what a reset momentum could not have.
    let momentum = |weights: &BTreeMap<String, Vec<u32>>| -> f64 {
        bits(weights, "bn.bias/momentum_buffer").into_iter().map(|bits| f64::from(f32::from_bits(bits)).powi(2)).sum()
    };
    assert!(momentum(&there) > 0.0 && momentum(&after) > 0.3 * momentum(&there));
    for stop in [4, 5, 6, 11] {
        let dir = tempfile::tempdir().unwrap();
        case.run(dir.path(), Some(stop)).unwrap();
        case.resume(dir.path(), None).unwrap();
        assert_eq!(weights(dir.path(), &case), end, "stopped after {stop}");
    }
}

/// The first change by hand, after step 2 of 7.
#[test]
fn lookahead_returns_to_the_slow_weights() {
    let plain = Case::new(&["train.max_steps=7"]);
    let slow = Case::new(&["train.max_steps=7", "train.lookahead={every: 2, decay: 0.8, power: 1}"]);
    let numbers = |case: &Case, stop| -> BTreeMap<String, Vec<f32>> {
        let dir = tempfile::tempdir().unwrap();
        case.run(dir.path(), Some(stop)).unwrap();
        let floats = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect();
        weights_after(dir.path(), stop).into_iter().map(|(name, bits)| (name, floats(bits))).collect()
    };
    let start = Session::start(&plain.recipe, &plain.model, None).unwrap().variables().unwrap();
    let (fast, found) = (numbers(&plain, 2), numbers(&slow, 2));
    let decay = 0.8 * 2.0 / 7.0;
    for name in ["conv.weight", "bn.bias", "bn.running_var", "fc.bias"] {
        let start = start[name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
        for ((start, fast), found) in start.iter().zip(&fast[name]).zip(&found[name]) {
            let expected = decay * f64::from(*start) + (1.0 - decay) * f64::from(*fast);
            assert!((expected - f64::from(*found)).abs() < 1e-6, "{name}: {found} instead of {expected}");
        }
        assert_eq!(found[name], found[&format!("{name}/lookahead")], "{name}");
    }
    assert_eq!(found["fc.bias/momentum_buffer"], fast["fc.bias/momentum_buffer"]);
    // Between changes, weights move on alone; at the end, they are the slow ones of step 6.
    let third = numbers(&slow, 3);
    assert_eq!(third["fc.bias/lookahead"], found["fc.bias"]);
    assert_ne!(third["fc.bias"], third["fc.bias/lookahead"]);
    let end = numbers(&slow, 7);
    assert_eq!(end["fc.bias"], numbers(&slow, 6)["fc.bias"]);
    for stop in [1, 2, 3, 6] {
        let dir = tempfile::tempdir().unwrap();
        slow.run(dir.path(), Some(stop)).unwrap();
        slow.resume(dir.path(), None).unwrap();
        let resumed = weights(dir.path(), &slow);
        assert!(
            resumed["fc.bias"].iter().map(|bits| f32::from_bits(*bits)).eq(end["fc.bias"].iter().copied()),
            "{stop}"
        );
    }
}

/// Filters of 2x2 patches: the second moments of what the convolution makes of the images are those of the identity.
#[test]
fn a_convolution_starts_by_whitening_patches() {
    let layers = "model.body=[conv: {name: conv, out: 24, kernel: 2}, global_avg_pool: {name: pool}, flatten, \
                  linear: {name: fc, out: $classes}]";
    let whiten = "train.whiten={module: conv, images: 20, eps: 1e-6}";
    let case = Case::new(&[layers, whiten, "train.epochs=1", "train.ema=0.9"]);
    let mut trainer = Trainer::new(case.job()).unwrap();
    trainer.initialise().unwrap();
    let variables = trainer.session().variables().unwrap();
    let values = |name: &str| variables[name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let filters = values("conv.weight");
    assert_eq!(values("conv.weight/ema"), filters);
    let half = filters.len() / 2;
    assert!(filters[..half].iter().zip(&filters[half..]).all(|(a, b)| *a == -b));
    let images = case
        .data
        .samples
        .unvaried(
            &case.recipe,
            &[Input { name: "image".into(), shape: vec![3, 8, 8], element: Element::Real }],
            case.job().eval_loader_config(),
        )
        .unwrap();
    let mut sums = vec![0.0; 12 * 12];
    let mut count = 0.0;
    let mut left = 20;
    for batch in images.epoch(0, 0).unwrap() {
        let batch = batch.unwrap();
        let Numbers::Real(pixels) = &batch.fields[0].numbers else { panic!("images") };
        for image in pixels.chunks_exact(192).take(left) {
            for (y, x) in (0..7).flat_map(|y| (0..7).map(move |x| (y, x))) {
                let patch: Vec<f64> = [0, 1, 2]
                    .into_iter()
                    .flat_map(|c| [(y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1)].map(|(y, x)| (c * 8 + y) * 8 + x))
                    .map(|place| f64::from(image[place]))
                    .collect();
                let of: Vec<f64> = filters[..half]
                    .chunks_exact(12)
                    .map(|filter| filter.iter().zip(&patch).map(|(a, b)| f64::from(*a) * b).sum())
                    .collect();
                (0..144).for_each(|i| sums[i] += of[i / 12] * of[i % 12]);
                count += 1.0;
            }
        }
        left = left.saturating_sub(batch.n);
    }
    for (i, sum) in sums.iter().enumerate() {
        let expected = f64::from(u8::from(i / 12 == i % 12));
        assert!((sum / count - expected).abs() < 1e-3, "{i}: {}", sum / count);
    }
    let wrong = recipe(&[layers, "train.whiten={module: fc}"]);
    let model = wrong.resolve().unwrap();
    let error = zoo_recipe::build(&wrong, &model, &zoo_recipe::BuildOptions::train(8)).unwrap_err().to_string();
    assert!(error.contains("`fc` is no convolution of the images"), "{error}");
}

#[test]
fn parts_that_the_network_does_not_have_are_refused() {
    for (name, said) in [("cnv", "did you mean `conv`?"), ("conv.weigth", "did you mean `conv.weight`?"), ("relu", "")]
    {
        let wrong = recipe(&[&format!("train.parts=[{{modules: [{name}], trained: false}}]")]);
        let model = wrong.resolve().unwrap();
        let error = zoo_recipe::build(&wrong, &model, &zoo_recipe::BuildOptions::train(8)).unwrap_err().to_string();
        assert!(error.contains(&format!("is named `{name}`")) && error.contains(said), "{error}");
    }
}
