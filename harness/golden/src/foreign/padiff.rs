//! Reads dumps of PaDiff (PaddlePaddle or PyTorch): `report.json` and `params.json` of `ProxyModel.try_dump`, with an
//! `.npy` per tensor in `tensors`, `weights` and `grads` next to them (padiff/dump_tools.py of its repository; the
//! release 0.2.0 writes no tensors).
//!
//! A `route` is the name of the network and the path of a module. Weights are compared with those at the start of the
//! step: a dump is made before the optimizer's step.

use super::{
    Entry, Format, Names, Quantity, Recording,
    content::{Claim, Content},
    json, malformed,
    msprobe::{element_type, inside},
    names::Meaning,
};
use crate::GoldenError;
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};
use zoo_datasets::files;

/// The file that names the outputs of modules.
pub(super) const MANIFEST: &str = "report.json";
/// The file that names weights and gradients; not every dump has one.
const PARAMETERS: &str = "params.json";
/// Largest of the two files.
const MOST_BYTES: u64 = 1 << 30;

/// `report.json`.
#[derive(Deserialize)]
struct Report {
    tree: Vec<Node>,
}

/// A call of a module or of a function.
#[derive(Deserialize)]
struct Node {
    name: String,
    /// Empty for functions.
    #[serde(default)]
    route: String,
    #[serde(default)]
    fwd_outputs: Vec<Given>,
    #[serde(default)]
    bwd_grads: Vec<Given>,
    #[serde(default)]
    children: Vec<Node>,
}

/// A tensor in a file.
#[derive(Deserialize)]
struct Given {
    path: String,
    #[serde(default)]
    shape: String,
    #[serde(default)]
    dtype: String,
}

/// `params.json`.
#[derive(Deserialize)]
struct Parameters {
    tree: Owner,
}

/// A module with its own parameters.
#[derive(Deserialize)]
struct Owner {
    route: String,
    #[serde(default)]
    weights: BTreeMap<String, String>,
    #[serde(default)]
    grads: BTreeMap<String, Option<String>>,
    #[serde(default)]
    children: Vec<Owner>,
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, GoldenError> {
    let text = files::read(path, MOST_BYTES).map_err(GoldenError::unreadable(path))?;
    json::parse(&text).map_err(|error| malformed(path, format!("not a file of PaDiff: {error}")))
}

/// Reads a `report.json` and the `params.json` next to it.
pub(super) fn open(manifest: &Path, names: &Names) -> Result<Recording, GoldenError> {
    let report: Report = read(manifest)?;
    let folder = manifest.parent().unwrap_or(Path::new("")).to_owned();
    let [root] = &report.tree[..] else {
        let message = format!("it has {} networks: one step is judged at a time", report.tree.len());
        return Err(malformed(manifest, message));
    };
    let recording = Recording::of(manifest, Format::Padiff);
    let mut reading = Reading { manifest, folder, names, recording, calls: HashMap::new() };
    reading.calls_of(root, &root.route)?;
    let parameters = reading.folder.join(PARAMETERS);
    if parameters.is_file() {
        let Parameters { tree } = read(&parameters)?;
        reading.parameters_of(&tree, &tree.route)?;
    }
    Ok(reading.recording)
}

/// State while a dump is read.
struct Reading<'a> {
    manifest: &'a Path,
    folder: PathBuf,
    names: &'a Names,
    recording: Recording,
    /// Number of calls of each module so far.
    calls: HashMap<String, usize>,
}

impl Reading<'_> {
    fn count(&mut self, kind: &'static str) {
        *self.recording.not_compared.entry(kind).or_default() += 1;
    }

    /// The path of a module without the name of the network.
    fn path(&self, route: &str, root: &str) -> Result<String, GoldenError> {
        let inside = route.strip_prefix(root).filter(|_| !root.is_empty());
        match inside.map(|rest| (rest, rest.strip_prefix('.').filter(|path| !path.is_empty()))) {
            Some(("", _)) => Ok("@root".to_owned()),
            Some((_, Some(path))) => Ok(path.to_owned()),
            Some((_, None)) | None => {
                Err(malformed(self.manifest, format!("`{route}` is not inside the network `{root}`")))
            }
        }
    }

    fn calls_of(&mut self, node: &Node, root: &str) -> Result<(), GoldenError> {
        if node.route.is_empty() {
            self.count("calls of functions");
        } else {
            let path = self.path(&node.route, root)?;
            let call = self.calls.entry(path.clone()).or_default();
            let tap = format!("{path}#{call}");
            *call += 1;
            for (place, given) in node.fwd_outputs.iter().enumerate() {
                let suffix = if node.fwd_outputs.len() > 1 { format!(".{place}") } else { String::new() };
                let claim = self.claim(&node.name, given)?;
                let quantity = Quantity::Output(format!("{tap}{suffix}"));
                self.add(&node.name, "tensors", &given.path, claim, quantity)?;
            }
            node.bwd_grads.iter().for_each(|_| self.count("gradients of module inputs"));
        }
        node.children.iter().try_for_each(|child| self.calls_of(child, root))
    }

    fn parameters_of(&mut self, owner: &Owner, root: &str) -> Result<(), GoldenError> {
        let path = self.path(&owner.route, root)?;
        for (name, file) in &owner.weights {
            self.add(&owner.route, "weights", file, Claim::default(), Quantity::Start(inside(&path, name)))?;
        }
        for (name, file) in &owner.grads {
            if let Some(file) = file {
                self.add(&owner.route, "grads", file, Claim::default(), Quantity::Gradient(inside(&path, name)))?;
            }
        }
        owner.children.iter().try_for_each(|child| self.parameters_of(child, root))
    }

    /// What `report.json` states about a tensor.
    fn claim(&self, of: &str, given: &Given) -> Result<Claim, GoldenError> {
        let unknown = || malformed(self.manifest, format!("`{of}`: its dtype `{}` is not known", given.dtype));
        let dtype = element_type(&given.dtype).ok_or_else(unknown)?;
        Ok(Claim { shape: shape(&given.shape), dtype: Some(dtype), statistics: None, placed: None })
    }

    /// Adds a floating-point tensor, which lies in a folder of this dump whatever folder its path names: dumps move.
    fn add(&mut self, of: &str, folder: &str, path: &str, claim: Claim, quantity: Quantity) -> Result<(), GoldenError> {
        let file = path.rsplit(['/', '\\']).next().unwrap_or_default();
        if !file.ends_with(".npy") {
            return Err(malformed(self.manifest, format!("`{of}`: its path `{path}` names no .npy file")));
        }
        if claim.dtype.is_some_and(|dtype| !dtype.is_float()) {
            self.count("tensors of integers");
            return Ok(());
        }
        let name = quantity.key();
        match self.names.meaning(&name, Some(quantity)) {
            Meaning::Quantity(quantity) => {
                let content = Content::Npy(self.folder.join(folder).join(file));
                self.recording.entries.push(Entry { name, quantity, content, claim, micro_batch: 0 });
            }
            Meaning::Ignored => self.count("ignored by names.yaml"),
            Meaning::Unknown => self.recording.unknown.push(name),
        }
        Ok(())
    }
}

/// `[2, 3]`, `torch.Size([2, 3])`.
fn shape(text: &str) -> Option<Vec<usize>> {
    let (_, inside) = text.split_once('[')?;
    let (inside, _) = inside.split_once(']')?;
    inside.split(',').map(str::trim).filter(|extent| !extent.is_empty()).map(|extent| extent.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::fs;
    use zoo_tensors::ElementType;

    fn output(id: usize, shape: &str) -> Value {
        json!({"path": format!("/home/x/dump/tensors/tensor_{id}.npy"), "shape": shape, "dtype": "torch.float32"})
    }

    /// A network of two layers, of which the second is called twice and contains a call of a function.
    fn report() -> Value {
        let relu = json!({"name": "relu", "route": "", "type": "api", "fwd_outputs": [], "children": []});
        let layer = |route: &str, id: usize, children: Value| {
            json!({"name": "Linear", "route": route, "type": "net", "fwd_outputs": [output(id, "[2, 3]")],
                   "bwd_grads": [output(9, "[2, 3]")], "children": children})
        };
        json!({"model_name": "Net", "framework": "torch", "tree": [{
            "name": "Net", "route": "Net", "fwd_outputs": [output(3, "torch.Size([2, 1])"), output(4, "[]")],
            "children": [layer("Net.fc", 0, json!([])), layer("Net.head.0", 1, json!([relu])), layer("Net.head.0", 2, json!([]))],
        }]})
    }

    fn parameters() -> Value {
        let leaf = json!({"route": "Net.fc", "weights": {"weight": "w/weights/weights_0.npy"},
                          "grads": {"weight": "w/grads/grads_0.npy", "bias": null}, "children": []});
        json!({"tree": {"route": "Net", "weights": {}, "grads": {}, "children": [leaf]}})
    }

    fn read(report: &Value, parameters: Option<&Value>) -> Result<Recording, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MANIFEST), report.to_string()).unwrap();
        if let Some(parameters) = parameters {
            fs::write(folder.path().join(PARAMETERS), parameters.to_string()).unwrap();
        }
        Recording::open(folder.path(), &Names::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn outputs_weights_and_gradients_have_the_names_of_the_recipe() {
        let recording = read(&report(), Some(&parameters())).unwrap();
        let keys: Vec<String> = recording.entries.iter().map(|entry| entry.quantity.key()).collect();
        let outputs = ["out/@root#0.0", "out/@root#0.1", "out/fc#0", "out/head.0#0", "out/head.0#1"];
        assert_eq!(keys, [&outputs[..], &["start/fc.weight", "grad/fc.weight"]].concat());
        let claim = Claim { shape: Some(vec![2, 1]), dtype: Some(ElementType::F32), statistics: None, placed: None };
        assert_eq!((&recording.entries[0].claim, &recording.entries[6].claim), (&claim, &Claim::default()));
        assert_eq!(recording.not_compared, [("calls of functions", 1), ("gradients of module inputs", 3)].into());
        assert_eq!(recording.format, Format::Padiff);
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        assert!(read(&json!({"tree": 3}), None).unwrap_err().contains("not a file of PaDiff"));
        assert!(read(&json!({"tree": []}), None).unwrap_err().contains("0 networks"));
        let mut outside = report();
        outside["tree"][0]["children"][0]["route"] = "Other.fc".into();
        assert!(read(&outside, None).unwrap_err().contains("`Other.fc` is not inside the network `Net`"));
        let mut file = report();
        file["tree"][0]["fwd_outputs"][0]["path"] = "../../etc/passwd".into();
        assert!(read(&file, None).unwrap_err().contains("names no .npy file"));
        assert!(read(&report(), Some(&json!({}))).unwrap_err().contains("params.json"));
    }

    #[test]
    fn tensors_are_read_from_the_folder_of_the_dump() {
        let recording = read(&report(), None).unwrap();
        let error = recording.entries[0].array().unwrap_err().to_string();
        assert!(error.contains("tensors/tensor_3.npy") && !error.contains("/home/x"), "{error}");
    }
}
