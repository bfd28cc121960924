//! Dumps of a step, and what two of them tell: every kind of operator, forward and backward, gets a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use zoo_engine::simulate::{Overflow, Range, Subnormals};
use zoo_engine::{Arithmetic, Kernels, Options};
use zoo_golden::device::{DeviceOptions, NodeReport, bisect::bisect, check_device};
use zoo_golden::dump::{Arithmetics, Comparison, Dump, DumpOptions, Fault, Written, diff, dump};
use zoo_golden::record::{RecordOptions, record};
use zoo_golden::{Golden, GoldenError, Precision, Stage, Verdict};
use zoo_graph::{
    DType,
    passes::{PrecisionMode, PrecisionPolicy, ScaleLoss},
};
use zoo_recipe::{Library, LoadOptions, Recipe};

const SCALE: f64 = 256.0;
const ENGINE: Options = Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None };

/// The fixture with everything in it, and a golden of its own step.
fn case() -> (Recipe, Golden, tempfile::TempDir) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recipes");
    let recipe = Library::new([folder]).load("operators", &LoadOptions::default()).unwrap().recipe;
    let folder = tempfile::tempdir().unwrap();
    let stem = folder.path().join("step");
    let options = RecordOptions { batch: 4, learning_rate: 0.01, salt: String::new(), samples: 64 };
    record(&recipe, &options, &stem, &mut |_, _| ()).unwrap();
    let golden = Golden::read(&stem.with_extension("json")).unwrap();
    (recipe, golden, folder)
}

/// fp16 for everything, so that every operator rounds and can be broken.
fn arithmetic(planted: &[(&str, i32)]) -> Arithmetic {
    Arithmetic {
        policy: PrecisionPolicy {
            mode: PrecisionMode::Reduced,
            reduced: DType::F16,
            white: BTreeSet::new(),
            black: BTreeSet::new(),
            reduced_only: BTreeSet::new(),
            keep: BTreeSet::new(),
        },
        range: Range::Format { overflow: Overflow::Saturate, subnormals: Subnormals::Keep },
        scales_loss: Some(ScaleLoss::default()),
        skips_overflow: true,
        planted: planted.iter().map(|(name, power)| ((*name).to_owned(), *power)).collect(),
    }
}

fn device(arithmetic: &Arithmetic) -> DeviceOptions<'_> {
    DeviceOptions { device: "test", arithmetic, loss_scale: SCALE, engine: ENGINE }
}

fn write(recipe: &Recipe, golden: &Golden, arithmetic: Arithmetics<'_>, folder: &Path) -> Written {
    dump(recipe, golden, &DumpOptions { arithmetic, engine: ENGINE }, folder, &mut |_, _| ()).unwrap()
}

fn compare(a: &Path, b: &Path) -> Comparison {
    diff(&Dump::open(a).unwrap(), &Dump::open(b).unwrap(), &mut |_, _| ()).unwrap()
}

/// Operators that only move or convert what others computed; a fault planted in a view (`Reshape`) is refused.
const MOVES: [&str; 3] = ["Cast", "TransData", "Reshape"];

/// A node of every kind of operator in every part of the step: one that rounds, whose name is its own, and of which
/// something is left.
fn victims(clean: &[NodeReport]) -> Vec<&NodeReport> {
    let mut kinds: BTreeMap<(&str, Stage), &NodeReport> = BTreeMap::new();
    for node in clean.iter().filter(|node| node.dtype == DType::F16 && !MOVES.contains(&node.op)) {
        let unique = clean.iter().filter(|other| other.node == node.node).count() == 1;
        let is_loss_scale = node.node.starts_with("loss/s") || node.node.ends_with("/unscale");
        if unique && !is_loss_scale && !node.exponents.is_empty() {
            kinds.entry((node.op, node.stage)).or_insert(node);
        }
    }
    kinds.into_values().collect()
}

#[test]
fn a_fault_in_any_operator_is_localised_by_check_diff_and_bisect() {
    let (recipe, golden, folder) = case();
    let clean = check_device(&recipe, &golden, &device(&arithmetic(&[])), &mut |_| ()).unwrap();
    assert_eq!(clean.verdict, Verdict::Pass, "{:?}", clean.first_divergence);
    let [sound, exact, faulty] = ["sound", "exact", "faulty"].map(|name| folder.path().join(name));
    write(&recipe, &golden, Arithmetics::Device(device(&arithmetic(&[]))), &sound);
    write(&recipe, &golden, Arithmetics::Host(Precision::F32), &exact);
    let victims = victims(&clean.nodes);
    let kinds: BTreeSet<&str> = victims.iter().map(|node| node.op).collect();
    for kind in [
        "PadD",
        "Conv2D",
        "BNTrainingUpdate",
        "Relu",
        "LRN",
        "LRNGrad",
        "MaxPool",
        "MaxPoolGrad",
        "Relu6",
        "Relu6Grad",
        "AvgPool",
        "AvgPoolGrad",
        "Sigmoid",
        "SigmoidGrad",
        "Conv2DBackpropInput",
        "Conv2DBackpropFilter",
        "MatMul",
        "ReluGrad",
        "BiasAddGrad",
        "SoftmaxCrossEntropyWithLogits",
        "L2Loss",
    ] {
        assert!(kinds.contains(kind), "no {kind} among {kinds:?}");
    }
    for victim in victims {
        for power in [-40, 40] {
            let name = victim.node.as_str();
            let broken = arithmetic(&[(name, power)]);
            let context = format!("{name} ({}, {}) times 2^{power}", victim.op, victim.stage);
            let report = check_device(&recipe, &golden, &device(&broken), &mut |_| ()).unwrap();
            let first = report.first_divergence.unwrap_or_else(|| panic!("check: {context} was not found"));
            assert_eq!((first.node.as_deref(), first.local), (Some(name), Some(true)), "check: {context}");
            write(&recipe, &golden, Arithmetics::Device(device(&broken)), &faulty);
            for (other, what) in [(&sound, "sound"), (&exact, "exact")] {
                let found = compare(other, &faulty).first.unwrap_or_else(|| panic!("diff, {what}: {context}"));
                assert_eq!((found.node.as_str(), found.fault), (name, Some(Fault::B)), "diff, {what}: {context}");
                let found = compare(&faulty, other).first.unwrap_or_else(|| panic!("diff, {what}: {context}"));
                assert_eq!((found.node.as_str(), found.fault), (name, Some(Fault::A)), "diff, {what}: {context}");
            }
            let found = bisect(&recipe, &golden, &device(&broken), &mut |_, _| ()).unwrap();
            let keep: Vec<&str> = found.keep.iter().map(|kept| kept.node.as_str()).collect();
            assert!(found.passes && keep == [name], "bisect: {context}: {found:?}");
        }
    }
}

#[test]
fn differences_of_sound_steps_are_rounding_or_inherited() {
    let (recipe, golden, folder) = case();
    let arithmetic = arithmetic(&[]);
    let [f64, f32, npu] = ["f64", "f32", "npu"].map(|name| folder.path().join(name));
    write(&recipe, &golden, Arithmetics::Host(Precision::F64), &f64);
    write(&recipe, &golden, Arithmetics::Host(Precision::F32), &f32);
    write(&recipe, &golden, Arithmetics::Device(device(&arithmetic)), &npu);
    for (a, b) in [(&f64, &f32), (&f32, &npu), (&npu, &f64)] {
        let found = compare(a, b);
        assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.first);
        assert!(!found.identical && found.nodes.iter().any(|node| node.error.is_some_and(|error| error > 0.0)));
        let worst = found.nodes.iter().flat_map(|node| node.own.iter().flatten()).map(|own| own.ratio());
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 2.0, "{worst} is near the tolerance");
    }
    let same = compare(&npu, &npu);
    assert!(same.identical && same.verdict == Verdict::Pass);
    assert!(same.nodes.iter().all(|node| node.error == Some(0.0)));
}

#[test]
fn an_operator_that_changed_its_meaning_is_found() {
    let (recipe, golden, folder) = case();
    let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
    write(&recipe, &golden, Arithmetics::Host(Precision::F32), &before);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recipes");
    let load = LoadOptions { sets: vec!["model.lrn.alpha=0.2".to_owned()], ..LoadOptions::default() };
    let changed = Library::new([folder]).load("operators", &load).unwrap().recipe;
    write(&changed, &golden, Arithmetics::Host(Precision::F32), &after);
    let found = compare(&before, &after).first.unwrap();
    assert_eq!((found.node.as_str(), found.fault), ("lrn", Some(Fault::Between)));
    assert!(found.line.unwrap().contains("operators.yaml:"));
}

#[test]
fn a_dump_changes_no_bit() {
    let (recipe, golden, folder) = case();
    let arithmetic = arithmetic(&[]);
    let [with, again, other] = ["with", "again", "other"].map(|name| folder.path().join(name));
    let options = Arithmetics::Device(device(&arithmetic));
    let (first, second) = (write(&recipe, &golden, options, &with), write(&recipe, &golden, options, &again));
    assert_eq!(first.hash, second.hash);
    let one = Options { threads: Some(1), ..ENGINE };
    let third =
        dump(&recipe, &golden, &DumpOptions { arithmetic: options, engine: one }, &other, &mut |_, _| ()).unwrap();
    assert_eq!(first.hash, third.hash);
    assert_eq!(fs::read(with.join("values.safetensors")).unwrap(), fs::read(other.join("values.safetensors")).unwrap());
    // A step that nobody looks at gives the same losses and variables.
    let unseen = zoo_golden::dump::hash_of_step(&recipe, &golden, &DumpOptions { arithmetic: options, engine: ENGINE });
    assert_eq!(unseen.unwrap(), first.hash);
}

#[test]
fn what_is_no_dump_is_refused() {
    let (recipe, golden, folder) = case();
    let whole = folder.path().join("whole");
    write(&recipe, &golden, Arithmetics::Host(Precision::F32), &whole);
    let refused = |folder: &Path| match Dump::open(folder) {
        Ok(_) => panic!("{} was opened", folder.display()),
        Err(error) => error.to_string(),
    };
    assert!(refused(&folder.path().join("nowhere")).contains("there is no dump in this folder"));
    let broken = |change: &dyn Fn(&Path)| {
        let copy = folder.path().join("copy");
        fs::create_dir_all(&copy).unwrap();
        for file in ["dump.json", "values.safetensors"] {
            fs::copy(whole.join(file), copy.join(file)).unwrap();
        }
        change(&copy);
        refused(&copy)
    };
    let cut = |folder: &Path, by: u64| {
        let file = fs::File::options().write(true).open(folder.join("values.safetensors")).unwrap();
        file.set_len(file.metadata().unwrap().len().saturating_sub(by)).unwrap();
    };
    assert!(broken(&|folder| cut(folder, 5)).contains("truncated"));
    assert!(broken(&|folder| cut(folder, u64::MAX)).contains("truncated"));
    let replace = |folder: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(folder.join("dump.json")).unwrap();
        assert!(text.contains(from));
        fs::write(folder.join("dump.json"), text.replacen(from, to, 1)).unwrap();
    };
    assert!(broken(&|folder| replace(folder, "\"zoo_dump\":1", "\"zoo_dump\":7")).contains("format 7"));
    assert!(broken(&|folder| replace(folder, "\"zoo_dump\"", "\"another\"")).contains("not a dump"));
    assert!(broken(&|folder| replace(folder, "\"name\":\"conv#0.0\"", "\"name\":\"gone\"")).contains("`gone`"));
    assert!(
        broken(&|folder| fs::remove_file(folder.join("values.safetensors")).unwrap()).contains("values.safetensors")
    );
    assert!(
        broken(&|folder| fs::write(folder.join("values.safetensors"), b"12345678none").unwrap()).contains("truncated")
    );
}

#[test]
fn dumps_of_different_steps_are_not_compared() {
    let (recipe, golden, folder) = case();
    let [here, there] = ["here", "there"].map(|name| folder.path().join(name));
    write(&recipe, &golden, Arithmetics::Host(Precision::F32), &here);
    let stem = folder.path().join("salted");
    let options = RecordOptions { batch: 4, learning_rate: 0.01, salt: "other:".into(), samples: 64 };
    record(&recipe, &options, &stem, &mut |_, _| ()).unwrap();
    write(&recipe, &Golden::read(&stem.with_extension("json")).unwrap(), Arithmetics::Host(Precision::F32), &there);
    let error = diff(&Dump::open(&here).unwrap(), &Dump::open(&there).unwrap(), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, GoldenError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("other values"), "{error}");
}
