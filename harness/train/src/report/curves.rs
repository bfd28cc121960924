//! The charts of a report: loss, metrics, learning rate.

use zoo_recipe::schema::{Metric, Unit};

use crate::event::{Evaluated, Started};
use zoo_pages::{Chart, Level, Series};

/// Largest number of points of a curve; more than the columns of a screen are useless.
const RESOLUTION: usize = 800;

/// The values of a step that the page shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub step: u64,
    pub loss: f64,
    pub lr: f64,
    pub gradient_norm: Option<f64>,
    pub images_per_s: f64,
    pub seconds: f64,
}

/// The charts for which there are data.
pub(super) fn charts(points: &[Point], evaluations: &[Evaluated], started: Option<&Started>) -> Vec<Chart<'static>> {
    let steps = started.map_or(0.0, |started| started.steps as f64);
    let mut charts = Vec::new();
    if !points.is_empty() {
        charts.push(loss(points, evaluations, steps));
    }
    if !evaluations.is_empty() {
        charts.extend(scores(evaluations, started, steps));
    }
    if !points.is_empty() {
        charts.push(learning_rate(points, steps));
        charts.extend(gradient_norm(points, steps));
        charts.push(throughput(points, steps));
    }
    let times: Vec<(f64, f64)> = points.iter().map(|point| (point.step as f64, point.seconds)).collect();
    charts.iter_mut().for_each(|chart| chart.times.clone_from(&times));
    charts
}

/// The norm of the gradients, at the steps where it was measured.
fn gradient_norm(points: &[Point], steps: f64) -> Option<Chart<'static>> {
    let norms: Vec<(f64, f64)> =
        points.iter().filter_map(|point| Some((point.step as f64, point.gradient_norm?))).collect();
    let description = range("The norm of all gradients, before any clipping, goes", &norms, Unit::Plain);
    let series = vec![line("first", norms.clone())];
    (!norms.is_empty()).then(|| chart(("Norm of the gradients", "gradients"), description, Unit::Plain, steps, series))
}

/// Samples per second, including waiting for data.
fn throughput(points: &[Point], steps: f64) -> Chart<'static> {
    let raw: Vec<(f64, f64)> = points.iter().map(|point| (point.step as f64, point.images_per_s)).collect();
    let said = ("The samples per second go", "samples per second (smoothed)");
    noisy(("Throughput", "throughput"), said, &raw, steps)
}

fn loss(points: &[Point], evaluations: &[Evaluated], steps: f64) -> Chart<'static> {
    let raw: Vec<(f64, f64)> = points.iter().map(|point| (point.step as f64, point.loss)).collect();
    let mut chart = noisy(("Loss", "loss"), ("The training loss goes", "training loss (smoothed)"), &raw, steps);
    if evaluations.iter().any(|evaluated| evaluated.loss.is_some()) {
        let points = evaluations.iter().filter_map(|e| Some((e.step as f64, e.loss?))).collect();
        let label = Some("held-out cross entropy".into());
        chart.series.push(Series { label, class: "second", points, markers: true });
    }
    chart
}

/// A chart of a value of each step, and of its moving average, which is described (`subject`) and labelled.
fn noisy(
    named: (&'static str, &'static str),
    (subject, label): (&str, &str),
    raw: &[(f64, f64)],
    steps: f64,
) -> Chart<'static> {
    let smooth = smoothed(raw);
    let average = Series { label: Some(label.into()), ..line("first", thinned(&smooth)) };
    let series = vec![line("raw", thinned(raw)), average];
    chart(named, range(subject, &smooth, Unit::Plain), Unit::Plain, steps, series)
}

fn line(class: &'static str, points: Vec<(f64, f64)>) -> Series {
    Series { label: None, class, points, markers: false }
}

/// A chart without levels; [`charts`] adds the times.
pub(super) fn chart(
    (title, id): (&'static str, &'static str),
    description: String,
    unit: Unit,
    steps: f64,
    series: Vec<Series>,
) -> Chart<'static> {
    Chart { title, description, id, unit, steps, series, levels: vec![], times: vec![] }
}

/// One chart for all shares, and one chart for every other metric.
fn scores(evaluations: &[Evaluated], started: Option<&Started>, steps: f64) -> Vec<Chart<'static>> {
    let target = started.and_then(|started| started.target.as_ref());
    let mut measured: Vec<Metric> =
        evaluations.first().into_iter().flat_map(|e| &e.scores).map(|score| score.metric).collect();
    // The loss has its own chart; but if it is the metric of the target, it is shown here too.
    if let Some(target) = target.filter(|target| !measured.contains(&target.metric)) {
        measured.push(target.metric);
    }
    let (shares, others): (Vec<Metric>, Vec<Metric>) =
        measured.into_iter().partition(|metric| metric.unit() == Unit::Share);
    let mut charts = Vec::new();
    if !shares.is_empty() {
        charts.push(curves(evaluations, started, "Accuracy on held-out samples", "accuracy", &shares, steps));
    }
    charts.extend(
        others.iter().map(|metric| curves(evaluations, started, metric.name(), metric.name(), &[*metric], steps)),
    );
    charts
}

/// A chart of all metrics with the same unit.
fn curves(
    evaluations: &[Evaluated],
    started: Option<&Started>,
    title: &'static str,
    id: &'static str,
    metrics: &[Metric],
    steps: f64,
) -> Chart<'static> {
    let unit = metrics.first().map_or(Unit::Plain, |metric| metric.unit());
    let curve = |metric| -> Vec<(f64, f64)> {
        let points = evaluations.iter().filter_map(|e| Some((e.step as f64, e.score(metric)?)));
        points.collect()
    };
    let classes = ["first", "second", "run2", "run5"].into_iter().cycle();
    let series: Vec<Series> = metrics
        .iter()
        .zip(classes)
        .map(|(&metric, class)| (Some(metric.name().to_owned()), class, curve(metric)))
        .map(|(label, class, points)| Series { label, class, points, markers: true })
        .collect();
    let mut sentences: Vec<String> = series
        .iter()
        .map(|s| range(&format!("{} goes", s.label.as_deref().unwrap_or_default()), &s.points, unit))
        .collect();
    let mut levels = Vec::new();
    if let Some(target) = started.and_then(|started| started.target.as_ref())
        && metrics.contains(&target.metric)
    {
        let value = unit.format(target.value);
        let label = format!("target {} {value}", target.metric);
        levels.push(Level { label, class: "target", value: target.value });
        sentences.push(format!("The target is {value}."));
    }
    if let Some(value) = started.and_then(|started| started.linear_baseline)
        && metrics.contains(&Metric::Top1)
    {
        let text = unit.format(value);
        levels.push(Level { label: format!("linear classifier {text}"), class: "baseline", value });
        sentences.push(format!("A linear classifier reaches {text}."));
    }
    Chart { levels, ..chart((title, id), sentences.join(" "), unit, steps, series) }
}

fn learning_rate(points: &[Point], steps: f64) -> Chart<'static> {
    let points: Vec<(f64, f64)> = points.iter().map(|point| (point.step as f64, point.lr)).collect();
    let highest = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let description = format!(
        "{} Its highest value is {}.",
        range("The learning rate goes", &points, Unit::Plain),
        Unit::Plain.format(highest)
    );
    let series = vec![line("first", thinned(&points))];
    chart(("Learning rate", "rate"), description, Unit::Plain, steps, series)
}

/// A sentence about the start and end of a curve.
fn range(subject: &str, points: &[(f64, f64)], unit: Unit) -> String {
    match (points.first(), points.last()) {
        (Some(first), Some(last)) => format!(
            "{subject} from {} at step {} to {} at step {}.",
            unit.format(first.1),
            first.0,
            unit.format(last.1),
            last.0
        ),
        _ => String::new(),
    }
}

/// Exponential moving average over about a fiftieth of the curve, with bias correction at the start.
pub(super) fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let keep = 1.0 - 1.0 / (points.len() as f64 / 50.0).max(1.0);
    let (mut sum, mut weight) = (0.0, 0.0);
    // Skipped steps can have no loss.
    let mean = points.iter().filter(|(_, y)| y.is_finite()).map(|&(x, y)| {
        (sum, weight) = (keep * sum + (1.0 - keep) * y, keep * weight + (1.0 - keep));
        (x, sum / weight)
    });
    mean.collect()
}

/// The lowest and highest point of each of [`RESOLUTION`]/2 sections, in order: the outline of the curve.
pub(super) fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= RESOLUTION {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(RESOLUTION + 2);
    for stretch in points.chunks(points.len().div_ceil(RESOLUTION / 2)) {
        let extreme =
            |order: fn(&f64, &f64) -> std::cmp::Ordering| stretch.iter().copied().min_by(|a, b| order(&a.1, &b.1));
        let low = extreme(f64::total_cmp);
        let high = extreme(|a, b| f64::total_cmp(b, a));
        let mut ends: Vec<(f64, f64)> = low.into_iter().chain(high).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends.dedup();
        kept.extend(ends);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_outline() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|n| (f64::from(n), 0.5)).collect();
        points[1234].1 = 9.0;
        points[1235].1 = -9.0;
        let kept = thinned(&points);
        assert!(kept.len() <= RESOLUTION && kept.is_sorted_by(|a, b| a.0 < b.0));
        assert!(kept.contains(&(1234.0, 9.0)) && kept.contains(&(1235.0, -9.0)));
    }

    #[test]
    fn smoothing_keeps_constants_and_short_curves() {
        assert_eq!(smoothed(&[(0.0, 3.0), (1.0, f64::NAN), (2.0, 3.0)]), [(0.0, 3.0), (2.0, 3.0)]);
        assert!(smoothed(&[(0.0, 3.0); 1000]).iter().all(|p| (p.1 - 3.0).abs() < 1e-12));
        let short = [(1.0, 5.0), (2.0, 1.0)];
        assert_eq!(smoothed(&short), short);
    }
}
