//! Reads dumps of `msprobe` (mindstudio-probe): `dump.json`, and for the task `tensor` a file per tensor next to it.
//!
//! Names are documented in "pytorch_data_dump_instruct" and "mindspore_data_dump_instruct":
//! `Module.{path}.{Class}.forward.{call}` and `.backward.{call}`, `Module.{path}.{Class}.parameters_grad`; for
//! MindSpore, `Cell` instead of `Module`; and `{Functional|Tensor|Torch|Mint|...}.{api}.{call}.forward` for calls of
//! functions.

use super::{
    Entry, Format, Names, Quantity, Recording,
    content::{Claim, Content, Statistics},
    json, malformed,
    names::Meaning,
};
use crate::GoldenError;
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use zoo_datasets::files;
use zoo_tensors::ElementType;

/// The file that names the tensors.
pub(super) const MANIFEST: &str = "dump.json";
/// The folder of tensors next to it.
const TENSORS: &str = "dump_tensor_data";
/// Largest `dump.json`.
const MOST_BYTES: u64 = 1 << 30;
/// Deepest nesting of results.
const DEEPEST_RESULT: usize = 8;

/// What tells a dump of zoo.
#[derive(Deserialize)]
struct Marked {
    zoo_dump: Option<Value>,
}

/// `dump.json`.
#[derive(Deserialize)]
struct Dump {
    task: String,
    #[serde(default)]
    dump_data_dir: Option<PathBuf>,
    /// In the order of the calls.
    data: IndexMap<String, Value>,
}

/// Reads a `dump.json`.
pub(super) fn open(manifest: &Path, names: &Names) -> Result<Recording, GoldenError> {
    let text = files::read(manifest, MOST_BYTES).map_err(GoldenError::unreadable(manifest))?;
    let marked: Marked = json::parse(&text).map_err(|error| {
        malformed(manifest, format!("{error}: msprobe completes the file only when its debugger stops"))
    })?;
    if marked.zoo_dump.is_some() {
        return Err(malformed(manifest, "a dump of zoo itself: `zoo golden diff` compares two of them"));
    }
    let dump: Dump =
        json::parse(&text).map_err(|error| malformed(manifest, format!("not a dump.json of msprobe: {error}")))?;
    if !matches!(dump.task.as_str(), "tensor" | "statistics") {
        let message = format!("its task is `{}`: dump with the task `tensor` or `statistics`", dump.task);
        return Err(malformed(manifest, message));
    }
    let beside = manifest.parent().unwrap_or(Path::new("")).join(TENSORS);
    let tensors = dump.dump_data_dir.filter(|_| !beside.is_dir()).unwrap_or(beside);
    let recording = Recording::of(manifest, Format::Msprobe);
    let mut reading = Reading { manifest, tensors, names, recording, losses: Vec::new() };
    for (name, recorded) in &dump.data {
        not_finite(name.clone(), recorded, &mut reading.recording.not_finite);
        reading.take(name, recorded)?;
    }
    reading.finish()
}

/// Meaning of a name in `data`.
enum Call<'n> {
    /// A forward call of a module.
    Forward { path: String, class: &'n str, call: usize },
    /// A backward call of a module.
    Backward,
    /// The gradients of a module's parameters.
    Gradients { path: String },
    /// A call of a function.
    Function { name: &'n str, forward: bool },
}

impl<'n> Call<'n> {
    fn parse(name: &'n str) -> Option<Self> {
        let parts: Vec<&str> = name.split('.').collect();
        let path = |parts: &[&str]| if parts.is_empty() { "@root".to_owned() } else { parts.join(".") };
        match parts.as_slice() {
            ["Module" | "Cell", inner @ .., class, "forward", call] => {
                Some(Self::Forward { path: path(inner), class, call: call.parse().ok()? })
            }
            ["Module" | "Cell", .., "backward", _] => Some(Self::Backward),
            ["Module" | "Cell", inner @ .., _class, "parameters_grad"] => Some(Self::Gradients { path: path(inner) }),
            ["Module" | "Cell", inner @ .., _class, "parameters_grad", _] => {
                Some(Self::Gradients { path: path(inner) })
            }
            [_kind, .., name, _call, "forward"] => Some(Self::Function { name, forward: true }),
            [_kind, .., name, _call, "backward"] => Some(Self::Function { name, forward: false }),
            _ => None,
        }
    }
}

/// State while a dump is read.
struct Reading<'a> {
    manifest: &'a Path,
    /// The folder of tensors.
    tensors: PathBuf,
    names: &'a Names,
    recording: Recording,
    /// Scalar results of functions and modules whose names suggest that they compute a loss.
    losses: Vec<(String, Value)>,
}

impl Reading<'_> {
    fn take(&mut self, name: &str, recorded: &Value) -> Result<(), GoldenError> {
        match Call::parse(name) {
            Some(Call::Forward { path, class, call }) => {
                let outputs = self.flat(&format!("{name}.output"), recorded.get("output"))?;
                if let [Given { name, of, .. }] = outputs.as_slice()
                    && is_loss(class)
                    && self.is_scalar(of)
                {
                    self.losses.push((name.clone(), (*of).clone()));
                    return Ok(());
                }
                for Given { name, suffix, of } in outputs {
                    self.add(name, Quantity::Output(format!("{path}#{call}{suffix}")), of)?;
                }
                let inputs = recorded.get("input_args").or_else(|| recorded.get("input"));
                let inputs = self.flat(&format!("{name}.input"), inputs)?;
                for (operand, Given { name, of, .. }) in inputs.into_iter().enumerate() {
                    let module = format!("{path}#{call}");
                    self.add(name, Quantity::Into { module, operand }, of)?;
                }
                for (parameter, of) in recorded.get("parameters").and_then(Value::as_object).into_iter().flatten() {
                    // If a module is called again, it has the same parameters. In MindSpore they include the running
                    // statistics, which the call has already updated.
                    let parameter_path = inside(&path, parameter);
                    let quantity = match parameter.as_str() {
                        "moving_mean" | "moving_variance" => {
                            Quantity::After { kind: "buffer".to_owned(), name: parameter_path }
                        }
                        _ => Quantity::Start(parameter_path),
                    };
                    if call == 0 {
                        self.add(format!("{name}.parameters.{parameter}"), quantity, of)?;
                    }
                }
            }
            Some(Call::Gradients { path }) => {
                for (parameter, of) in recorded.as_object().into_iter().flatten() {
                    let own = format!("{name}.{parameter}");
                    let of = if let Some([one]) = of.as_array().map(Vec::as_slice) { one } else { of };
                    if of.is_object() {
                        self.add(own, Quantity::Gradient(inside(&path, parameter)), of)?;
                    }
                }
            }
            Some(Call::Backward) => self.count("gradients of module outputs"),
            Some(Call::Function { name: function, forward }) => {
                let outputs = self.flat(&format!("{name}.output"), recorded.get("output"))?;
                match outputs.as_slice() {
                    [Given { name, of, .. }] if forward && is_loss(function) && self.is_scalar(of) => {
                        self.losses.push((name.clone(), (*of).clone()));
                    }
                    _ => self.count("calls of functions"),
                }
            }
            None => match self.names.meaning(name, None) {
                Meaning::Ignored => self.count("ignored by names.yaml"),
                Meaning::Quantity(_) | Meaning::Unknown => self.recording.unknown.push(name.to_owned()),
            },
        }
        Ok(())
    }

    fn count(&mut self, kind: &'static str) {
        *self.recording.not_compared.entry(kind).or_default() += 1;
    }

    /// The tensors in a list of results, with their names in the dump and, if there are several, a suffix for each.
    fn flat<'v>(&self, name: &str, results: Option<&'v Value>) -> Result<Vec<Given<'v>>, GoldenError> {
        let mut flat = Vec::new();
        match results {
            // A result that is not a list is treated as a list of one.
            Some(Value::Array(list)) if list.len() == 1 => {
                self.collect(format!("{name}.0"), String::new(), &list[0], &mut flat)?;
            }
            Some(results) => self.collect(name.to_owned(), String::new(), results, &mut flat)?,
            None => {}
        }
        if let [one] = flat.as_mut_slice() {
            one.suffix.clear();
        }
        Ok(flat)
    }

    fn collect<'v>(
        &self,
        name: String,
        suffix: String,
        value: &'v Value,
        flat: &mut Vec<Given<'v>>,
    ) -> Result<(), GoldenError> {
        if suffix.matches('.').count() > DEEPEST_RESULT {
            return Err(malformed(self.manifest, format!("`{name}` is nested deeper than {DEEPEST_RESULT} levels")));
        }
        match value {
            Value::Array(list) => {
                for (n, value) in list.iter().enumerate() {
                    self.collect(format!("{name}.{n}"), format!("{suffix}.{n}"), value, flat)?;
                }
            }
            Value::Object(object) if is_tensor(object) => flat.push(Given { name, suffix, of: value }),
            Value::Object(object) if !object.contains_key("type") => {
                for (key, value) in object {
                    self.collect(format!("{name}.{key}"), format!("{suffix}.{key}"), value, flat)?;
                }
            }
            Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    /// Adds a floating-point tensor; others are not compared.
    fn add(&mut self, name: String, quantity: Quantity, of: &Value) -> Result<(), GoldenError> {
        let wrong = |message: String| malformed(self.manifest, format!("`{name}`: {message}"));
        let quantity = match self.names.meaning(&name, Some(quantity)) {
            Meaning::Quantity(quantity) => quantity,
            Meaning::Ignored => {
                self.count("ignored by names.yaml");
                return Ok(());
            }
            Meaning::Unknown => {
                self.recording.unknown.push(name);
                return Ok(());
            }
        };
        let dtype = of.get("dtype").and_then(Value::as_str).unwrap_or_default();
        let dtype = element_type(dtype).ok_or_else(|| wrong(format!("its dtype `{dtype}` is not known")))?;
        if !dtype.is_float() {
            self.count("tensors of integers");
            return Ok(());
        }
        let shape = of.get("shape").and_then(Value::as_array);
        let shape = shape.and_then(|shape| {
            shape.iter().map(|extent| usize::try_from(extent.as_u64()?).ok()).collect::<Option<Vec<usize>>>()
        });
        let shape = shape.ok_or_else(|| wrong("it has no readable shape".to_owned()))?;
        let statistics = statistics(of);
        let content = match of.get("data_name").and_then(Value::as_str).filter(|file| *file != "-1") {
            Some(file) => {
                let is_plain = !file.contains(['/', '\\']) && !file.is_empty() && file != "..";
                let path = self.tensors.join(file);
                match path.extension().and_then(|extension| extension.to_str()) {
                    _ if !is_plain => return Err(wrong(format!("its data_name `{file}` is no name of a file"))),
                    Some("npy") => Content::Npy(path),
                    Some("pt") => Content::Torch(path),
                    _ => return Err(wrong(format!("its data_name `{file}` is neither .pt nor .npy"))),
                }
            }
            None => match statistics {
                Some(statistics) => Content::Statistics(statistics, shape.clone()),
                None if of.get("md5").is_some() => {
                    let advice = "a checksum alone, which tells equal from unequal and no more: dump with \
                                  summary_mode `statistics`, or the task `tensor`";
                    return Err(wrong(advice.to_owned()));
                }
                None => return Err(wrong("it has neither statistics nor a file".to_owned())),
            },
        };
        let claim = Claim { shape: Some(shape), dtype: Some(dtype), statistics, placed: None };
        self.recording.entries.push(Entry { name, quantity, content, claim, micro_batch: 0 });
        Ok(())
    }

    fn is_scalar(&self, of: &Value) -> bool {
        let shape = of.get("shape").and_then(Value::as_array);
        let dtype = of.get("dtype").and_then(Value::as_str).and_then(element_type);
        shape.is_some_and(Vec::is_empty) && dtype.is_some_and(ElementType::is_float)
    }

    fn finish(mut self) -> Result<Recording, GoldenError> {
        // Several losses may be parts of one, or nested calls; then names.yaml has to name the total.
        match std::mem::take(&mut self.losses).as_slice() {
            [(name, of)] => self.add(name.clone(), Quantity::Loss("loss".to_owned()), of)?,
            losses => {
                for (name, of) in losses {
                    match self.names.meaning(name, None) {
                        Meaning::Quantity(quantity) => self.add(name.clone(), quantity, of)?,
                        Meaning::Ignored | Meaning::Unknown => self.count("calls of functions"),
                    }
                }
            }
        }
        let modules = |entry: &&Entry| matches!(entry.quantity, Quantity::Output(_));
        if self.recording.entries.iter().find(modules).is_none() {
            let message = "there is no call of a module in it: dump at level L0 or mix, and give the network to \
                           `debugger.start(model=...)`";
            return Err(malformed(self.manifest, message));
        }
        Ok(self.recording)
    }
}

/// A tensor in the results of a call.
struct Given<'v> {
    /// Its name in the dump.
    name: String,
    /// Suffix of the recipe's name of the call, if there are several results.
    suffix: String,
    of: &'v Value,
}

fn is_tensor(object: &Map<String, Value>) -> bool {
    object.get("type").and_then(Value::as_str).is_some_and(|ty| ty.ends_with("Tensor") || ty.ends_with("Parameter"))
}

/// Whether the name of a function or class suggests that it computes a loss.
fn is_loss(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("loss") || name.contains("entropy")
}

/// The path of a parameter of a module.
pub(super) fn inside(path: &str, parameter: &str) -> String {
    if path == "@root" { parameter.to_owned() } else { format!("{path}.{parameter}") }
}

/// `torch.float32`, `Float32`.
pub(super) fn element_type(dtype: &str) -> Option<ElementType> {
    let name = dtype.rsplit('.').next().unwrap_or(dtype).to_ascii_lowercase();
    Some(match name.as_str() {
        "float64" | "double" => ElementType::F64,
        "float32" | "float" => ElementType::F32,
        "float16" | "half" => ElementType::F16,
        "bfloat16" => ElementType::Bf16,
        "int64" | "long" => ElementType::I64,
        "int32" | "int" => ElementType::I32,
        "int16" => ElementType::I16,
        "int8" => ElementType::I8,
        "uint8" => ElementType::U8,
        "bool" => ElementType::Bool,
        _ => return None,
    })
}

/// Names of the floating-point tensors in a call with statistics that are not finite.
fn not_finite(name: String, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, value)| not_finite(format!("{name}.{n}"), value, found));
        }
        Value::Object(object) if is_tensor(object) => {
            let has_elements = object.get("shape").and_then(Value::as_array).is_some_and(|s| !s.contains(&0.into()));
            let dtype = object.get("dtype").and_then(Value::as_str).and_then(element_type);
            let unsound = statistics(value).is_some_and(|statistics| !statistics.is_finite());
            if has_elements && unsound && dtype.is_some_and(ElementType::is_float) {
                found.push(name);
            }
        }
        Value::Object(object) => {
            object.iter().for_each(|(key, value)| not_finite(format!("{name}.{key}"), value, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The four statistics; texts such as `nan`, and null, are read as not finite. `None` if there are none.
fn statistics(of: &Value) -> Option<Statistics> {
    let number = |key: &str| Some(of.get(key)?.as_f64().unwrap_or(f64::NAN));
    Some(Statistics { max: number("Max")?, min: number("Min")?, mean: number("Mean")?, norm: number("Norm")? })
}
