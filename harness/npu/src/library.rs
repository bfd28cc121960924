//! Finds device files, and checks the rules that their schema cannot express.

use crate::device::Device;
use crate::figure::{Figure, figures};
use crate::host::Host;
use std::path::{Path, PathBuf};
use zoo_graph::Op;
use zoo_recipe::{Diagnostic, Diagnostics, Document};

/// Folders of devices and hosts: `devices/` and `hosts/` in each folder of recipes. If a name occurs more than once,
/// the first one is used.
#[derive(Clone, Debug)]
pub struct DeviceLibrary {
    dirs: Vec<PathBuf>,
    hosts: Vec<PathBuf>,
}

impl DeviceLibrary {
    /// The devices next to the recipes in these folders.
    pub fn new(recipes: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let (dirs, hosts) =
            recipes.into_iter().map(|dir| (dir.as_ref().join("devices"), dir.as_ref().join("hosts"))).unzip();
        Self { dirs, hosts }
    }

    /// Names and files of all devices, sorted by name.
    pub fn list(&self) -> Vec<(String, PathBuf)> {
        yaml_files(&self.dirs)
    }

    /// Loads the device with this name.
    ///
    /// # Errors
    /// There is no such device (the error lists the known ones), or the file has mistakes (the error lists all of
    /// them).
    pub fn load(&self, name: &str) -> Result<Device, crate::NpuError> {
        let known = self.list();
        let Some((_, path)) = known.iter().find(|(known, _)| known == name) else {
            let names: Vec<String> = known.into_iter().map(|(name, _)| name).collect();
            let hint = zoo_recipe::did_you_mean(name, names.iter().map(String::as_str)).map(str::to_owned);
            return Err(crate::NpuError::UnknownDevice { name: name.to_owned(), hint, known: names.join(", ") });
        };
        let document: Document<Device<String>> = Document::read(path)?;
        let found = check(&document, path);
        if !found.is_empty() {
            return Err(document.errors(found).into());
        }
        let host = self.host(&document)?;
        Ok(document.value.on(host))
    }

    /// The host that a device names.
    fn host(&self, device: &Document<Device<String>>) -> Result<Host, Diagnostics> {
        let known = yaml_files(&self.hosts);
        let name = device.value.host.as_str();
        let Some((_, path)) = known.iter().find(|(known, _)| known == name) else {
            let names = known.iter().map(|(name, _)| name.as_str());
            let hint = zoo_recipe::did_you_mean(name, names.clone()).map(|known| format!(", did you mean `{known}`?"));
            let names: Vec<&str> = names.collect();
            let message = format!("there is no host `{name}`{}; known: {}", hint.unwrap_or_default(), names.join(", "));
            return Err(device.errors(vec![device.error_at("host", message)]));
        };
        let document: Document<Host> = Document::read(path)?;
        let mut found = Vec::new();
        if document.value.name != name {
            found.push(document.error_at("name", "a host is named as its file"));
        }
        for (path, figure) in figures(&document.value) {
            found.extend(figure_errors(&document, &path, &figure));
        }
        if found.is_empty() { Ok(document.value) } else { Err(document.errors(found)) }
    }
}

/// Names and files of the YAML files in these folders, sorted by name. If a name occurs more than once, the first one
/// is used.
pub(crate) fn yaml_files(dirs: &[PathBuf]) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for entry in dirs.iter().flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten()) {
        let path = entry.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml") && path.is_file();
        if let (Some(name), true) = (name, is_yaml)
            && !found.iter().any(|(known, _)| *known == name)
        {
            found.push((name, path));
        }
    }
    found.sort();
    found
}

/// Largest extent of a tile of a matrix unit.
const MOST_OF_A_TILE: usize = 1024;

/// Checks the rules that the schema cannot express.
fn check(document: &Document<Device<String>>, path: &Path) -> Vec<Diagnostic> {
    let device = &document.value;
    let mut found = Vec::new();
    if path.file_stem().and_then(|stem| stem.to_str()) != Some(device.name.as_str()) {
        found.push(document.error_at("name", "a device is named as its file"));
    }
    if device.matrix.tile.iter().any(|extent| !(1..=MOST_OF_A_TILE).contains(extent)) {
        let message = format!("a tile has 1 to {MOST_OF_A_TILE} rows, columns and steps");
        found.push(document.error_at("matrix.tile", message));
    }
    let operators = &device.operators;
    let lists = [
        ("white", &operators.white),
        ("black", &operators.black),
        ("half_only", &operators.half_only),
        ("row_major", &operators.row_major),
        ("missing", &operators.missing),
        ("composed", &operators.composed),
        ("views", &operators.views),
    ];
    for (list, names) in lists {
        let unknown = names.iter().enumerate().filter_map(|(n, name)| Some((n, unknown_operator(name)?)));
        found.extend(unknown.map(|(n, message)| document.error_at(&format!("operators.{list}[{n}]"), message)));
    }
    let unknown = operators.rates.keys().filter_map(|name| Some((name, unknown_operator(name)?)));
    found.extend(unknown.map(|(name, message)| document.error_at(&format!("operators.rates.{name}"), message)));
    for (path, figure) in device.figures() {
        found.extend(figure_errors(document, &path, &figure));
    }
    found
}

/// Mistakes in a figure.
fn figure_errors<T>(document: &Document<T>, path: &str, figure: &Figure) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let value = format!("{path}.value");
    let may_be_zero = path.starts_with("links.step")
        || path.starts_with("links.spread")
        || path.starts_with("control") && path != "control.mask_elements_per_us"
        || path.starts_with("steps")
        || path.ends_with("start_cycles")
        || path.ends_with("run_overhead_bytes");
    if figure.value == 0.0 && !may_be_zero {
        found.push(document.error_at(&value, "must be more than 0"));
    }
    let shares = ["efficiency", "_rate", "resident", "in_order_overlap"];
    if figure.value > 1.0 && shares.iter().any(|share| path.ends_with(share)) {
        found.push(document.error_at(&value, format!("a share is at most 1, found {}", figure.value)));
    }
    if figure.source.trim().is_empty() {
        found.push(
            document
                .error_at(&format!("{path}.source"), "every number has a source")
                .with_hint("where it is published, how it follows from what is, or that it is assumed"),
        );
    }
    found
}

/// The message for an unknown operator name, with a suggestion; `None` if the name is known.
pub(crate) fn unknown_operator(name: &str) -> Option<String> {
    if Op::names().any(|known| known == name) {
        return None;
    }
    let hint = zoo_recipe::did_you_mean(name, Op::names()).map(|known| format!(": did you mean `{known}`?"));
    let name = name.escape_debug();
    Some(format!("no operator has the name `{name}` on a device{}", hint.unwrap_or_default()))
}
