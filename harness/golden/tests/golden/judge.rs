//! Recordings that were made to be wrong, or to be what a narrow arithmetic makes of a step.

use crate::changed::Changed;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use zoo_engine::{
    Arithmetic, Kernels, Options,
    simulate::{Overflow, Range, Subnormals},
};
use zoo_golden::{
    Golden, GoldenError, Stage, Verdict,
    foreign::{Names, Recording},
    judge::{Declared, JudgeOptions, JudgeReport, judge},
    reference::{Form, write},
    report::{Item, StageReport},
};
use zoo_graph::{
    DType,
    passes::{PrecisionMode, PrecisionPolicy, ScaleLoss},
};
use zoo_recipe::{Library, LoadOptions, Recipe};
use zoo_tensors::{Array, ElementType, npy};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A recipe, its golden, and its step in f64 as named tensors.
struct Case {
    recipe: Recipe,
    golden: Golden,
    folder: TempDir,
}

impl Case {
    fn of(recipes: &str, name: &str, golden: Golden) -> Self {
        let recipe = Library::new([root().join(recipes)]).load(name, &LoadOptions::default()).unwrap().recipe;
        let folder = tempfile::tempdir().unwrap();
        write(&recipe, &golden, Form::Named, folder.path()).unwrap();
        Self { recipe, golden, folder }
    }

    fn tiny() -> Self {
        Self::of("tests/fixtures/recipes", "tiny", Golden::read(&root().join("tests/fuzz/seeds/tiny.json")).unwrap())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.path().join(format!("{key}.npy"))
    }

    /// Replaces a tensor of the recording.
    fn change(&self, key: &str, to: impl FnOnce(Array) -> Array) {
        let array = npy::parse(&fs::read(self.path(key)).unwrap()).unwrap();
        fs::write(self.path(key), npy::encode(&to(array))).unwrap();
    }

    /// Multiplies the elements of a tensor of the recording.
    fn scale(&self, key: &str, by: f64) {
        self.change(key, |array| Array { values: array.values.iter().map(|x| x * by).collect(), ..array });
    }

    /// Multiplies all gradients by the loss scale.
    fn scale_gradients(&self, by: f64) {
        for file in fs::read_dir(self.folder.path().join("grad")).unwrap() {
            let name = file.unwrap().path().with_extension("").file_name().unwrap().to_str().unwrap().to_owned();
            self.scale(&format!("grad/{name}"), by);
        }
    }

    fn judged(&self, declared: Declared<'_>, loss_scale: f64) -> Result<JudgeReport, GoldenError> {
        let engine = Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None };
        let options =
            JudgeOptions { declared, loss_scale, allow_unmatched: false, allow_missing: &[], rates: None, engine };
        let recording = Recording::open(self.folder.path(), &Names::default()).unwrap();
        let mut steps = judge(&self.recipe, &self.golden, &[recording], &options, &mut |_| ())?;
        Ok(steps.remove(0))
    }

    fn in_half(&self, dtype: DType, loss_scale: f64) -> JudgeReport {
        self.judged(Declared::Half { dtype, loss_scale }, loss_scale).unwrap()
    }

    fn in_f32(&self) -> JudgeReport {
        self.judged(Declared::F32, 1.0).unwrap()
    }
}

fn stage(report: &JudgeReport, stage: Stage) -> &StageReport {
    report.stages.iter().find(|report| report.stage == stage).unwrap()
}

fn failed<'r>(report: &'r JudgeReport, of: Stage, name: &str) -> &'r Item {
    let items = &stage(report, of).failed;
    items.iter().find(|item| item.name == name).unwrap_or_else(|| panic!("{name} passes: {items:#?}"))
}

/// Everything in f16 that becomes infinite, with this loss scale.
fn f16() -> Arithmetic {
    Arithmetic {
        policy: PrecisionPolicy {
            mode: PrecisionMode::Reduced,
            reduced: DType::F16,
            white: BTreeSet::new(),
            black: BTreeSet::new(),
            reduced_only: BTreeSet::new(),
            keep: BTreeSet::new(),
        },
        range: Range::Format { overflow: Overflow::Infinite, subnormals: Subnormals::Keep },
        scales_loss: Some(ScaleLoss::default()),
        skips_overflow: true,
        planted: BTreeMap::new(),
    }
}

/// If zoo's own step is not finite, it explains no error.
#[test]
fn nothing_passes_where_the_own_step_overflows() {
    let (case, scale, arithmetic) = (Case::tiny(), 2f64.powi(24), f16());
    case.change("grad/fc.weight", |array| {
        let garbage = |n: usize| if n.is_multiple_of(2) { 1e6 } else { -1e6 };
        Array { values: (0..array.values.len()).map(garbage).collect(), ..array }
    });
    let device = case.judged(Declared::Device { name: "v1", arithmetic: &arithmetic, loss_scale: scale }, 1.0).unwrap();
    for (report, name) in [(device, "v1"), (case.in_half(DType::F16, scale), "f16")] {
        assert_eq!(report.verdict, Verdict::Fail);
        let note = format!("zoo's own step in {name} overflows here: lower the loss scale");
        assert_eq!(failed(&report, Stage::Backward, "fc.weight").note.as_ref(), Some(&note));
        assert_eq!(stage(&report, Stage::Forward).verdict, Verdict::Pass);
    }
}

/// With this loss scale all gradients are zero in f16: a recording may have lost them too, or not. Anything else fails.
#[test]
fn a_tensor_that_underflows_may_be_lost_but_not_be_anything() {
    const SCALE: f64 = 1.0 / (1u64 << 40) as f64;
    let case = Case::tiny();
    case.scale_gradients(SCALE);
    let exact = case.in_half(DType::F16, SCALE);
    assert_eq!(stage(&exact, Stage::Backward).verdict, Verdict::Pass, "{:#?}", stage(&exact, Stage::Backward));
    case.scale("grad/fc.weight", 0.0);
    let lost = case.in_half(DType::F16, SCALE);
    assert_eq!(stage(&lost, Stage::Backward).verdict, Verdict::Pass, "{:#?}", stage(&lost, Stage::Backward));
    // Its loss scale is that of the recording: without one, nothing is lost.
    case.scale_gradients(1.0 / SCALE);
    assert!(failed(&case.in_half(DType::F16, 1.0), Stage::Backward, "fc.weight").error >= 1.0);
    case.scale_gradients(SCALE);
    for by in [-1.0, 3.0, 1e3] {
        let case = Case::tiny();
        case.scale_gradients(SCALE);
        case.scale("grad/fc.weight", by);
        let report = case.in_half(DType::F16, SCALE);
        assert!(failed(&report, Stage::Backward, "fc.weight").error > 1.9, "{by}");
        assert_eq!(stage(&report, Stage::Backward).failed.len(), 1);
    }
}

#[test]
fn a_recording_with_a_loss_scale_is_judged_with_it() {
    let case = Case::tiny();
    case.scale_gradients(1024.0);
    for dtype in [DType::F16, DType::Bf16] {
        let report = case.in_half(dtype, 1024.0);
        assert_eq!(report.verdict, Verdict::Pass, "{:#?}", report.first_divergence);
    }
    assert_eq!(stage(&case.in_half(DType::F16, 1.0), Stage::Backward).verdict, Verdict::Fail);
}

/// The biases of convolutions before a normalisation have no gradient: only rounding errors are left.
#[test]
fn rounding_errors_are_judged_by_those_of_the_own_step() {
    let golden = Golden::read(&root().join("golden/resnet8_tiny/step.json")).unwrap();
    let mut degenerate = golden.manifest.tensors.iter().filter(|(_, facts)| facts.degenerate);
    let key = degenerate.next().unwrap().0.clone();
    let name = key.strip_prefix("grad/").unwrap();
    let case = Case::of("recipes", "resnet8_tiny", golden);
    let noise = |size: f64| {
        case.change(&key, |array| Array {
            values: (0..array.values.len()).map(|n| size * (n as f64).cos()).collect(),
            ..array
        });
    };
    for (declared, passes, fails) in [
        (Declared::F32, 1e-7, 1.0),
        (Declared::Half { dtype: DType::Bf16, loss_scale: 1.0 }, 1e-3, 1e3),
        (Declared::Half { dtype: DType::F16, loss_scale: 1.0 }, 1e-4, 1e3),
    ] {
        noise(passes);
        let report = case.judged(declared, 1.0).unwrap();
        assert_eq!(stage(&report, Stage::Backward).verdict, Verdict::Pass, "{:#?}", stage(&report, Stage::Backward));
        noise(fails);
        let report = case.judged(declared, 1.0).unwrap();
        failed(&report, Stage::Backward, name);
        assert_eq!(stage(&report, Stage::Backward).worst.as_ref().unwrap().name, name);
    }
}

/// The type of an array counts in every format: here `.npy`.
#[test]
fn a_narrower_type_than_the_declared_one_is_named() {
    let case = Case::tiny();
    case.change("grad/fc.weight", |array| Array { dtype: ElementType::F16, ..array });
    let note = failed(&case.in_f32(), Stage::Backward, "fc.weight").note.clone().unwrap();
    assert_eq!(note, "is f16, which f32 has not: declare its --arithmetic");
    // The cost of storing it in f16 is allowed where f16 is declared.
    let declared = case.in_half(DType::F16, 1.0);
    assert_eq!(stage(&declared, Stage::Backward).verdict, Verdict::Pass, "{:#?}", stage(&declared, Stage::Backward));
}

#[test]
fn a_quantity_is_recorded_once() {
    let case = Case::tiny();
    for (key, again) in [("grad/bn1.weight", "grad/bn1.gamma"), ("start/bn1.running_mean", "start/bn1.moving_mean")] {
        fs::copy(case.path(key), case.path(again)).unwrap();
        let error = case.judged(Declared::F32, 1.0).unwrap_err().to_string();
        assert!(error.contains(&format!("`{again}` and `{key}` are both {key}")), "{error}");
        fs::remove_file(case.path(again)).unwrap();
    }
    assert_eq!(case.in_f32().verdict, Verdict::Pass);
}

/// Hints compare a statistic with its start only if both have all elements.
#[test]
fn a_statistic_of_another_length_fails_by_its_shape() {
    let mut golden = Changed::tiny();
    golden.arrays.push(("init/bn1.running_mean".to_owned(), vec![0.0; 16]));
    let case = Case::of("tests/fixtures/recipes", "tiny", golden.read().unwrap());
    assert_eq!(case.in_f32().verdict, Verdict::Pass);
    for count in [3, 40] {
        let array = Array { dtype: ElementType::F64, shape: vec![count], values: vec![0.25; count] };
        case.change("buffer1/bn1.running_mean", |_| array);
        let report = case.in_f32();
        let note = failed(&report, Stage::Update, "bn1.running_mean").note.clone().unwrap();
        assert!(note.contains(&format!("shape {count}, the recipe has 16")), "{note}");
    }
}
