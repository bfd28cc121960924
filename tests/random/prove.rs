//! What must hold for every recipe that is drawn.

mod differences;

use candle_core::{DType, Device as Host, Tensor};
use std::path::{Path, PathBuf};
use std::process::Command;
use zoo_engine::{
    Arithmetic, EngineError, Inputs, Kernels, Level, Observer, Options, Scalars, Step, StepMemory,
    bounds::{self, Machine, Ran},
    candle_dtype,
    simulate::{Overflow, Range, Subnormals},
};
use zoo_golden::{
    CheckOptions, Golden, GoldenError, Precision, Report, Stage, Verdict, check,
    device::{DeviceOptions, check_device},
    kernels::{Planted, sensitivity},
    record::{RecordOptions, record},
    report::{Item, StageReport},
    start::{Spelling, Start, start},
};
use zoo_graph::{Graph, NodeId, ValueId};
use zoo_npu::{Device, DeviceLibrary, NpuError, Work, policy};
use zoo_onnx::{About, Batch, OnnxError};
use zoo_recipe::{BuildOptions, Diagnostics, Library, LoadOptions, Recipe, ResolvedModel};

/// How a case ended that shows no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was compared.
    Proven,
    /// The step is not finite at any learning rate, in f64 too.
    NotFinite,
    /// All but the finite differences, which meet a kink, or steps of rounding.
    Kink,
    /// All but some values in f32 end to end, which cancel: every node is right, and so is the step in f64.
    Cancelled,
}

/// Errors in floors up to which cancellation may explain a value in f32. A wrong operand anywhere gives millions.
const CANCELLED: f64 = 100.0;

type Proof<T> = Result<T, String>;

/// What a case needs beside its recipe.
pub struct Prover {
    folder: tempfile::TempDir,
    devices: Vec<Device>,
}

/// A recipe with its network, and the start of its first step.
struct Case {
    file: PathBuf,
    recipe: Recipe,
    model: ResolvedModel,
    golden: Golden,
    start: Start,
    scalars: Scalars,
}

fn told<T>(what: &str, result: Result<T, impl std::fmt::Display>) -> Proof<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Proof<()> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Prover {
    pub fn new() -> Self {
        let library = DeviceLibrary::new([Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes")]);
        let names = ["gaudi", "ascend910", "v100", "ascend910b", "a100", "gaudi2"];
        let devices = names.map(|name| library.load(name).unwrap_or_else(|error| panic!("{error}")));
        Self { folder: tempfile::tempdir().unwrap(), devices: devices.into() }
    }

    /// Tries all that holds for every valid recipe; `turn` varies what is not tried for each.
    pub fn prove(&self, text: &str, turn: usize) -> Proof<Outcome> {
        let file = self.folder.path().join("drawn.yaml");
        let recipe = self.load(&file, text)?;
        let model = told("resolve", recipe.resolve())?;
        self.command(&file, turn)?;
        let Some(golden) = self.record(&recipe)? else { return Ok(Outcome::NotFinite) };
        let start = told("start", start(&recipe, &golden, Spelling::PyTorch))?;
        let scalars = Scalars { learning_rate: 0.001, seed: turn as u64, ..Scalars::default() };
        let case = Case { file, recipe, model, golden, start, scalars };
        let end_to_end = case.fast_kernels(turn)?;
        case.threads_and_memory(turn)?;
        case.evaluation()?;
        case.devices(&self.devices, turn)?;
        case.exports()?;
        Ok(match case.differences()? {
            Outcome::Proven => end_to_end,
            otherwise => otherwise,
        })
    }

    /// A relative error in a tile of each result of each node of the first step, and whether its bound finds it;
    /// nothing of a step that is not finite.
    pub fn planted(&self, text: &str, turn: usize, by: f64) -> Proof<Vec<Planted>> {
        let recipe = self.load(&self.folder.path().join("drawn.yaml"), text)?;
        let Some(golden) = self.record(&recipe)? else { return Ok(Vec::new()) };
        let options = CheckOptions { precision: Precision::F32, engine: fast(turn, 1), room: None };
        told("planted", sensitivity(&recipe, &golden, &options, by, turn as u64))
    }

    /// What a recipe of this text is, or what is wrong with it.
    pub fn read(&self, text: &str) -> Result<Recipe, Diagnostics> {
        let file = self.folder.path().join("read.yaml");
        std::fs::write(&file, text).unwrap();
        let library = Library::new([self.folder.path()]);
        let loaded = library.load(&file.display().to_string(), &LoadOptions::default())?;
        loaded.recipe.resolve()?;
        Ok(loaded.recipe)
    }

    /// The recipe, which is valid, and the same when it is written with all defaults and read again.
    pub fn load(&self, file: &Path, text: &str) -> Proof<Recipe> {
        let read = |file: &Path, text: &str| {
            told("write", std::fs::write(file, text))?;
            let library = Library::new([self.folder.path()]);
            told("load", library.load(&file.display().to_string(), &LoadOptions::default()))
        };
        let recipe = read(file, text)?.recipe;
        let again = read(&self.folder.path().join("again.yaml"), &told("write", recipe.to_yaml())?)?.recipe;
        let whole = |recipe: &Recipe| told("write", recipe.to_yaml());
        expect(whole(&again)? == whole(&recipe)?, || "the recipe as it is shown is another one".to_owned())?;
        Ok(recipe)
    }

    /// A view of the command, in turn.
    fn command(&self, file: &Path, turn: usize) -> Proof<()> {
        let picture = self.folder.path().join("picture");
        let views: [&[&str]; 8] = [
            &["show"],
            &["show", "--svg"],
            &["show", "--graph", "--batch", "2"],
            &["show", "--resolved"],
            &["show", "--graph", "--passes", "--batch", "2"],
            &["validate"],
            &["show", "--dot"],
            &["show", "--schedule", "--steps-per-epoch", "5"],
        ];
        let view = views[turn % views.len()];
        let mut command = Command::new(env!("CARGO_BIN_EXE_zoo"));
        command.arg(view[0]).arg(file).args(&view[1..]);
        if view.last().is_some_and(|last| ["--svg", "--dot"].contains(last)) {
            command.arg(&picture);
        }
        let output = told("zoo", command.output())?;
        expect(output.status.success() && (view[0] == "validate" || !output.stdout.is_empty()), || {
            format!("zoo {}: {:?}: {}", view.join(" "), output.status.code(), String::from_utf8_lossy(&output.stderr))
        })
    }

    /// A golden from the engine's own step in f64; `None` if it is finite at no learning rate.
    fn record(&self, recipe: &Recipe) -> Proof<Option<Golden>> {
        self.recorded(recipe, &self.folder.path().join("step"))
    }

    /// The same in the files of `stem`.
    pub fn recorded(&self, recipe: &Recipe, stem: &Path) -> Proof<Option<Golden>> {
        for learning_rate in [1e-3, 1e-6, 1e-12] {
            let options =
                RecordOptions { batch: recipe.train.batch, learning_rate, salt: "random:".to_owned(), samples: 48 };
            match record(recipe, &options, stem, &mut |_, _| ()) {
                Err(GoldenError::NotFinite { .. }) => {}
                recorded => {
                    told("record", recorded)?;
                    return told("golden", Golden::read(&stem.with_extension("json"))).map(Some);
                }
            }
        }
        Ok(None)
    }
}

/// Fast kernels of one of the instruction sets, with or without fusion.
fn fast(turn: usize, threads: usize) -> Options {
    let level = [None, Some(Level::Portable), Some(Level::Avx2)][turn % 3];
    Options { kernels: Kernels::Fast { fusion: turn % 4 != 1 }, threads: Some(threads), level }
}

const REFERENCE: Options = Options { kernels: Kernels::Reference, threads: Some(1), level: None };

impl Case {
    /// Every node within the bound of its rounding, outputs and losses end to end.
    fn fast_kernels(&self, turn: usize) -> Proof<Outcome> {
        let precision = if turn % 8 == 7 { Precision::F64 } else { Precision::F32 };
        let options = CheckOptions { precision, engine: fast(turn, 1), room: None };
        let report = self.check(&options)?;
        let kernels = report.stages.iter().find(|stage| stage.stage == Stage::Kernels && stage.tensors > 0);
        expect(kernels.is_some() || precision == Precision::F64, || "no kernel was judged".to_owned())?;
        if report.verdict == Verdict::Pass {
            return Ok(Outcome::Proven);
        }
        let failed = || report.stages.iter().filter(|stage| stage.verdict == Verdict::Fail);
        let cancels = |stage: &StageReport| {
            let near = |item: &Item| item.ratio < CANCELLED && item.note.is_none();
            stage.stage > Stage::Kernels && stage.failed.iter().all(near)
        };
        let exact = CheckOptions { precision: Precision::F64, ..options };
        if kernels.is_some() && failed().all(cancels) && self.check(&exact)?.verdict == Verdict::Pass {
            return Ok(Outcome::Cancelled);
        }
        let failed: Vec<String> = failed()
            .map(|stage| format!("{} by {:?}, median {:?}", stage.stage, stage.worst, stage.median_ratio))
            .collect();
        Err(format!("{}; in {precision:?} of {:?}", failed.join("; "), options.engine))
    }

    fn check(&self, options: &CheckOptions) -> Proof<Report> {
        let folder = self.file.parent().unwrap_or(Path::new(""));
        told("check", check(&self.recipe, &self.golden, folder, options, &mut |_| ()))
    }

    fn graph(&self, options: &BuildOptions) -> Proof<Graph> {
        told("build", zoo_recipe::build(&self.recipe, &self.model, options))
    }

    /// A step with the weights of the golden.
    fn step(&self, graph: Graph, options: Options) -> Proof<Step> {
        let mut step = told("step", Step::new(graph, options))?;
        told("initialize", step.initialize(self.recipe.train.seed))?;
        self.set(&mut step)?;
        Ok(step)
    }

    fn set(&self, step: &mut Step) -> Proof<()> {
        for (name, array) in &self.start.weights {
            let dtype = step.graph().variables.iter().find(|v| v.name == *name).map(|v| step.graph().ty(v.value).dtype);
            let Some(dtype) = dtype else { continue };
            let tensor = Tensor::from_vec(array.values.clone(), array.shape.as_slice(), &Host::Cpu)
                .and_then(|tensor| tensor.to_dtype(candle_dtype(dtype)));
            told("variable", step.set_variable(name, &told("weights", tensor)?))?;
        }
        Ok(())
    }

    fn inputs(&self, graph: &Graph) -> Proof<Inputs> {
        let mut inputs = Inputs::new();
        for input in &graph.inputs {
            let found = self.start.inputs.iter().find(|(name, _)| *name == input.name);
            let Some((_, array)) = found else { return Err(format!("no input {}", input.name)) };
            let tensor = Tensor::from_vec(array.values.clone(), array.shape.as_slice(), &Host::Cpu)
                .and_then(|tensor| tensor.to_dtype(candle_dtype(graph.ty(input.value).dtype)));
            inputs = inputs.with(&input.name, told("input", tensor)?);
        }
        Ok(inputs)
    }

    fn trained(&self, dtype: zoo_graph::DType) -> Proof<Graph> {
        self.graph(&BuildOptions { dtype, ..BuildOptions::train(self.recipe.train.batch) })
    }

    /// The step with dropout: every node within its bound, the same bits with one thread and with two, and the memory
    /// that is forecast.
    fn threads_and_memory(&self, turn: usize) -> Proof<()> {
        let graph = self.trained(zoo_graph::DType::F32)?;
        let inputs = self.inputs(&graph)?;
        let run = |threads: usize| -> Proof<(Vec<u64>, u64)> {
            let options = fast(turn / 3, threads);
            let mut step = self.step(graph.clone(), options)?;
            let mut bits = Vec::new();
            let rewritten = step.graph().clone();
            let mut judge = Judge::new(&rewritten, options, self.scalars);
            let result = match threads {
                1 => told("run", step.run(&inputs, self.scalars, &mut judge))?,
                _ => told("run", step.run(&inputs, self.scalars, &mut ()))?,
            };
            judge.finish()?;
            bits.extend(result.losses.iter().chain(&result.metrics).map(|(_, value)| value.to_bits()));
            for (_, tensor) in told("variables", step.variables())? {
                bits.extend(elements(&tensor)?.into_iter().map(f64::to_bits));
            }
            Ok((bits, result.peak_memory.0))
        };
        let ((one, held), (two, _)) = (run(1)?, run(2)?);
        expect(one == two, || "two threads give other bits than one".to_owned())?;
        let forecast = told("memory", StepMemory::of(graph.clone(), fast(turn / 3, 1), None))?;
        let [least, most] = [forecast.values.0, forecast.peak().0];
        expect((least..=most).contains(&held), || format!("{least} to {most} bytes were forecast, {held} were held"))
    }

    /// The network in evaluation mode: every node within its bound.
    fn evaluation(&self) -> Proof<()> {
        let options = fast(0, 1);
        let mut step = self.step(self.graph(&BuildOptions::eval(self.recipe.train.batch))?, options)?;
        let graph = step.graph().clone();
        let inputs = self.inputs(&graph)?;
        let mut judge = Judge::new(&graph, options, self.scalars);
        told("evaluation", step.run(&inputs, self.scalars, &mut judge))?;
        judge.finish()
    }

    /// A predicted time on a device, and the step in the arithmetic of another one.
    fn devices(&self, devices: &[Device], turn: usize) -> Proof<()> {
        for device in [&devices[turn % devices.len()], &devices[(turn + 1) % devices.len()]] {
            let profile = match zoo_npu::profile(&self.recipe, device, Work::Train) {
                Ok(profile) => profile,
                Err(NpuError::MissingOperators { .. }) => continue,
                Err(error) => return Err(format!("profile on {}: {error}", device.name)),
            };
            let times = profile.prices.iter().map(|price| price.time.0);
            let sound = times.chain([profile.step.0]).all(|time| time.is_finite() && time >= 0.0);
            expect(sound && profile.step.0 > 0.0, || format!("the clock of {}: {:?}", device.name, profile.step))?;
        }
        let device = &devices[turn % 2];
        let arithmetic = Arithmetic {
            policy: policy(device, self.recipe.npu.precision, &self.recipe.npu.keep_fp32),
            range: Range::Format {
                overflow: match device.numerics.overflow {
                    zoo_npu::device::Overflow::Saturate => Overflow::Saturate,
                    zoo_npu::device::Overflow::Infinite => Overflow::Infinite,
                },
                subnormals: Subnormals::Keep,
            },
            scales_loss: None,
            skips_overflow: false,
            planted: std::collections::BTreeMap::new(),
        };
        let options =
            DeviceOptions { device: &device.name, arithmetic: &arithmetic, loss_scale: 1.0, engine: fast(0, 1) };
        let report = told("device", check_device(&self.recipe, &self.golden, &options, &mut |_| ()))?;
        // What fp16 loses to its range is no fault; bf16 has the range of f32.
        let beyond = |node: &&zoo_golden::device::NodeReport| {
            node.kernel.as_ref().is_some_and(|item| item.ratio > 1.0)
                || (node.verdict == Verdict::Fail && device.name == "gaudi" && node.underflow == 0.0)
        };
        match report.nodes.iter().find(beyond) {
            Some(node) => Err(format!("{}: {} {}: {:?}, {}", device.name, node.op, node.node, node.kernel, node.error)),
            None => Ok(()),
        }
    }

    /// The model in ONNX format, or the line of the layer that it cannot have.
    fn exports(&self) -> Proof<()> {
        let one = self.graph(&BuildOptions::eval(1))?;
        let step = self.step(one.clone(), REFERENCE_F32)?;
        let distinct = self.graph(&BuildOptions::eval(zoo_onnx::distinct_batch(&one)))?;
        let batch = zoo_onnx::batch(&distinct);
        let graph = if batch == Batch::Any { &distinct } else { &one };
        let values = |name: &str| step.variable(name).ok()?.flatten_all().ok()?.to_vec1::<f32>().ok();
        match zoo_onnx::export(graph, batch, &About::default(), values) {
            Ok(model) => {
                expect(model.outputs.len() == graph.outputs.len() && !model.bytes.is_empty(), || "ONNX: empty".into())
            }
            Err(OnnxError::Operator { origin: Some(origin), .. }) if origin.span.line > 0 => Ok(()),
            Err(error) => Err(format!("ONNX: {error}")),
        }
    }
}

const REFERENCE_F32: Options = REFERENCE;

fn elements(tensor: &Tensor) -> Proof<Vec<f64>> {
    let values = tensor.to_dtype(DType::F64).and_then(|tensor| tensor.flatten_all()?.to_vec1());
    told("elements", values)
}

/// Judges every node of a step in f32.
struct Judge<'a> {
    graph: &'a Graph,
    machine: Machine,
    scalars: Scalars,
    found: Result<(), String>,
}

impl<'a> Judge<'a> {
    fn new(graph: &'a Graph, options: Options, scalars: Scalars) -> Self {
        Self { graph, machine: Machine::of(options), scalars, found: Ok(()) }
    }

    fn finish(self) -> Proof<()> {
        self.found
    }

    fn judge(&self, id: NodeId, operands: &[Tensor], results: &[Tensor]) -> Result<Option<String>, EngineError> {
        let node = self.graph.node(id);
        let ran = Ran { node, operands, results, scalars: self.scalars, half: false };
        let farthest = bounds::judge(self.machine, &ran)?;
        Ok((farthest.ratio > 1.0).then(|| format!("{} {}: {farthest:?}", node.op.name(), node.name)))
    }
}

impl Observer for Judge<'_> {
    fn wants(&self, _value: ValueId) -> bool {
        false
    }

    fn observe(&mut self, _value: ValueId, _tensor: &Tensor) {}

    fn follows(&self, _node: NodeId) -> bool {
        self.found.is_ok()
    }

    fn follow(&mut self, node: NodeId, operands: &[Tensor], results: &[Tensor]) {
        match self.judge(node, operands, results) {
            Ok(None) => {}
            Ok(Some(fault)) => self.found = Err(fault),
            Err(error) => self.found = Err(format!("judge: {error}")),
        }
    }
}
