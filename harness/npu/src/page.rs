//! The page of a step: its timeline, and the cost of operators and of lines of the recipe.

use crate::{
    NpuError,
    compare::compare,
    profile::{Limit, PHASES, Profile},
    schedule::{Event, Stream},
    trace::STREAMS,
    what_if::WhatIf,
};
use indexmap::IndexMap;
use std::iter::once;
use zoo_graph::Phase;
use zoo_pages::{Cell, Facts, Grid, Lane, Page, Section, Span, Timeline, Verdict, bound_class};

/// Number of listed lines of the recipe.
const LINES: usize = 25;

/// Renders the page. `options` are the effects of options; `against` is another step for comparison, with its title.
///
/// # Errors
/// A template that cannot be rendered.
pub fn page(
    profile: &Profile,
    title: &str,
    options: &[WhatIf],
    against: Option<(&Profile, &str)>,
) -> Result<String, NpuError> {
    let mut sections = vec![timeline(profile, title, "step")?];
    if let Some((other, other_title)) = against {
        sections.push(timeline(other, other_title, "against")?);
        sections.push(comparison([profile, other], [title, other_title]));
    }
    sections.extend([operators(profile), lines(profile)]);
    sections.extend(input_steps(profile));
    if !options.is_empty() {
        sections.push(what_if(options));
    }
    let limit = match profile.limit {
        Limit::Device => "device",
        Limit::Input => "input pipeline",
    };
    let short = format!("{} per step, {:.0} samples per second", milliseconds(profile.step.ms()), profile.images_per_s);
    let lines = vec![format!(
        "A step waits for the {limit}. Nothing was measured: this is what a model of the device predicts."
    )];
    let mut tables = vec![facts(profile, title)];
    tables.extend(against.map(|(other, title)| facts(other, title)));
    let page = Page {
        title: title.to_owned(),
        verdict: Verdict { class: "", short, lines },
        sections,
        tables,
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

fn facts(profile: &Profile, title: &str) -> Facts {
    let [cube, vector, hbm] = profile.utilisation().map(percent);
    let mut rows = vec![
        ("of", title.to_owned()),
        ("step", milliseconds(profile.step.ms())),
        ("samples per second", format!("{:.0}", profile.images_per_s)),
    ];
    rows.extend(profile.sequence.map(|tokens| ("tokens per sample", tokens.to_string())));
    rows.extend(profile.tokens_per_s().map(|tokens| ("tokens per second", format!("{tokens:.0}"))));
    rows.extend([
        ("batch", format!("{} on each device", profile.batch)),
        ("micro-batches", profile.accumulate.to_string()),
        ("devices", profile.devices.to_string()),
        ("Cube busy", cube),
        ("Vector busy", vector),
        ("HBM busy", hbm),
        ("useful TFLOP/s", format!("{:.0} per device", profile.tflops())),
        ("model FLOP utilisation", percent(profile.flop_utilisation())),
        ("memory", profile.peak_memory.to_string()),
        ("input pipeline", milliseconds(profile.input.pipeline.ms())),
        ("gradients not hidden", milliseconds(profile.timeline.exposed.ms())),
    ]);
    Facts { title: "Step", rows }
}

/// Operators of two steps.
fn comparison(profiles: [&Profile; 2], titles: [&str; 2]) -> Section {
    let columns =
        [("operator", false), ("kernels", true), ("against", true), ("ms", true), ("against ms", true), ("more", true)];
    let caption = format!("Operators of {} against {}, the greatest difference first", titles[0], titles[1]);
    let mut grid = Grid::new(caption, columns);
    for op in compare(profiles[0], profiles[1]) {
        grid.rows.push(vec![
            op.op.as_str().into(),
            op.kernels[0].to_string().into(),
            op.kernels[1].to_string().into(),
            format!("{:.2}", op.ms[0]).into(),
            format!("{:.2}", op.ms[1]).into(),
            format!("{:+.2}", op.more()).into(),
        ]);
    }
    Section { id: "comparison".into(), title: "Against each other".into(), grids: vec![grid], ..Section::default() }
}

/// Times of the steps of the input pipeline.
fn input_steps(profile: &Profile) -> Option<Section> {
    if profile.input.steps.is_empty() {
        return None;
    }
    let caption = format!("Time of one host core per sample; the limit is {}", profile.input.limit.name());
    let mut grid = Grid::new(caption, [("step", false), ("ms", true)]);
    for step in &profile.input.steps {
        grid.rows.push(vec![step.step.name().into(), format!("{:.2}", step.time.ms()).into()]);
    }
    Some(Section { id: "input".into(), title: "Input pipeline".into(), grids: vec![grid], ..Section::default() })
}

/// The phases of the device's stream, then the other streams that have events.
fn timeline(profile: &Profile, title: &str, id: &str) -> Result<Section, NpuError> {
    let of_phase = |event: &&Event, phase: Phase| event.kernel.is_some_and(|k| profile.kernels[k].phase == phase);
    let phases = PHASES.into_iter().map(|phase| {
        let events = profile.stream(Stream::Device).filter(|event| of_phase(event, phase));
        Lane { name: phase.to_string(), spans: events.map(|event| span(profile, event)).collect() }
    });
    let earlier = profile.stream(Stream::Device).filter(|event| event.kernel.is_none());
    let earlier = Lane { name: "before".to_owned(), spans: earlier.map(|event| span(profile, event)).collect() };
    let others = STREAMS.iter().filter(|(stream, _)| *stream != Stream::Device).map(|(stream, name)| Lane {
        name: (*name).to_owned(),
        spans: profile.stream(*stream).map(|event| span(profile, event)).collect(),
    });
    // The samples of the next step are prepared during this one.
    let (to, limit) = (profile.input.pipeline.ms(), profile.input.limit.name());
    let input = (to > 0.0).then(|| Lane {
        name: "input".to_owned(),
        spans: vec![Span {
            from: 0.0,
            to,
            class: bound_class(Some("host")),
            tip: format!("samples of the next step: {to:.1} ms, limited by {limit}"),
        }],
    });
    let lanes: Vec<Lane> =
        once(earlier).chain(phases).chain(others).chain(input).filter(|lane| !lane.spans.is_empty()).collect();
    let description = format!("One step of {title}; the tables below have the figures.");
    let figure = Some(Timeline { id: id.into(), description, lanes }.html()?);
    let section =
        Section { id: format!("timeline-{id}"), title: format!("One step of {title}"), figure, ..Section::default() };
    Ok(section)
}

fn span(profile: &Profile, event: &Event) -> Span {
    let bound = event.kernel.map(|k| profile.prices[k].bound.name());
    let of = bound.map(|bound| format!(", {bound}-bound")).unwrap_or_default();
    let length = event.end - event.start;
    let line = event
        .kernel
        .and_then(|k| profile.line_of(&profile.kernels[k]))
        .map(|line| format!(", {line}"))
        .unwrap_or_default();
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
    let mut grid = Grid::new("Kernels by operator, most expensive first", columns);
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

/// Cost of each line of the recipe, by phase.
fn lines(profile: &Profile) -> Section {
    let mut costs: IndexMap<String, [f64; PHASES.len()]> = IndexMap::new();
    let times: Vec<f64> = (0..profile.prices.len()).map(|k| profile.per_step(k, |price| price.time).ms()).collect();
    for (k, time) in times.iter().enumerate() {
        let phase = PHASES.iter().position(|phase| *phase == profile.kernels[k].phase);
        if let (Some(line), Some(phase)) = (profile.line_of(&profile.kernels[k]), phase) {
            costs.entry(line).or_default()[phase] += time;
        }
    }
    let all: f64 = times.iter().sum();
    let sum = |phases: &[f64]| phases.iter().sum::<f64>();
    costs.sort_by(|_, a, _, b| sum(b).total_cmp(&sum(a)));
    let mut columns = vec![("line".to_owned(), false), ("ms".to_owned(), true), ("share".to_owned(), true)];
    columns.extend(PHASES.iter().map(|phase| (format!("{phase} ms"), true)));
    let columns = columns.iter().map(|(name, number)| (name.as_str(), *number));
    let mut grid = Grid::new("Kernels by line of the recipe, most expensive first", columns);
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
