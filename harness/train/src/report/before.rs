//! Report sections for results obtained before the training: golden check, device, cost.

use zoo_pages::{Grid, Lane, Section, Span, Timeline, bound_class, duration, grouped};
use zoo_recipe::schema::Unit;

use crate::event::{Cost, DeviceCheck, FirstDivergence, GoldenCheck, GoldenVerdict};

/// Verdicts of all stages.
pub(super) fn golden(check: &GoldenCheck) -> Section {
    let mut notes = vec![format!(
        "The recipe {} as written, in {} against {}, checked in {}.",
        check.recipe,
        check.dtype,
        check.golden,
        duration(check.seconds)
    )];
    if check.baseline {
        let note = "zoo recorded this golden itself: it is a baseline, which detects regressions but does not prove \
                    agreement with a reference framework.";
        notes.push(note.to_owned());
    }
    if !check.changes.is_empty() {
        notes.push(format!("This run changes {}.", check.changes.join(", ")));
    }
    notes.extend(check.first_divergence.as_ref().map(divergence));
    // The verdict is the first column, because narrow screens show the left side.
    let columns = [
        ("stage", false),
        ("verdict", false),
        ("compared", true),
        ("worst", false),
        ("error", true),
        ("floor", true),
        ("ratio", true),
        ("median", true),
    ];
    let mut grid = Grid::new("Golden check by stage: errors and their ratios to the floor", columns);
    let ratio = |value: Option<f64>| value.map_or(String::new(), |ratio| format!("{ratio:.1}"));
    let small = |value: f64| if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") };
    for stage in &check.stages {
        let worst = stage.worst.as_ref();
        grid.rows.push(vec![
            stage.stage.as_str().into(),
            stage.verdict.cell(),
            stage.tensors.to_string().into(),
            worst.map(|worst| worst.name.clone()).unwrap_or_default().into(),
            worst.and_then(|worst| worst.error).map(small).unwrap_or_default().into(),
            worst.map(|worst| small(worst.floor)).unwrap_or_default().into(),
            ratio(worst.and_then(|worst| worst.ratio)).into(),
            ratio(stage.median_ratio).into(),
        ]);
    }
    Section { id: "golden".into(), title: "Golden check".into(), notes, grids: vec![grid], ..Section::default() }
}

fn divergence(found: &FirstDivergence) -> String {
    let line = found.line.as_ref().map(|line| format!(", {line}")).unwrap_or_default();
    let hints = found.hints.iter().map(|hint| format!(" Hint: {hint}.")).collect::<String>();
    format!("First divergence in {}: {}{line}.{hints}", found.stage, found.tensor)
}

/// The losses of precision on a device.
pub(super) fn device(check: &DeviceCheck) -> Section {
    let share = |share: f64| format!("{:.2} %", 100.0 * share);
    let mut notes = vec![match check.verdict {
        GoldenVerdict::Pass | GoldenVerdict::Baseline => {
            format!("No operator loses more on {} than rounding explains.", check.device)
        }
        GoldenVerdict::Fail => format!("On {}, some operators lose more than rounding explains.", check.device),
        GoldenVerdict::Absent => format!("The step was not simulated on {}.", check.device),
    }];
    notes.extend(check.first_divergence.as_ref().map(divergence));
    let mut grids = Vec::new();
    if let Some(scale) = &check.loss_scale {
        let columns = [("loss scale", false), ("value", true), ("vanish", true)];
        let mut grid = Grid::new("Gradient elements that underflow, by loss scale", columns);
        for (name, value, lost) in [
            ("none", 1.0, scale.lost_at_1),
            ("present", scale.present, scale.lost_at_present),
            ("sufficient", scale.best, scale.lost_at_best),
        ] {
            grid.rows.push(vec![name.into(), value.to_string().into(), share(lost).into()]);
        }
        grids.push(grid);
    }
    if !check.losses.is_empty() {
        let columns = [("node", false), ("type", false), ("become zero", true), ("overflow", true)];
        let mut grid = Grid::new("Operators with the largest loss of precision", columns);
        for loss in &check.losses {
            let (node, dtype) = (loss.node.as_str(), loss.dtype.as_str());
            grid.rows.push(vec![node.into(), dtype.into(), share(loss.underflow).into(), share(loss.overflow).into()]);
        }
        grids.push(grid);
    }
    let title = format!("Precision on {}", check.device);
    Section { id: "device".into(), title, notes, grids, ..Section::default() }
}

/// The predicted cost of a step on a device, with a timeline; `steps` is the number of steps of the training.
///
/// # Errors
/// A template that cannot be rendered.
pub(super) fn cost(cost: &Cost, steps: Option<u64>) -> Result<Section, minijinja::Error> {
    let limit = match cost.limit.as_str() {
        "input" => "its input pipeline",
        "floor" => "host code of the network",
        _ => "the device",
    };
    let mut notes = vec![format!(
        "A step of this run is predicted to take {} ms on {}: {} samples per second with batch {} on each of {}, {} \
         MiB of memory. It waits for {limit}.",
        Unit::Plain.format(cost.step_ms),
        cost.device,
        Unit::Plain.format(cost.images_per_s.round()),
        cost.batch,
        if cost.devices == 1 { "1 device".to_owned() } else { format!("{} devices", cost.devices) },
        grouped(cost.peak_memory_bytes.div_ceil(1 << 20)),
    )];
    if let Some(steps) = steps {
        let seconds = steps as f64 * cost.step_ms / 1e3;
        notes.push(format!("All {} steps would take {} on it.", grouped(steps), duration(seconds)));
    }
    let columns = [("operator", false), ("kernels", true), ("ms", true), ("share", true), ("bound", false)];
    let mut grid = Grid::new("Operators, most expensive first", columns);
    for op in &cost.ops {
        grid.rows.push(vec![
            op.op.as_str().into(),
            op.count.to_string().into(),
            format!("{:.3}", op.ms).into(),
            format!("{:.1} %", 100.0 * op.share).into(),
            op.bound.as_str().into(),
        ]);
    }
    let title = format!("Simulated cost on {}", cost.device);
    let figure = match cost.timeline.as_slice() {
        [] => None,
        _ => Some(timeline(cost).html()?),
    };
    Ok(Section { id: "cost".into(), title, notes, figure, grids: vec![grid], ..Section::default() })
}

fn timeline(cost: &Cost) -> Timeline {
    let spans = || cost.timeline.iter().flat_map(|lane| &lane.spans);
    let end = spans().map(|span| span.to_ms).fold(f64::MIN_POSITIVE, f64::max);
    let busy = cost.timeline.iter().map(|lane| {
        let busy: f64 = lane.spans.iter().map(|span| span.to_ms - span.from_ms).sum();
        format!("{} {:.0} %", lane.stream, 100.0 * busy / end)
    });
    let busy = busy.collect::<Vec<_>>().join(", ");
    let (end, device) = (Unit::Plain.format(end), &cost.device);
    let description = format!("Timeline of one step on {device}, which takes {end} ms. Busy: {busy}.");
    let lanes = cost.timeline.iter().map(|lane| {
        let spans = lane.spans.iter().map(|span| {
            let held = span.bound.as_ref().map(|bound| format!(", {bound}-bound")).unwrap_or_default();
            let more = if span.count > 1 { format!(" and {} more", span.count - 1) } else { String::new() };
            let us = Unit::Plain.format(1e3 * (span.to_ms - span.from_ms));
            let tip = format!("{}{more}, {us} us{held}", span.longest);
            Span { from: span.from_ms, to: span.to_ms, class: bound_class(span.bound.as_deref()), tip }
        });
        Lane { name: lane.stream.clone(), spans: spans.collect() }
    });
    Timeline { id: "timeline".into(), description, lanes: lanes.collect() }
}
