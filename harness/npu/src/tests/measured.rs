//! Made traces of an NPU: what was planted in them is named, with its line and the time that it costs.

use crate::{
    Cause, Device, DeviceLibrary, Measured, Profile, Reason, Work, calibrate, figure::Figure, measured, price::Price,
    profile,
};
use std::fmt::Write as _;
use zoo_graph::Phase;
use zoo_recipe::{Library, LoadOptions, Recipe};

const RECIPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");

/// A trace of one step in which each of the clock's kernels takes its predicted time, times a factor that varies.
struct Trace {
    events: String,
    now: f64,
    seed: u64,
}

impl Trace {
    fn new(seed: u64) -> Self {
        let process = |pid: u32, name: &str| {
            format!(r#"{{"ph":"M","name":"process_name","pid":{pid},"args":{{"name":"{name}"}}}}"#)
        };
        let events = [process(1, "Python"), process(2, "CANN"), process(3, "Ascend Hardware")].join(",\n");
        Self { events, now: 1000.0, seed }
    }

    /// From 0.95 to 1.05.
    fn vary(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        0.95 + 0.1 * (self.seed >> 40) as f64 / f64::from(1 << 24)
    }

    fn event(&mut self, pid: u32, name: &str, start: f64, us: f64, more: &str) {
        let _ = write!(
            self.events,
            ",\n{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":1,\"ts\":\"{start:.3}\",\"dur\":{us:.3}{more}}}"
        );
    }

    /// A kernel of an operator in the call of a module; gradients have the number of their operator.
    fn kernel(&mut self, module: &str, phase: Phase, number: usize, [operator, task]: [&str; 2], us: f64) {
        let (start, args) = (self.now, format!(",\"args\":{{\"Sequence number\":{number}}}"));
        match phase {
            Phase::Forward => {
                self.event(1, &format!("forward/{module}"), start, 2.0, "");
                self.event(1, operator, start + 0.5, 1.0, &args);
            }
            Phase::Backward => {
                let name = format!("autograd::engine::evaluate_function: {operator}");
                self.event(1, &name, start + 0.5, 1.0, &args);
            }
            Phase::Loss => {
                self.event(1, "loss", start, 2.0, "");
                self.event(1, operator, start + 0.5, 1.0, "");
            }
            Phase::Update => {
                self.event(1, "update", start, 2.0, "");
                self.event(1, operator, start + 0.5, 1.0, "");
            }
        }
        let begin = start + 3.0;
        for (ph, pid, ts) in [("s", 1, start + 0.7), ("f", 3, begin)] {
            let _ = write!(
                self.events,
                ",\n{{\"ph\":\"{ph}\",\"cat\":\"async_npu\",\"id\":\"{begin}\",\"pid\":{pid},\"tid\":1,\"ts\":\"{ts:.3}\"}}"
            );
        }
        self.event(3, operator, begin, us, &format!(",\"args\":{{\"Task Type\":\"{task}\"}}"));
        self.now = begin + us;
    }
}

/// The step as a trace, with something planted before kernel `at`, or instead of it: then it returns true.
fn trace(profile: &Profile, seed: u64, at: usize, plant: impl Fn(&mut Trace, &str, Phase, usize) -> bool) -> String {
    let mut trace = Trace::new(seed);
    for (k, (kernel, price)) in profile.kernels.iter().zip(&profile.prices).enumerate() {
        let node = &profile.graph.nodes[kernel.nodes[0]];
        let module = node.name.split('/').next().unwrap_or_default();
        let module = module.strip_suffix(".weight").or(module.strip_suffix(".bias")).unwrap_or(module);
        // Operators of a module are tied to their gradients by its place among all modules.
        let number = profile.graph.taps.iter().position(|tap| tap.module == module).unwrap_or(0);
        if k == at && plant(&mut trace, module, kernel.phase, number) {
            continue;
        }
        let us = price.time.us() * trace.vary();
        trace.kernel(module, kernel.phase, number, [node.op.name(), "AI_CORE"], us);
    }
    let length = trace.now;
    trace.event(1, "ProfilerStep#1", 1000.0, length, "");
    format!("[{}]", trace.events)
}

fn device() -> Device {
    DeviceLibrary::new([RECIPES]).load("ascend910").unwrap()
}

fn step() -> (Recipe, Profile) {
    let options = LoadOptions { profile: None, sets: vec!["train.batch=64".to_owned()] };
    let recipe = Library::new([RECIPES]).load("resnet18", &options).unwrap().recipe;
    let profile = profile(&recipe, &device(), Work::Train).unwrap();
    (recipe, profile)
}

fn read(text: &str, recipe: &Recipe, profile: &Profile) -> Measured {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace_view.json");
    std::fs::write(&path, text).unwrap();
    let measured = measured(&zoo_measured::open(&path).unwrap(), recipe, &device(), profile, Work::Train).unwrap();
    let lines: f64 = measured.lines.iter().map(|line| line.measured_ms).sum();
    let rest: f64 = measured.rest.iter().map(|rest| rest.ms).sum();
    let gaps: f64 = measured.gaps.iter().map(|gap| gap.ms).sum();
    let all = lines + rest + gaps + measured.collectives.measured_ms;
    assert!((all - measured.step_ms).abs() < 1e-6, "{all} ms of {}", measured.step_ms);
    measured
}

/// A convolution in the middle of the network.
fn middle(profile: &Profile) -> usize {
    let is_convolution = |k: &usize| {
        let node = &profile.graph.nodes[profile.kernels[*k].nodes[0]];
        node.name == "layer2.0.conv2" && node.phase == Phase::Forward
    };
    (0..profile.kernels.len()).find(is_convolution).unwrap()
}

#[test]
fn a_step_without_plants_has_no_causes_but_gaps_and_shapes() {
    let (recipe, profile) = step();
    let measured = read(&trace(&profile, 1, usize::MAX, |_, _, _, _| false), &recipe, &profile);
    assert!(measured.matched_share > 0.98, "{}: {:?}", measured.matched_share, measured.rest);
    let of_device = |cause: &&Cause| !matches!(cause.reason, Reason::Launch | Reason::OffTile);
    assert_eq!(measured.causes.iter().find(of_device), None);
    let convolutions = measured.lines.iter().filter(|line| line.operators == ["Conv2D"] && line.predicted_ms > 0.1);
    for line in convolutions {
        assert!(line.ratio.is_some_and(|ratio| (0.9..1.1).contains(&ratio)), "{line:?}");
    }
}

#[test]
fn an_operator_on_the_host_is_named_with_its_line_and_its_time() {
    let (recipe, profile) = step();
    let at = middle(&profile);
    let line = profile.line_of(&profile.kernels[at]);
    let us = 0.4 * profile.device_step.us();
    let lost = us - profile.prices[at].time.us();
    for seed in 0..10 {
        let text = trace(&profile, seed, at, |trace, module, phase, number| {
            trace.kernel(module, phase, number, ["Conv2D", "AI_CPU"], us);
            true
        });
        let measured = read(&text, &recipe, &profile);
        let cause = &measured.causes[0];
        assert_eq!((cause.reason, &cause.line), (Reason::FellBack, &line), "{:?}", measured.causes);
        println!("{:.1} %, {:+.1} % of it", 100.0 * cause.share, 100.0 * (cause.ms / (1e-3 * lost) - 1.0));
        assert!((cause.ms / (1e-3 * lost) - 1.0).abs() < 0.2, "{} ms of {lost} us", cause.ms);
        assert!(cause.share > 0.2);
    }
}

#[test]
fn a_synchronisation_is_named_with_its_line_and_its_time() {
    let (recipe, profile) = step();
    let at = middle(&profile);
    let line = profile.line_of(&profile.kernels[at]);
    let us = 0.4 * profile.device_step.us();
    for seed in 0..10 {
        let text = trace(&profile, seed, at, |trace, _, _, _| {
            let now = trace.now;
            trace.event(2, "AscendCL@aclrtSynchronizeStream", now - 5.0, 10.0, "");
            trace.now += us;
            false
        });
        let measured = read(&text, &recipe, &profile);
        let cause = &measured.causes[0];
        assert_eq!((cause.reason, &cause.line), (Reason::Synchronisation, &line), "{:?}", measured.causes);
        println!("{:.1} %, {:+.1} % of it", 100.0 * cause.share, 100.0 * (cause.ms / (1e-3 * us) - 1.0));
        assert!((cause.ms / (1e-3 * us) - 1.0).abs() < 0.2, "{} ms of {us} us", cause.ms);
        assert!(cause.share > 0.2);
    }
}

#[test]
fn a_compilation_is_named_with_its_line_and_its_time() {
    let (recipe, profile) = step();
    let at = middle(&profile);
    let line = profile.line_of(&profile.kernels[at]);
    let us = 0.4 * profile.device_step.us();
    let text = trace(&profile, 1, at, |trace, _, _, _| {
        let now = trace.now;
        trace.event(2, "AscendCL@aclopCompileAndExecute", now, us, "");
        trace.now += us;
        false
    });
    let measured = read(&text, &recipe, &profile);
    let cause = &measured.causes[0];
    assert_eq!((cause.reason, &cause.line), (Reason::Recompiled, &line), "{:?}", measured.causes);
    assert!((cause.ms / (1e-3 * us) - 1.0).abs() < 0.01, "{} ms of {us} us", cause.ms);
    assert_eq!(cause.evidence, "1 compilations per step");
}

/// The images have 3 channels, and a tile has 16: the matrix units could need 3/16 of their time for them, until
/// another unit is slower.
#[test]
fn a_shape_off_the_tile_is_named_with_the_next_that_fits() {
    let (recipe, profile) = step();
    let lines = profile.kernels.iter().map(|kernel| profile.line_of(kernel));
    let products: Vec<_> = profile.prices.iter().zip(lines).filter(|(price, _)| price.tiling.is_some()).collect();
    let stem: Vec<_> = products.iter().filter(|(_, line)| *line == products[0].1).collect();
    let saved = |price: &Price| {
        (price.cube.ms() - (price.cube.ms() * 3.0 / 16.0).max(price.hbm.ms()).max(price.vector.ms()).max(price.l2.ms()))
            .max(0.0)
    };
    let expected: f64 = stem.iter().map(|(price, _)| saved(price)).sum();
    let measured = read(&trace(&profile, 1, usize::MAX, |_, _, _, _| false), &recipe, &profile);
    let cause = measured.causes.iter().find(|cause| cause.reason == Reason::OffTile).unwrap();
    assert_eq!((stem.len(), &cause.line), (2, &stem[0].1));
    assert!((cause.ms / expected - 1.0).abs() < 0.06, "{} ms of {expected}", cause.ms);
    assert!(
        cause.evidence.ends_with(": 3 of 16 input channels in the tiles (19 %); 16 is the next that fits"),
        "{}",
        cause.evidence
    );
}

/// The step as a table of kernels with shapes, without marks.
fn table(profile: &Profile, factor: impl Fn(usize) -> f64) -> String {
    let mut text = "Name,Type,Accelerator Core,Start Time(us),Duration(us),Input Shapes,Output Shapes\n".to_owned();
    let mut now = 1000.0;
    for (k, (kernel, price)) in profile.kernels.iter().zip(&profile.prices).enumerate() {
        let node = &profile.graph.nodes[kernel.nodes[0]];
        let shapes = |values: &[zoo_graph::ValueId]| {
            let shape = |value: &zoo_graph::ValueId| {
                let axes = profile.graph.ty(*value).shape.iter().map(usize::to_string).collect::<Vec<_>>();
                axes.join(",")
            };
            values.iter().map(shape).collect::<Vec<_>>().join(";")
        };
        let us = price.time.us() * factor(k);
        let (name, inputs, outputs) = (node.op.name(), shapes(&node.inputs), shapes(&node.outputs));
        let _ = writeln!(text, "{name}{k},{name},AI_CORE,{now:.3},{us:.3},\"{inputs}\",\"{outputs}\"");
        now += us + 1.0;
    }
    text
}

#[test]
fn tables_are_matched_by_operator_shape_and_order() {
    let (recipe, profile) = step();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel_details.csv");
    std::fs::write(&path, table(&profile, |_| 2.0)).unwrap();
    let measured = measured(&zoo_measured::open(&path).unwrap(), &recipe, &device(), &profile, Work::Train).unwrap();
    assert!(measured.matched_share > 0.95, "{}: {:?}", measured.matched_share, measured.rest);
    let exact = measured.lines.iter().filter(|line| line.ratio.is_some_and(|ratio| (ratio - 2.0).abs() < 0.02));
    let [exact, all]: [f64; 2] =
        [exact.map(|l| l.measured_ms).sum(), measured.lines.iter().map(|l| l.measured_ms).sum()];
    assert!(exact > 0.9 * all, "{exact} of {all} ms in lines that take twice as long");
}

#[test]
fn a_device_is_fitted_to_kernels() {
    let (recipe, _) = step();
    let mut faster = device();
    faster.matrix.efficiency.value *= 1.3;
    faster.hbm.efficiency.value *= 0.8;
    faster.control.launch_us.value = 4.0;
    let assumed = |value: f64| Figure { value, source: "assumed".to_owned(), fitted_to: Vec::new() };
    faster.control.tensor_us = Some(assumed(0.5));
    faster.operators.rates.insert("BNTrainingUpdateGrad".to_owned(), assumed(0.8));
    let truth = profile(&recipe, &faster, Work::Train).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel_details.csv");
    std::fs::write(&path, table(&truth, |_| 1.0)).unwrap();
    let fitted = calibrate(&recipe, &device(), &[zoo_measured::open(&path).unwrap()]).unwrap();
    assert!(fitted.before > 0.1 && fitted.after < 0.02, "{} to {}", fitted.before, fitted.after);
    let near = |found: f64, truth: f64| (found / truth - 1.0).abs() < 0.05;
    assert!(near(fitted.device.matrix.efficiency.value, faster.matrix.efficiency.value), "{:?}", fitted.fitted);
    assert!(near(fitted.device.hbm.efficiency.value, faster.hbm.efficiency.value), "{:?}", fitted.fitted);
    assert!(near(fitted.device.control.launch_us.value, 4.0), "{:?}", fitted.fitted);
    assert!(fitted.device.control.tensor_us.as_ref().is_some_and(|of| near(of.value, 0.5)), "{:?}", fitted.fitted);
    let rates: Vec<(&str, f64)> = fitted.device.operators.rates.iter().map(|(k, v)| (k.as_str(), v.value)).collect();
    assert!(matches!(rates[..], [("BNTrainingUpdateGrad", rate)] if near(rate, 0.8)), "{rates:?}");
    let file = fitted.file("mine", "kernel_details.csv").unwrap();
    assert!(file.contains("name: mine") && file.contains("fitted to"), "{file}");
    std::fs::create_dir(folder.path().join("devices")).unwrap();
    std::fs::write(folder.path().join("devices/mine.yaml"), file).unwrap();
    let again = DeviceLibrary::new([folder.path(), RECIPES.as_ref()]).load("mine").unwrap();
    assert_eq!(again.operators.rates.len(), 1);
    assert_eq!(again.matrix.efficiency.value, fitted.device.matrix.efficiency.value);
}
