//! A chart of the trainings of a study: bars for results, marks for published results.

use zoo_npu::study::{Study, Trained, Verdict};
use zoo_pages::escape;
use zoo_recipe::schema::{Metric, Unit};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 250.0;
/// Space for a score and for a published result in words.
const RIGHT: f64 = 180.0;
const ROW: f64 = 30.0;
const HEAD: f64 = 44.0;
/// Characters per line of the footnote, and the height of a line.
const NOTE: (usize, f64) = (120, 15.0);

/// The picture as an SVG document.
pub(super) fn svg(study: &Study, trained: &[Trained]) -> String {
    let note = wrap(&format!("bars: trained here; diamonds: published ({})", study.source), NOTE.0);
    let tables: f64 = study.trainings.iter().map(|table| HEAD + ROW * (table.rows.len() as f64 + 1.0)).sum();
    let height = tables + 15.0 + NOTE.1 * note.len() as f64;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" role="img">
<title>{}</title>
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
"##,
        escape(&study.description)
    );
    let mut top = 10.0;
    for table in &study.trainings {
        let rows: Vec<&Trained> = trained.iter().filter(|row| row.table == table.title).collect();
        top = draw(&mut svg, &table.title, &rows, top);
    }
    for (n, line) in note.iter().enumerate() {
        let y = tables + 20.0 + NOTE.1 * n as f64;
        let line = escape(line);
        svg += &format!("<text x=\"12\" y=\"{y:.0}\" fill=\"#666666\" font-size=\"11\">{line}</text>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws a table; returns the position of the next one.
fn draw(svg: &mut String, title: &str, rows: &[&Trained], top: f64) -> f64 {
    let unit = rows.iter().find_map(|row| row.metric).map_or(Unit::Share, Metric::unit);
    let most = match unit {
        Unit::Share => 1.0,
        Unit::Plain => {
            let values = rows.iter().flat_map(|row| [row.score, row.published]).flatten();
            values.filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max)
        }
    };
    let place = |value: f64| LEFT + (value / most).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let bottom = top + HEAD + ROW * rows.len() as f64;
    *svg += &format!("<text x=\"12\" y=\"{:.0}\" font-weight=\"bold\">{}</text>\n", top + 18.0, escape(title));
    for tenth in (0..=10).step_by(2) {
        let value = f64::from(tenth) / 10.0 * most;
        let x = place(value);
        *svg += &format!(r##"<path d="M{x:.1} {:.1}V{bottom:.1}" stroke="#dddddd"/>"##, top + HEAD - 8.0);
        let (label, below) = (unit.format(value), bottom + 15.0);
        *svg += &format!(
            r##"<text x="{x:.1}" y="{below:.1}" text-anchor="middle" fill="#666666" font-size="11">{label}</text>
"##
        );
    }
    for (index, row) in rows.iter().enumerate() {
        let y = top + HEAD + ROW * index as f64;
        let middle = y + ROW / 2.0 + 4.0;
        *svg +=
            &format!(r#"<text x="{:.0}" y="{middle:.1}" text-anchor="end">{}</text>"#, LEFT - 10.0, escape(&row.what));
        let note = match (row.score, &row.error) {
            (Some(score), _) => {
                let (from, width) = (place(0.0), place(score) - place(0.0));
                *svg += &format!(
                    r##"<rect x="{from:.1}" y="{:.1}" width="{width:.1}" height="{:.1}" fill="#4477aa"/>"##,
                    y + 5.0,
                    ROW - 10.0
                );
                row.metric.map_or_else(String::new, |metric| metric.format(score))
            }
            (None, Some(_)) if row.verdict != Verdict::Open => "error".to_owned(),
            (None, _) => "not trained".to_owned(),
        };
        let end = place(row.score.unwrap_or(0.0)) + 8.0;
        *svg += &format!(r#"<text x="{end:.1}" y="{middle:.1}">{note}</text>"#);
        let published = row.published_outcome.map(|outcome| format!("published: {}", outcome.word()));
        if let Some(value) = row.published {
            let (x, y) = (place(value), y + ROW / 2.0);
            *svg += &format!(r##"<path d="M{x:.1} {:.1}l6 7l-6 7l-6 -7z" fill="#cc6677" stroke="#ffffff"/>"##, y - 7.0);
        } else if let Some(text) = published {
            let x = end + 56.0;
            *svg += &format!(r##"<text x="{x:.1}" y="{middle:.1}" fill="#cc6677" font-size="11">{text}</text>"##);
        }
        svg.push('\n');
    }
    bottom + ROW
}

/// Wraps text to lines of the given length; longer words are not split.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("aa bb  cc dddddd", 5), ["aa bb", "cc", "dddddd"]);
        assert!(wrap(" ", 5).is_empty());
    }
}
