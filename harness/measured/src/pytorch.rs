//! PyTorch's Chrome trace, of CPUs alone or with kernels of a device.
//!
//! Source: `output_json.cpp` and `ActivityType.h` of Kineto. Without a device, each outermost operator is a kernel, and
//! the time of the step is that of the thread that calls `ProfilerStep`.

use crate::{
    MeasuredError, Names,
    axis::{Axis, Piece},
    events::{Event, events},
    host::{Host, HostEvent, HostKind, NONE, walk},
    marks::gradient,
    recording::{Format, Kernel, Recording, Unit},
    timeline::{Draft, Launched, clipped, gaps, kernel, on_device, on_thread, step_of, steps},
};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Calls that wait for the device.
const WAITS: [&str; 6] = [
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "hipDeviceSynchronize",
    "hipStreamSynchronize",
    "AscendCL@aclrtSynchronizeStream",
];

/// Whether a call of a driver waits for the device.
pub(crate) fn waits(name: &str) -> bool {
    WAITS.iter().any(|wait| name.starts_with(wait))
}

/// Reads a trace.
pub(crate) fn read<R: Read>(path: &Path, reader: R) -> Result<Recording, MeasuredError> {
    let mut names = Names::default();
    let (mut host, mut device) = (Vec::new(), Vec::new());
    let mut peak: Option<u64> = None;
    events(path, reader, &mut |event| {
        let kind = match event.cat.as_str() {
            "cpu_op" => HostKind::Operator,
            "user_annotation" => HostKind::Range,
            "cuda_runtime" | "cuda_driver" | "xpu_runtime" | "xpu_driver" if waits(&event.name) => HostKind::Wait,
            "cuda_runtime" | "cuda_driver" | "xpu_runtime" | "xpu_driver" => HostKind::Call,
            "kernel" | "gpu_memcpy" | "gpu_memset" | "hpu_op" => {
                device.extend(launched(&event, &mut names));
                return;
            }
            "cpu_instant_event" => {
                if let Some(bytes) = event.args.allocated.filter(|bytes| *bytes >= 0.0) {
                    peak = peak.max(Some(bytes as u64));
                }
                return;
            }
            _ => return,
        };
        if event.ph == "X" {
            host.extend(HostEvent::new(&event, kind, &mut names));
        }
    })?;
    let host = walk(path, host, &mut names)?;
    let mut absent = Vec::new();
    if !host.events.iter().any(|event| event.kind == HostKind::Operator && event.shapes.is_some()) {
        absent.push("shapes and types of operands: the profiler ran without `record_shapes`".to_owned());
    }
    if host.operators.iter().all(|operator| operator.module.is_none()) {
        absent.push("modules: neither a program of zoo nor `zoo_golden.profile` marked them".to_owned());
    }
    let draft = Draft { path, format: Format::PyTorch, names, absent, peak_memory: peak };
    if device.is_empty() {
        return on_host(draft, &host);
    }
    tie(&host, &mut device);
    on_device(draft, &host, device)
}

/// The kernel of an event of a device.
fn launched(event: &Event, names: &mut Names) -> Option<Launched> {
    let (start, duration) = (event.ts.0?, event.dur.0.unwrap_or(0).max(0));
    start.checked_add(duration)?;
    let name = names.add(&event.name)?;
    let unit = match event.cat.as_str() {
        "gpu_memcpy" | "gpu_memset" => Unit::Copy,
        _ if event.name.starts_with("nccl") => Unit::Link,
        _ => Unit::Device,
    };
    let key = event.args.correlation.as_ref().or(event.args.external.as_ref());
    let link = key.and_then(|key| key.0.parse().ok()).unwrap_or(0);
    Some(Launched { kernel: kernel(name, unit, start, duration), operator: NONE, link })
}

/// Finds the operators that launched kernels: by the number of the launching call, or of the operator itself.
fn tie(host: &Host, device: &mut [Launched]) {
    let links = host.events.iter().zip(&host.of_event).filter(|(event, _)| event.link > 0);
    let (calls, operators): (Vec<_>, Vec<_>) =
        links.partition(|(event, _)| matches!(event.kind, HostKind::Call | HostKind::Wait));
    let by_link = |of: Vec<(&HostEvent, &u32)>| of.into_iter().map(|(e, o)| (e.link, *o)).collect::<HashMap<_, _>>();
    let (calls, operators) = (by_link(calls), by_link(operators));
    for launched in device {
        let found = calls.get(&launched.link).or_else(|| operators.get(&launched.link));
        launched.operator = found.copied().unwrap_or(NONE);
    }
}

/// The recording of a trace without a device.
fn on_host(mut draft: Draft<'_>, host: &Host) -> Result<Recording, MeasuredError> {
    let steps = steps(&mut draft, host)?;
    let names = &mut draft.names;
    let mut own = vec![0; host.operators.len()];
    let mut axis = Axis::default();
    let window = |piece: &Piece| clipped(piece, host, &steps);
    axis.claim(host.main.iter().filter_map(window).collect(), &mut own);
    // Engines of other threads: gradients while the thread of the steps waits for them.
    let is_gradient = |piece: &&Piece| {
        let event = &host.events[host.operators[piece.owner as usize].event as usize];
        gradient(names.text(event.name)).is_some()
    };
    axis.claim(host.others.iter().filter(is_gradient).filter_map(window).collect(), &mut own);
    let mut kernels = Vec::new();
    for (operator, own) in host.operators.iter().zip(own) {
        let event = &host.events[operator.event as usize];
        let Some(step) = step_of(&steps, event.start).filter(|_| own > 0) else { continue };
        let text = gradient(names.text(event.name)).map(str::to_owned);
        let name = text.and_then(|text| names.add(&text)).unwrap_or(event.name);
        kernels.push(Kernel {
            step,
            own,
            module: operator.module,
            part: operator.part,
            inputs: operator.shapes,
            types: operator.types,
            ..kernel(name, Unit::Host, event.start, event.end - event.start)
        });
    }
    let gaps = gaps(&axis, &steps, &kernels, |start, end| on_thread(host, start, end));
    draft.finish(steps, kernels, gaps)
}
