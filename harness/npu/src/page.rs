//! A page about a step: one HTML file without scripts or anything from elsewhere.

use crate::{
    NpuError,
    price::Bound,
    profile::{OpCost, Profile},
    trace::STREAMS,
    what_if::WhatIf,
};
use minijinja::{AutoEscape, Environment, value::Serde};
use serde::Serialize;

/// Width of the timeline.
const WIDTH: f64 = 1200.0;
/// Height of one stream's lane.
const LANE: f64 = 34.0;

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    facts: Vec<(&'static str, String)>,
    rows: Vec<Lane>,
    width: f64,
    height: f64,
    ticks: Vec<Tick>,
    legend: Vec<(&'static str, &'static str)>,
    ops: Vec<OpCost>,
    options: &'a [WhatIf],
}

#[derive(Serialize)]
struct Lane {
    name: &'static str,
    y: f64,
    boxes: Vec<Box>,
}

#[derive(Serialize)]
struct Box {
    x: f64,
    width: f64,
    colour: &'static str,
    title: String,
}

#[derive(Serialize)]
struct Tick {
    x: f64,
    label: String,
}

/// Renders the page; `options` are what each would bring, if that was asked for.
///
/// # Errors
/// A template that does not render.
pub fn page(profile: &Profile, title: &str, options: &[WhatIf]) -> Result<String, NpuError> {
    let end = profile.timeline.end.0.max(f64::MIN_POSITIVE);
    let x = |seconds: f64| WIDTH * seconds / end;
    let used = STREAMS.iter().filter(|(stream, _)| profile.stream(*stream).next().is_some());
    let rows: Vec<Lane> = used
        .enumerate()
        .map(|(i, (stream, name))| {
            let boxes = profile.stream(*stream).map(|event| {
                let bound = event.kernel.map(|k| profile.prices[k].bound);
                let length = event.end - event.start;
                let of = bound.map(|bound| format!(", {}-bound", bound.name())).unwrap_or_default();
                Box {
                    x: x(event.start.0),
                    width: x(length.0).max(0.2),
                    colour: colour(bound),
                    title: format!("{} ({}) {:.1} us{of}", event.name, event.op, length.us()),
                }
            });
            Lane { name, y: LANE * i as f64, boxes: boxes.collect() }
        })
        .collect();
    let [cube, vector, hbm] = profile.utilisation().map(|share| format!("{:.0} %", 100.0 * share));
    let facts = vec![
        ("step", format!("{:.2} ms", profile.step.ms())),
        ("images per second", format!("{:.0}", profile.images_per_s)),
        ("batch and devices", format!("{} on each of {}", profile.batch, profile.devices)),
        ("Cube, Vector, HBM busy", format!("{cube}, {vector}, {hbm}")),
        ("memory", profile.peak_memory.to_string()),
        ("input pipeline", format!("{:.2} ms", profile.input.pipeline.ms())),
        ("gradients not hidden", format!("{:.2} ms", profile.timeline.exposed.ms())),
    ];
    let ticks = (0..=10).map(|i| {
        let at = end * f64::from(i) / 10.0;
        Tick { x: x(at), label: format!("{:.1}", 1e3 * at) }
    });
    let all = [Bound::Cube, Bound::Vector, Bound::Hbm, Bound::L2, Bound::Launch, Bound::Host];
    let page = Page {
        title,
        facts,
        width: WIDTH,
        height: LANE * rows.len() as f64,
        rows,
        ticks: ticks.collect(),
        legend: all.map(|bound| (bound.name(), colour(Some(bound)))).to_vec(),
        ops: profile.by_operator(),
        options,
    };
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    Ok(environment.render_str(include_str!("page.html"), Serde(&page))?)
}

/// Colour of what holds a kernel up; those of Okabe and Ito, which colour-blind readers can tell apart.
fn colour(bound: Option<Bound>) -> &'static str {
    match bound {
        Some(Bound::Cube) => "#0072b2",
        Some(Bound::Vector) => "#009e73",
        Some(Bound::Hbm) => "#e69f00",
        Some(Bound::L2) => "#cc79a7",
        Some(Bound::Launch) => "#999999",
        Some(Bound::Host) => "#d55e00",
        None => "#56b4e9",
    }
}
