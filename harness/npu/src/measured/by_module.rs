//! Assigns measured kernels to lines by the modules and phases that were marked.

use super::{
    family::{Family, family},
    places::Places,
};
use std::collections::{HashMap, HashSet};
use zoo_graph::Phase;
use zoo_measured::{LOSS, Name, Part, Recording, UPDATE};

/// Where a measured kernel belongs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// The line.
    pub line: Option<String>,
    /// The phase.
    pub phase: Option<Phase>,
    /// What it does.
    pub family: Option<Family>,
    /// Its node in the graph of the clock, if it is known.
    pub node: Option<usize>,
    /// Whether the recipe has it: neither a conversion that only the program has, nor unknown.
    pub matched: bool,
}

/// The phase of a part.
pub(super) fn phase(part: Part) -> Phase {
    match part {
        Part::Forward => Phase::Forward,
        Part::Loss => Phase::Loss,
        Part::Backward => Phase::Backward,
        Part::Update => Phase::Update,
    }
}

/// Kernels of the same call: step, part, module and family.
type Key = (u32, Part, Option<Name>, Option<Family>);

/// Assigns all kernels.
pub(super) fn assign(recording: &Recording, places: &Places) -> Vec<Found> {
    let families: HashMap<Name, Option<Family>> =
        recording.kernels.iter().map(|k| k.operator).map(|name| (name, family(recording.names.text(name)))).collect();
    let mut found = vec![Found::default(); recording.kernels.len()];
    let mut groups: HashMap<Key, Vec<usize>> = HashMap::new();
    for (k, kernel) in recording.kernels.iter().enumerate() {
        found[k].family = families[&kernel.operator];
        found[k].phase = kernel.part.map(phase);
        let Some(part) = kernel.part else { continue };
        groups.entry((kernel.step, part, kernel.module, found[k].family)).or_default().push(k);
    }
    for ((_, part, module, family), kernels) in groups {
        let name = module.map_or_else(|| standing(part), |module| recording.names.text(module));
        let Some((line, operators)) = places.module(name) else { continue };
        let same: Vec<&str> =
            operators.iter().filter(|o| family.is_some() && o.family == family).map(|o| o.line.as_str()).collect();
        let only = operators.iter().all(|other| other.line == operators[0].line).then(|| operators.first()).flatten();
        for (i, k) in kernels.iter().enumerate() {
            // Several operators of a family: in order, and gradients in the opposite one.
            let at = i * same.len() / kernels.len();
            let at = if part == Part::Backward { same.len().saturating_sub(at + 1) } else { at };
            let own = same.get(at).copied();
            let line = own.or(only.map(|only| only.line.as_str())).unwrap_or(line);
            found[*k].line = Some(line.to_owned());
            // Programs compute a loss or an update in other operators than the recipe, with conversions in between.
            let whole = name.starts_with('@');
            found[*k].matched = own.is_some() || whole || !family.is_some_and(Family::converts);
        }
    }
    beside(recording, &mut found);
    found
}

/// Assigns operators of a module that has none of its own: they belong to the module inside it that ran before them, as
/// the sum of two embeddings does.
fn beside(recording: &Recording, found: &mut [Found]) {
    let mut before: Option<(&str, String)> = None;
    let mut lines: HashMap<(&str, Option<Family>), String> = HashMap::new();
    for (kernel, found) in recording.kernels.iter().zip(found) {
        let (Some(part), module) = (kernel.part, recording.text(kernel.module)) else { continue };
        let is_free = !found.matched && !found.family.is_some_and(Family::converts);
        let line = match part {
            Part::Forward => {
                before.as_ref().filter(|(inner, _)| is_inside(inner, module)).map(|(_, line)| line.clone())
            }
            Part::Backward => lines.get(&(module, found.family)).cloned(),
            Part::Loss | Part::Update => None,
        };
        if let (true, Some(line)) = (is_free, line) {
            lines.insert((module, found.family), line.clone());
            found.line = Some(line);
            found.matched = true;
        } else if let (Part::Forward, true, Some(line)) = (part, found.matched, &found.line) {
            before = Some((module, line.clone()));
        }
    }
}

/// Whether a module lies inside another one.
fn is_inside(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

/// What stands for the module of kernels outside of any.
fn standing(part: Part) -> &'static str {
    match part {
        Part::Forward | Part::Backward => "",
        Part::Loss => LOSS,
        Part::Update => UPDATE,
    }
}

/// Whether any kernel can be assigned so: one that runs in a module of the recipe.
pub(super) fn possible(recording: &Recording, places: &Places) -> bool {
    let is_known = |module: Name| places.module(recording.names.text(module)).is_some();
    let modules: HashSet<Name> = recording.kernels.iter().filter_map(|kernel| kernel.module).collect();
    modules.into_iter().any(is_known)
}
