//! A measured step beside the predicted one, line by line.
//!
//! Measured kernels are assigned to lines of the recipe by the modules and phases that were marked (`by_module`), or by
//! operator, shape and order (`by_shape`). Several kernels may stand for one of the clock's and one for several: rows
//! have all of a line, a phase and a kind of operator.

mod by_module;
mod by_shape;
mod causes;
mod family;
mod off_tile;
mod places;
mod table;

pub use causes::{Cause, Reason};
pub use family::Family;
pub use table::{Line, Links, Rest, Waiting};

use crate::{
    NpuError,
    compile::Work,
    device::Device,
    profile::{Profile, line, line_of},
};
use by_module::Found;
use places::Places;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use zoo_graph::Phase;
use zoo_measured::{Recording, Unit};
use zoo_recipe::Recipe;

/// A measured step beside the predicted one.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The file.
    pub file: String,
    /// The kind of file.
    pub format: &'static str,
    /// Number of measured steps; all times are means.
    pub steps: usize,
    /// Time of a step.
    pub step_ms: f64,
    /// The predicted time of a step.
    pub predicted_ms: f64,
    /// The share of the time of kernels, without collectives, that is in `lines`.
    pub matched_share: f64,
    /// Why it takes longer than it has to, the most expensive cause first.
    pub causes: Vec<Cause>,
    /// What the recipe has.
    pub lines: Vec<Line>,
    /// What it does not have.
    pub rest: Vec<Rest>,
    /// Collectives.
    pub collectives: Links,
    /// Times in which nothing ran.
    pub gaps: Vec<Waiting>,
    /// The largest memory that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// What the file lacks.
    pub absent: Vec<String>,
    /// The first step, in order, for a timeline.
    #[serde(skip)]
    pub shown: Vec<Shown>,
}

/// A kernel or a gap of the first step.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Its lane: its phase, `collectives`, `gaps`, or `other` if its phase was not marked.
    pub lane: String,
    /// From the start of the step, in ms.
    pub from: f64,
    /// The same.
    pub to: f64,
    /// What it is, with its line.
    pub text: String,
}

/// Holds a recording against the prediction of a step on a device.
///
/// # Errors
/// A recipe from which no graph can be built.
pub fn measured(
    recording: &Recording,
    recipe: &Recipe,
    device: &Device,
    profile: &Profile,
    work: Work,
) -> Result<Measured, NpuError> {
    let found = assign(recording, recipe, profile, work)?;
    let lines = table::lines(recording, &found, profile);
    let rest = table::rest(recording, &found);
    let of_shapes = off_tile::off_tile(&lines, profile, device, recording.step_ms());
    let of_input = line_of(&recipe.span("data.source"));
    let [matched, other] = [lines.iter().map(|l| l.measured_ms).sum(), rest.iter().map(|r| r.ms).sum::<f64>()];
    Ok(Measured {
        file: recording.path.display().to_string(),
        format: recording.format.name(),
        steps: recording.steps.len(),
        step_ms: recording.step_ms(),
        predicted_ms: profile.step.ms(),
        matched_share: table::share(matched, matched + other),
        causes: causes::causes(recording, &found, &lines, of_shapes, &of_input),
        lines,
        rest,
        collectives: table::links(recording, profile),
        gaps: table::gaps(recording),
        peak_memory_bytes: recording.peak_memory,
        absent: recording.absent.clone(),
        shown: shown(recording, &found),
    })
}

/// The most kernels and gaps of a timeline: the longest ones.
const SHOWN: usize = 4000;

/// The first step for a timeline.
fn shown(recording: &Recording, found: &[Found]) -> Vec<Shown> {
    let start = recording.steps.first().map_or(0, |step| step.start);
    let ms = |time: i64| 1e-6 * (time - start) as f64;
    let kernels = recording.kernels.iter().zip(found).filter(|(kernel, _)| kernel.step == 0);
    let kernels = kernels.map(|(kernel, found)| {
        let lane = match (kernel.unit, found.phase) {
            (Unit::Link, _) => "collectives".to_owned(),
            (_, Some(phase)) => phase.to_string(),
            (_, None) => "other".to_owned(),
        };
        let (from, to) = (ms(kernel.start), ms(kernel.end()));
        let line = found.line.as_ref().map(|line| format!(", {line}")).unwrap_or_default();
        let name = recording.names.text(kernel.operator);
        Shown { lane, from, to, text: format!("{name} {:.1} us{line}", 1e3 * (to - from)) }
    });
    let gaps = recording.gaps.iter().filter(|gap| gap.step == 0).map(|gap| {
        let (from, to) = (ms(gap.start), ms(gap.start + gap.duration));
        Shown { lane: "gaps".to_owned(), from, to, text: format!("{} {:.1} us", gap.kind.name(), 1e3 * (to - from)) }
    });
    let mut shown: Vec<Shown> = kernels.chain(gaps).collect();
    shown.sort_by(|a, b| (b.to - b.from).total_cmp(&(a.to - a.from)));
    shown.truncate(SHOWN);
    shown.sort_by(|a, b| a.from.total_cmp(&b.from));
    shown
}

/// The lines of all kernels.
fn assign(recording: &Recording, recipe: &Recipe, profile: &Profile, work: Work) -> Result<Vec<Found>, NpuError> {
    let places = Places::new(recipe, work, (profile.batch / profile.accumulate).max(1))?;
    let mut found = if by_module::possible(recording, &places) {
        by_module::assign(recording, &places)
    } else {
        by_shape::assign(recording, profile)
    };
    // Conversions that the device's passes add; a host has no such passes.
    let nodes = profile.kernels.iter().flat_map(|kernel| &kernel.nodes).map(|node| &profile.graph.nodes[*node]);
    let added =
        nodes.filter_map(|node| Some((line(node.origin.as_ref()?), node.phase, family::family(node.op.name()))));
    let added: HashSet<(String, Phase, Option<Family>)> = added.collect();
    for (found, kernel) in found.iter_mut().zip(&recording.kernels) {
        let place = found.line.clone().zip(found.phase).map(|(line, phase)| (line, phase, found.family));
        found.matched |= kernel.unit != Unit::Host && place.is_some_and(|place| added.contains(&place));
        if kernel.unit == Unit::Link {
            *found = Found::default();
        }
    }
    Ok(found)
}

/// For each of the clock's kernels that a table of kernels shows, its measured time in us. Only operators that run as
/// one kernel on both sides count.
pub(crate) fn times(recording: &Recording, profile: &Profile) -> Vec<(usize, f64)> {
    let found = by_shape::assign(recording, profile);
    let mut kernels: HashMap<usize, usize> = HashMap::new();
    for (k, kernel) in profile.kernels.iter().enumerate() {
        kernels.extend(kernel.nodes.iter().map(|node| (*node, k)));
    }
    let mut times: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (found, kernel) in found.iter().zip(&recording.kernels) {
        let same = family::family(recording.names.text(kernel.operator)) == found.family;
        let on_core = matches!(kernel.unit, Unit::Cube | Unit::Vector | Unit::Mixed | Unit::Device);
        let Some(k) = found.node.and_then(|node| kernels.get(&node)).filter(|_| same && on_core) else { continue };
        if profile.kernels[*k].nodes.len() == 1 {
            times.entry(*k).or_default().push(1e-3 * kernel.duration as f64);
        }
    }
    // Several measured kernels of one operator are steps of the same kernel, or parts of it: only the former are alike.
    let steps = recording.steps.len();
    let alone = times.into_iter().filter(|(_, times)| times.len() <= steps);
    alone.filter_map(|(k, times)| Some((k, causes::median(times)?))).collect()
}
