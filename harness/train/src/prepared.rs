//! What a training starts from and reads, as files for programs without zoo; and what such a program found.
//!
//! One `.npy` file per input holds the samples of all steps in their order: `train/NAME.npy`. `held_out/NAME.npy` has
//! what the network reads in an evaluation. `weights.pth` are the initial weights. `data.json` is written last.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use serde::Serialize;
use zoo_graph::{Graph, VariableRole};
use zoo_recipe::{BuildOptions, LABEL};
use zoo_tasks::{Element, EvaluationError, Field, Input, Judged, Numbers, Output, Sight, Watch};
use zoo_tensors::{Array, ElementType, npy};

use crate::{
    TrainError, Trainer,
    checkpoint::CheckpointError,
    inputs::{declared, results},
    job::Job,
    weights,
};

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Prepared {
    /// The recipe.
    pub recipe: String,
    /// The data in one line.
    pub data: String,
    /// Seed of the order and of the variations.
    pub seed: u64,
    /// Samples per step.
    pub batch: usize,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Steps of the training.
    pub steps: u64,
    /// Steps whose samples were written.
    pub written: u64,
    /// Held-out samples that were written.
    pub held_out: usize,
    /// Why the held-out samples were not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_held_out: Option<String>,
}

/// Writes the samples of the first `steps` steps, what an evaluation reads, and the initial weights. `seen` is called
/// with the number of steps and of all steps.
///
/// # Errors
/// Data that cannot be read, or files that cannot be written.
pub fn write(
    trainer: &mut Trainer<'_>,
    folder: &Path,
    steps: u64,
    seen: &mut dyn FnMut(u64, u64),
) -> Result<Prepared, TrainError> {
    let job = trainer.job();
    let table = *trainer.timetable();
    trainer.initialise()?;
    let variables = trainer.session().step().variables()?.into_iter();
    let of_network = variables.filter(|(variable, _)| {
        variable.role.is_parameter() || matches!(variable.role, VariableRole::RunningMean | VariableRole::RunningVar)
    });
    let tensors: Vec<_> = of_network.map(|(variable, tensor)| (variable.name.clone(), tensor)).collect();
    weights::write(&folder.join("weights.pth"), &tensors)?;

    let mut arrays = Arrays::new(folder.join("train"), declared(trainer.session().step().graph()))?;
    let steps = steps.min(table.steps());
    let mut batches = None;
    for step in 0..steps {
        let position = table.position(step);
        let batches = match &mut batches {
            Some(batches) if position.batch > 0 => batches,
            _ => batches.insert(trainer.feed().epoch(position.epoch, 0)?),
        };
        let batch = batches.next().ok_or_else(|| TrainError::Mismatch("an epoch ended early".into()))??;
        arrays.add(batch.fields)?;
        seen(step + 1, steps);
    }
    arrays.finish()?;
    let held_out = held_out(job, &folder.join("held_out"));
    let (held_out, not_held_out) = match held_out {
        Ok(samples) => (samples, None),
        // Such as images of several sizes, which are no array.
        Err(TrainError::Mismatch(reason)) => {
            fs::remove_dir_all(folder.join("held_out")).map_err(CheckpointError::unwritable(folder))?;
            (0, Some(reason))
        }
        Err(error) => return Err(error),
    };
    let prepared = Prepared {
        recipe: job.recipe.name.clone(),
        data: job.data.description.clone(),
        seed: job.recipe.train.seed,
        batch: job.recipe.train.batch,
        steps_per_epoch: table.steps_per_epoch(),
        steps: table.steps(),
        written: steps,
        held_out,
        not_held_out,
    };
    let text = serde_json::to_string_pretty(&prepared).map_err(|error| TrainError::Mismatch(error.to_string()))?;
    weights::replace(&folder.join("data.json"), format!("{text}\n").as_bytes())?;
    Ok(prepared)
}

/// Writes what an evaluation reads, with labels where they are all that is judged; returns the number of samples.
fn held_out(job: Job<'_>, folder: &Path) -> Result<usize, TrainError> {
    let mut recipe = job.recipe.clone();
    // A program makes the variants of an image itself.
    recipe.preprocess.tta = None;
    let batch = job.eval_batch();
    let graph = zoo_recipe::build(&recipe, job.model, &BuildOptions::eval(batch))?;
    let mut inputs = declared(&graph);
    let labels = Input { name: LABEL.to_owned(), shape: Vec::new(), element: Element::Index };
    inputs.push(labels);
    let mut noting = Noting { arrays: Arrays::new(folder.to_owned(), inputs)?, graph, batch, samples: 0 };
    let judged = Judged { recipe: &recipe, network: &noting, config: job.eval_loader_config() };
    let held_out = job.data.samples.held_out(judged)?;
    let watch = Watch { cancel: &AtomicBool::new(false), witness: &mut |_: &Sight<'_>| {} };
    held_out.evaluate(&mut noting, watch)?;
    let Noting { mut arrays, samples, .. } = noting;
    if let Some(labels) = held_out.labels()? {
        // All labels of a sample are a row.
        let row = labels.len() / samples.max(1);
        if row * samples != labels.len() {
            return Err(TrainError::Mismatch("some held-out samples cannot be read".to_owned()));
        }
        let shape = if row == 1 { Vec::new() } else { vec![row] };
        if let Some(input) = arrays.inputs.last_mut() {
            input.shape = shape;
        }
        arrays.add(vec![Field::index(LABEL, labels)])?;
    }
    arrays.finish()?;
    Ok(samples)
}

/// Files of arrays, one per input.
struct Arrays {
    folder: PathBuf,
    inputs: Vec<Input>,
    files: BTreeMap<String, npy::Growing>,
}

impl Arrays {
    fn new(folder: PathBuf, inputs: Vec<Input>) -> Result<Self, TrainError> {
        fs::create_dir_all(&folder).map_err(CheckpointError::unwritable(&folder))?;
        Ok(Self { folder, inputs, files: BTreeMap::new() })
    }

    /// Adds the rows of inputs; other fields are left out.
    fn add(&mut self, fields: Vec<Field>) -> Result<(), TrainError> {
        for Field { name, numbers } in fields {
            let Some(input) = self.inputs.iter().find(|input| input.name == name) else { continue };
            let path = self.folder.join(format!("{name}.npy"));
            let unwritable = CheckpointError::unwritable(&path);
            let (dtype, bytes): (_, Vec<u8>) = match numbers {
                Numbers::Real(values) => (ElementType::F32, values.iter().flat_map(|x| x.to_le_bytes()).collect()),
                Numbers::Index(values) => {
                    (ElementType::I64, values.iter().flat_map(|x| i64::from(*x).to_le_bytes()).collect())
                }
            };
            if !self.files.contains_key(&name) {
                let file = npy::Growing::create(&path, dtype, &input.shape).map_err(unwritable)?;
                self.files.insert(name.clone(), file);
            }
            if let Some(file) = self.files.get_mut(&name) {
                file.push(&bytes).map_err(unwritable)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(), TrainError> {
        let unwritable = CheckpointError::unwritable(&self.folder);
        let ended: io::Result<Vec<usize>> = self.files.into_values().map(npy::Growing::finish).collect();
        ended.map(drop).map_err(|error| unwritable(error).into())
    }
}

/// A network that writes down what it is given.
struct Noting {
    arrays: Arrays,
    graph: Graph,
    batch: usize,
    samples: usize,
}

impl zoo_tasks::Network for Noting {
    fn batch(&self) -> usize {
        self.batch
    }

    fn inputs(&self) -> Vec<Input> {
        declared(&self.graph)
    }

    fn outputs(&self) -> Vec<(String, Vec<usize>)> {
        results(&self.graph)
    }

    fn resize(&mut self, batch: usize, input: &str, shape: &[usize]) -> Result<(), EvaluationError> {
        self.batch = batch;
        expect_size(&self.graph, input, shape)
    }

    fn run(&mut self, n: usize, fields: Vec<Field>) -> Result<Vec<Output>, EvaluationError> {
        self.arrays.add(fields).map_err(|error| EvaluationError::Network(error.into()))?;
        self.samples += n;
        let zeros = |(name, shape): (String, Vec<usize>)| {
            let values = vec![0.0; n * shape.iter().product::<usize>()];
            Output { name, shape, values }
        };
        Ok(self.outputs().into_iter().map(zeros).collect())
    }

    fn computes(&self) -> bool {
        false
    }
}

/// The outputs of another program for the held-out samples, in their order: `NAME.npy` for each output.
pub struct Predictions {
    folder: PathBuf,
    graph: Graph,
    batch: usize,
    outputs: BTreeMap<String, Array>,
    done: usize,
}

impl Predictions {
    /// Reads those of a folder.
    ///
    /// # Errors
    /// Files that are missing, are no arrays, or have another shape than the outputs of the network.
    pub fn read(job: Job<'_>, folder: &Path) -> Result<Self, TrainError> {
        let batch = job.eval_batch();
        let graph = zoo_recipe::build(job.recipe, job.model, &BuildOptions::eval(batch))?;
        let mut read = BTreeMap::new();
        for (name, shape) in results(&graph) {
            let path = folder.join(format!("{name}.npy"));
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                // Of several outputs, not all are judged.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(TrainError::Unreadable { path, source }),
            };
            let array = npy::parse(&bytes).map_err(|reason| CheckpointError::unusable(&path, reason))?;
            if array.shape.get(1..) != Some(&shape[..]) {
                let reason = format!("its shape is {:?}, that of `{name}` [samples, {shape:?}]", array.shape);
                return Err(CheckpointError::unusable(&path, reason).into());
            }
            read.insert(name, array);
        }
        if read.is_empty() {
            let names: Vec<String> = results(&graph).into_iter().map(|(name, _)| format!("{name}.npy")).collect();
            return Err(CheckpointError::unusable(
                folder,
                format!(
                    "there is no {}; a program of `zoo emit` writes it into `predictions` of its --out",
                    names.join(" or ")
                ),
            )
            .into());
        }
        Ok(Self { folder: folder.to_owned(), graph, batch, outputs: read, done: 0 })
    }

    /// Scores them.
    ///
    /// # Errors
    /// Held-out samples that cannot be read, and another number of predictions.
    pub fn score(mut self, job: Job<'_>, watch: Watch<'_>) -> Result<Option<zoo_tasks::Evaluation>, TrainError> {
        let mut recipe = job.recipe.clone();
        recipe.preprocess.tta = None;
        let judged = Judged { recipe: &recipe, network: &self, config: job.eval_loader_config() };
        let evaluation = job.data.samples.held_out(judged)?.evaluate(&mut self, watch)?;
        let there = self.outputs.values().map(|array| array.shape[0]).max().unwrap_or(0);
        if evaluation.is_some() && there != self.done {
            let reason = format!("predictions for {there} samples, {} are held out", self.done);
            return Err(CheckpointError::unusable(&self.folder, reason).into());
        }
        Ok(evaluation)
    }
}

impl zoo_tasks::Network for Predictions {
    fn batch(&self) -> usize {
        self.batch
    }

    fn inputs(&self) -> Vec<Input> {
        declared(&self.graph)
    }

    fn outputs(&self) -> Vec<(String, Vec<usize>)> {
        results(&self.graph)
    }

    fn resize(&mut self, batch: usize, input: &str, shape: &[usize]) -> Result<(), EvaluationError> {
        self.batch = batch;
        expect_size(&self.graph, input, shape)
    }

    fn run(&mut self, n: usize, _: Vec<Field>) -> Result<Vec<Output>, EvaluationError> {
        let first = self.done;
        self.done += n;
        let of_samples = |(name, array): (&String, &Array)| {
            let shape = array.shape[1..].to_vec();
            let row: usize = shape.iter().product();
            let values = array.values.get(first * row..(first + n) * row);
            let few = || {
                let folder = self.folder.display();
                EvaluationError::Mismatch(format!("{folder}: `{name}` has fewer rows than there are held-out samples"))
            };
            let values = values.ok_or_else(few)?.iter().map(|value| *value as f32).collect();
            Ok(Output { name: name.clone(), shape, values })
        };
        self.outputs.iter().map(of_samples).collect()
    }

    fn computes(&self) -> bool {
        false
    }
}

/// Refuses samples of another size than the input of the network.
fn expect_size(graph: &Graph, input: &str, shape: &[usize]) -> Result<(), EvaluationError> {
    if declared(graph).iter().any(|known| known.name == input && known.shape == shape) {
        return Ok(());
    }
    let message = format!("held-out samples of {shape:?}, another size than `{input}`, do not fit into one array");
    Err(EvaluationError::Mismatch(message))
}
