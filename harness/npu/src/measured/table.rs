//! The step, line by line: what was measured beside what was predicted. All rows and gaps add up to the measured step.

use super::{by_module::Found, family::Family};
use crate::profile::Profile;
use indexmap::IndexMap;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use zoo_graph::Phase;
use zoo_measured::{GapKind, Recording, Unit};

/// One kind of operator of a line, in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Line of the recipe.
    pub line: String,
    /// Phase of the step.
    pub phase: Phase,
    /// The kind of operator.
    pub family: Option<Family>,
    /// The operators that were measured, by the names of the profiler.
    pub operators: Vec<String>,
    /// The operators of the clock's kernels.
    pub predicted_operators: Vec<String>,
    /// Measured kernels per step.
    pub kernels: f64,
    /// Time that the step spends on them.
    pub measured_ms: f64,
    /// Time in which they ran beside others.
    pub hidden_ms: f64,
    /// Time of the clock's kernels. 0 if they are part of the kernels of other lines.
    pub predicted_ms: f64,
    /// Measured by predicted time.
    pub ratio: Option<f64>,
}

/// Kernels that the recipe does not have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rest {
    /// The operator, by the name of the profiler.
    pub operator: String,
    /// The phase, if it was marked.
    pub phase: Option<Phase>,
    /// The line of the module in which they ran, if it was marked.
    pub line: Option<String>,
    /// Kernels per step.
    pub kernels: f64,
    /// Time that the step spends on them.
    pub ms: f64,
    /// Its share of the step.
    pub share: f64,
}

/// Time in which nothing ran, by its reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    /// The reason.
    pub reason: &'static str,
    /// Gaps per step.
    pub gaps: f64,
    /// Time.
    pub ms: f64,
    /// Its share of the step.
    pub share: f64,
}

/// Collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Links {
    /// Collectives per step.
    pub kernels: f64,
    /// Time in which no computation hides them.
    pub measured_ms: f64,
    /// Time in which computation runs.
    pub hidden_ms: f64,
    /// The predicted time that is not hidden.
    pub predicted_ms: f64,
}

type Key = (String, Phase, Option<Family>);

type RestKey = (String, Option<Phase>, Option<String>);

#[derive(Default)]
struct Sums {
    names: BTreeSet<String>,
    kernels: usize,
    own: f64,
    hidden: f64,
    predicted_names: BTreeSet<String>,
    predicted: f64,
}

/// The lines, the most expensive first.
pub(super) fn lines(recording: &Recording, found: &[Found], profile: &Profile) -> Vec<Line> {
    let steps = recording.steps.len() as f64;
    let mut rows: IndexMap<Key, Sums> = IndexMap::new();
    for (kernel, found) in recording.kernels.iter().zip(found) {
        let (Some(line), Some(phase), true) = (&found.line, found.phase, found.matched) else { continue };
        let row = rows.entry((line.clone(), phase, found.family)).or_default();
        row.names.insert(recording.names.text(kernel.operator).to_owned());
        row.kernels += 1;
        row.own += 1e-6 * kernel.own as f64 / steps;
        row.hidden += 1e-6 * (kernel.duration - kernel.own).max(0) as f64 / steps;
    }
    for (k, kernel) in profile.kernels.iter().enumerate() {
        let Some(line) = profile.line_of(kernel) else { continue };
        let family = super::family::family(profile.graph.nodes[kernel.nodes[0]].op.name());
        let row = rows.entry((line, kernel.phase, family)).or_default();
        row.predicted_names.insert(profile.kernel_name(kernel));
        row.predicted += profile.per_step(k, |price| price.time).ms();
    }
    unite(&mut rows);
    let mut lines: Vec<Line> = rows
        .into_iter()
        .map(|((line, phase, family), sums)| Line {
            line,
            phase,
            family,
            operators: sums.names.into_iter().collect(),
            predicted_operators: sums.predicted_names.into_iter().collect(),
            kernels: sums.kernels as f64 / steps,
            measured_ms: sums.own,
            hidden_ms: if recording.kernels.iter().any(|k| k.unit == Unit::Host) { 0.0 } else { sums.hidden },
            predicted_ms: sums.predicted,
            ratio: (sums.own > 0.0 && sums.predicted > 0.0).then(|| sums.own / sums.predicted),
        })
        .collect();
    lines.sort_by(|a, b| b.measured_ms.total_cmp(&a.measured_ms).then(b.predicted_ms.total_cmp(&a.predicted_ms)));
    lines
}

/// Puts together what the device and the program compute in other operators: the rows of a line and phase of which one
/// side is missing. Conversions stay alone.
fn unite(rows: &mut IndexMap<Key, Sums>) {
    let mut alone: BTreeMap<(String, String), [Vec<Key>; 2]> = BTreeMap::new();
    for (key, sums) in rows.iter().filter(|(key, _)| !key.2.is_some_and(Family::converts)) {
        let side = match (sums.own > 0.0, sums.predicted > 0.0) {
            (true, false) => 0,
            (false, true) => 1,
            (true, true) | (false, false) => continue,
        };
        alone.entry((key.0.clone(), key.1.to_string())).or_default()[side].push(key.clone());
    }
    for [measured, predicted] in alone.into_values() {
        let most = measured.into_iter().max_by(|a, b| rows[a].own.total_cmp(&rows[b].own));
        let Some(most) = most else { continue };
        for key in predicted {
            let Some(sums) = rows.shift_remove(&key) else { continue };
            if let Some(row) = rows.get_mut(&most) {
                row.predicted += sums.predicted;
                row.predicted_names.extend(sums.predicted_names);
            }
        }
    }
}

/// What the recipe does not have, the most expensive first.
pub(super) fn rest(recording: &Recording, found: &[Found]) -> Vec<Rest> {
    let mut rows: IndexMap<RestKey, (usize, f64)> = IndexMap::new();
    let (steps, step) = (recording.steps.len() as f64, recording.step_ms());
    for (kernel, found) in recording.kernels.iter().zip(found) {
        if found.matched || kernel.unit == Unit::Link {
            continue;
        }
        let name = recording.names.text(kernel.operator).to_owned();
        let row = rows.entry((name, found.phase, found.line.clone())).or_default();
        row.0 += 1;
        row.1 += 1e-6 * kernel.own as f64 / steps;
    }
    let mut rest: Vec<Rest> = rows
        .into_iter()
        .map(|((operator, phase, line), (count, ms))| Rest {
            operator,
            phase,
            line,
            kernels: count as f64 / steps,
            ms,
            share: share(ms, step),
        })
        .collect();
    rest.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    rest
}

/// Gaps, the longest first.
pub(super) fn gaps(recording: &Recording) -> Vec<Waiting> {
    let (steps, step) = (recording.steps.len() as f64, recording.step_ms());
    let mut rows: BTreeMap<GapKind, (usize, f64)> = BTreeMap::new();
    for gap in &recording.gaps {
        let row = rows.entry(gap.kind).or_default();
        row.0 += 1;
        row.1 += 1e-6 * gap.duration as f64 / steps;
    }
    let row = |(kind, (count, ms)): (GapKind, (usize, f64))| Waiting {
        reason: kind.name(),
        gaps: count as f64 / steps,
        ms,
        share: share(ms, step),
    };
    let mut gaps: Vec<Waiting> = rows.into_iter().map(row).collect();
    gaps.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    gaps
}

/// All collectives.
pub(super) fn links(recording: &Recording, profile: &Profile) -> Links {
    let steps = recording.steps.len() as f64;
    let mut links = Links { predicted_ms: profile.timeline.exposed.ms(), ..Links::default() };
    for kernel in recording.kernels.iter().filter(|kernel| kernel.unit == Unit::Link) {
        links.kernels += 1.0 / steps;
        links.measured_ms += 1e-6 * kernel.own as f64 / steps;
        links.hidden_ms += 1e-6 * (kernel.duration - kernel.own).max(0) as f64 / steps;
    }
    links
}

/// A share of a time.
pub(super) fn share(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all } else { 0.0 }
}
