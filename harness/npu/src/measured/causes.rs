//! Why a measured step takes longer than it has to, with the evidence for each cause and what the step would gain.

use super::{
    by_module::Found,
    family::Family,
    table::{Line, share},
};
use indexmap::IndexMap;
use serde::Serialize;
use std::collections::HashMap;
use zoo_graph::Phase;
use zoo_measured::{GapKind, Kernel, Name, Recording, Unit};

/// Causes that cost less than this share of the step are left out.
const LEAST: f64 = 0.005;

/// A line is slow if it takes this many times as long as others of its family, relative to the prediction.
const SLOW: f64 = 1.5;

/// Why time is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// An operator ran on the scalar processors of an NPU or on the host.
    FellBack,
    /// Tensors were copied into another layout or order.
    Layout,
    /// Tensors were converted to another type and back.
    Type,
    /// An operator computed in float64.
    Float64,
    /// The device waited for launches of small kernels.
    Launch,
    /// The device waited for the host.
    Host,
    /// The step waited for samples.
    Input,
    /// The host waited for the device, which then had nothing to do.
    Synchronisation,
    /// Collectives that no computation hides.
    Collective,
    /// Collectives that wait for a slower device.
    Waiting,
    /// The host compiled operators or the network again.
    Recompiled,
    /// A shape that does not fill the tiles of the matrix units.
    OffTile,
    /// Slower than other operators of its kind, relative to the prediction.
    Slow,
}

impl Reason {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::FellBack => "fell back to the host",
            Self::Layout => "conversion of layout",
            Self::Type => "conversion of type",
            Self::Float64 => "float64",
            Self::Launch => "launch of small kernels",
            Self::Host => "host",
            Self::Input => "input",
            Self::Synchronisation => "synchronisation",
            Self::Collective => "collective not hidden",
            Self::Waiting => "waiting for the slowest",
            Self::Recompiled => "recompiled",
            Self::OffTile => "shape off the tile",
            Self::Slow => "slow",
        }
    }
}

/// A cause of lost time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// Why.
    pub reason: Reason,
    /// The line of the recipe that it belongs to, if there is one.
    pub line: Option<String>,
    /// What the step would gain, in ms.
    pub ms: f64,
    /// Its share of the measured step.
    pub share: f64,
    /// What was seen.
    pub evidence: String,
}

/// Kernels that are evidence of the same cause.
#[derive(Default)]
struct Evidence {
    kernels: usize,
    lost: f64,
    names: IndexMap<String, f64>,
    phases: Vec<Phase>,
}

/// Whether a device ran it, not the host.
fn on_device(recording: &Recording) -> bool {
    recording.kernels.iter().all(|kernel| kernel.unit != Unit::Host)
}

/// All causes, the most expensive first. `of_shapes` are those that the prediction knows: they apply to devices.
/// Samples come from the line `of_input`.
pub(super) fn causes(
    recording: &Recording,
    found: &[Found],
    lines: &[Line],
    of_shapes: Vec<Cause>,
    of_input: &str,
) -> Vec<Cause> {
    let steps = recording.steps.len().max(1) as f64;
    let step = recording.step_ms();
    let mut seen: IndexMap<(Reason, Option<String>), Evidence> = IndexMap::new();
    let nearest = forced(found);
    let plain = Plain::of(recording);
    for (k, (kernel, found)) in recording.kernels.iter().zip(found).enumerate() {
        let Some((reason, lost)) = conversion(recording, kernel, found, &plain) else { continue };
        let line = found.line.as_ref().or(nearest[k].as_ref()).cloned();
        let evidence = seen.entry((reason, line)).or_default();
        evidence.kernels += 1;
        evidence.lost += 1e-6 * lost / steps;
        *evidence.names.entry(recording.names.text(kernel.operator).to_owned()).or_default() += 1e-6 * lost / steps;
        evidence.phases.extend(found.phase.filter(|phase| !evidence.phases.contains(phase)));
    }
    // What an operator that fell back would need on the device is no loss, nor is a conversion that the device needs.
    for ((reason, line), evidence) in &mut seen {
        if matches!(reason, Reason::FellBack | Reason::Type | Reason::Layout) {
            let same = lines.iter().filter(|l| Some(&l.line) == line.as_ref() && evidence.phases.contains(&l.phase));
            let names = |l: &&Line| l.operators.iter().any(|operator| evidence.names.contains_key(operator));
            // Of a line with several kernels, only some fell back; conversions are beside the kernels of their line.
            let fell_back = |l: &Line| share(evidence.kernels as f64 / steps, l.kernels).min(1.0);
            let part = |l: &Line| if *reason == Reason::FellBack { fell_back(l) } else { 1.0 };
            let needed: f64 = same.filter(names).map(|l| part(l) * l.predicted_ms).sum();
            evidence.lost -= needed.min(evidence.lost);
        }
    }
    let mut causes: Vec<Cause> = seen
        .into_iter()
        .map(|((reason, line), evidence)| Cause {
            reason,
            ms: evidence.lost,
            share: share(evidence.lost, step),
            evidence: told(&evidence, steps),
            line,
        })
        .collect();
    causes.extend(gaps(recording, found, of_input));
    causes.extend(links(recording));
    causes.extend(of_shapes.into_iter().filter(|_| on_device(recording)));
    causes.extend(slow(lines, &causes, step));
    causes.retain(|cause| cause.share >= LEAST);
    causes.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    causes
}

/// Whether a kernel is the evidence of a cause, and the time that it costs, in ns.
fn conversion(recording: &Recording, kernel: &Kernel, found: &Found, plain: &Plain) -> Option<(Reason, f64)> {
    let own = kernel.own as f64;
    if kernel.unit == Unit::AiCpu {
        return Some((Reason::FellBack, own));
    }
    let is_conversion = !found.matched && kernel.unit != Unit::Link;
    match found.family {
        Some(Family::Cast) if is_conversion => Some((Reason::Type, own)),
        Some(Family::Layout) if is_conversion => Some((Reason::Layout, own)),
        _ if found.matched && is_double(recording, kernel) => {
            let expected = plain.expected(recording, kernel);
            (own > expected).then_some((Reason::Float64, own - expected))
        }
        _ => None,
    }
}

/// Whether a tensor among the operands is of float64. Numbers are, too, but their shape has no axis.
fn is_double(recording: &Recording, kernel: &Kernel) -> bool {
    let (types, shapes) = (recording.text(kernel.types).split(';'), recording.text(kernel.inputs).split(';'));
    types.zip(shapes).any(|(ty, shape)| ty.eq_ignore_ascii_case("double") && !shape.is_empty())
}

/// Operators that do not compute in float64.
struct Plain {
    /// Their median times, by operator and shapes, in ns.
    times: HashMap<(Name, Option<Name>), f64>,
    /// Their median times per unit of work, by operator.
    rates: HashMap<Name, f64>,
}

impl Plain {
    fn of(recording: &Recording) -> Self {
        let mut times: HashMap<(Name, Option<Name>), Vec<f64>> = HashMap::new();
        let mut rates: HashMap<Name, Vec<f64>> = HashMap::new();
        for kernel in recording.kernels.iter().filter(|kernel| kernel.types.is_some()) {
            if is_double(recording, kernel) {
                continue;
            }
            times.entry((kernel.operator, kernel.inputs)).or_default().push(kernel.own as f64);
            let work = work(recording.text(kernel.inputs)).filter(|work| *work > 0.0);
            rates.entry(kernel.operator).or_default().extend(work.map(|work| kernel.own as f64 / work));
        }
        let times = times.into_iter().filter_map(|(key, times)| Some((key, median(times)?)));
        let rates = rates.into_iter().filter_map(|(key, rates)| Some((key, median(rates)?)));
        Self { times: times.collect(), rates: rates.collect() }
    }

    /// The time that a kernel would take without float64, in ns: that of the same operator on the same shapes, or on
    /// others for its work; without any, half of the bytes take half of the time.
    fn expected(&self, recording: &Recording, kernel: &Kernel) -> f64 {
        let same = self.times.get(&(kernel.operator, kernel.inputs)).copied();
        let rate = || Some(self.rates.get(&kernel.operator)? * work(recording.text(kernel.inputs))?);
        same.or_else(rate).unwrap_or(kernel.own as f64 / 2.0)
    }
}

/// The work of an operator on operands of these shapes, up to a factor: each element of the first for each element of a
/// filter (the last operand with as many axes) per channel, or else the elements of the largest operand.
fn work(shapes: &str) -> Option<f64> {
    let axes = |shape: &str| shape.split(',').map(|axis| axis.trim().parse::<f64>().ok()).collect::<Option<Vec<f64>>>();
    let operands: Vec<Vec<f64>> = shapes.split(';').filter_map(axes).collect();
    // The last of the largest is the first one here.
    let first = operands.iter().rev().max_by_key(|operand| operand.len())?;
    let filter = operands.iter().rev().find(|operand| operand.len() == first.len())?;
    let elements = |operand: &[f64]| operand.iter().product::<f64>();
    match first.get(1) {
        Some(channels) if first != filter => Some(elements(first) / channels * elements(filter)),
        Some(_) | None => operands.iter().map(|operand| elements(operand)).max_by(f64::total_cmp),
    }
}

/// The median of some numbers.
pub(super) fn median(mut numbers: Vec<f64>) -> Option<f64> {
    let middle = numbers.len() / 2;
    (!numbers.is_empty()).then(|| *numbers.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// For each kernel, the line of the next one that has a line: what forces a conversion is what reads its result.
fn forced(found: &[Found]) -> Vec<Option<String>> {
    let mut next = None;
    let mut lines: Vec<Option<String>> = found
        .iter()
        .rev()
        .map(|found| {
            if found.matched {
                next.clone_from(&found.line);
            }
            next.clone()
        })
        .collect();
    lines.reverse();
    lines
}

/// Evidence as a sentence.
fn told(evidence: &Evidence, steps: f64) -> String {
    let mut names: Vec<(&String, &f64)> = evidence.names.iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(a.1));
    let names: Vec<&str> = names.into_iter().take(4).map(|(name, _)| name.as_str()).collect();
    let phases: Vec<String> = evidence.phases.iter().map(Phase::to_string).collect();
    let phases = if phases.is_empty() { String::new() } else { format!(" in {}", phases.join(" and ")) };
    format!("{}, {} per step{phases}", names.join(", "), told_count(evidence.kernels, steps))
}

/// A number per step, with a decimal if there are few.
fn told_count(count: usize, steps: f64) -> String {
    let number = count as f64 / steps;
    if number.fract() == 0.0 || number >= 10.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

/// Causes of gaps. The line is that of the module around, or of the kernel after it.
fn gaps(recording: &Recording, found: &[Found], of_input: &str) -> Vec<Cause> {
    let (steps, step) = (recording.steps.len().max(1) as f64, recording.step_ms());
    let on_device = on_device(recording);
    let mut sums: IndexMap<(Reason, Option<String>), (usize, f64)> = IndexMap::new();
    let forced = forced(found);
    for gap in &recording.gaps {
        let next = gap.next.and_then(|next| forced.get(next as usize)).and_then(Clone::clone);
        let (reason, line) = match gap.kind {
            GapKind::Input => (Reason::Input, Some(of_input.to_owned())),
            GapKind::Synchronisation => (Reason::Synchronisation, next),
            GapKind::Compile => (Reason::Recompiled, next),
            GapKind::Launch if on_device => (Reason::Launch, None),
            GapKind::Host if on_device => (Reason::Host, None),
            GapKind::Launch | GapKind::Host | GapKind::Idle => continue,
        };
        let sum = sums.entry((reason, line)).or_default();
        sum.0 += 1;
        sum.1 += 1e-6 * gap.duration as f64 / steps;
    }
    let cause = |((reason, line), (count, ms)): ((Reason, Option<String>), (usize, f64))| {
        let what = match reason {
            Reason::Input => "waits for samples",
            Reason::Synchronisation => "waits of the host for the device",
            Reason::Recompiled => "compilations",
            Reason::Launch
            | Reason::Host
            | Reason::FellBack
            | Reason::Layout
            | Reason::Type
            | Reason::Float64
            | Reason::Collective
            | Reason::Waiting
            | Reason::OffTile
            | Reason::Slow => "times without a kernel",
        };
        let evidence = format!("{} {what} per step", told_count(count, steps));
        Cause { reason, line, ms, share: share(ms, step), evidence }
    };
    sums.into_iter().map(cause).collect()
}

/// Causes among collectives.
fn links(recording: &Recording) -> Vec<Cause> {
    let (steps, step) = (recording.steps.len().max(1) as f64, recording.step_ms());
    let links = || recording.kernels.iter().filter(|kernel| kernel.unit == Unit::Link);
    let exposed: f64 = links().map(|kernel| 1e-6 * kernel.own as f64 / steps).sum();
    let waited: f64 = recording.collectives.iter().map(|collective| collective.wait_ms).sum::<f64>() / steps;
    let waited = waited.min(exposed);
    let cause =
        |reason: Reason, ms: f64, evidence: String| Cause { reason, line: None, ms, share: share(ms, step), evidence };
    let mut causes = Vec::new();
    if exposed > waited {
        causes.push(cause(
            Reason::Collective,
            exposed - waited,
            format!("{} collectives per step", told_count(links().count(), steps)),
        ));
    }
    if waited > 0.0 {
        let evidence = format!("{waited:.2} of {exposed:.2} ms before data moves or in between");
        causes.push(cause(Reason::Waiting, waited, evidence));
    }
    causes
}

/// Lines that are slower than others of their family and have no other cause.
fn slow(lines: &[Line], causes: &[Cause], step: f64) -> Vec<Cause> {
    let mut ratios: HashMap<Option<Family>, Vec<f64>> = HashMap::new();
    for line in lines {
        ratios.entry(line.family).or_default().extend(line.ratio);
    }
    let usual: HashMap<Option<Family>, f64> = ratios
        .into_iter()
        .filter(|(_, ratios)| ratios.len() > 2)
        .filter_map(|(family, ratios)| Some((family, median(ratios)?)))
        .collect();
    let mut found = Vec::new();
    for line in lines {
        let (Some(ratio), Some(usual)) = (line.ratio, usual.get(&line.family)) else { continue };
        let explained = causes.iter().any(|cause| cause.line.as_ref() == Some(&line.line));
        if explained || ratio < SLOW * usual {
            continue;
        }
        let ms = line.measured_ms - line.predicted_ms * usual;
        let evidence = format!(
            "{} in {}: {ratio:.2} times the prediction, others of its kind {usual:.2} times",
            line.operators.join(", "),
            line.phase
        );
        found.push(Cause { reason: Reason::Slow, line: Some(line.line.clone()), ms, share: share(ms, step), evidence });
    }
    found
}
