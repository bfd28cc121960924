//! Writes a drawing as a self-contained SVG file.

use super::layout::{Drawing, LINE, Mark, TITLE, fill};
use std::fmt::Write;
use zoo_pages::escape;

/// Colours of frames by depth, lightest outside.
const FRAMES: [&str; 4] = ["#fafafa", "#f3f5f7", "#eceff3", "#e5e9ee"];

/// The file, with a title and a textual description.
pub(super) fn write(drawing: &Drawing, title: &str, description: &str) -> String {
    let Drawing { width, height, marks } = drawing;
    let (title, description) = (escape(title), escape(description));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-labelledby=\"title desc\" font-family=\"Helvetica, Arial, \
         'DejaVu Sans', sans-serif\" font-size=\"11\">\n\
         <title id=\"title\">{title}</title>\n<desc id=\"desc\">{description}</desc>\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    marks.iter().for_each(|mark| paint(mark, &mut out));
    out.push_str("</svg>\n");
    out
}

fn paint(mark: &Mark, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = match mark {
        Mark::Frame { x, y, width, height, title, depth } => {
            let colour = FRAMES[(*depth).min(FRAMES.len() - 1)];
            writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"6\" fill=\"{colour}\" \
                 stroke=\"#b8c0c8\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#445\" font-weight=\"bold\">{}</text>",
                x + 8.0,
                y + TITLE - 6.0,
                escape(title)
            )
        }
        Mark::Line { points, arrow } => {
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let head = if *arrow { " marker-end=\"url(#arrow)\"" } else { "" };
            writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"#555\"{head}/>", path.join(" "))
        }
        Mark::Curve { from: (x0, y0), to: (x1, y1) } => {
            let bend = ((y1 - y0).abs() / 2.0).clamp(20.0, 160.0);
            writeln!(
                out,
                "<path d=\"M{x0:.1} {y0:.1}C{x0:.1} {:.1} {x1:.1} {:.1} {x1:.1} {y1:.1}\" fill=\"none\" \
                 stroke=\"#2a6fb8\" stroke-dasharray=\"4 3\" opacity=\"0.75\"/>",
                y0 + bend,
                y1 - bend
            )
        }
        // White below, for lines that it crosses.
        Mark::Label { x, y, text } => {
            let text = escape(text);
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"10\" stroke=\"white\" stroke-width=\"3\">{text}</text>\
                 <text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"10\" fill=\"#555\">{text}</text>"
            )
        }
        Mark::Box { x, y, width, height, unit } => {
            let mut text = String::new();
            let middle = x + width / 2.0;
            for (index, line) in unit.text().enumerate() {
                let weight = if line == unit.name { " font-weight=\"bold\"" } else { "" };
                let below = y + 4.0 + LINE * (index as f64 + 1.0) - 3.0;
                text += &format!(
                    "<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\"{weight}>{}</text>",
                    escape(line)
                );
            }
            let colour = fill(unit.work);
            writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\" fill=\"{colour}\" \
                 stroke=\"#7a8794\"/>{text}"
            )
        }
        Mark::Pill { x, y, width, text } => {
            let (height, middle) = (LINE + 8.0, x + width / 2.0);
            writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{:.1}\" \
                 fill=\"#fff7cc\" stroke=\"#b59b2a\"/><text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" \
                 font-weight=\"bold\">{}</text>",
                height / 2.0,
                y + LINE + 1.0,
                escape(text)
            )
        }
        Mark::Dot { x, y, name } => {
            writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"#2a6fb8\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\" font-size=\"10\" fill=\"#2a6fb8\">{}</text>",
                x - 6.0,
                y + 3.0,
                escape(name)
            )
        }
    };
}
