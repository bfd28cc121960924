//! Records a golden from the engine's own step, to detect regressions and to compare devices or versions.
//!
//! The reference values are the engine's f64 run; the floors are the larger errors of two f32 runs on the stored
//! samples, the second one [`moved`]: the error of a value that nearly cancels may be small by chance in one run. Such
//! a golden says nothing about a reference framework. Its `made_with` names the engine, so that it cannot be mistaken
//! for one.

pub(crate) mod conditions;
pub(crate) mod inputs;
pub(crate) mod moved;

use crate::{
    GoldenError,
    bound::with_parts_of_golden,
    compare::{Measured, relative_l2},
    golden::{self, Golden, ROOT, STORED_OF_ROOT},
    items::change_key,
    manifest::{Manifest, TensorFacts},
    probe::{Probe, Reading, to_f64},
    stats::Stats,
    weights,
};
use candle_core::{Device, Tensor};
use conditions::conditions;
use inputs::MadeInputs;
use moved::Moving;
use safetensors::{Dtype, tensor::TensorView};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};
use zoo_datasets::atomic::Aside;
use zoo_engine::{Kernels, Options, Scalars, Step, StepMemory, candle_dtype};
use zoo_graph::{Bytes, DType, Graph, TapState};
use zoo_recipe::{BuildOptions, Mode};
use zoo_recipe::{Recipe, ResolvedModel};

/// Conditions of a recorded golden.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Images per step.
    pub batch: usize,
    /// Learning rate of all steps.
    pub learning_rate: f64,
    /// Prefix of the names of weights and inputs before hashing.
    pub salt: String,
    /// Samples per tensor.
    pub samples: usize,
}

/// Engine options for the steps of a golden.
pub(crate) const REFERENCE: Options = Options { kernels: Kernels::Reference, threads: None, level: None };

/// Number of steps in a golden.
const STEPS: usize = 3;

/// The two files of a golden: `<stem>.json` and `<stem>.safetensors`. `stem` may also be the name of one of them.
pub fn files(stem: &Path) -> [PathBuf; 2] {
    let named = stem.extension().is_some_and(|e| e == "json" || e == "safetensors");
    let stem = if named { stem.with_extension("") } else { stem.to_owned() };
    ["json", "safetensors"].map(|extension| {
        let mut path = stem.as_os_str().to_owned();
        path.push(".");
        path.push(extension);
        path.into()
    })
}

/// Graph of the recorded step.
fn graph(
    recipe: &Recipe,
    model: &ResolvedModel,
    options: &RecordOptions,
    dtype: DType,
) -> Result<Graph, zoo_graph::GraphError> {
    let options = BuildOptions { mode: Mode::Train, batch: options.batch, dtype, dropout: false, epoch: 0 };
    zoo_recipe::build(recipe, model, &options)
}

/// Peak memory of [`record`], on top of what the process has: its step in f64, and copies of what is read.
///
/// # Errors
/// As [`record`].
pub fn memory(recipe: &Recipe, options: &RecordOptions) -> Result<Bytes, GoldenError> {
    let recipe = &with_parts_of_golden(recipe);
    let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
    let step = StepMemory::of(graph(recipe, &model, options, DType::F64)?, REFERENCE, None)?;
    Ok(step.peak() + step.inputs + step.largest)
}

/// Runs three steps of a recipe in f64 and in f32 and writes the [`files`] of `stem`. `progress` is told what is
/// done, and how many steps remain.
///
/// # Errors
/// A recipe from which no step can be built, or files that cannot be written.
pub fn record(
    recipe: &Recipe,
    options: &RecordOptions,
    stem: &Path,
    progress: &mut dyn FnMut(&str, usize),
) -> Result<(), GoldenError> {
    // The parts that a check of the golden trains.
    let recipe = &with_parts_of_golden(recipe);
    let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
    let build = |dtype| graph(recipe, &model, options, dtype);
    let described = build(DType::F64)?;
    let inputs = MadeInputs::of(recipe, &described, model.classes, &options.salt);
    let mut manifest = conditions(recipe, &described, &inputs, options);
    let mut run = |dtype, moved, what: &str, after: usize| {
        let mut told = |n: usize| {
            progress(&format!("step {} of {STEPS} in {what}", n + 1), (after + 1) * STEPS - n - 1);
        };
        Recording::of((build(dtype)?, moved), &manifest, &inputs, options, &mut told)
    };
    let truth = run(DType::F64, false, "f64", 2)?;
    let rounded = run(DType::F32, false, "f32", 1)?;
    let moved = run(DType::F32, true, "f32, moved", 0)?;
    for run in [&truth, &rounded, &moved] {
        if let Some(what) = run.not_finite() {
            return Err(GoldenError::NotFinite { what, learning_rate: options.learning_rate });
        }
    }
    manifest.losses_f32 = farther_losses(&truth.losses, &rounded.losses, &moved.losses);
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (key, measured) in &truth.tensors {
        if [&rounded, &moved].iter().all(|run| run.tensors.contains_key(key)) {
            manifest.tensors.insert(key.clone(), facts(key, &truth, [&rounded, &moved]));
            samples.insert(key.clone(), measured.samples.clone());
        }
    }
    manifest.losses_f64 = truth.losses;
    manifest.output_order = truth.order;
    write(stem, &manifest, &samples, &inputs)
}

/// A noise floor; zero if the exact value is zero or has not changed.
fn floor(relative: f64) -> f64 {
    if relative.is_finite() { relative } else { 0.0 }
}

/// Losses of two runs: of each loss, the one that is farther from the truth.
fn farther_losses(truth: &[Losses], one: &[Losses], other: &[Losses]) -> Vec<Losses> {
    let of_step = |((truth, one), other): ((&Losses, &Losses), &Losses)| {
        let farther = |(name, one): (&String, &f64)| {
            let (truth, other) = (truth.get(name).unwrap_or(one), other.get(name).unwrap_or(one));
            (name.clone(), if (other - truth).abs() > (one - truth).abs() { *other } else { *one })
        };
        one.iter().map(farther).collect()
    };
    truth.iter().zip(one).zip(other).map(of_step).collect()
}

/// Facts of a tensor, from its f64 run and the larger errors of two f32 runs.
fn facts(key: &str, truth: &Recording, rounded: [&Recording; 2]) -> TensorFacts {
    let measured = &truth.tensors[key];
    let (stats, numel) = (measured.stats, measured.shape.iter().product());
    let largest = |error: &dyn Fn(&Recording) -> f64| rounded.into_iter().map(error).fold(0.0, f64::max);
    let peak = |run: &Recording| {
        let samples = measured.samples.iter().zip(&run.tensors[key].samples);
        samples.fold(0.0f64, |worst, (t, r)| worst.max((t - r).abs()))
    };
    let change = truth.starts.get(key);
    TensorFacts {
        shape: measured.shape.clone(),
        mean: stats.mean,
        std: stats.std,
        absmax: stats.absmax,
        l2: stats.l2,
        f32_rel: largest(&|run| floor(relative_l2(&run.tensors[key].samples, &measured.samples, stats.l2, numel))),
        f32_max: if stats.absmax > 0.0 { largest(&peak) / stats.absmax } else { 0.0 },
        f64_rel: 0.0,
        rounding_l2: 0.0,
        delta_l2: change.map(|start| start.delta_l2),
        delta_f32_rel: change.map(|start| {
            let exact = truth.change(key);
            largest(&|run| floor(relative_l2(&run.change(key), &exact, start.delta_l2, numel)))
        }),
        delta_f64_rel: None,
        class: None,
        degenerate: false,
    }
}

/// A parameter before the first step, as needed for its change.
struct Start {
    samples: Vec<f64>,
    delta_l2: f64,
}

/// Losses of a step.
type Losses = BTreeMap<String, f64>;

/// Observations of a run of three steps.
struct Recording {
    losses: Vec<Losses>,
    tensors: BTreeMap<String, Measured>,
    order: Vec<String>,
    starts: HashMap<String, Start>,
}

impl Recording {
    /// The first loss or tensor with a value that is not finite.
    fn not_finite(&self) -> Option<String> {
        let loss = self.losses.iter().position(|losses| losses.values().any(|loss| !loss.is_finite()));
        let tensor = || self.tensors.iter().find(|(_, measured)| !measured.stats.l2.is_finite());
        loss.map(|step| format!("the loss of step {}", step + 1)).or_else(|| tensor().map(|(key, _)| key.clone()))
    }

    /// Samples of the change of a parameter.
    fn change(&self, key: &str) -> Vec<f64> {
        let (now, start) = (&self.tensors[key].samples, &self.starts[key].samples);
        now.iter().zip(start).map(|(now, start)| now - start).collect()
    }

    fn of(
        (graph, moved): (Graph, bool),
        manifest: &Manifest,
        inputs: &MadeInputs,
        options: &RecordOptions,
        begins: &mut dyn FnMut(usize),
    ) -> Result<Self, GoldenError> {
        let mut step = Step::new(graph, REFERENCE)?;
        let graph = step.graph().clone();
        for variable in &graph.variables {
            let ty = graph.ty(variable.value);
            let values = start_values(manifest, &variable.name, ty.shape.numel(), moved);
            let tensor = Tensor::from_vec(values, ty.shape.to_vec(), &Device::Cpu)
                .and_then(|t| t.to_dtype(candle_dtype(ty.dtype)))
                .map_err(zoo_engine::EngineError::from)?;
            step.set_variable(&variable.name, &tensor)?;
        }
        let mut probe = Probe::default();
        let mut keys = Vec::new();
        let positions = |key: &str, numel: usize| {
            let count = if key.starts_with(ROOT) { numel.min(STORED_OF_ROOT) } else { options.samples };
            golden::positions(key, numel, count)
        };
        let mut order = Vec::new();
        for tap in &graph.taps {
            if let TapState::Value(value) = tap.state {
                let key = format!("out/{}", tap.key());
                order.push(key.clone());
                keys.push((key, value));
            }
        }
        keys.extend(graph.gradients.iter().map(|(id, v)| (format!("grad/{}", graph.variable(*id).name), *v)));
        for (key, value) in &keys {
            let positions = positions(key, graph.ty(*value).shape.numel());
            probe.ask(*value, Reading { key: key.clone(), positions });
        }
        let inputs = inputs.tensors(&graph)?;
        let mut recording = Self { losses: Vec::new(), tensors: BTreeMap::new(), order, starts: HashMap::new() };
        for n in 0..STEPS {
            begins(n);
            let scalars =
                Scalars { learning_rate: options.learning_rate, step: n as u64, seed: 0, ..Scalars::default() };
            let mut nothing = Probe::default();
            let read = if n == 0 { &mut probe } else { &mut nothing };
            let result = match moved {
                false => step.run(&inputs, scalars, read)?,
                true => step.run(&inputs, scalars, &mut Moving::new(&graph, read, ""))?,
            };
            recording.losses.push(result.losses.into_iter().chain(result.metrics).collect());
            if n == 0 || n + 1 == STEPS {
                recording.variables(&step, manifest, (n + 1, moved), &positions)?;
            }
        }
        for (key, _) in keys {
            if let Some(measured) = probe.measured(&key) {
                recording.tensors.insert(key, measured.clone());
            }
        }
        Ok(recording)
    }

    fn variables(
        &mut self,
        step: &Step,
        manifest: &Manifest,
        (steps, moved): (usize, bool),
        positions: &impl Fn(&str, usize) -> Vec<usize>,
    ) -> Result<(), GoldenError> {
        let graph = step.graph();
        for (variable, tensor) in step.variables()? {
            if variable.role.is_parameter() && variable.next.is_none() {
                continue;
            }
            let Some(key) = change_key(graph, variable, steps) else { continue };
            let values = to_f64(&tensor).map_err(zoo_engine::EngineError::from)?;
            let positions = positions(&key, values.len());
            let at = |values: &dyn Fn(usize) -> f64| positions.iter().map(|p| values(*p)).collect::<Vec<f64>>();
            if variable.role.is_parameter() {
                let start = start_values(manifest, &variable.name, values.len(), moved);
                let change = values.iter().zip(&start).map(|(now, s)| (now - f64::from(*s)).powi(2));
                let delta_l2 = change.sum::<f64>().sqrt();
                self.starts.insert(key.clone(), Start { samples: at(&|p| f64::from(start[p])), delta_l2 });
            }
            let samples = at(&|p| values[p]);
            let stats = Stats::of(&values);
            self.tensors.insert(key, Measured { shape: tensor.dims().to_vec(), stats, samples });
        }
        Ok(())
    }
}

pub(crate) fn start_values(manifest: &Manifest, name: &str, numel: usize, moved: bool) -> Vec<f32> {
    let mut values = match manifest.init.get(name) {
        Some(rule) => weights::initial(rule, &manifest.salt, name, numel),
        None => vec![0.0; numel],
    };
    if moved {
        moved::in_last_place(name, &mut values);
    }
    values
}

/// Writes both files and reads them again, so that the golden is known to be usable.
fn write(
    stem: &Path,
    manifest: &Manifest,
    samples: &BTreeMap<String, Vec<f64>>,
    inputs: &MadeInputs,
) -> Result<(), GoldenError> {
    let [json, tensors] = files(stem);
    let unwritable = GoldenError::unwritable;
    let malformed = |message: String| crate::error::malformed(&json, message);
    let mut arrays: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = samples
        .iter()
        .map(|(key, values)| {
            let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            (key.clone(), Dtype::F64, vec![values.len()], bytes)
        })
        .collect();
    arrays
        .extend(inputs.stored().map(|input| (format!("input/{}", input.name), input.dtype, input.shape, input.bytes)));
    let views = arrays.iter().map(|(key, dtype, shape, bytes)| {
        TensorView::new(*dtype, shape.clone(), bytes)
            .map(|view| (key.clone(), view))
            .map_err(|e| malformed(e.to_string()))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    let bytes = safetensors::serialize(views, None).map_err(|e| malformed(e.to_string()))?;
    if let Some(folder) = stem.parent() {
        std::fs::create_dir_all(folder).map_err(unwritable(folder))?;
    }
    let text = serde_json::to_string_pretty(manifest).map_err(|e| malformed(e.to_string()))?;
    let values_aside = Aside::write(&tensors, |out| out.write_all(&bytes)).map_err(unwritable(&tensors))?;
    let manifest_aside = Aside::write(&json, |out| out.write_all(text.as_bytes())).map_err(unwritable(&json))?;
    values_aside.commit().map_err(unwritable(&tensors))?;
    manifest_aside.commit().map_err(unwritable(&json))?;
    Golden::read(&json).map(|_| ())
}
