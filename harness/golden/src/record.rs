//! Makes a golden from the engine's own step: for regressions, and for comparing devices or versions.
//!
//! The truth is the engine's f64 run, the floors are what its f32 run is off on the stored samples. Such a golden says
//! nothing about a reference framework; its `made_with` names the engine, so that nobody takes it for more.

use crate::{
    GoldenError,
    compare::{Measured, relative_l2},
    manifest::{
        Golden, Group, HashVectors, Hyper, Init, Input, Manifest, Optimizer, STORED_IN_ORDER, ScheduleTable,
        TensorFacts,
    },
    probe::{Probe, Reading, to_f64},
    stats::Stats,
    weights,
};
use candle_core::{Device, Tensor};
use safetensors::{Dtype, tensor::TensorView};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};
use zoo_datasets::atomic::Aside;
use zoo_datasets::hash::{NameHash, fnv1a64, sample_positions};
use zoo_engine::{Inputs, Kernels, Options, Scalars, Step, StepMemory, candle_dtype};
use zoo_graph::{BuildOptions, Bytes, DType, Graph, LABEL, Mode, Op, TapState, VariableRole};
use zoo_recipe::{Recipe, ResolvedModel, schema};

/// Conditions of a recorded golden.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Images per step.
    pub batch: usize,
    /// Learning rate of all steps.
    pub learning_rate: f64,
    /// Put before the names of weights and inputs before hashing.
    pub salt: String,
    /// Samples per tensor.
    pub samples: usize,
}

/// What computes a golden.
const REFERENCE: Options = Options { kernels: Kernels::Reference, threads: None, level: None };

/// Steps of a golden.
const STEPS: usize = 3;

/// The two files of a golden: `<stem>.json` and `<stem>.safetensors`. The name of either stands for the stem too.
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

/// The step that is recorded.
fn graph(
    recipe: &Recipe,
    model: &ResolvedModel,
    options: &RecordOptions,
    dtype: DType,
) -> Result<Graph, zoo_graph::GraphError> {
    let options = BuildOptions { mode: Mode::Train, batch: options.batch, dtype, dropout: false, epoch: 0 };
    zoo_graph::build(recipe, model, &options)
}

/// What [`record`] takes on top of what the process has, at its peak: its step in f64, and copies of what is read of it.
///
/// # Errors
/// As [`record`].
pub fn memory(recipe: &Recipe, options: &RecordOptions) -> Result<Bytes, GoldenError> {
    let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
    let step = StepMemory::of(graph(recipe, &model, options, DType::F64)?, REFERENCE, None)?;
    Ok(step.peak() + step.inputs + step.largest)
}

/// Runs three steps of a recipe in f64 and in f32 and writes the [`files`] of `stem`. `progress` hears what is being done,
/// and how many steps follow it.
///
/// # Errors
/// A recipe that makes no step, or files that cannot be written.
pub fn record(
    recipe: &Recipe,
    options: &RecordOptions,
    stem: &Path,
    progress: &mut dyn FnMut(&str, usize),
) -> Result<(), GoldenError> {
    let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
    let build = |dtype| graph(recipe, &model, options, dtype);
    let mut manifest = conditions(recipe, &build(DType::F64)?, model.classes, options);
    let mut step = |n: usize, dtype: &str, after| {
        progress(&format!("step {} of {STEPS} in {dtype}", n + 1), after + STEPS - n - 1)
    };
    let truth = Recording::of(build(DType::F64)?, &manifest, options, &mut |n| step(n, "f64", STEPS))?;
    let rounded = Recording::of(build(DType::F32)?, &manifest, options, &mut |n| step(n, "f32", 0))?;
    for run in [&truth, &rounded] {
        if let Some(what) = run.not_finite() {
            return Err(GoldenError::NotFinite { what, learning_rate: options.learning_rate });
        }
    }
    manifest.losses_f64 = truth.losses;
    manifest.losses_f32 = rounded.losses;
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (key, measured) in truth.tensors {
        let Some(other) = rounded.tensors.get(&key) else { continue };
        manifest.tensors.insert(key.clone(), facts(&key, &measured, other, &truth.starts));
        samples.insert(key, measured.samples);
    }
    manifest.output_order = truth.order;
    write(stem, &manifest, &samples)
}

/// Steps of an epoch in a recorded schedule: the recipe does not know how much data it will meet.
const STEPS_PER_EPOCH: usize = 100;

/// Learning rates of every tenth of an epoch.
fn schedule(recipe: &Recipe) -> ScheduleTable {
    let epochs = recipe.train.epochs;
    let steps = (0..epochs * STEPS_PER_EPOCH).step_by(STEPS_PER_EPOCH / 10);
    let lr = steps.map(|step| (step.to_string(), recipe.schedule.lr(step, STEPS_PER_EPOCH, epochs))).collect();
    ScheduleTable { steps_per_epoch: STEPS_PER_EPOCH, epochs, batch: recipe.train.batch, lr }
}

/// A noise floor; none where the truth is zero, or has not changed.
fn floor(relative: f64) -> f64 {
    if relative.is_finite() { relative } else { 0.0 }
}

/// What is known of a tensor, from its f64 and its f32 run.
fn facts(key: &str, truth: &Measured, rounded: &Measured, starts: &HashMap<String, Start>) -> TensorFacts {
    let numel = truth.shape.iter().product();
    let rel = relative_l2(&rounded.samples, &truth.samples, truth.stats.l2, numel);
    let worst = truth.samples.iter().zip(&rounded.samples).fold(0.0f64, |w, (t, r)| w.max((t - r).abs()));
    let start = starts.get(key);
    let delta = |m: &Measured| -> Vec<f64> {
        let start = start.map(|s| s.samples.as_slice()).unwrap_or_default();
        m.samples.iter().zip(start).map(|(now, start)| now - start).collect()
    };
    TensorFacts {
        shape: truth.shape.clone(),
        mean: truth.stats.mean,
        std: truth.stats.std,
        absmax: truth.stats.absmax,
        l2: truth.stats.l2,
        f32_rel: floor(rel),
        f32_max: if truth.stats.absmax > 0.0 { worst / truth.stats.absmax } else { 0.0 },
        delta_l2: start.map(|s| s.delta_l2),
        delta_f32_rel: start.map(|s| floor(relative_l2(&delta(rounded), &delta(truth), s.delta_l2, numel))),
        degenerate: false,
    }
}

/// A parameter before the first step, as far as the change since then needs it.
struct Start {
    samples: Vec<f64>,
    delta_l2: f64,
}

/// Everything that a run of three steps shows.
struct Recording {
    losses: Vec<BTreeMap<String, f64>>,
    tensors: BTreeMap<String, Measured>,
    order: Vec<String>,
    starts: HashMap<String, Start>,
}

impl Recording {
    /// The first loss or tensor with a number that is not finite.
    fn not_finite(&self) -> Option<String> {
        let loss = self.losses.iter().position(|losses| losses.values().any(|loss| !loss.is_finite()));
        let tensor = || self.tensors.iter().find(|(_, measured)| !measured.stats.l2.is_finite());
        loss.map(|step| format!("the loss of step {}", step + 1)).or_else(|| tensor().map(|(key, _)| key.clone()))
    }

    fn of(
        graph: Graph,
        manifest: &Manifest,
        options: &RecordOptions,
        begins: &mut dyn FnMut(usize),
    ) -> Result<Self, GoldenError> {
        let mut step = Step::new(graph, REFERENCE)?;
        let graph = step.graph().clone();
        for variable in &graph.variables {
            let ty = graph.ty(variable.value);
            let values = start_values(manifest, &variable.name, ty.shape.numel());
            let tensor = Tensor::from_vec(values, ty.shape.to_vec(), &Device::Cpu)
                .and_then(|t| t.to_dtype(candle_dtype(ty.dtype)))
                .map_err(zoo_engine::EngineError::from)?;
            step.set_variable(&variable.name, &tensor)?;
        }
        let mut probe = Probe::default();
        let mut keys = Vec::new();
        // As many samples as there are elements are read as all of them, in order.
        let positions = |key: &str, numel: usize| match numel <= STORED_IN_ORDER || numel == options.samples {
            true => (0..numel).collect(),
            false => sample_positions(key, numel, options.samples).collect::<Vec<_>>(),
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
        let inputs = inputs(&graph, manifest)?;
        let mut recording = Self { losses: Vec::new(), tensors: BTreeMap::new(), order, starts: HashMap::new() };
        for n in 0..STEPS {
            begins(n);
            let scalars =
                Scalars { learning_rate: options.learning_rate, step: n as u64, seed: 0, ..Scalars::default() };
            let result = match n {
                0 => step.run(&inputs, scalars, &mut probe)?,
                _ => step.run(&inputs, scalars, &mut ())?,
            };
            recording.losses.push(result.losses.into_iter().chain(result.metrics).collect());
            if n == 0 || n + 1 == STEPS {
                recording.variables(&step, manifest, n + 1, &positions)?;
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
        steps: usize,
        positions: &impl Fn(&str, usize) -> Vec<usize>,
    ) -> Result<(), GoldenError> {
        let graph = step.graph();
        for (variable, tensor) in step.variables()? {
            let key = match &variable.role {
                VariableRole::Slot { parameter, slot: "momentum_buffer" } => {
                    format!("momentum{steps}/{}", graph.variable(*parameter).name)
                }
                VariableRole::Slot { .. } => continue,
                role if role.is_statistic() => format!("buffer{steps}/{}", variable.name),
                _ if variable.next.is_none() => continue,
                _ => format!("param{steps}/{}", variable.name),
            };
            let values = to_f64(&tensor).map_err(zoo_engine::EngineError::from)?;
            let positions = positions(&key, values.len());
            let at = |values: &dyn Fn(usize) -> f64| positions.iter().map(|p| values(*p)).collect::<Vec<f64>>();
            if variable.role.is_parameter() {
                let start = start_values(manifest, &variable.name, values.len());
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

fn start_values(manifest: &Manifest, name: &str, numel: usize) -> Vec<f32> {
    match manifest.init.get(name) {
        Some(rule) => weights::initial(rule, &manifest.salt, name, numel),
        None => vec![0.0; numel],
    }
}

/// The rule by which a parameter or buffer of a recorded golden starts; see `golden/README.md`.
fn rule(role: &VariableRole, shape: &[usize]) -> Option<Init> {
    let tenth = f64::from(0.1f32);
    Some(match role {
        VariableRole::Weight => {
            let fan_in: usize = shape.iter().skip(1).product();
            Init::Uniform { bound: f64::from((6.0 / fan_in.max(1) as f64).sqrt() as f32) }
        }
        VariableRole::Bias | VariableRole::NormBias => Init::Uniform { bound: tenth },
        VariableRole::NormWeight => Init::OnePlus { bound: tenth, gain: 1.0 },
        VariableRole::RunningMean => Init::Const { value: 0.0 },
        VariableRole::RunningVar => Init::Const { value: 1.0 },
        VariableRole::Slot { .. } => return None,
    })
}

/// Everything of the manifest that is known before a step has run.
fn conditions(recipe: &Recipe, graph: &Graph, classes: usize, options: &RecordOptions) -> Manifest {
    let mut groups: Vec<Group> = Vec::new();
    let (mut bn, mut shapes, mut init) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for node in &graph.nodes {
        let (weight_decay, lr_scale) = match &node.op {
            Op::ApplyMomentum(op) => (op.weight_decay, op.lr_scale),
            Op::ApplyAdam(op) => (op.weight_decay, op.lr_scale),
            Op::BnRunningUpdate(op) => {
                let layer = node.name.trim_end_matches("/running");
                let eps = graph.nodes.iter().find_map(|n| match &n.op {
                    Op::BnTrainingUpdate(update) if n.name == layer => Some(update.eps),
                    _ => None,
                });
                let pair = (eps.unwrap_or_default(), op.momentum);
                if !bn.contains(&pair) {
                    bn.push(pair);
                }
                continue;
            }
            _ => continue,
        };
        let name = node.name.trim_end_matches("/update").to_string();
        let lr = options.learning_rate * lr_scale;
        match groups.iter_mut().find(|g| g.weight_decay == weight_decay && g.lr == lr) {
            Some(group) => group.params.push(name),
            None => groups.push(Group { lr, weight_decay, params: vec![name] }),
        }
    }
    for variable in &graph.variables {
        let shape = graph.ty(variable.value).shape.to_vec();
        if let Some(rule) = rule(&variable.role, &shape) {
            init.insert(variable.name.clone(), rule);
            shapes.insert(variable.name.clone(), shape);
        }
    }
    let inputs = graph.inputs.iter().map(|input| {
        let shape = graph.ty(input.value).shape.to_vec();
        let (name, image) = (&input.name, recipe.model.inputs.contains_key(&input.name));
        let rule = match (image, name == LABEL) {
            (true, _) => format!("image[-2,2) of 'input.{name}'"),
            (false, true) => format!("h % {classes} of 'input.{name}'"),
            (false, false) => format!("{} of 'input.{name}'", target(&recipe.loss, name)),
        };
        (name.clone(), Input { shape, rule: Some(rule), stored: !image })
    });
    let loss = &recipe.loss;
    let vectors = ["a", "conv1.weight"].map(|name| (name.to_string(), hash_vectors(name)));
    Manifest {
        model: recipe.name.clone(),
        salt: options.salt.clone(),
        precision: "f64 of the engine is the truth; f32_rel is its f32 run's error on the stored samples".into(),
        made_with: BTreeMap::from([("zoo".to_string(), env!("CARGO_PKG_VERSION").to_string())]),
        optimizer: optimizer(recipe, groups),
        hyper: Hyper {
            label_smoothing: loss.softmax_cross_entropy.as_ref().map(|l| l.label_smoothing),
            l2_in_loss: loss.l2.as_ref().map(|l2| l2.weight),
            loss_weights: None,
            negative_ratio: None,
        },
        parameter_count: graph.parameters().map(|(_, v)| graph.ty(v.value).shape.numel() as u64).sum(),
        bn,
        hash_vectors: BTreeMap::from(vectors),
        inputs: inputs.collect(),
        shapes,
        init,
        parameters_without_gradient: untouched(graph),
        losses_f64: Vec::new(),
        losses_f32: Vec::new(),
        output_order: Vec::new(),
        tensors: BTreeMap::new(),
        variants: BTreeMap::new(),
        schedule: Some(schedule(recipe)),
    }
}

fn optimizer(recipe: &Recipe, groups: Vec<Group>) -> Optimizer {
    let norm = |clip: &schema::Clip| match clip {
        schema::Clip::Norm(bound) => Some(*bound),
        schema::Clip::Value(_) => None,
    };
    let blank = Optimizer {
        kind: String::new(),
        momentum: None,
        nesterov: false,
        betas: None,
        eps: None,
        clip_grad_norm: recipe.gradients.clip.iter().find_map(norm),
        groups,
    };
    match &recipe.optimizer {
        schema::Optimizer::Sgd(sgd) => Optimizer {
            kind: "SGD: see ApplyMomentum".into(),
            momentum: Some(sgd.momentum),
            nesterov: sgd.nesterov,
            ..blank
        },
        schema::Optimizer::Adam(adam) => Optimizer {
            kind: "Adam: see ApplyAdam".into(),
            betas: Some((adam.beta1, adam.beta2)),
            eps: Some(adam.eps),
            ..blank
        },
    }
}

fn hash_vectors(name: &str) -> HashVectors {
    let hash = NameHash::new(name);
    HashVectors {
        fnv1a64: format!("{:016x}", fnv1a64(name.as_bytes())),
        h: (0..4).map(|i| format!("{:016x}", hash.h(i))).collect(),
        s_f32: (0..4).map(|i| f64::from(hash.s(i))).collect(),
    }
}

/// Parameters that no update writes.
fn untouched(graph: &Graph) -> Vec<String> {
    graph.parameters().filter(|(_, v)| v.next.is_none()).map(|(_, v)| v.name.clone()).collect()
}

/// The values that a target of the loss may have.
fn target(loss: &schema::Loss, name: &str) -> &'static str {
    let select = loss.select_cross_entropy.as_ref().is_some_and(|term| term.label == name);
    let mask = loss.mask_soft_margin.as_ref().is_some_and(|term| term.target == name);
    let offsets = loss.weighted_l1.as_ref().is_some_and(|term| term.target == name);
    let map = loss.masked_l1.as_ref().is_some_and(|term| term.target == name);
    match (select, mask, offsets, map) {
        (true, ..) => "-1, 0 or 1",
        (_, true, ..) => "-1 or 1",
        (_, _, true, _) => "uniform[-1,1)",
        (.., true) => "uniform[0,1)",
        _ => "1 in 4 is 1, else 0",
    }
}

/// Values of a stored input by the hash, as the rule of the manifest says.
fn values(manifest: &Manifest, name: &str, input: &Input) -> Vec<f32> {
    let hash = NameHash::new(&format!("{}input.{name}", manifest.salt));
    let rule = input.rule.as_deref().unwrap_or_default();
    let value = |i: u64| match rule.split(" of '").next().unwrap_or_default() {
        "-1, 0 or 1" => (hash.h(i) % 3) as f32 - 1.0,
        "-1 or 1" => 2.0 * (hash.h(i) % 2) as f32 - 1.0,
        "uniform[-1,1)" => hash.s(i),
        "uniform[0,1)" => 0.5 + 0.5 * hash.s(i),
        _ => f32::from(hash.h(i).is_multiple_of(4)),
    };
    (0..input.shape.iter().product::<usize>() as u64).map(value).collect()
}

/// Labels by the hash, as the rule of the manifest says.
fn labels(manifest: &Manifest, name: &str, input: &Input) -> Vec<u32> {
    let classes = input
        .rule
        .as_deref()
        .unwrap_or_default()
        .strip_prefix("h % ")
        .and_then(|r| r.split(' ').next())
        .and_then(|n| n.parse().ok());
    let hash = NameHash::new(&format!("{}input.{name}", manifest.salt));
    (0..input.shape.iter().product::<usize>() as u64).map(|i| (hash.h(i) % classes.unwrap_or(1u64)) as u32).collect()
}

fn inputs(graph: &Graph, manifest: &Manifest) -> Result<Inputs, GoldenError> {
    let mut inputs = Inputs::new();
    for input in &graph.inputs {
        let ty = graph.ty(input.value);
        let Some(described) = manifest.inputs.get(&input.name) else { continue };
        let tensor = match (described.stored, ty.dtype.is_float()) {
            (true, false) => {
                Tensor::from_vec(labels(manifest, &input.name, described), ty.shape.to_vec(), &Device::Cpu)
            }
            (true, true) => Tensor::from_vec(values(manifest, &input.name, described), ty.shape.to_vec(), &Device::Cpu)
                .and_then(|t| t.to_dtype(candle_dtype(ty.dtype))),
            (false, _) => {
                let hash = NameHash::new(&format!("{}input.{}", manifest.salt, input.name));
                let values: Vec<f32> = (0..ty.shape.numel() as u64).map(|i| 2.0 * hash.s(i)).collect();
                Tensor::from_vec(values, ty.shape.to_vec(), &Device::Cpu)
                    .and_then(|t| t.to_dtype(candle_dtype(ty.dtype)))
            }
        };
        inputs = inputs.with(&input.name, tensor.map_err(zoo_engine::EngineError::from)?);
    }
    Ok(inputs)
}

/// Writes both files, and reads them again: what is written can be checked against.
fn write(stem: &Path, manifest: &Manifest, samples: &BTreeMap<String, Vec<f64>>) -> Result<(), GoldenError> {
    let [json, tensors] = files(stem);
    let unwritable = |path: &Path| {
        let path = path.to_path_buf();
        move |source| GoldenError::Unwritable { path, source }
    };
    let malformed = |message: String| GoldenError::Malformed { path: json.clone(), message };
    let mut arrays: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = samples
        .iter()
        .map(|(key, values)| {
            let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            (key.clone(), Dtype::F64, vec![values.len()], bytes)
        })
        .collect();
    for (name, input) in manifest.inputs.iter().filter(|(_, input)| input.stored) {
        let (dtype, bytes) = match name == LABEL {
            true => {
                (Dtype::I32, labels(manifest, name, input).iter().flat_map(|l| (*l as i32).to_le_bytes()).collect())
            }
            false => (Dtype::F32, values(manifest, name, input).iter().flat_map(|v| v.to_le_bytes()).collect()),
        };
        arrays.push((format!("input/{name}"), dtype, input.shape.clone(), bytes));
    }
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
