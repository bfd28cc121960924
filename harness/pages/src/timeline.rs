//! A timeline with a lane for each stream. The page can zoom it without a script.

use minijinja::{AutoEscape, Environment, value::Serde};
use serde::Serialize;

use crate::chart::round_ticks;

/// The bottlenecks of kernels, with their CSS classes.
pub const BOUNDS: [(&str, &str); 6] =
    [("Cube", "cube"), ("Vector", "vector"), ("HBM", "hbm"), ("L2", "l2"), ("launch", "launch"), ("host", "host")];

/// The CSS class for the bottleneck of a kernel; other entries have the class `other`.
pub fn bound_class(bound: Option<&str>) -> &'static str {
    BOUNDS.iter().find(|(name, _)| Some(*name) == bound).map_or("other", |(_, class)| class)
}

/// A timeline.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Unique within the page.
    pub id: String,
    /// Title and textual description, for screen readers.
    pub description: String,
    /// The lanes, from top to bottom.
    pub lanes: Vec<Lane>,
}

/// A lane for a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Its entries, in order.
    pub spans: Vec<Span>,
}

/// An entry of a lane.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Span {
    /// Start, in milliseconds.
    pub from: f64,
    /// End, in milliseconds.
    pub to: f64,
    /// CSS class, which determines the colour: one of [`BOUNDS`], or `other`.
    pub class: &'static str,
    /// Its tooltip.
    pub tip: String,
}

/// Width in drawing units; the drawing is scaled to the width of the page.
const WIDTH: f64 = 1200.0;
/// Height of a lane in pixels, including the space below it.
const LANE: f64 = 30.0;

#[derive(Serialize)]
struct Drawn<'a> {
    id: &'a str,
    description: &'a str,
    width: f64,
    height: f64,
    legend: Vec<(&'static str, &'static str)>,
    names: Vec<&'a str>,
    boxes: Vec<Drawing<'a>>,
    ticks: Vec<(f64, String)>,
}

#[derive(Serialize)]
struct Drawing<'a> {
    x: String,
    y: f64,
    width: String,
    class: &'static str,
    tip: &'a str,
}

impl Timeline {
    /// The timeline as HTML.
    ///
    /// # Errors
    /// The template cannot be rendered.
    pub fn html(&self) -> Result<String, minijinja::Error> {
        let spans = || self.lanes.iter().flat_map(|lane| &lane.spans);
        let end = spans().map(|span| span.to).fold(f64::MIN_POSITIVE, f64::max);
        let is_there = |class: &str| spans().any(|span| span.class == class);
        let named = BOUNDS.into_iter().chain([("copies and sums", "other")]);
        let boxes = self.lanes.iter().enumerate().flat_map(|(lane, Lane { spans, .. })| {
            spans.iter().map(move |span| Drawing {
                x: format!("{:.2}", WIDTH * span.from / end),
                y: LANE * lane as f64,
                width: format!("{:.2}", (WIDTH * (span.to - span.from) / end).max(0.2)),
                class: span.class,
                tip: &span.tip,
            })
        });
        let (ticks, decimals) = round_ticks(end, 4.0);
        let drawn = Drawn {
            id: &self.id,
            description: &self.description,
            width: WIDTH,
            height: LANE * self.lanes.len() as f64,
            legend: named.filter(|(_, class)| is_there(class)).collect(),
            names: self.lanes.iter().map(|lane| lane.name.as_str()).collect(),
            boxes: boxes.collect(),
            ticks: ticks.into_iter().map(|tick| (100.0 * tick / end, label(tick, decimals))).collect(),
        };
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.render_str(include_str!("timeline.html"), Serde(&drawn))
    }
}

/// The first label is short, because it is placed next to its position, not centred.
fn label(ms: f64, decimals: usize) -> String {
    if ms == 0.0 { "0".to_owned() } else { format!("{ms:.decimals$} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_names_and_ticks_are_round() {
        let span = |from, to, class| Span { from, to, class, tip: "a<b".into() };
        let lane = |name: &str, spans| Lane { name: name.into(), spans };
        let timeline = Timeline {
            id: "t".into(),
            description: "One step.".into(),
            lanes: vec![
                lane("forward", vec![span(0.0, 40.0, "cube")]),
                lane("copies", vec![span(40.0, 120.0, "other")]),
            ],
        };
        let html = timeline.html().unwrap();
        for expected in ["forward", "copies", ">0<", ">50 ms<", ">100 ms<", "a&lt;b", "copies and sums"] {
            assert!(html.contains(expected), "{expected}: {html}");
        }
        assert!(!html.contains("Vector"));
    }
}
