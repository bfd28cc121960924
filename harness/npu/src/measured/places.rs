//! Where the modules of a network stand in the recipe, and which operators each has: from the graph before any pass, in
//! which nothing is fused yet.

use super::family::{Family, family};
use crate::{NpuError, compile::Work, profile::line};
use std::collections::{HashMap, HashSet};
use zoo_graph::{Graph, Phase, Source, TapState};
use zoo_measured::{AVERAGE, CLIP, LOSS, UPDATE};
use zoo_recipe::{BuildOptions, ROOT, Recipe, build};

/// An operator of a module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// Its line of the recipe.
    pub line: String,
    /// What it does.
    pub family: Option<Family>,
}

/// All modules.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Operators of each module itself, without those of modules inside, in order.
    operators: HashMap<String, Vec<Place>>,
    /// The line of each module.
    lines: HashMap<String, String>,
}

impl Places {
    /// The modules of a recipe.
    pub fn new(recipe: &Recipe, work: Work, batch: usize) -> Result<Self, NpuError> {
        let options = match work {
            Work::Train => BuildOptions::train(batch),
            Work::Eval => BuildOptions::eval(batch),
        };
        Ok(Self::of(&build(recipe, &recipe.resolve()?, &options)?))
    }

    fn of(graph: &Graph) -> Self {
        let mut places = Self::default();
        for tap in &graph.taps {
            let lines = tap.origin.as_ref().map(line);
            places.lines.extend(lines.map(|line| (module_name(&tap.module).to_owned(), line)));
        }
        let owners = owners(graph);
        for (node, owner) in graph.nodes.iter().zip(owners) {
            let Some(origin) = &node.origin else { continue };
            let section = origin.path.split(['.', '[']).next().unwrap_or_default();
            let module = match (node.phase, section) {
                (Phase::Forward, _) => owner,
                (Phase::Loss, _) => LOSS.to_owned(),
                (Phase::Update, "gradients") => CLIP.to_owned(),
                (Phase::Update, "optimizer") => UPDATE.to_owned(),
                (Phase::Update, "train") => AVERAGE.to_owned(),
                // Gradients are found by the operators that they belong to.
                (Phase::Update | Phase::Backward, _) => continue,
            };
            let place = Place { line: line(origin), family: family(node.op.name()) };
            places.operators.entry(module).or_default().push(place);
        }
        places
    }

    /// The operators of a module; `None` if the network has no such module. What wrappers put before its name is left
    /// out.
    pub fn module(&self, name: &str) -> Option<(&str, &[Place])> {
        let bare = ["module.", "_orig_mod.", "_fsdp_wrapped_module."]
            .iter()
            .fold(name, |name, wrapper| name.strip_prefix(wrapper).unwrap_or(name));
        let operators = self.operators.get(bare).map(Vec::as_slice);
        let line = self.lines.get(bare).map(String::as_str);
        let first = operators.and_then(|operators| operators.first()).map(|place| place.line.as_str());
        Some((line.or(first)?, operators.unwrap_or_default()))
    }
}

/// The name of a module in recordings: the network itself has none.
fn module_name(name: &str) -> &str {
    if name == ROOT { "" } else { name }
}

/// The module to which each node belongs. A node with the name of a module is in it. Others, such as the sum of a
/// residual, have the name of their place in the recipe: they are in the innermost module whose call is around them.
fn owners(graph: &Graph) -> Vec<String> {
    let known: HashSet<&str> = graph.taps.iter().map(|tap| tap.module.as_str()).collect();
    let layer = |name: &str| name.split(['/', '#']).next().unwrap_or_default().to_owned();
    let named: Vec<Option<String>> =
        graph.nodes.iter().map(|node| Some(layer(&node.name)).filter(|name| known.contains(name.as_str()))).collect();
    // Where modules inside each module are computed.
    let mut inside: HashMap<&str, Vec<usize>> = HashMap::new();
    for (n, name) in named.iter().enumerate() {
        let name = name.as_deref().unwrap_or_default();
        let dots = name.char_indices().filter(|(_, c)| *c == '.').map(|(at, _)| at);
        dots.for_each(|at| inside.entry(&name[..at]).or_default().push(n));
    }
    let mut calls: Vec<(usize, usize, &str)> = Vec::new();
    let mut ends: HashMap<&str, usize> = HashMap::new();
    for tap in &graph.taps {
        let TapState::Value(value) = tap.state else { continue };
        let Source::Node(node, _) = graph.value(value).source else { continue };
        let module = tap.module.as_str();
        let before = ends.insert(module, node.0 + 1).unwrap_or(0);
        let first = inside.get(module).and_then(|nodes| nodes.get(nodes.partition_point(|n| *n < before)));
        calls.extend(first.filter(|first| **first <= node.0).map(|first| (*first, node.0, module)));
        // The last operator of a module without modules inside.
        calls.extend(first.is_none().then_some((node.0, node.0, module)));
    }
    calls.sort_by_key(|(_, _, module)| module.split('.').count());
    let mut owners = vec![""; graph.nodes.len()];
    for (first, last, module) in calls {
        owners[first..=last].iter_mut().for_each(|owner| *owner = module);
    }
    let owner = |(owner, name): (&str, Option<String>)| name.unwrap_or_else(|| module_name(owner).to_owned());
    owners.into_iter().zip(named).map(owner).collect()
}
