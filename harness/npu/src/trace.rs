//! The events of a step, for trace viewers (chrome://tracing, ui.perfetto.dev).
//!
//! Format: the JSON object form of Chrome's Trace Event Format, with complete events (`X`) in microseconds and one
//! thread per stream.

use crate::{profile::Profile, schedule::Stream};
use serde_json::{Value, json};

/// Streams, in the order of viewers.
pub const STREAMS: [(Stream, &str); 5] = [
    (Stream::Device, "device"),
    (Stream::Collective, "collectives"),
    (Stream::Copy, "copies"),
    (Stream::Masks, "random masks"),
    (Stream::Host, "host"),
];

/// The trace as JSON.
pub fn trace(profile: &Profile, name: &str) -> Value {
    let thread = |stream: Stream| STREAMS.iter().position(|(other, _)| *other == stream).unwrap_or_default();
    let mut events = vec![json!({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": name}})];
    for (tid, (_, stream)) in STREAMS.iter().enumerate() {
        events.push(json!({"ph": "M", "pid": 0, "tid": tid, "name": "thread_name", "args": {"name": stream}}));
        events.push(json!({"ph": "M", "pid": 0, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}));
    }
    for event in &profile.timeline.events {
        let mut args = json!({"operator": event.op});
        if let Some(k) = event.kernel {
            let (kernel, price) = (&profile.kernels[k], &profile.prices[k]);
            args = json!({
                "operator": profile.kernel_name(kernel),
                "phase": kernel.phase.to_string(),
                "bound": price.bound.name(),
                "cube_us": price.cube.us(),
                "vector_us": price.vector.us(),
                "hbm_us": price.hbm.us(),
                "l2_us": price.l2.us(),
                "bytes": price.bytes,
                "flop": price.flop,
            });
        }
        events.push(json!({
            "ph": "X", "pid": 0, "tid": thread(event.stream), "name": event.name, "cat": event.op,
            "ts": event.start.us(), "dur": (event.end - event.start).us(), "args": args,
        }));
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}
