//! Several ranks, here threads, are one rank with the whole batch.

use crate::support::{self, Case, Tinted, data, numbers};
use candle_core::Tensor;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use zoo_datasets::{DataError, Dataset, Size, Source};
use zoo_engine::{
    Arithmetic,
    simulate::{Overflow, Range, Subnormals},
};
use zoo_graph::{
    DType,
    passes::{PrecisionMode, PrecisionPolicy, ScaleLoss},
};
use zoo_ranks::{Ranks, RanksError};
use zoo_tasks::DataSets;
use zoo_train::{Event, Job, Listener, Outcome, RunFolder, SimulatedDevice, TrainError, Trainer};

/// Twenty steps of eight samples.
const TWENTY: [&str; 3] = ["train.sync_bn=true", "train.epochs=4", "schedule.cosine.base_lr=0.02"];

/// How the training of each rank ended, and its variables then.
struct Ended {
    outcome: Result<Outcome, TrainError>,
    variables: BTreeMap<String, Tensor>,
}

/// Trains on as many ranks as there are data; the first one keeps the run in `folder`. The last one is asked to stop
/// after `stop` steps of the first one.
fn train(case: &Case, sets: &[DataSets], folder: &Path, resume: bool, stop: Option<u64>) -> Vec<Ended> {
    let jobs: Vec<Job<'_>> = sets.iter().map(|data| Job { data, ..case.job() }).collect();
    train_jobs(&jobs, folder, resume, stop)
}

/// The same with a job for each rank.
fn train_jobs(jobs: &[Job<'_>], folder: &Path, resume: bool, stop: Option<u64>) -> Vec<Ended> {
    let asked = AtomicBool::new(false);
    let watch = |event: &Event| {
        if let Event::Step(done) = event {
            asked.store(stop.is_some_and(|stop| done.step >= stop), Ordering::SeqCst);
        }
    };
    let one = |ranks: Ranks, job: Job<'_>| {
        let (first, last) = (ranks.is_first(), ranks.rank() + 1 == ranks.size());
        let mut trainer = Trainer::across(job, ranks).unwrap();
        let mut listeners: Vec<Box<dyn Listener + '_>> = Vec::new();
        let mut held = None;
        if first {
            let run = if resume { RunFolder::reopen(folder) } else { RunFolder::create(folder, job.recipe) }.unwrap();
            let files = if resume { run.resume(&mut trainer).unwrap().files } else { run.begin().unwrap() };
            listeners = vec![Box::new(files), Box::new(&watch)];
            held = Some(run);
        }
        let never = AtomicBool::new(false);
        let cancel = if last { &asked } else { &never };
        let outcome = trainer.run(&zoo_train::CheckpointStore::new(folder.join("checkpoints")), &mut listeners, cancel);
        drop(held);
        Ended { outcome, variables: trainer.session().variables().unwrap() }
    };
    thread::scope(|scope| {
        let one = &one;
        let ranks = zoo_ranks::local(jobs.len()).unwrap();
        let threads: Vec<_> = ranks.into_iter().zip(jobs).map(|(r, job)| scope.spawn(move || one(r, *job))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn same_data(size: usize) -> Vec<DataSets> {
    (0..size).map(|_| data(44, 21)).collect()
}

/// Runs from beginning to end, and returns the losses of the steps and the variables of the first rank.
fn whole(sets: &[&str], size: usize) -> (Vec<f64>, BTreeMap<String, Tensor>) {
    let dir = tempfile::tempdir().unwrap();
    let case = Case::new(sets);
    let ended = train(&case, &same_data(size), dir.path(), false, None);
    assert!(ended.iter().all(|rank| matches!(rank.outcome, Ok(Outcome::Finished(_)))));
    let [first, others @ ..] = ended.as_slice() else { panic!("no ranks") };
    for other in others {
        // Statistics are each rank's own unless they are synchronised.
        for (name, tensor) in first.variables.iter().filter(|(name, _)| !name.contains("running")) {
            assert_eq!(bits(tensor), bits(&other.variables[name]), "{name}");
        }
    }
    (losses(dir.path()), ended.into_iter().next().unwrap().variables)
}

fn losses(folder: &Path) -> Vec<f64> {
    let steps = crate::support::events(folder).into_iter().filter_map(|event| match event {
        Event::Step(done) => Some(done.loss),
        _ => None,
    });
    steps.collect()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    values(tensor).into_iter().map(f32::to_bits).collect()
}

/// Largest difference of two trainings: of their losses, and of variables that are of the order of one.
fn distance(a: &(Vec<f64>, BTreeMap<String, Tensor>), b: &(Vec<f64>, BTreeMap<String, Tensor>)) -> f64 {
    assert_eq!(a.0.len(), b.0.len());
    assert_eq!(a.1.keys().collect::<Vec<_>>(), b.1.keys().collect::<Vec<_>>());
    let losses = a.0.iter().zip(&b.0).map(|(a, b)| (a - b).abs());
    let variables = a.1.iter().flat_map(|(name, a)| {
        let pairs = values(a).into_iter().zip(values(&b.1[name]));
        pairs.map(|(a, b)| f64::from((a - b).abs())).collect::<Vec<_>>()
    });
    losses.chain(variables).fold(0.0, f64::max)
}

/// What rounding makes of twenty steps, with room: sums over samples are in another order.
const NOISE: f64 = 2e-5;

#[test]
fn ranks_with_synchronised_normalisation_are_one_rank_with_the_whole_batch() {
    for kernels in ["engine.kernels=reference", "engine.kernels=fast"] {
        let sets = [&TWENTY[..], &[kernels]].concat();
        let one = whole(&sets, 1);
        assert_eq!(one.0.len(), 20);
        for size in [2, 4] {
            let apart = distance(&one, &whole(&sets, size));
            assert!(apart < NOISE, "{size} ranks, {kernels}: {apart:.1e}");
        }
    }
}

#[test]
fn averages_and_bounds_see_the_gradients_of_all_ranks() {
    let sets = [&TWENTY[..], &["engine.kernels=fast", "train.ema=0.9", "gradients.clip=[{norm: 0.5}]"]].concat();
    let apart = distance(&whole(&sets, 1), &whole(&sets, 2));
    assert!(apart < NOISE, "{apart:.1e}");
}

#[test]
fn without_synchronisation_each_rank_normalises_its_own_part() {
    let sets = ["train.sync_bn=false", TWENTY[1], TWENTY[2], "engine.kernels=fast"];
    assert!(distance(&whole(&sets, 1), &whole(&sets, 2)) > 100.0 * NOISE);
}

#[test]
fn how_gradients_are_bundled_changes_no_bit() {
    let run = |more: &[&str]| {
        let (losses, variables) = whole(&[&TWENTY[..], &["engine.kernels=fast"], more].concat(), 2);
        let variables: Vec<Vec<u32>> = variables.values().map(bits).collect();
        (losses.into_iter().map(f64::to_bits).collect::<Vec<_>>(), variables)
    };
    let one = run(&["npu.all_reduce.split=one"]);
    for other in [
        &["npu.all_reduce.split=auto"][..],
        &["npu.all_reduce.split=[1, 3]"],
        &["npu.all_reduce.split=[2]", "npu.all_reduce.overlap=false"],
    ] {
        assert_eq!(run(other), one, "{other:?}");
    }
}

#[test]
fn a_training_goes_on_with_another_number_of_ranks() {
    let sets = [&TWENTY[..], &["engine.kernels=fast"]].concat();
    let case = Case::new(&sets);
    let one = whole(&sets, 1);
    let dir = tempfile::tempdir().unwrap();
    // The last rank alone is asked to stop, and all stop at the same step.
    let mut steps = 0;
    for (size, stop) in [(4, Some(5)), (2, Some(11)), (1, Some(14)), (2, None)] {
        let ended = train(&case, &same_data(size), dir.path(), steps > 0, stop);
        match stop {
            None => assert!(ended.iter().all(|rank| matches!(rank.outcome, Ok(Outcome::Finished(_))))),
            Some(_) => {
                let at = |rank: &Ended| match rank.outcome {
                    Ok(Outcome::Interrupted { step }) => step,
                    ref other => panic!("{other:?}"),
                };
                let all: Vec<u64> = ended.iter().map(at).collect();
                assert!(all.iter().all(|step| *step == all[0] && *step > steps), "{all:?}");
                steps = all[0];
            }
        }
        if stop.is_none() {
            let variables = ended.into_iter().next().unwrap().variables;
            let apart = distance(&one, &(losses(dir.path()), variables));
            assert!(apart < NOISE, "{apart:.1e}");
        }
    }
}

#[test]
fn resumed_with_as_many_ranks_it_is_bit_for_bit_the_undisturbed_training() {
    let case = Case::new(&[&TWENTY[..], &["engine.kernels=fast"]].concat());
    let [undisturbed, cut] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    train(&case, &same_data(2), undisturbed.path(), false, None);
    train(&case, &same_data(2), cut.path(), false, Some(7));
    train(&case, &same_data(2), cut.path(), true, None);
    assert_eq!(numbers(cut.path()), numbers(undisturbed.path()));
}

/// Tinted noise, of which one sample cannot be read.
struct Broken(Tinted, usize);

impl Dataset for Broken {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn classes(&self) -> &[String] {
        self.0.classes()
    }

    fn label(&self, index: usize) -> u32 {
        self.0.label(index)
    }

    fn name(&self, index: usize) -> String {
        self.0.name(index)
    }

    fn image_size(&self) -> Option<Size> {
        self.0.image_size()
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        if index == self.1 { Err(DataError::Config("unreadable".into())) } else { self.0.source(index) }
    }
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    let case = Case::new(&TWENTY);
    let mut sets = same_data(2);
    sets[1] = support::sets(Broken(Tinted::train(44), 17), Tinted::val(21));
    let ended = train(&case, &sets, tempfile::tempdir().unwrap().path(), false, None);
    let gone = |rank: &Ended| {
        let error = rank.outcome.as_ref().unwrap_err();
        matches!(error, TrainError::Ranks(RanksError::Gone))
            || matches!(error, TrainError::Engine(zoo_engine::EngineError::Ranks(RanksError::Gone)))
            || matches!(error, TrainError::Engine(zoo_engine::EngineError::Node { .. }))
    };
    // Whichever of the two has the sample in its part of the first epoch.
    assert_eq!(ended.iter().filter(|rank| gone(rank)).count(), 1);
}

/// Saturating fp16 in all convolutions, one of which overflows if it is `faulty`.
fn device(faulty: bool) -> Arithmetic {
    Arithmetic {
        policy: PrecisionPolicy {
            mode: PrecisionMode::Mixed,
            reduced: DType::F16,
            white: ["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"].map(str::to_owned).into(),
            black: BTreeSet::new(),
            reduced_only: BTreeSet::new(),
            keep: BTreeSet::new(),
        },
        range: Range::Format { overflow: Overflow::Saturate, subnormals: Subnormals::Keep },
        scales_loss: Some(ScaleLoss::default()),
        skips_overflow: true,
        planted: BTreeMap::from_iter(faulty.then(|| ("conv".to_owned(), 40))),
    }
}

#[test]
fn what_overflows_on_one_rank_is_skipped_by_all() {
    let case =
        Case::new(&[TWENTY[0], "train.epochs=1", "engine.kernels=fast", "npu.loss_scale={dynamic: {init: 1024}}"]);
    for (faulty, skipped) in [([false, false], 0), ([false, true], 5), ([true, false], 5)] {
        let dir = tempfile::tempdir().unwrap();
        let devices = faulty.map(device);
        let job = |arithmetic| Job { device: Some(SimulatedDevice { name: "test", arithmetic }), ..case.job() };
        let start = Trainer::new(job(&devices[0])).unwrap().session().variables().unwrap();
        let ended = train_jobs(&devices.each_ref().map(job), dir.path(), false, None);
        let steps: Vec<_> = crate::support::events(dir.path())
            .into_iter()
            .filter_map(|event| if let Event::Step(done) = event { Some(done) } else { None })
            .collect();
        assert_eq!(steps.len(), 5);
        assert_eq!(steps.iter().filter(|step| step.skipped).count(), skipped, "{faulty:?}");
        for rank in &ended {
            assert!(matches!(rank.outcome, Ok(Outcome::Finished(_))));
            let stayed = bits(&rank.variables["conv.weight"]) == bits(&start["conv.weight"]);
            assert_eq!(stayed, skipped > 0, "{faulty:?}");
        }
    }
}

#[test]
fn a_batch_that_cannot_be_shared_is_refused() {
    let case = Case::new(&[]);
    let refused =
        zoo_ranks::local(3).unwrap().into_iter().map(|ranks| Trainer::across(case.job(), ranks).err().unwrap());
    for error in refused {
        assert!(error.to_string().contains("`train.batch` is 8, which 3 ranks cannot share"), "{error}");
    }
}
