//! A network small enough for the reference kernels, on images small enough for it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};
use zoo_datasets::{DataError, Dataset, Image, Rng, Size, Source};
use zoo_recipe::{BuildOptions, Library, LoadOptions, Recipe, ResolvedModel};
use zoo_tasks::{DataSets, LabelledImages};
use zoo_train::{
    Event, GoldenVerdict, Job, Listener, Outcome, RunFiles, RunFolder, TrainError, Trainer, Weights, event::StepDone,
    weights::Naming,
};

/// Convolution, normalisation, dropout: everything that has a state or a random number.
const RECIPE: &str = "
name: tiny
model:
  inputs: {image: [3, 8, 8]}
  classes: 3
  body:
    - conv: {name: conv, out: 6, kernel: 3, stride: 2, pad: 1, bias: false}
    - bn: {name: bn}
    - relu
    - flatten
    - dropout: {rate: 0.2}
    - linear: {name: fc, out: $classes}
data: {source: {image_folder: {root: elsewhere}}}
preprocess:
  train: [{random_crop: {size: 8, pad: 1}}, {horizontal_flip: {}}, {normalize: {mean: [128, 128, 128], std: [64, 64, 64], scale: byte}}]
  eval: [{normalize: {mean: [128, 128, 128], std: [64, 64, 64], scale: byte}}]
loss: {softmax_cross_entropy: {label_smoothing: 0.1}, l2: {weight: 0.0001}}
optimizer: {sgd: {momentum: 0.9, nesterov: true}}
schedule: {cosine: {base_lr: 0.05, warmup: {over: 3 steps}}}
train: {batch: 8, epochs: 3, seed: 5, eval_every: 0.5 epochs, checkpoint_every: 4 steps}
target: {metric: top1, value: 0.6}
engine: {kernels: reference}
";

/// The recipe with these values.
pub fn recipe(sets: &[&str]) -> Recipe {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.yaml");
    std::fs::write(&path, RECIPE).unwrap();
    let options = LoadOptions { profile: None, sets: sets.iter().map(ToString::to_string).collect() };
    Library::new([dir.path()]).load(path.to_str().unwrap(), &options).unwrap_or_else(|e| panic!("{e}")).recipe
}

/// Noise around a mean that depends on the class, in one of three channels.
pub struct Tinted {
    first: usize,
    len: usize,
    classes: Vec<String>,
}

impl Dataset for Tinted {
    fn len(&self) -> usize {
        self.len
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> u32 {
        ((self.first + index) % 3) as u32
    }

    fn name(&self, index: usize) -> String {
        format!("tinted[{index}]")
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::square(8))
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        let mut rng = Rng::new(1, 0, (self.first + index) as u64);
        let label = self.label(index) as usize;
        let pixel = |i: usize, rng: &mut Rng| rng.below(200) as u8 + if i % 3 == label { 55 } else { 0 };
        let pixels = (0..3 * 64).map(|i| pixel(i, &mut rng)).collect();
        Ok(Source::Decoded(Image::new(Size::square(8), pixels).unwrap()))
    }
}

impl Tinted {
    /// Samples to train on.
    pub fn train(len: usize) -> Self {
        Self { first: 0, len, classes: ["r", "g", "b"].map(str::to_owned).to_vec() }
    }

    /// Others.
    pub fn val(len: usize) -> Self {
        Self { first: 1_000_000, ..Self::train(len) }
    }
}

/// These images.
pub fn sets(train: impl Dataset + 'static, val: impl Dataset + 'static) -> DataSets {
    let samples = Arc::new(LabelledImages::new(Arc::new(train), Arc::new(val)));
    DataSets { samples, description: "tinted noise".into(), skipped: 0 }
}

/// `train` samples to train on and `val` others.
pub fn data(train: usize, val: usize) -> DataSets {
    sets(Tinted::train(train), Tinted::val(val))
}

/// A recipe with all that a job borrows.
pub struct Case {
    pub recipe: Recipe,
    pub model: ResolvedModel,
    pub data: DataSets,
}

impl Case {
    /// The weights of a run folder.
    pub fn weights(&self, folder: &Path) -> Weights {
        let graph = zoo_recipe::build(&self.recipe, &self.recipe.resolve().unwrap(), &BuildOptions::eval(1)).unwrap();
        Weights::read(folder, None, &graph, &Naming::default()).unwrap()
    }

    /// 44 samples make five full batches of eight per epoch; 21 make two and a rest.
    pub fn new(sets: &[&str]) -> Self {
        let recipe = recipe(sets);
        let model = recipe.resolve().unwrap_or_else(|e| panic!("{e}"));
        Self { recipe, model, data: data(44, 21) }
    }

    pub fn job(&self) -> Job<'_> {
        Job {
            recipe: &self.recipe,
            model: &self.model,
            data: &self.data,
            linear_baseline: Some(0.4),
            baselines: &[],
            golden: GoldenVerdict::Absent,
            device: None,
        }
    }

    /// A new run in `folder` that is cancelled after `stop` steps, if it gets there.
    pub fn run(&self, folder: &Path, stop: Option<u64>) -> Result<Outcome, TrainError> {
        let folder = RunFolder::create(folder, &self.recipe)?;
        let files = folder.begin()?;
        drive(&mut Trainer::new(self.job())?, &folder, files, stop)
    }

    /// Goes on with the run in `folder`.
    pub fn resume(&self, folder: &Path, stop: Option<u64>) -> Result<Outcome, TrainError> {
        let folder = RunFolder::reopen(folder)?;
        let mut trainer = Trainer::new(self.job())?;
        let resumed = folder.resume(&mut trainer)?;
        drive(&mut trainer, &folder, resumed.files, stop)
    }
}

fn drive(
    trainer: &mut Trainer<'_>,
    folder: &RunFolder,
    files: RunFiles,
    stop: Option<u64>,
) -> Result<Outcome, TrainError> {
    let cancel = AtomicBool::new(stop == Some(0));
    let watch = |event: &Event| {
        if let Event::Step(done) = event {
            cancel.store(Some(done.step) == stop, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let mut listeners: Vec<Box<dyn Listener + '_>> = vec![Box::new(files), Box::new(watch)];
    trainer.run(&folder.checkpoints(), &mut listeners, &cancel)
}

/// The event log of a run.
pub fn events(folder: &Path) -> Vec<Event> {
    let log = fs::read_to_string(folder.join("events.jsonl")).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What must not depend on clock, threads or interruptions: numbers of steps and evaluations, in order.
pub fn numbers(folder: &Path) -> Vec<(u64, Vec<u64>)> {
    let mut numbers = Vec::new();
    for event in events(folder) {
        match event {
            Event::Step(StepDone { step, loss, components, lr, .. }) => {
                let parts = components.iter().map(|(_, value)| value.to_bits());
                numbers.push((step, [loss.to_bits(), lr.to_bits()].into_iter().chain(parts).collect()));
            }
            Event::Evaluated(evaluated) => {
                let scores = evaluated.scores.iter().map(|score| score.value.to_bits());
                numbers
                    .push((evaluated.step, evaluated.loss.iter().map(|loss| loss.to_bits()).chain(scores).collect()));
            }
            _ => {}
        }
    }
    numbers
}

/// Bits of all variables at the end.
pub fn weights(folder: &Path, case: &Case) -> BTreeMap<String, Vec<u32>> {
    weights_after(folder, Trainer::new(case.job()).unwrap().timetable().steps())
}

/// Bits of all variables of a run that stopped after this many steps.
pub fn weights_after(folder: &Path, steps: u64) -> BTreeMap<String, Vec<u32>> {
    let store = zoo_train::CheckpointStore::new(folder.join("checkpoints"));
    let found = store.latest().unwrap().unwrap();
    assert_eq!(found.checkpoint.progress.step, steps);
    let bits =
        |t: &candle_core::Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits);
    found.checkpoint.variables.iter().map(|(name, tensor)| (name.clone(), bits(tensor).collect())).collect()
}
