//! From events to a recording: steps, what each kernel adds to them, and why nothing ran in between.

use crate::{
    MeasuredError, Name, Names, Nanos,
    axis::{Axis, Piece},
    host::{Host, HostEvent, HostKind},
    marks::gradient,
    recording::{Format, Gap, GapKind, Kernel, Recording, Step, Unit},
};
use std::path::Path;

/// The longest gap that a launch explains.
pub(crate) const LAUNCH: Nanos = 20_000;

/// A kernel of a device, before it is known who launched it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launched {
    /// What is known of it.
    pub kernel: Kernel,
    /// The operator that launched it, or [`NONE`].
    pub operator: u32,
    /// What ties it to that operator.
    pub link: u64,
}

/// A kernel of which nothing else is known.
pub(crate) fn kernel(name: Name, unit: Unit, start: Nanos, duration: Nanos) -> Kernel {
    Kernel {
        name,
        operator: name,
        unit,
        step: 0,
        start,
        duration,
        own: 0,
        module: None,
        part: None,
        inputs: None,
        types: None,
        formats: None,
        outputs: None,
        cores: None,
    }
}

/// A recording in the making.
pub(crate) struct Draft<'p> {
    /// The file.
    pub path: &'p Path,
    /// Its kind.
    pub format: Format,
    /// Its texts.
    pub names: Names,
    /// What it lacks.
    pub absent: Vec<String>,
    /// The largest memory that it has.
    pub peak_memory: Option<u64>,
}

impl Draft<'_> {
    /// The recording with all its parts.
    pub fn finish(self, steps: Vec<Step>, kernels: Vec<Kernel>, gaps: Vec<Gap>) -> Result<Recording, MeasuredError> {
        let Draft { path, format, names, absent, peak_memory } = self;
        if kernels.is_empty() || steps.is_empty() {
            return Err(MeasuredError::Empty { path: path.to_owned(), reason: "no operator was recorded in a step" });
        }
        Ok(Recording {
            path: path.to_owned(),
            format,
            names,
            steps,
            kernels,
            gaps,
            step_times: Vec::new(),
            collectives: Vec::new(),
            peak_memory,
            absent,
        })
    }
}

/// The recording of a trace with kernels of a device.
pub(crate) fn on_device(
    mut draft: Draft<'_>,
    host: &Host,
    mut device: Vec<Launched>,
) -> Result<Recording, MeasuredError> {
    device.sort_unstable_by_key(|launched| (launched.kernel.start, launched.kernel.duration));
    let marked = steps(&mut draft, host).unwrap_or_default();
    let names = &mut draft.names;
    let mut kernels = Vec::new();
    for Launched { mut kernel, operator, .. } in device {
        let from = host.operators.get(operator as usize);
        let event = from.map(|operator| &host.events[operator.event as usize]);
        if let (Some(operator), Some(event)) = (from, event) {
            kernel.module = operator.module.or(kernel.module);
            kernel.part = operator.part.or(kernel.part);
            kernel.inputs = kernel.inputs.or(operator.shapes);
            kernel.types = kernel.types.or(operator.types);
            if draft.format == Format::PyTorch {
                let text = gradient(names.text(event.name)).map(str::to_owned);
                kernel.operator = text.and_then(|text| names.add(&text)).unwrap_or(event.name);
            }
        }
        let at = event.map_or(kernel.start, |event| event.start);
        let step = if marked.is_empty() { Some(0) } else { step_of(&marked, at) };
        if let Some(step) = step {
            kernels.push(Kernel { step, ..kernel });
        }
    }
    let steps = device_steps(&marked, &kernels);
    let axis = divide(&mut kernels, &steps);
    let compilations = host.events.iter().filter(|event| event.kind == HostKind::Compile).copied().collect::<Vec<_>>();
    let gaps = gaps(&axis, &steps, &kernels, |start, end| while_idle(host, &compilations, start, end));
    draft.finish(steps, kernels, gaps)
}

/// The steps of a device: each from the end of the one before to the end of its last kernel.
pub(crate) fn device_steps(marked: &[Step], kernels: &[Kernel]) -> Vec<Step> {
    let count = kernels.iter().map(|kernel| kernel.step as usize + 1).max().unwrap_or(0);
    let mut ends = vec![Nanos::MIN; count];
    let mut starts = vec![Nanos::MAX; count];
    for kernel in kernels {
        let step = kernel.step as usize;
        ends[step] = ends[step].max(kernel.end());
        starts[step] = starts[step].min(kernel.start);
    }
    let mut steps: Vec<Step> = Vec::new();
    for (index, (first, end)) in starts.into_iter().zip(ends).enumerate() {
        let before = steps.last().map(|step| step.end).or(marked.first().map(|step| step.start));
        let start = before.unwrap_or(first);
        let label = marked.get(index).map_or_else(|| index.to_string(), |step| step.label.clone());
        steps.push(Step { label, start, end: end.max(start) });
    }
    steps
}

/// Divides the steps among kernels: computation first, then collectives, then what runs beside them.
pub(crate) fn divide(kernels: &mut [Kernel], steps: &[Step]) -> Axis {
    let rank = |unit: Unit| match unit {
        Unit::Cube | Unit::Vector | Unit::Mixed | Unit::Device | Unit::AiCpu | Unit::Host => 0,
        Unit::Link => 1,
        Unit::Copy | Unit::Random => 2,
    };
    let (mut axis, mut own) = (Axis::default(), vec![0; kernels.len()]);
    for wanted in 0..3 {
        let of_rank = (0u32..).zip(kernels.iter()).filter(|(_, kernel)| rank(kernel.unit) == wanted);
        let pieces = of_rank.map(|(owner, kernel)| Piece { start: kernel.start, end: kernel.end(), owner });
        axis.claim(pieces.filter_map(|piece| within(&piece, steps)).collect(), &mut own);
    }
    for (kernel, own) in kernels.iter_mut().zip(own) {
        kernel.own = own;
    }
    axis
}

/// The part of a piece inside all steps together, which follow each other.
fn within(piece: &Piece, steps: &[Step]) -> Option<Piece> {
    let (start, end) = (piece.start.max(steps.first()?.start), piece.end.min(steps.last()?.end));
    (start < end).then_some(Piece { start, end, ..*piece })
}

/// The part of a piece inside the step in which its operator starts.
pub(crate) fn clipped(piece: &Piece, host: &Host, steps: &[Step]) -> Option<Piece> {
    let operator = &host.events[host.operators[piece.owner as usize].event as usize];
    let step = &steps[step_of(steps, operator.start)? as usize];
    let (start, end) = (piece.start.max(step.start), piece.end.min(step.end));
    (start < end).then_some(Piece { start, end, ..*piece })
}

/// The marked steps.
pub(crate) fn steps(draft: &mut Draft<'_>, host: &Host) -> Result<Vec<Step>, MeasuredError> {
    let mut marked: Vec<Step> = Vec::new();
    for step in &host.steps {
        // Of steps that overlap, as in traces of several processes, the later one begins where the first ends.
        let start = marked.last().map_or(step.start, |before| before.end.max(step.start));
        if start < step.end {
            marked.push(Step { start, ..step.clone() });
        }
    }
    if !marked.is_empty() {
        return Ok(marked);
    }
    draft.absent.push("steps: the whole file is one (`ProfilerStep` marks them)".to_owned());
    let (first, last) = (host.events.first(), host.events.iter().map(|event| event.end).max());
    let empty = || MeasuredError::Empty { path: draft.path.to_owned(), reason: "no operator was recorded" };
    let (first, last) = first.zip(last).ok_or_else(empty)?;
    Ok(vec![Step { label: "0".to_owned(), start: first.start, end: last }])
}

/// The step in which a time is.
pub(crate) fn step_of(steps: &[Step], time: Nanos) -> Option<u32> {
    let index = steps.partition_point(|step| step.start <= time).checked_sub(1)?;
    if time < steps[index].end { u32::try_from(index).ok() } else { None }
}

/// A part of a gap, and its reason.
pub(crate) type Reason = (Nanos, Nanos, GapKind, Option<Name>);

/// All gaps, divided by their reasons.
pub(crate) fn gaps(
    axis: &Axis,
    steps: &[Step],
    kernels: &[Kernel],
    reasons: impl Fn(Nanos, Nanos) -> Vec<Reason>,
) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for (step, Step { start, end, .. }) in (0u32..).zip(steps) {
        for (start, end) in axis.gaps(*start, *end) {
            let next = kernels.partition_point(|kernel| kernel.start < end);
            let next = u32::try_from(next).ok().filter(|next| (*next as usize) < kernels.len());
            let parts = reasons(start, end).into_iter();
            gaps.extend(parts.map(|(start, end, kind, module)| Gap {
                step,
                kind,
                start,
                duration: end - start,
                module,
                next,
            }));
        }
    }
    gaps
}

/// What the thread of the steps did between its operators.
pub(crate) fn on_thread(host: &Host, start: Nanos, end: Nanos) -> Vec<Reason> {
    let (mut parts, mut from) = (Vec::new(), start);
    let first = host.states.partition_point(|state| state.end <= start);
    for state in host.states[first..].iter().take_while(|state| state.start < end) {
        let (began, ended) = (state.start.max(from), state.end.min(end));
        if began > from {
            parts.push((from, began, GapKind::Host, None));
        }
        if ended > began {
            parts.push((began, ended, state.reason.unwrap_or(GapKind::Host), state.module));
        }
        from = from.max(ended);
    }
    if from < end {
        parts.push((from, end, GapKind::Host, None));
    }
    joined(parts)
}

/// Parts that follow each other for the same reason are one.
fn joined(parts: Vec<Reason>) -> Vec<Reason> {
    let mut joined: Vec<Reason> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if (last.1, last.2, last.3) == (part.0, part.2, part.3) => last.1 = part.1,
            Some(_) | None => joined.push(part),
        }
    }
    joined
}

/// A gap of which only the length is known.
pub(crate) fn unexplained(start: Nanos, end: Nanos) -> Reason {
    (start, end, if end - start <= LAUNCH { GapKind::Launch } else { GapKind::Idle }, None)
}

/// How many events before a gap may explain it.
const BEFORE: usize = 4096;

/// What the host did while the device had nothing to run. `compilations` are events of the host, by start.
fn while_idle(host: &Host, compilations: &[HostEvent], start: Nanos, end: Nanos) -> Vec<Reason> {
    if host.events.is_empty() {
        return vec![unexplained(start, end)];
    }
    let module =
        host.states.get(host.states.partition_point(|state| state.end <= start)).and_then(|state| state.module);
    let waited = |event: &&HostEvent| event.kind == HostKind::Wait && event.end >= start;
    let before_end = host.events.partition_point(|event| event.start < start);
    let is_wait = host.events[..before_end].iter().rev().take(BEFORE).find(waited).is_some_and(|event| event.end < end);
    let last = compilations[..compilations.partition_point(|event| event.start < end)].iter().rev().take(BEFORE);
    let compiled = last.map(|event| event.end.min(end) - event.start.max(start)).max().unwrap_or(0);
    let rest = match () {
        () if compiled > LAUNCH && compiled > (end - start) / 2 => GapKind::Compile,
        () if is_wait => GapKind::Synchronisation,
        () if end - start <= LAUNCH => GapKind::Launch,
        () => GapKind::Host,
    };
    let known = |(start, end, kind, own): Reason| match kind {
        GapKind::Input | GapKind::Compile => (start, end, kind, own),
        GapKind::Launch | GapKind::Host | GapKind::Synchronisation | GapKind::Idle => (start, end, rest, module),
    };
    joined(on_thread(host, start, end).into_iter().map(known).collect())
}
