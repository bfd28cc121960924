//! Writes a step as an msprobe dump, which `msprobe compare` accepts as its golden side.

use super::{Quantity, Statistics, malformed, replace};
use crate::{GoldenError, golden::Golden};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};
use zoo_graph::{Graph, Phase, Source, TapState, ValueId};
use zoo_tensors::{Array, ElementType, encode_pth_tensor};

/// A dump that is being written.
pub(crate) struct Dump<'a> {
    folder: PathBuf,
    golden: &'a Golden,
    /// Descriptions of the tensors, by quantity.
    said: HashMap<Quantity, Value>,
}

/// `data`, in the order of the calls.
struct Data(Vec<(String, Value)>);

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[derive(Serialize)]
struct Document {
    task: &'static str,
    level: &'static str,
    framework: &'static str,
    dump_data_dir: PathBuf,
    data: Data,
}

impl<'a> Dump<'a> {
    pub(crate) fn new(folder: &Path, golden: &'a Golden) -> Self {
        Self { folder: folder.to_owned(), golden, said: HashMap::new() }
    }

    /// Writes a tensor in f32, if msprobe dumps contain it.
    pub(crate) fn add(&mut self, quantity: &Quantity, array: Array) -> Result<(), GoldenError> {
        let Some(name) = self.file(quantity) else { return Ok(()) };
        let array = Array { dtype: ElementType::F32, ..array };
        let statistics = Statistics::of(&array.values);
        self.said.insert(
            quantity.clone(),
            json!({
                "type": "torch.Tensor",
                "dtype": "torch.float32",
                "shape": array.shape,
                "Max": statistics.max,
                "Min": statistics.min,
                "Mean": statistics.mean,
                "Norm": statistics.norm,
                "requires_grad": matches!(quantity, Quantity::Output(_) | Quantity::Start(_)),
                "data_name": name,
            }),
        );
        let path = self.tensors().join(name);
        let bytes = encode_pth_tensor(&array).map_err(|message| malformed(&path, message))?;
        replace(&path, &bytes)
    }

    fn tensors(&self) -> PathBuf {
        self.folder.join("dump_tensor_data")
    }

    /// `Module.{path}.{Class}` of a module; the class comes from the golden.
    fn module(&self, path: &str) -> String {
        let outputs = self.golden.manifest.tensors.iter();
        let class = outputs.filter(|(key, _)| {
            key.strip_prefix("out/").and_then(|key| key.split_once('#')).is_some_and(|(module, _)| module == path)
        });
        let class = class.filter_map(|(_, facts)| facts.class.as_deref()).next().unwrap_or("Module");
        format!("Module.{path}.{class}")
    }

    /// The file name of a tensor; `None` if msprobe dumps do not contain it.
    fn file(&self, quantity: &Quantity) -> Option<String> {
        Some(match quantity {
            Quantity::Output(tap) => {
                let (path, call) = tap.split_once('#').filter(|(path, _)| *path != "@root")?;
                let (call, part) = call.split_once('.').unwrap_or((call, "0"));
                format!("{}.forward.{call}.output.{part}.pt", self.module(path))
            }
            Quantity::Start(name) => {
                let (path, last) = name.rsplit_once('.').filter(|(_, last)| !last.starts_with("running_"))?;
                format!("{}.forward.0.parameters.{last}.pt", self.module(path))
            }
            Quantity::Gradient(name) => {
                let (path, last) = name.rsplit_once('.')?;
                format!("{}.parameters_grad.0.{last}.pt", self.module(path))
            }
            Quantity::Input(name) => format!("Input.{name}.pt"),
            Quantity::Into { .. } | Quantity::Loss(_) | Quantity::After { .. } => return None,
        })
    }

    /// Writes the descriptions: modules in the order in which they return, then gradients in the order of the
    /// backward pass.
    pub(crate) fn finish(self, graph: &Graph) -> Result<(), GoldenError> {
        let mut data: Vec<(String, Value)> = Vec::new();
        for tap in &graph.taps {
            let Some(output) = self.said.get(&Quantity::Output(tap.key())).filter(|_| tap.module != "@root") else {
                continue;
            };
            let name = format!("{}.forward.{}", self.module(&tap.module), tap.call);
            if let Some((_, call)) = data.last_mut().filter(|(last, _)| *last == name) {
                if let Some(outputs) = call["output"].as_array_mut() {
                    outputs.push(output.clone());
                }
                continue;
            }
            let mut parameters = serde_json::Map::new();
            for (id, of) in self.said.iter().filter(|_| tap.call == 0) {
                if let Quantity::Start(parameter) = id
                    && let Some((path, last)) = parameter.rsplit_once('.')
                    && path == tap.module
                {
                    parameters.insert(last.to_owned(), of.clone());
                }
            }
            let mut call = json!({
                "input_args": self.operand(graph, &tap.module, &tap.state, &name)?.into_iter().collect::<Vec<_>>(),
                "input_kwargs": {},
                "output": [output],
            });
            if !parameters.is_empty() {
                call["parameters"] = Value::Object(parameters);
            }
            data.push((name, call));
        }
        for (id, _) in &graph.gradients {
            let name = &graph.variable(*id).name;
            let Some((path, last)) = name.rsplit_once('.') else { continue };
            let Some(of) = self.said.get(&Quantity::Gradient(name.clone())) else { continue };
            let name = format!("{}.parameters_grad.0", self.module(path));
            match data.iter_mut().find(|(known, _)| *known == name) {
                Some((_, gradients)) => gradients[last] = json!([of]),
                None => data.push((name, json!({last: [of]}))),
            }
        }
        let construct: serde_json::Map<String, Value> =
            data.iter().map(|(name, _)| (name.clone(), Value::Null)).collect();
        let document = Document {
            task: "tensor",
            level: "L0",
            framework: "pytorch",
            dump_data_dir: self.tensors(),
            data: Data(data),
        };
        let write = |name: &str, text: serde_json::Result<String>| {
            let path = self.folder.join(name);
            let text = text.map_err(|e| malformed(&path, e))?;
            replace(&path, text.as_bytes())
        };
        write("construct.json", serde_json::to_string_pretty(&construct))?;
        write("stack.json", Ok("{}".to_owned()))?;
        write("dump.json", serde_json::to_string_pretty(&document))
    }

    /// Description of the first operand of a module, which is the first value that its nodes read. The tensor is
    /// written again under the name of this call, because msprobe identifies tensors by their files.
    fn operand(&self, graph: &Graph, module: &str, state: &TapState, call: &str) -> Result<Option<Value>, GoldenError> {
        let inside = |name: &str| {
            let layer = name.split('/').next().unwrap_or(name);
            layer.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let of_output = if let TapState::Value(value) = state { graph.producer(*value) } else { None };
        let forward = graph.nodes.iter().filter(|node| node.phase == Phase::Forward && inside(&node.name));
        let value = forward.chain(of_output).find_map(|node| node.inputs.first());
        let Some(mut said) = value.and_then(|value| self.of_value(graph, *value)) else { return Ok(None) };
        let name = format!("{call}.input.0.pt");
        let from = self.tensors().join(said["data_name"].as_str().unwrap_or_default());
        let bytes = fs::read(&from).map_err(GoldenError::unreadable(&from))?;
        replace(&self.tensors().join(&name), &bytes)?;
        said["data_name"] = name.into();
        Ok(Some(said))
    }

    /// Description of a value: of the last module that returns it, or of the input.
    fn of_value(&self, graph: &Graph, value: ValueId) -> Option<Value> {
        if let Source::Input(input) = graph.value(value).source {
            return self.said.get(&Quantity::Input(graph.inputs[input].name.clone())).cloned();
        }
        let taps = graph.taps.iter().filter(|tap| tap.state == TapState::Value(value) && tap.module != "@root");
        taps.filter_map(|tap| self.said.get(&Quantity::Output(tap.key()))).next().cloned()
    }
}
