//! Names of a file as names of a network.

use std::collections::{BTreeMap, BTreeSet};
use zoo_graph::{Graph, Phase};
use zoo_recipe::schema;

/// Modules that only wrap another one: of data parallelism, `torch.compile`, FSDP and activation checkpoints.
const WRAPPERS: [&str; 4] = ["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];
/// Last parts of names, and what PyTorch calls them: those of MindSpore, and of models that came from TensorFlow.
pub(super) const DIALECT: [(&str, &str); 5] = [
    ("gamma", "weight"),
    ("beta", "bias"),
    ("moving_mean", "running_mean"),
    ("moving_variance", "running_var"),
    (TABLE, "weight"),
];
/// MindSpore's name of the table of an embedding.
pub(super) const TABLE: &str = "embedding_table";

/// Maps names of the file to names of the network: `strip` + rest becomes `add` + rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// A prefix that only names in the file have, such as `module.`; if it is empty, one by which names fit is found.
    pub strip: String,
    /// A prefix that only names in the network have; variables without it are not loaded from the file.
    pub add: String,
}

impl From<&schema::InitFrom> for Naming {
    fn from(source: &schema::InitFrom) -> Self {
        let prefix = |module: &Option<String>| module.as_ref().map(|module| format!("{module}.")).unwrap_or_default();
        Self { strip: prefix(&source.from), add: prefix(&source.into) }
    }
}

/// Names and shapes in a file; a tensor without a shape is stored in a way that is not read.
pub(super) type Shapes = BTreeMap<String, Option<Vec<usize>>>;

/// What a network needs: its parameters and running statistics.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Names and shapes.
    pub variables: BTreeMap<String, Vec<usize>>,
    /// Names in the order of the network.
    pub order: Vec<String>,
    /// Other names of variables: `lm_head.weight`, where the module `lm_head` uses the table of another one.
    pub aliases: BTreeMap<String, String>,
}

impl Wanted {
    pub(super) fn new(graph: &Graph) -> Self {
        let kept = || graph.variables.iter().filter(|variable| variable.role.kept_beside().is_none());
        let variables: BTreeMap<String, Vec<usize>> =
            kept().map(|variable| (variable.name.clone(), graph.ty(variable.value).shape.to_vec())).collect();
        let names: BTreeMap<_, &str> = kept().map(|variable| (variable.value, variable.name.as_str())).collect();
        let mut aliases = BTreeMap::new();
        for node in graph.nodes.iter().filter(|node| node.phase == Phase::Forward) {
            for name in node.inputs.iter().filter_map(|input| names.get(input)) {
                let (module, last) = name.rsplit_once('.').unwrap_or(("", name));
                let alias = format!("{}.{last}", node.name);
                // Not the operators inside the module of the variable.
                let is_elsewhere = module != node.name && !name.starts_with(&format!("{}.", node.name));
                if is_elsewhere && !variables.contains_key(&alias) {
                    aliases.insert(alias, (*name).to_owned());
                }
            }
        }
        Self { variables, order: kept().map(|variable| variable.name.clone()).collect(), aliases }
    }

    fn has(&self, name: &str) -> bool {
        self.variables.contains_key(name) || self.aliases.contains_key(name)
    }

    /// The variable that an alias names, or the name itself.
    pub(super) fn variable<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, String::as_str)
    }
}

/// The names of a file that belong to a network.
#[derive(Clone, Debug, Default)]
pub(super) struct Matched {
    /// Name in the file, and the variable that it fills.
    pub names: BTreeMap<String, String>,
    /// Names in the file of variables that another name fills, and the variable: they must be equal.
    pub tied: BTreeMap<String, String>,
    /// The prefix that was removed because names fit without it.
    pub strip: Option<String>,
    /// The prefix that the network's names have in addition.
    pub add: String,
    /// Number of variables that are filled in their shape.
    pub fitting: usize,
    /// What else might be meant.
    pub hint: Option<String>,
}

impl Matched {
    /// Matches the names of a file. Without a prefix in `naming`, one by which more names fit is found.
    pub(super) fn new(wanted: &Wanted, shapes: &Shapes, naming: &Naming) -> Self {
        let plain = Self::with(wanted, shapes, naming);
        if *naming != Naming::default() {
            return plain;
        }
        let found: BTreeSet<&str> = plain.names.values().map(String::as_str).collect();
        let missing: BTreeSet<&str> =
            wanted.variables.keys().map(String::as_str).filter(|name| !found.contains(name)).collect();
        let rest: Vec<String> = shapes
            .keys()
            .filter(|name| !plain.names.contains_key(*name) && !plain.tied.contains_key(*name))
            .map(|name| in_our_words(&unwrapped(name)))
            .collect();
        let rest: BTreeSet<&str> = rest.iter().map(String::as_str).collect();
        let most = |count: usize| count >= 2 && 2 * count >= missing.len().min(rest.len());
        match commonest(&rest, &missing).as_slice() {
            [] => {}
            [(prefix, count)] if most(*count) => {
                let strip = Naming { strip: prefix.clone(), add: String::new() };
                let stripped = Self::with(wanted, shapes, &strip);
                if stripped.fitting > plain.fitting {
                    return Self { strip: Some(prefix.clone()), ..stripped };
                }
            }
            several => {
                let prefixes: Vec<String> = several.iter().map(|(prefix, _)| format!("`{prefix}`")).collect();
                if several.iter().any(|(_, count)| most(*count)) {
                    let hint = format!(
                        "names fit without the prefix {}: choose one with --strip",
                        prefixes.join(" and without the prefix ")
                    );
                    return Self { hint: Some(hint), ..plain };
                }
            }
        }
        match commonest(&missing, &rest).first() {
            Some((add, count)) if most(*count) => {
                let hint = format!("{count} names fit with the prefix `{add}`: use --add {add}");
                Self { hint: Some(hint), ..plain }
            }
            _ => plain,
        }
    }

    fn with(wanted: &Wanted, shapes: &Shapes, naming: &Naming) -> Self {
        // A variable's own name comes before its aliases, and a name as it is before one that has to be changed.
        let mut found: Vec<(bool, bool, &String, String)> = Vec::new();
        for name in shapes.keys() {
            if let Some(ours) = ours(name, wanted, naming) {
                found.push((wanted.aliases.contains_key(&ours), ours != *name, name, ours));
            }
        }
        found.sort();
        let mut matched = Self { add: naming.add.clone(), ..Self::default() };
        let mut filled: BTreeSet<String> = BTreeSet::new();
        for (_, _, theirs, ours) in found {
            let variable = wanted.variable(&ours).to_owned();
            if filled.insert(variable.clone()) {
                let fits = shapes.get(theirs).and_then(Option::as_ref) == wanted.variables.get(&variable);
                matched.fitting += usize::from(fits);
                matched.names.insert(theirs.clone(), variable);
            } else if ours != variable {
                matched.tied.insert(theirs.clone(), variable);
            }
        }
        matched
    }

    /// The name in the network, also of the state of an optimizer, `PARAMETER/SLOT`; other names stay.
    pub(super) fn ours(&self, theirs: &str) -> String {
        let (name, slot) = theirs.split_once('/').map_or((theirs, None), |(name, slot)| (name, Some(slot)));
        match (self.names.get(name), slot) {
            (Some(ours), Some(slot)) => format!("{ours}/{slot}"),
            (Some(ours), None) => ours.clone(),
            (None, _) => theirs.to_owned(),
        }
    }
}

/// The variable or alias of a name of the file, if there is one.
fn ours(theirs: &str, wanted: &Wanted, naming: &Naming) -> Option<String> {
    let words = [theirs.to_owned(), unwrapped(theirs), in_our_words(theirs), in_our_words(&unwrapped(theirs))];
    let named = |name: &String| Some(format!("{}{}", naming.add, name.strip_prefix(&naming.strip)?));
    // A prefix that is given may be a wrapper.
    let stripped = theirs.strip_prefix(&naming.strip).map(|rest| format!("{}{}", naming.add, rest));
    let stripped = stripped.iter().flat_map(|name| [unwrapped(name), in_our_words(&unwrapped(name))]);
    words.iter().filter_map(named).chain(stripped).find(|name| wanted.has(name))
}

/// A name without the modules that only wrap another one.
pub(super) fn unwrapped(name: &str) -> String {
    name.split('.').filter(|part| !WRAPPERS.contains(part)).collect::<Vec<_>>().join(".")
}

/// A name with PyTorch's word for its last part.
pub(super) fn in_our_words(name: &str) -> String {
    let (module, last) = name.rsplit_once('.').unwrap_or(("", name));
    match DIALECT.iter().find(|(theirs, _)| *theirs == last) {
        Some((_, ours)) if !module.is_empty() => format!("{module}.{ours}"),
        _ => name.to_owned(),
    }
}

/// The most frequent prefixes (ending in a dot) of `names` with which `others` begin, and their count. Of prefixes that
/// contain each other only the shortest is named.
fn commonest(names: &BTreeSet<&str>, others: &BTreeSet<&str>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        for (dot, _) in name.match_indices('.') {
            if others.contains(&name[dot + 1..]) {
                *counts.entry(&name[..=dot]).or_default() += 1;
            }
        }
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let mut found: Vec<(String, usize)> = Vec::new();
    for (prefix, count) in counts.into_iter().filter(|(_, count)| *count == most) {
        if !found.iter().any(|(shorter, _)| prefix.starts_with(shorter.as_str())) {
            found.push((prefix.to_owned(), count));
        }
    }
    found
}
