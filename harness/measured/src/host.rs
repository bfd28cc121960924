//! What the host did in a trace: operators with the marks around them.
//!
//! Events of a thread lie inside each other. An *outermost* operator is one that no other operator contains; marks may
//! lie between operators, so that the operators of a call that another operator makes (a recomputation) are their own.
//! The gradient of an operator belongs to the operator with its sequence number that began last.

use crate::{
    MeasuredError, Name, Names, Nanos,
    axis::Piece,
    events::Event,
    marks::{Mark, gradient, mark},
    recording::{GapKind, Part, Step},
};
use std::collections::HashMap;
use std::path::Path;

/// The number that stands for no operator.
pub(crate) const NONE: u32 = u32::MAX;

/// An event of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostEvent {
    /// Its thread.
    pub thread: Name,
    /// Its start.
    pub start: Nanos,
    /// Its end.
    pub end: Nanos,
    /// Its name.
    pub name: Name,
    /// Its kind.
    pub kind: HostKind,
    /// What ties it to its gradient.
    pub sequence: Option<u32>,
    /// What ties it to the kernels that it launches.
    pub link: u64,
    /// Shapes of its operands.
    pub shapes: Option<Name>,
    /// Types of its operands.
    pub types: Option<Name>,
}

/// Kinds of events of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// An operator.
    Operator,
    /// A range that someone named.
    Range,
    /// A call of the device's driver.
    Call,
    /// One that waits for the device.
    Wait,
    /// One that compiles an operator.
    Compile,
}

/// An outermost operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    /// Its event.
    pub event: u32,
    /// The module in whose call it ran, or that its gradient belongs to.
    pub module: Option<Name>,
    /// The part of the step.
    pub part: Option<Part>,
    /// Shapes of its operands, or those of the first operator inside that has any: the engine's own have none.
    pub shapes: Option<Name>,
    /// Types of these operands.
    pub types: Option<Name>,
}

/// What the host does besides operators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// Its start.
    pub start: Nanos,
    /// Its end.
    pub end: Nanos,
    /// Why it does not launch operators, if it is known.
    pub reason: Option<GapKind>,
    /// The module in whose call it is.
    pub module: Option<Name>,
}

/// All that the host did.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Events by start.
    pub events: Vec<HostEvent>,
    /// Outermost operators, by start.
    pub operators: Vec<Operator>,
    /// For each event, its outermost operator, or [`NONE`].
    pub of_event: Vec<u32>,
    /// Times of outermost operators on the thread of the steps: without what is marked inside them.
    pub main: Vec<Piece>,
    /// The same of other threads.
    pub others: Vec<Piece>,
    /// Times of the thread of the steps outside of operators.
    pub states: Vec<State>,
    /// Steps that are marked.
    pub steps: Vec<Step>,
}

/// A text for messages and tables of shapes: `2,3;4`.
pub(crate) fn shapes(value: &serde_json::Value) -> String {
    let list = |value: &serde_json::Value| match value {
        serde_json::Value::Array(axes) => axes.iter().map(|axis| axis.to_string()).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    value.as_array().map(|operands| operands.iter().map(list).collect::<Vec<_>>().join(";")).unwrap_or_default()
}

/// Element types: `float;int`.
pub(crate) fn types(value: &serde_json::Value) -> String {
    let operands = value.as_array().map(Vec::as_slice).unwrap_or_default();
    operands.iter().map(|operand| operand.as_str().unwrap_or_default()).collect::<Vec<_>>().join(";")
}

impl HostEvent {
    /// The event of a trace; `None` if it has no times.
    pub fn new(event: &Event, kind: HostKind, names: &mut Names) -> Option<Self> {
        let start = event.ts.0?;
        let end = start.checked_add(event.dur.0.unwrap_or(0).max(0))?;
        let link = event.args.correlation.as_ref().or(event.args.external.as_ref());
        Some(Self {
            thread: names.add(&format!("{}/{}", event.pid.0, event.tid.0))?,
            start,
            end,
            name: names.add(&event.name)?,
            kind,
            sequence: event.args.sequence.and_then(|number| number.try_into().ok()),
            link: link.and_then(|key| key.0.parse().ok()).unwrap_or(0),
            shapes: event
                .args
                .shapes
                .as_ref()
                .map(shapes)
                .filter(|text| !text.is_empty())
                .and_then(|text| names.add(&text)),
            types: event
                .args
                .types
                .as_ref()
                .map(types)
                .filter(|text| !text.is_empty())
                .and_then(|text| names.add(&text)),
        })
    }
}

/// An event that has not ended yet.
struct Open {
    end: Nanos,
    /// Its outermost operator, or [`NONE`].
    operator: u32,
    module: Option<Name>,
    part: Option<Part>,
    /// Why nothing is launched in it, if it is known.
    reason: Option<GapKind>,
    /// Until when its time was given away.
    reached: Nanos,
}

/// Finds outermost operators and what is around them. A trace of more than four billion events is refused.
pub(crate) fn walk(path: &Path, mut events: Vec<HostEvent>, names: &mut Names) -> Result<Host, MeasuredError> {
    if u32::try_from(events.len()).is_err() {
        return Err(MeasuredError::Empty { path: path.to_owned(), reason: "it has more than four billion events" });
    }
    events.sort_unstable_by_key(|event| (event.start, std::cmp::Reverse(event.end), event.link));
    let main = main_thread(&events, names);
    let mut host = Host { of_event: vec![NONE; events.len()], ..Host::default() };
    let mut threads: HashMap<Name, Vec<Open>> = HashMap::new();
    let mut by_sequence: HashMap<u32, u32> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        let stack = threads.entry(event.thread).or_default();
        let is_main = Some(event.thread) == main;
        close(stack, event.start, is_main, &mut host);
        let name = names.text(event.name);
        let is_range = event.kind == HostKind::Range;
        // Compilations are ranges or operators, depending on the version of PyTorch.
        let found = mark(name).filter(|found| is_range || *found == Mark::Compile);
        if found == Some(Mark::Step) {
            host.steps.push(Step { label: name.to_owned(), start: event.start, end: event.end });
        }
        if found.is_none() && is_range {
            continue;
        }
        let above = stack.last();
        let mut open = Open {
            end: above.map_or(event.end, |above| event.end.min(above.end)),
            operator: above.map_or(NONE, |above| above.operator),
            module: above.and_then(|above| above.module),
            part: above.and_then(|above| above.part),
            reason: above.and_then(|above| above.reason),
            reached: event.start,
        };
        match found {
            Some(mark) => {
                open.operator = NONE;
                match mark {
                    Mark::Step => {}
                    Mark::Part(part, module) => {
                        open.part = Some(part);
                        open.module = module.and_then(|module| names.add(module)).or(open.module);
                    }
                    Mark::Module(module) => {
                        let module = module.to_owned();
                        open.module = names.add(&module);
                        open.part = open.part.or(Some(Part::Forward));
                    }
                    Mark::Input => open.reason = Some(GapKind::Input),
                    Mark::Compile => open.reason = Some(GapKind::Compile),
                }
            }
            None if open.operator == NONE && open.reason.is_none() => {
                open.operator = host.operators.len() as u32;
                if gradient(name).is_some() {
                    let forward = event.sequence.and_then(|sequence| by_sequence.get(&sequence));
                    open.module = forward.and_then(|forward| host.operators[*forward as usize].module);
                    open.part = Some(Part::Backward);
                }
                let Open { module, part, .. } = open;
                host.operators.push(Operator { event: index as u32, module, part, shapes: None, types: None });
            }
            None => {}
        }
        host.of_event[index] = open.operator;
        if let Some(operator) = host.operators.get_mut(open.operator as usize).filter(|o| o.shapes.is_none()) {
            operator.shapes = event.shapes;
            operator.types = event.types;
        }
        if let (Some(sequence), true) = (event.sequence, open.operator != NONE && open.part != Some(Part::Backward)) {
            by_sequence.insert(sequence, open.operator);
        }
        if let Some(above) = stack.last_mut() {
            give(above, event.start, is_main, &mut host);
            above.reached = open.end;
        }
        stack.push(open);
    }
    for (thread, mut stack) in threads {
        close(&mut stack, Nanos::MAX, Some(thread) == main, &mut host);
    }
    host.states.sort_unstable_by_key(|state| state.start);
    host.events = events;
    Ok(host)
}

/// The thread of the steps; without marks of steps, the one with the most events.
fn main_thread(events: &[HostEvent], names: &Names) -> Option<Name> {
    let is_step =
        |event: &&HostEvent| event.kind == HostKind::Range && mark(names.text(event.name)) == Some(Mark::Step);
    if let Some(event) = events.iter().find(is_step) {
        return Some(event.thread);
    }
    let mut counts: HashMap<Name, usize> = HashMap::new();
    events.iter().for_each(|event| *counts.entry(event.thread).or_default() += 1);
    counts.into_iter().max_by_key(|(thread, count)| (*count, *thread)).map(|(thread, _)| thread)
}

/// Ends all that ends before a time.
fn close(stack: &mut Vec<Open>, time: Nanos, is_main: bool, host: &mut Host) {
    while stack.last().is_some_and(|open| open.end <= time) {
        if let Some(mut open) = stack.pop() {
            let end = open.end;
            give(&mut open, end, is_main, host);
        }
    }
}

/// Gives the time of an open event since it was last given away.
fn give(open: &mut Open, end: Nanos, is_main: bool, host: &mut Host) {
    let start = open.reached;
    open.reached = open.reached.max(end);
    if start >= end {
        return;
    }
    if open.operator != NONE {
        let pieces = if is_main { &mut host.main } else { &mut host.others };
        pieces.push(Piece { start, end, owner: open.operator });
    } else if is_main {
        host.states.push(State { start, end, reason: open.reason, module: open.module });
    }
}
