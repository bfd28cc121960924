//! The page of a step: its timeline, and the cost of operators and of lines of the recipe.

use crate::{
    NpuError,
    compare::compare,
    measured::Measured,
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

/// Renders the page. `options` are the effects of options; `against` is another step for comparison, with its title;
/// `measured` are recordings of this step, which come first: causes, lines, and the timeline above the predicted one.
///
/// # Errors
/// A template that cannot be rendered.
pub fn page(
    profile: &Profile,
    title: &str,
    options: &[WhatIf],
    against: Option<(&Profile, &str)>,
    measured: &[Measured],
) -> Result<String, NpuError> {
    let mut sections = Vec::new();
    for (number, measured) in measured.iter().enumerate() {
        sections.extend([causes(measured, number), measured_lines(measured, number)]);
    }
    // All timelines have the axis of the longest.
    let end = measured.iter().map(|measured| measured.step_ms).fold(profile.step.ms(), f64::max);
    for (number, measured) in measured.iter().enumerate() {
        sections.push(measured_timeline(measured, number, end)?);
    }
    sections.push(timeline(profile, title, "step", if measured.is_empty() { 0.0 } else { end })?);
    if let Some((other, other_title)) = against {
        sections.push(timeline(other, other_title, "against", 0.0)?);
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
    let lines = match measured {
        [] => {
            format!("A step waits for the {limit}. Nothing was measured: this is what a model of the device predicts.")
        }
        [..] => format!("A step waits for the {limit}, by the prediction. What was measured comes first."),
    };
    let lines = vec![lines];
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
fn timeline(profile: &Profile, title: &str, id: &str, end: f64) -> Result<Section, NpuError> {
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
    let lanes: Vec<Lane> = once(earlier)
        .chain(phases)
        .chain(others)
        .chain(input)
        .filter(|lane| !lane.spans.is_empty())
        .chain(axis(end))
        .collect();
    let description = format!("One step of {title}; the tables below have the figures.");
    let figure = Some(Timeline { id: id.into(), description, lanes }.html()?);
    let section =
        Section { id: format!("timeline-{id}"), title: format!("One step of {title}"), figure, ..Section::default() };
    Ok(section)
}

/// A lane that only makes the axis as long as the longest of several timelines.
fn axis(end: f64) -> Option<Lane> {
    let span =
        Span { from: 0.0, to: end, class: bound_class(None), tip: format!("{end:.1} ms, the longest step here") };
    (end > 0.0).then(|| Lane { name: "longest".to_owned(), spans: vec![span] })
}

/// What costs the most in a measured step.
fn causes(measured: &Measured, number: usize) -> Section {
    let columns = [("cause", false), ("line", false), ("ms", true), ("share", true), ("evidence", false)];
    let caption = format!("What the step would gain, in {}", measured.file);
    let mut grid = Grid::new(caption, columns);
    for cause in &measured.causes {
        grid.rows.push(vec![
            cause.reason.name().into(),
            cause.line.as_deref().unwrap_or_default().into(),
            format!("{:.2}", cause.ms).into(),
            percent(cause.share).into(),
            cause.evidence.as_str().into(),
        ]);
    }
    let title = format!("Measured: {}", milliseconds(measured.step_ms));
    Section { id: format!("causes-{number}"), title, grids: vec![grid], ..Section::default() }
}

/// The lines of a measured step.
fn measured_lines(measured: &Measured, number: usize) -> Section {
    let columns = [
        ("line", false),
        ("phase", false),
        ("measured ms", true),
        ("predicted ms", true),
        ("ratio", true),
        ("operators", false),
    ];
    let caption =
        format!("Lines of the recipe, most expensive first; {} of the time is theirs", percent(measured.matched_share));
    let mut grid = Grid::new(caption, columns);
    for line in measured.lines.iter().filter(|line| line.measured_ms > 0.0).take(LINES) {
        grid.rows.push(vec![
            line.line.as_str().into(),
            line.phase.to_string().into(),
            format!("{:.3}", line.measured_ms).into(),
            format!("{:.3}", line.predicted_ms).into(),
            line.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default().into(),
            line.operators.join(", ").into(),
        ]);
    }
    let title = "Measured lines".to_owned();
    Section { id: format!("measured-{number}"), title, grids: vec![grid], ..Section::default() }
}

/// The first measured step.
fn measured_timeline(measured: &Measured, number: usize, end: f64) -> Result<Section, NpuError> {
    let mut lanes: IndexMap<&str, Vec<Span>> = IndexMap::new();
    for shown in &measured.shown {
        let class = bound_class(if shown.lane == "gaps" { Some("launch") } else { None });
        let span = Span { from: shown.from, to: shown.to, class, tip: shown.text.clone() };
        lanes.entry(&shown.lane).or_default().push(span);
    }
    let lanes = lanes.into_iter().map(|(name, spans)| Lane { name: name.to_owned(), spans }).chain(axis(end));
    let description = format!("The first step of {}; the tables above have the figures.", measured.file);
    let figure = Timeline { id: format!("measured-{number}"), description, lanes: lanes.collect() }.html()?;
    let title = format!("The first measured step of {}", measured.file);
    Ok(Section { id: format!("timeline-measured-{number}"), title, figure: Some(figure), ..Section::default() })
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
