//! Small random networks with PyTorch's values: `tests/fixtures/corpus`, made by `python -m zoo_golden random`.

use crate::vocabulary::{Form, Key, Setting};
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use zoo_engine::{Inputs, Kernels, Options, Scalars, Step, candle_dtype};
use zoo_golden::{
    CheckOptions, Golden, Precision, Report, Stage, Verdict, check,
    start::{Spelling, start},
};
use zoo_graph::DType;
use zoo_recipe::{BuildOptions, Library, LoadOptions, Recipe};

/// Fewest networks.
pub const FEWEST: usize = 60;

/// Layers and optimizers that no network of the corpus has, and why.
pub const NOT_IN_CORPUS: &[(&str, &str)] = &[
    ("Layer.again", "a module that is called twice is imported as two calls of a block"),
    ("Layer.crop", "imported as slices"),
    ("Layer.cumsum", "the corpus was drawn before: by hand in harness/engine/tests"),
    ("Layer.grid", "the corpus was drawn before: recipes drawn at random have it"),
    ("Layer.matmul", "the corpus was drawn before: harness/import/tests"),
    ("Layer.parameter", "the same"),
    ("Layer.constant", "the corpus was drawn before: recipes drawn at random have it"),
    ("Layer.continuous_position_bias", "the golden of Swin V2's trace: harness/import/tests"),
    ("Layer.distance_bias", "the corpus was drawn before: harness/import/tests"),
    ("Layer.prelu", "the corpus was drawn before: recipes drawn at random have it"),
    ("Layer.experts", "the golden of qwen3_moe has it"),
    ("Layer.logit_scale", "the same"),
    ("Layer.pair_log_softmax", "of SiamMask, whose goldens have it"),
    ("Layer.patches", "of SiamMask, whose goldens have it"),
    ("Layer.xcorr", "of SiamMask, whose goldens have it"),
    ("Layer.sine_positions", "its table is a constant, which a trace does not explain"),
    ("Layer.unembed", "the goldens of GPT and BERT have it"),
    ("Layer.unused", "PyTorch gives such parameters no gradient, and the generator draws none"),
    ("Optimizer.lars", "PyTorch has none"),
    ("Optimizer.lion", "PyTorch has none"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/corpus")
}

/// A network with its golden.
pub struct Known {
    pub name: String,
    pub recipe: Recipe,
    pub golden: Golden,
}

/// All networks, by name.
pub fn networks() -> Vec<Known> {
    let library = Library::new([folder().join("recipes")]);
    let known = |(name, _): (String, PathBuf)| {
        let loaded = library.load(&name, &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"));
        let golden = Golden::read(&folder().join(format!("golden/{name}/step.json")));
        let golden = golden.unwrap_or_else(|error| panic!("{name}: {error}"));
        Known { name, recipe: loaded.recipe, golden }
    };
    // The library also lists recipes of other folders.
    let own = |(_, path): &(String, PathBuf)| path.starts_with(folder());
    library.list().into_iter().filter(own).map(known).collect()
}

/// A recipe against the golden of a network.
pub fn judged(recipe: &Recipe, known: &Known, precision: Precision) -> Result<Report, String> {
    let engine = Options { kernels: Kernels::Fast { fusion: true }, threads: Some(1), level: None };
    let options = CheckOptions { precision, engine, room: None };
    let folder = folder().join("golden").join(&known.name);
    check(recipe, &known.golden, &folder, &options, &mut |_| ()).map_err(|error| error.to_string())
}

/// What failed.
pub fn failed(report: &Report) -> String {
    let failed = report.stages.iter().filter(|stage| stage.verdict == Verdict::Fail);
    failed.map(|stage| format!("{} by {:?}", stage.stage, stage.worst)).collect::<Vec<_>>().join("; ")
}

/// Stages that a golden of the corpus has.
pub const STAGES: [Stage; 6] =
    [Stage::Conditions, Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update, Stage::Trajectory];

/// Another value for a setting, near to its own: `n` selects which.
pub fn another(setting: &Setting, n: usize) -> Option<Value> {
    match &setting.form {
        Form::Switch(on) => Some(json!(!on)),
        Form::Choice { value, words } => {
            let others: Vec<&String> = words.iter().filter(|word| *word != value).collect();
            others.get(n % others.len().max(1)).map(|word| json!(word))
        }
        Form::Number { value, whole, least, most, above, below } => {
            let candidates: Vec<f64> = match whole {
                true => vec![value + 1.0, value - 1.0, value * 2.0, 1.0],
                false => vec![value * 1.1, value * 0.9, value + 0.1, value * 2.0],
            };
            let fits = |x: &f64| {
                x != value
                    && least.is_none_or(|least| *x >= least)
                    && most.is_none_or(|most| *x <= most)
                    && above.is_none_or(|above| *x > above)
                    && below.is_none_or(|below| *x < below)
            };
            let fitting: Vec<f64> = candidates.into_iter().filter(fits).collect();
            let chosen = *fitting.get(n % fitting.len().max(1))?;
            Some(if *whole { json!(chosen as i64) } else { json!(chosen) })
        }
    }
}

/// Whether a setting is one that a step has: not a name, nor the shape of the inputs, which the golden decides.
pub fn is_of_step(setting: &Setting) -> bool {
    let named = |name: &str| setting.path.contains(&Key::Name(name.to_owned()));
    !named("inputs") && setting.told() != "model.classes"
}

/// The bits of three steps under the conditions of a golden: losses, outputs and variables.
pub fn bits(recipe: &Recipe, known: &Known) -> Result<Vec<u64>, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let mut recipe = recipe.clone();
    recipe.model.classes = known.recipe.model.classes;
    let start = start(&recipe, &known.golden, Spelling::PyTorch).map_err(|error| told(&error))?;
    let model = recipe.resolve().map_err(|errors| told(&errors))?;
    let batch = start.inputs.first().and_then(|(_, array)| array.shape.first().copied()).unwrap_or(1);
    let options = BuildOptions { dtype: DType::F64, dropout: false, ..BuildOptions::train(batch) };
    let graph = zoo_recipe::build(&recipe, &model, &options).map_err(|error| told(&error))?;
    let reference = Options { kernels: Kernels::Reference, threads: Some(1), level: None };
    let mut step = Step::new(graph, reference).map_err(|error| told(&error))?;
    step.initialize(0).map_err(|error| told(&error))?;
    let tensor = |values: &[f64], shape: &[usize], dtype| {
        Tensor::from_slice(values, shape, &Device::Cpu).and_then(|tensor| tensor.to_dtype(candle_dtype(dtype)))
    };
    for (name, array) in &start.weights {
        let values = tensor(&array.values, &array.shape, DType::F64).map_err(|error| told(&error))?;
        if step.graph().find_variable(name).is_some() {
            step.set_variable(name, &values).map_err(|error| told(&error))?;
        }
    }
    let mut inputs = Inputs::new();
    for (name, array) in &start.inputs {
        let input = step.graph().inputs.iter().find(|input| input.name == *name);
        let dtype = input.map_or(DType::F64, |input| step.graph().ty(input.value).dtype);
        inputs = inputs.with(name, tensor(&array.values, &array.shape, dtype).map_err(|error| told(&error))?);
    }
    let mut bits = Vec::new();
    for n in 0..3 {
        let scalars = Scalars { learning_rate: start.conditions.optimizer.base_lr(), step: n, ..Scalars::default() };
        let result = step.run(&inputs, scalars, &mut ()).map_err(|error| told(&error))?;
        bits.extend(result.losses.iter().map(|(_, loss)| loss.to_bits()));
        for (_, output) in &result.outputs {
            bits.extend(elements(output)?);
        }
    }
    let variables = step.variables().map_err(|error| told(&error))?;
    for (variable, values) in variables {
        // Averages are for evaluation alone.
        if variable.role.is_parameter() || variable.role.is_statistic() {
            bits.extend(elements(&values)?);
        }
    }
    Ok(bits)
}

fn elements(tensor: &Tensor) -> Result<Vec<u64>, String> {
    let values = tensor.to_dtype(candle_core::DType::F64).and_then(|tensor| tensor.flatten_all()?.to_vec1::<f64>());
    values.map(|values| values.into_iter().map(f64::to_bits).collect()).map_err(|error| error.to_string())
}
