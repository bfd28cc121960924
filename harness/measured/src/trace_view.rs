//! `trace_view.json` of torch_npu's and MindSpore's profiler: host and NPU in one Chrome trace.
//!
//! Processes are told apart by their names: `Python` has operators and ranges, `CANN` the calls of the driver,
//! `Ascend Hardware` the kernels, `Communication` (or `HCCL`) the collectives. Flows `async_npu` lead from an operator
//! to its kernels. Without a process of the host, kernels have neither modules nor reasons of gaps.

use crate::{
    MeasuredError, Name, Names, Nanos,
    columns::named_unit,
    events::{Event, events},
    host::{Host, HostEvent, HostKind, NONE, walk},
    marks::mark,
    pytorch::waits,
    recording::{Format, Recording, Unit},
    scope::{Scope, place},
    timeline::{Draft, Launched, kernel, on_device},
};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Calls that compile an operator unless it is known; then they are as short as a launch.
const COMPILES: &str = "AscendCL@aclopCompile";

/// Processes of the trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Process {
    Python,
    Driver,
    Device,
    Link,
    Other,
}

impl Process {
    fn named(name: &str) -> Self {
        match name {
            "Python" => Self::Python,
            "CANN" => Self::Driver,
            "Ascend Hardware" => Self::Device,
            "Communication" | "HCCL" => Self::Link,
            _ => Self::Other,
        }
    }
}

/// Ends of flows: where each starts, and which one ends at a kernel.
#[derive(Default)]
struct Flows {
    starts: HashMap<String, (Name, Nanos)>,
    ends: HashMap<(Name, Nanos), String>,
}

/// Whether the beginning of a trace is that of Ascend's profiler.
pub(crate) fn is_beginning(text: &str) -> bool {
    text.contains("\"Ascend Hardware\"") || text.contains("\"CANN\"")
}

/// Reads a trace.
pub(crate) fn read<R: Read>(path: &Path, reader: R) -> Result<Recording, MeasuredError> {
    let mut names = Names::default();
    let (mut host, mut device, mut flows) = (Vec::new(), Vec::new(), Flows::default());
    let mut processes: HashMap<String, Process> = HashMap::new();
    events(path, reader, &mut |event| match event.ph.as_str() {
        "M" if event.name == "process_name" => {
            let name = event.args.name.as_deref().unwrap_or_default();
            processes.insert(event.pid.0, Process::named(name));
        }
        "s" | "f" if event.cat == "async_npu" => flow(event, &mut names, &mut flows),
        "X" => match processes.get(&event.pid.0).copied().unwrap_or(Process::Other) {
            Process::Python => {
                let kind = if mark(&event.name).is_some() { HostKind::Range } else { HostKind::Operator };
                host.extend(HostEvent::new(&event, kind, &mut names));
            }
            Process::Driver if waits(&event.name) => {
                host.extend(HostEvent::new(&event, HostKind::Wait, &mut names));
            }
            Process::Driver if event.name.starts_with(COMPILES) => {
                host.extend(HostEvent::new(&event, HostKind::Compile, &mut names));
            }
            Process::Device => device.extend(ran(&event, None, &mut names)),
            // The steps of a collective are events too; they lie inside it.
            Process::Link if event.name.starts_with("hcom_") => {
                device.extend(ran(&event, Some(Unit::Link), &mut names));
            }
            Process::Driver | Process::Link | Process::Other => {}
        },
        _ => {}
    })?;
    let host = walk(path, host, &mut names)?;
    let mut absent = Vec::new();
    if host.operators.is_empty() {
        absent.push("operators of the host: the profiler ran without activities of the CPU".to_owned());
    }
    let device = tie(&host, &flows, device);
    on_device(Draft { path, format: Format::TraceView, names, absent, peak_memory: None }, &host, device)
}

/// The end of a flow.
fn flow(event: Event, names: &mut Names, flows: &mut Flows) {
    let Some((thread, time)) = names.add(&thread(&event)).zip(event.ts.0) else { return };
    if event.ph == "s" {
        flows.starts.insert(event.id.0, (thread, time));
    } else {
        flows.ends.insert((thread, time), event.id.0);
    }
}

fn thread(event: &Event) -> String {
    format!("{}/{}", event.pid.0, event.tid.0)
}

/// A kernel, and its stream.
fn ran(event: &Event, unit: Option<Unit>, names: &mut Names) -> Option<(Name, Launched)> {
    let (start, duration) = (event.ts.0?, event.dur.0.unwrap_or(0).max(0));
    start.checked_add(duration)?;
    let task = event.args.task.as_deref().unwrap_or_default();
    let unit = unit.unwrap_or_else(|| named_unit(task, &event.name));
    let mut kernel = kernel(names.add(&event.name)?, unit, start, duration);
    if let Some(scope) = Scope::of(&event.name) {
        kernel.operator = names.add(scope.operator)?;
        place(&mut kernel, names);
    }
    Some((names.add(&thread(event))?, Launched { kernel, operator: NONE, link: 0 }))
}

/// Finds the operators that launched kernels: a flow begins inside of each.
fn tie(host: &Host, flows: &Flows, device: Vec<(Name, Launched)>) -> Vec<Launched> {
    let mut operators: HashMap<Name, Vec<(Nanos, u32)>> = HashMap::new();
    for (index, operator) in (0u32..).zip(&host.operators) {
        let event = &host.events[operator.event as usize];
        operators.entry(event.thread).or_default().push((event.start, index));
    }
    let launcher = |stream: Name, start: Nanos| {
        let (thread, time) = flows.starts.get(flows.ends.get(&(stream, start))?)?;
        let operators = operators.get(thread)?;
        let (_, index) = operators[operators.partition_point(|(start, _)| start <= time).checked_sub(1)?];
        let event = &host.events[host.operators[index as usize].event as usize];
        (*time <= event.end).then_some(index)
    };
    let tied = device.into_iter().map(|(stream, launched)| {
        let operator = launcher(stream, launched.kernel.start).unwrap_or(NONE);
        Launched { operator, ..launched }
    });
    tied.collect()
}
