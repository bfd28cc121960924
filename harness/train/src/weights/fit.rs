//! How the tensors of a file fit the variables of a network.

use candle_core::Tensor;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
};
use zoo_graph::EMA;

use super::{
    Origin,
    beside::{self, Meaning},
    choice::Chosen,
    naming::Wanted,
};
use crate::checkpoint::is_finite;

/// A single tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shaped {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// A variable with another shape in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlike {
    /// Its name in the network.
    pub name: String,
    /// Its shape in the file.
    pub file: Vec<usize>,
    /// Its shape in the network.
    pub network: Vec<usize>,
}

/// A variable whose name in the file differs by more than a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Renamed {
    /// Its name in the file.
    pub file: String,
    /// Its name in the network.
    pub network: String,
}

/// A tensor that the network does not have, because it shares the one of another module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tied {
    /// Its name in the file.
    pub name: String,
    /// The variable.
    pub to: String,
}

/// A tensor that the network does not need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// Its name in the file.
    pub name: String,
    /// What it is.
    pub what: &'static str,
}

/// The match between the tensors of a file and the parameters and running statistics of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// The file.
    pub file: PathBuf,
    /// The entry of the file that was compared, if not the file itself.
    pub entry: Option<String>,
    /// Other entries that fit as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The prefix of the file's names that was removed, because names fit without it.
    pub prefix: Option<String>,
    /// Variables that have a tensor in the file, with the names of the network.
    pub taken: Vec<String>,
    /// Variables with another name in the file, such as MindSpore's `gamma`, or of a module that is wrapped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renamed>,
    /// Variables that are not in the file.
    pub missing: Vec<Shaped>,
    /// Variables with another shape in the file.
    pub unlike: Vec<Unlike>,
    /// Tensors in the file that the network does not have.
    pub surplus: Vec<Shaped>,
    /// Tensors that are equal, bit by bit, to a variable that the network uses in their place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tied: Vec<Tied>,
    /// Tensors that differ from the variable that the network uses in their place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untied: Vec<Tied>,
    /// Tensors that the network does not need: counters, constants, state of a training.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<Beside>,
    /// Variables with values that are not finite.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_finite: Vec<String>,
    /// A suggestion.
    pub hint: Option<String>,
}

impl Fit {
    pub(super) fn new(
        file: PathBuf,
        chosen: &Chosen,
        wanted: &Wanted,
        theirs: &BTreeMap<String, Tensor>,
        origin: Option<&Origin>,
    ) -> Self {
        let matched = &chosen.matched;
        let by_variable: BTreeMap<&str, &str> =
            matched.names.iter().map(|(theirs, ours)| (ours.as_str(), theirs.as_str())).collect();
        let mut fit = Self {
            file,
            entry: chosen.entry.clone(),
            also: chosen.also.clone(),
            prefix: matched.strip.clone(),
            taken: Vec::new(),
            renamed: Vec::new(),
            missing: Vec::new(),
            unlike: Vec::new(),
            surplus: Vec::new(),
            tied: Vec::new(),
            untied: Vec::new(),
            ignored: Vec::new(),
            not_finite: Vec::new(),
            hint: None,
        };
        for name in wanted.order.iter().filter(|name| name.starts_with(&matched.add)) {
            let shape = wanted.variables[name].clone();
            let Some(theirs_name) = by_variable.get(name.as_str()) else {
                fit.missing.push(Shaped { name: name.clone(), shape });
                continue;
            };
            let Some(tensor) = theirs.get(*theirs_name) else {
                fit.missing.push(Shaped { name: name.clone(), shape });
                continue;
            };
            if tensor.dims() != shape {
                fit.unlike.push(Unlike { name: name.clone(), file: tensor.dims().to_vec(), network: shape });
                continue;
            }
            let average = theirs.get(&format!("{theirs_name}/{EMA}"));
            if !std::iter::once(tensor).chain(average).all(|values| is_finite(values).unwrap_or(false)) {
                fit.not_finite.push(name.clone());
            }
            fit.taken.push(name.clone());
        }
        let prefix = |name: &str| {
            let rest = name.strip_prefix(&matched.add).unwrap_or(name);
            Some(by_variable.get(name)?.strip_suffix(rest)?.to_owned())
        };
        let prefixes: BTreeSet<Option<String>> = fit.taken.iter().map(|name| prefix(name)).collect();
        let common = prefixes.into_iter().flatten().max_by_key(String::len).filter(|prefix| !prefix.is_empty());
        fit.prefix = common.or(fit.prefix);
        for name in &fit.taken {
            let file = by_variable.get(name.as_str()).copied().unwrap_or_default();
            let own = name.strip_prefix(&matched.add).unwrap_or(name);
            if file != own && file.strip_prefix(fit.prefix.as_deref().unwrap_or_default()) != Some(own) {
                fit.renamed.push(Renamed { file: file.to_owned(), network: name.clone() });
            }
        }
        for (name, shape) in &chosen.shapes {
            if matched.names.contains_key(name) {
                continue;
            }
            let name = name.clone();
            match beside::meaning(&name, theirs, wanted, matched) {
                Meaning::Tied(to) => fit.tied.push(Tied { name, to }),
                Meaning::Untied(to) => fit.untied.push(Tied { name, to }),
                Meaning::Ignored(what) => fit.ignored.push(Beside { name, what }),
                Meaning::State => {}
                Meaning::Surplus => fit.surplus.push(Shaped { name, shape: shape.clone().unwrap_or_default() }),
            }
        }
        let origin = origin.filter(|_| !fit.is_exact()).map(|origin| match origin.data.classes {
            0 => format!("the checkpoint is from the recipe `{}`", origin.recipe),
            classes => format!("the checkpoint is from the recipe `{}` with {classes} classes", origin.recipe),
        });
        let shard = (!fit.missing.is_empty() && is_shard(&fit.file))
            .then(|| "the file is one of several shards: name its folder, or the index".to_owned());
        fit.hint = matched.hint.clone().or(shard).or(origin);
        fit
    }

    /// Whether the file contains everything that the network needs, in finite values, and nothing that contradicts it.
    pub fn is_enough(&self) -> bool {
        self.missing.is_empty() && self.unlike.is_empty() && self.untied.is_empty() && self.not_finite.is_empty()
    }

    /// Whether file and network have the same tensors, except those that follow from others or only serve a training.
    pub fn is_exact(&self) -> bool {
        self.is_enough() && self.surplus.is_empty()
    }

    /// How names were found, and what is not used; empty if the file holds the network and nothing else.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.also.is_empty() {
            let entry = self.entry.as_deref().unwrap_or("the file itself");
            notes.push(format!("{entry} is taken; {} fits as well: choose with --entry", listed(self.also.iter())));
        }
        notes.extend(self.prefix.iter().map(|prefix| format!("names without their prefix `{prefix}`")));
        if !self.renamed.is_empty() {
            let pairs = self.renamed.iter().map(|renamed| format!("{} for {}", renamed.file, renamed.network));
            notes.push(format!("{} under other names: {}", self.renamed.len(), listed(pairs)));
        }
        if !self.tied.is_empty() {
            let pairs = self.tied.iter().map(|tied| format!("{} to {}", tied.name, tied.to));
            notes.push(format!("equal: {}", listed(pairs)));
        }
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        self.ignored.iter().for_each(|beside| kinds.entry(beside.what).or_default().push(&beside.name));
        notes.extend(kinds.iter().map(|(what, names)| format!("ignored, {what}: {}", listed(names.iter()))));
        notes
    }

    /// What prevents the use of the file, by kind.
    fn faults(&self) -> [(&'static str, Vec<String>); 5] {
        let names = |list: &[Shaped]| list.iter().map(|shaped| shaped.name.clone()).collect::<Vec<_>>();
        let unlike = self.unlike.iter().map(|u| format!("{} ({:?} in the file, {:?} here)", u.name, u.file, u.network));
        let untied = self.untied.iter().map(|tied| format!("{} is not equal to {}", tied.name, tied.to));
        [
            ("not in the file", names(&self.missing)),
            ("of another shape", unlike.collect()),
            ("that the network ties to another tensor", untied.collect()),
            ("with values that are not finite", self.not_finite.clone()),
            ("in the file, not in the network", names(&self.surplus)),
        ]
    }
}

/// Names in a row, of many only the first.
fn listed(names: impl ExactSizeIterator<Item = impl fmt::Display>) -> String {
    const NAMED: usize = 4;
    let more = if names.len() > NAMED { format!(", ... ({} in all)", names.len()) } else { String::new() };
    let named: Vec<String> = names.take(NAMED).map(|name| name.to_string()).collect();
    format!("{}{more}", named.join(", "))
}

/// Whether a file has the name of a part of several, such as `model-00001-of-00002.safetensors`.
fn is_shard(file: &Path) -> bool {
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    name.rsplit_once("-of-").is_some_and(|(_, count)| count.parse().is_ok_and(|count: u32| count > 1))
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = self.taken.len() + self.missing.len() + self.unlike.len();
        write!(f, "{} of {wanted} tensors fit, from {}", self.taken.len(), self.file.display())?;
        if let Some(entry) = &self.entry {
            write!(f, ", entry {entry}")?;
        }
        for (what, names) in self.faults().into_iter().filter(|(_, names)| !names.is_empty()) {
            write!(f, "\n  {} {what}: {}", names.len(), listed(names.iter()))?;
        }
        self.notes().iter().try_for_each(|note| write!(f, "\n  {note}"))?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}
