//! The timeline of a simulated step as inline SVG: a lane for each stream, coloured by what holds it up.

use zoo_recipe::schema::Unit;

use super::chart::{escape, push};
use crate::event::Cost;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 100.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 28.0;
/// Height of a lane, with the space below it.
const LANE: f64 = 30.0;
const BAR: f64 = 22.0;
/// What holds kernels up, with the class that colours it.
const BOUNDS: [(&str, &str); 6] =
    [("Cube", "cube"), ("Vector", "vector"), ("HBM", "hbm"), ("L2", "l2"), ("launch", "launch"), ("host", "host")];

/// The timeline as an `<svg>` element.
pub(super) fn svg(cost: &Cost) -> String {
    let spans = || cost.timeline.iter().flat_map(|lane| &lane.spans);
    let end = spans().map(|span| span.to_ms).fold(f64::MIN_POSITIVE, f64::max);
    let x = |ms: f64| LEFT + (WIDTH - LEFT - RIGHT) * ms / end;
    let height = TOP + LANE * cost.timeline.len() as f64 + 22.0;
    let mut svg = format!(
        r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="timeline-title timeline-desc"><title id="timeline-title">Timeline of one step on {}</title><desc id="timeline-desc">{}</desc>"#,
        escape(&cost.device),
        escape(&description(cost, end))
    );
    legend(&mut svg, cost);
    for (index, lane) in cost.timeline.iter().enumerate() {
        let y = TOP + LANE * index as f64;
        let (label, base) = (escape(&lane.stream), y + BAR * 0.7);
        push(&mut svg, format_args!(r#"<text class="tick end" x="{:.1}" y="{base:.1}">{label}</text>"#, LEFT - 8.0));
        for span in &lane.spans {
            let (from, width) = (x(span.from_ms), (x(span.to_ms) - x(span.from_ms)).max(0.3));
            let held = span.bound.as_ref().map(|bound| format!(", {bound}-bound")).unwrap_or_default();
            let more = if span.count > 1 { format!(" and {} more", span.count - 1) } else { String::new() };
            let us = 1e3 * (span.to_ms - span.from_ms);
            let tip = format!("{}{more}, {} us{held}", span.longest, Unit::Plain.format(us));
            push(
                &mut svg,
                format_args!(
                    r#"<rect class="{}" x="{from:.2}" y="{y:.1}" width="{width:.2}" height="{BAR}"><title>{}</title></rect>"#,
                    class(span.bound.as_deref()),
                    escape(&tip)
                ),
            );
        }
    }
    let base = height - 6.0;
    for tenth in 0..=5 {
        let ms = end * f64::from(tenth) / 5.0;
        let (at, label) = (x(ms), format!("{ms:.*}", if end < 1.0 { 3 } else { 1 }));
        let unit = if tenth == 0 { " ms" } else { "" };
        push(&mut svg, format_args!(r#"<text class="tick middle" x="{at:.1}" y="{base:.1}">{label}{unit}</text>"#));
    }
    svg.push_str("</svg>");
    svg.replace("</rect><", "</rect>\n<").replace("</text><", "</text>\n<")
}

fn class(bound: Option<&str>) -> &'static str {
    BOUNDS.iter().find(|(name, _)| Some(*name) == bound).map_or("other", |(_, class)| class)
}

fn legend(svg: &mut String, cost: &Cost) {
    let mut left = LEFT;
    for (name, class) in BOUNDS {
        let mut spans = cost.timeline.iter().flat_map(|lane| &lane.spans);
        if !spans.any(|span| span.bound.as_deref() == Some(name)) {
            continue;
        }
        push(svg, format_args!(r#"<rect class="{class}" x="{left:.1}" y="7" width="12" height="12"/>"#));
        push(svg, format_args!(r#"<text class="legend" x="{:.1}" y="17">{name}</text>"#, left + 17.0));
        left += 17.0 + 7.0 * name.len() as f64 + 22.0;
    }
}

/// How long each stream is busy, in words.
fn description(cost: &Cost, end: f64) -> String {
    let lanes = cost.timeline.iter().map(|lane| {
        let busy: f64 = lane.spans.iter().map(|span| span.to_ms - span.from_ms).sum();
        format!("{} {:.0} %", lane.stream, 100.0 * busy / end)
    });
    let busy = lanes.collect::<Vec<_>>().join(", ");
    format!("One step over {} ms. Busy: {busy}. Colours say what holds kernels up.", Unit::Plain.format(end))
}
