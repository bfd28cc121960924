//! A page about a step: when what happens, which operators and which lines of the recipe cost what.

use crate::{
    NpuError,
    price::Price,
    profile::{Limit, Profile},
    schedule::{Event, Stream},
    trace::STREAMS,
    what_if::WhatIf,
};
use indexmap::IndexMap;
use zoo_graph::Phase;
use zoo_pages::{Cell, Facts, Grid, Lane, Page, Section, Span, Timeline, Verdict, bound_class};

/// Phases of the device's stream, a lane each.
const PHASES: [Phase; 4] = [Phase::Forward, Phase::Loss, Phase::Backward, Phase::Update];
/// Lines of the recipe that are listed.
const LINES: usize = 25;

/// Renders the page; `options` are what each would bring, if that was asked for.
///
/// # Errors
/// A template that does not render.
pub fn page(profile: &Profile, title: &str, options: &[WhatIf]) -> Result<String, NpuError> {
    let mut sections = vec![timeline(profile, title)?, operators(profile), lines(profile)];
    if !options.is_empty() {
        sections.push(what_if(options));
    }
    let limit = match profile.limit {
        Limit::Device => "device",
        Limit::Input => "input pipeline",
    };
    let short = format!("{} per step, {:.0} images per second", milliseconds(profile.step.ms()), profile.images_per_s);
    let lines = vec![format!(
        "A step waits for the {limit}. Nothing was measured: this is what a model of the device predicts."
    )];
    let page = Page {
        title: title.to_owned(),
        verdict: Verdict { class: "", short, lines },
        sections,
        tables: vec![facts(profile)],
        ..Page::default()
    };
    Ok(page.render()?)
}

fn milliseconds(ms: f64) -> String {
    format!("{ms:.1} ms")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn facts(profile: &Profile) -> Facts {
    let [cube, vector, hbm] = profile.utilisation().map(percent);
    let rows = vec![
        ("step", milliseconds(profile.step.ms())),
        ("images per second", format!("{:.0}", profile.images_per_s)),
        ("batch", format!("{} on each device", profile.batch)),
        ("devices", profile.devices.to_string()),
        ("Cube busy", cube),
        ("Vector busy", vector),
        ("HBM busy", hbm),
        ("useful TFLOP/s", format!("{:.0} per device", profile.tflops())),
        ("memory", profile.peak_memory.to_string()),
        ("input pipeline", milliseconds(profile.input.pipeline.ms())),
        ("gradients not hidden", milliseconds(profile.timeline.exposed.ms())),
    ];
    Facts { title: "Step", rows }
}

/// The phases of the device's stream, then the other streams, as far as they do anything.
fn timeline(profile: &Profile, title: &str) -> Result<Section, NpuError> {
    let of_phase = |event: &&Event, phase: Phase| event.kernel.is_some_and(|k| profile.kernels[k].phase == phase);
    let phases = PHASES.into_iter().map(|phase| {
        let events = profile.stream(Stream::Device).filter(|event| of_phase(event, phase));
        Lane { name: phase.to_string(), spans: events.map(|event| span(profile, event)).collect() }
    });
    let others = STREAMS.iter().filter(|(stream, _)| *stream != Stream::Device).map(|(stream, name)| Lane {
        name: (*name).to_owned(),
        spans: profile.stream(*stream).map(|event| span(profile, event)).collect(),
    });
    let lanes: Vec<Lane> = phases.chain(others).filter(|lane| !lane.spans.is_empty()).collect();
    let description = format!("One step of {title}; the tables below have the figures.");
    let figure = Some(Timeline { id: "step".into(), description, lanes }.html()?);
    Ok(Section { id: "timeline".into(), title: "Timeline of one step".into(), figure, ..Section::default() })
}

fn span(profile: &Profile, event: &Event) -> Span {
    let bound = event.kernel.map(|k| profile.prices[k].bound.name());
    let of = bound.map(|bound| format!(", {bound}-bound")).unwrap_or_default();
    let length = event.end - event.start;
    let line = event.kernel.and_then(|k| line_of(profile, k)).map(|line| format!(", {line}")).unwrap_or_default();
    Span {
        from: event.start.ms(),
        to: event.end.ms(),
        class: bound_class(bound),
        tip: format!("{} ({}) {:.1} us{of}{line}", event.name, event.op, length.us()),
    }
}

fn operators(profile: &Profile) -> Section {
    let columns = [
        ("operator", false),
        ("bound", false),
        ("kernels", true),
        ("ms", true),
        ("share", true),
        ("Cube ms", true),
        ("Vector ms", true),
        ("HBM ms", true),
        ("TFLOP/s", true),
        ("GB/s", true),
    ];
    let mut grid = Grid::new("Kernels by operator, dearest first", columns);
    for op in profile.by_operator() {
        let ms = |value: f64| Cell::from(format!("{value:.2}"));
        grid.rows.push(vec![
            op.op.as_str().into(),
            op.bound.into(),
            op.count.to_string().into(),
            ms(op.ms),
            percent(op.share).into(),
            ms(op.cube_ms),
            ms(op.vector_ms),
            ms(op.hbm_ms),
            format!("{:.1}", op.tflops).into(),
            format!("{:.0}", op.gb_per_s).into(),
        ]);
    }
    Section { id: "operators".into(), title: "Operators".into(), grids: vec![grid], ..Section::default() }
}

/// The line of the recipe that a kernel comes from: that of its first node which comes from one.
fn line_of(profile: &Profile, kernel: usize) -> Option<String> {
    let nodes = profile.kernels[kernel].nodes.iter().map(|n| &profile.graph.nodes[*n]);
    let origin = nodes.filter_map(|node| node.origin.as_ref()).next()?;
    let (file, line) = (&origin.span.file, origin.span.line);
    // The folder says nothing: a recipe and what it extends have different names.
    Some(format!("{}:{line}", file.rsplit(['/', '\\']).next().unwrap_or(file)))
}

/// What each line of the recipe costs, by phase.
fn lines(profile: &Profile) -> Section {
    let mut costs: IndexMap<String, [f64; PHASES.len()]> = IndexMap::new();
    for (k, Price { time, .. }) in profile.prices.iter().enumerate() {
        let phase = PHASES.iter().position(|phase| *phase == profile.kernels[k].phase);
        if let (Some(line), Some(phase)) = (line_of(profile, k), phase) {
            costs.entry(line).or_default()[phase] += time.ms();
        }
    }
    let all: f64 = profile.prices.iter().map(|price| price.time.ms()).sum();
    let sum = |phases: &[f64]| phases.iter().sum::<f64>();
    costs.sort_by(|_, a, _, b| sum(b).total_cmp(&sum(a)));
    let mut columns = vec![("line".to_owned(), false), ("ms".to_owned(), true), ("share".to_owned(), true)];
    columns.extend(PHASES.iter().map(|phase| (format!("{phase} ms"), true)));
    let columns = columns.iter().map(|(name, number)| (name.as_str(), *number));
    let mut grid = Grid::new("Kernels by the line of the recipe that they come from, dearest first", columns);
    for (line, phases) in costs.into_iter().take(LINES) {
        let total = sum(&phases);
        let share = if all > 0.0 { total / all } else { 0.0 };
        let cells = [line.into(), format!("{total:.2}").into(), percent(share).into()];
        grid.rows.push(cells.into_iter().chain(phases.map(|ms| format!("{ms:.2}").into())).collect());
    }
    Section { id: "lines".into(), title: "Lines of the recipe".into(), grids: vec![grid], ..Section::default() }
}

fn what_if(options: &[WhatIf]) -> Section {
    let columns = [("option", false), ("step ms", true), ("images per second", true), ("what it does", false)];
    let mut grid = Grid::new("Each option changed by itself, the greatest gain first", columns);
    for option in options {
        let gain = option.gain.map_or("refused".to_owned(), |gain| format!("{:+.1} %", 100.0 * gain));
        grid.rows.push(vec![
            option.set.as_str().into(),
            option.step_ms.map(|ms| format!("{ms:.2}")).unwrap_or_default().into(),
            gain.into(),
            option.refused.as_deref().unwrap_or(option.what).into(),
        ]);
    }
    Section {
        id: "options".into(),
        title: "What each option would bring".into(),
        grids: vec![grid],
        ..Section::default()
    }
}
