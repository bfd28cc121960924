//! Line charts as inline SVG. Colours come from CSS classes of the page, so charts follow its light and dark scheme.

use std::fmt::Write;
use zoo_recipe::schema::Unit;

use crate::{escape, page::Section};

/// A chart. It is drawn twice, for wide and for narrow screens, with the same font size.
pub struct Chart<'a> {
    /// Short name, which screen readers announce first.
    pub title: &'a str,
    /// A textual description of the curves, for screen readers.
    pub description: String,
    /// Unique within the page.
    pub id: &'a str,
    /// The format of values on the vertical axis.
    pub unit: Unit,
    /// Steps of the whole training: the range of the horizontal axis.
    pub steps: f64,
    /// Steps done and the time after them, in seconds. If there are any, times are written below the horizontal axis.
    pub times: Vec<(f64, f64)>,
    /// The curves.
    pub series: Vec<Series>,
    /// Horizontal lines.
    pub levels: Vec<Level>,
}

/// A curve.
pub struct Series {
    /// Name in the legend; `None` for a curve that is not in the legend.
    pub label: Option<String>,
    /// CSS class, which determines colour, width and dashes.
    pub class: &'static str,
    /// Steps done and value of each point; non-finite values are omitted.
    pub points: Vec<(f64, f64)>,
    /// Whether each point has a marker with its values as a tooltip.
    pub markers: bool,
}

/// A horizontal line.
pub struct Level {
    /// Name in the legend.
    pub label: String,
    /// CSS class.
    pub class: &'static str,
    /// Its value.
    pub value: f64,
}

/// The dimensions of a chart for one kind of screen.
struct Frame {
    class: &'static str,
    /// Suffix of element ids, which are unique within a page.
    suffix: &'static str,
    width: f64,
    height: f64,
    left: f64,
    /// Approximate number of ticks on the step axis.
    ticks: f64,
}

const FRAMES: [Frame; 2] = [
    Frame { class: "chart", suffix: "", width: 760.0, height: 300.0, left: 64.0, ticks: 8.0 },
    Frame { class: "chart small", suffix: "-small", width: 360.0, height: 260.0, left: 56.0, ticks: 3.0 },
];
const RIGHT: f64 = 22.0;
const TOP: f64 = 34.0;
/// Height of a line of the legend.
const LEGEND: f64 = 18.0;
const BOTTOM: f64 = 42.0;
/// Height of the line of times.
const TIMES: f64 = 15.0;
/// Approximate width of a character of a legend.
const CHARACTER: f64 = 6.6;

/// Ranges below this share of their numbers are drawn as flat: their ticks would be equal.
const FLAT: f64 = 1e-12;
/// Smaller ranges are drawn as flat.
const SMALLEST: f64 = 1e-290;
/// Larger numbers are drawn at the edge.
const LARGEST: f64 = 1e300;

/// A range of numbers with ticks, mapped to a range of positions.
#[derive(Debug)]
struct Axis {
    ticks: Vec<f64>,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis for `values` with about `count` round ticks, extended to the outer ticks.
    fn new(values: impl Iterator<Item = f64>, zero: bool, count: f64, (from, to): (f64, f64)) -> Self {
        let (mut low, mut high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if zero {
            low = low.min(0.0);
        }
        if !(low.is_finite() && high.is_finite()) {
            (low, high) = (0.0, 1.0);
        }
        (low, high) = (low.clamp(-LARGEST, LARGEST), high.clamp(-LARGEST, LARGEST));
        let size = high.abs().max(low.abs());
        if high - low <= SMALLEST.max(FLAT * size) {
            high = low + if size <= SMALLEST { 1.0 } else { size };
        }
        let step = round_step((high - low) / count);
        let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
        let ticks: Vec<f64> = (first..=last).map(|n| n as f64 * step).collect();
        Self { low: first as f64 * step, high: last as f64 * step, ticks, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }
}

/// About `count` round numbers from 0 to `end`, and the number of decimals that they need.
pub(crate) fn round_ticks(end: f64, count: f64) -> (Vec<f64>, usize) {
    let end = end.clamp(f64::MIN_POSITIVE, LARGEST);
    let step = round_step(end / count);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let ticks = (0..).map(|n| f64::from(n) * step).take_while(|tick| *tick <= end * (1.0 + 1e-9));
    (ticks.collect(), decimals)
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= least * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

impl Chart<'_> {
    /// The chart as a section of the page.
    pub fn section(&self) -> Section {
        let (id, title) = (format!("{}-chart", self.id), self.title.to_owned());
        Section { id, title, figure: Some(self.html()), ..Section::default() }
    }

    /// The chart as HTML: an `<svg>` element for each kind of screen.
    pub fn html(&self) -> String {
        FRAMES.iter().map(|frame| self.svg(frame)).collect()
    }

    fn svg(&self, frame: &Frame) -> String {
        let Frame { class, suffix, width, left, .. } = *frame;
        let finite = |series: &Series| -> Vec<(f64, f64)> {
            series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect()
        };
        let curves: Vec<Vec<(f64, f64)>> = self.series.iter().map(finite).collect();
        let points = || curves.iter().flatten();
        let heights = points().map(|p| p.1).chain(self.levels.iter().map(|l| l.value));
        let x = Axis::new(points().map(|p| p.0).chain([0.0, self.steps]), false, frame.ticks, (left, width - RIGHT));
        let legend = self.legend(frame);
        let lines = legend.last().map_or(0.0, |entry| entry.line as f64);
        let top = TOP + LEGEND * lines;
        let bottom = BOTTOM + if self.times.is_empty() { 0.0 } else { TIMES };
        let height = frame.height + LEGEND * lines + bottom - BOTTOM;
        let y = Axis::new(heights, self.unit == Unit::Share, 5.0, (height - bottom, top));
        let mut svg = String::new();
        let Self { id, .. } = self;
        svg.push_str(&format!(
            r#"<svg class="{class}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{id}-title{suffix} {id}-desc{suffix}"><title id="{id}-title{suffix}">{}</title><desc id="{id}-desc{suffix}">{}</desc>"#,
            escape(self.title),
            escape(&self.description)
        ));
        self.axes(&mut svg, &x, &y);
        for level in &self.levels {
            let at = y.place(level.value);
            let (left, right) = (x.from, x.to);
            push(&mut svg, format_args!(r#"<path class="{}" d="M{left:.1} {at:.1}H{right:.1}"/>"#, level.class));
        }
        for (series, points) in self.series.iter().zip(&curves) {
            self.curve(&mut svg, series, points, &x, &y);
        }
        for Entry { label, class, left, line } in &legend {
            let (at, end, text) = (16.0 + LEGEND * *line as f64, left + 26.0, left + 32.0);
            push(&mut svg, format_args!(r#"<path class="{class}" d="M{left:.1} {at:.1}H{end:.1}"/>"#));
            let base = at + 4.0;
            push(
                &mut svg,
                format_args!(r#"<text class="legend" x="{text:.1}" y="{base:.1}">{}</text>"#, escape(label)),
            );
        }
        svg.push_str("</svg>");
        // One element per line.
        svg.replace("/><", "/>\n<").replace("</text><", "</text>\n<")
    }

    fn axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        for &tick in &y.ticks {
            let at = y.place(tick);
            let (left, right) = (x.from, x.to);
            push(svg, format_args!(r#"<path class="grid" d="M{left:.1} {at:.1}H{right:.1}"/>"#));
            let (label, place, middle) = (self.unit.format(tick), left - 8.0, at + 4.0);
            push(svg, format_args!(r#"<text class="tick end" x="{place:.1}" y="{middle:.1}">{label}</text>"#));
        }
        let base = y.from + 18.0;
        for &tick in &x.ticks {
            let (at, label) = (x.place(tick), Unit::Plain.format(tick));
            push(svg, format_args!(r#"<text class="tick middle" x="{at:.1}" y="{base:.1}">{label}</text>"#));
        }
        let mut base = base;
        if !self.times.is_empty() {
            base += TIMES;
            for (&tick, time) in x.ticks.iter().filter_map(|tick| Some((tick, self.time_of(*tick)?))) {
                let at = x.place(tick);
                push(svg, format_args!(r#"<text class="tick middle" x="{at:.1}" y="{base:.1}">{time}</text>"#));
            }
        }
        let (middle, base) = ((x.from + x.to) / 2.0, base + 18.0);
        let what = if self.times.is_empty() { "steps" } else { "steps, and time since the start" };
        push(svg, format_args!(r#"<text class="tick middle" x="{middle:.1}" y="{base:.1}">{what}</text>"#));
    }

    fn curve(&self, svg: &mut String, series: &Series, points: &[(f64, f64)], x: &Axis, y: &Axis) {
        let mut path = String::new();
        for (index, (px, py)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            push(&mut path, format_args!("{command}{:.1} {:.1}", x.place(*px), y.place(*py)));
        }
        push(svg, format_args!(r#"<path class="{}" d="{path}"/>"#, series.class));
        if !series.markers {
            return;
        }
        let name = series.label.as_deref().unwrap_or_default();
        for (px, py) in points {
            let (cx, cy) = (x.place(*px), y.place(*py));
            let tip = format!("{name} {} at step {px}", self.unit.format(*py));
            push(
                svg,
                format_args!(
                    r#"<circle class="{}" cx="{cx:.1}" cy="{cy:.1}" r="3.5"><title>{}</title></circle>"#,
                    series.class,
                    escape(&tip)
                ),
            );
        }
    }

    /// The time at a number of steps; `None` if the training has not reached it.
    fn time_of(&self, steps: f64) -> Option<String> {
        if steps == 0.0 {
            return None;
        }
        let after = self.times.iter().position(|(done, _)| *done >= steps)?;
        let (to, to_time) = self.times[after];
        let (from, from_time) = after.checked_sub(1).map_or((0.0, 0.0), |before| self.times[before]);
        let part = if to > from { (steps - from) / (to - from) } else { 1.0 };
        Some(clock(from_time + part * (to_time - from_time)))
    }

    /// The legend's entries, line by line.
    fn legend(&self, frame: &Frame) -> Vec<Entry> {
        let series = self.series.iter().filter_map(|s| s.label.as_ref().map(|label| (label, s.class)));
        let levels = self.levels.iter().map(|level| (&level.label, level.class));
        let (mut left, mut line) = (frame.left, 0);
        let mut entries = Vec::new();
        for (label, class) in series.chain(levels) {
            let width = 32.0 + CHARACTER * label.chars().count() as f64;
            if left > frame.left && left + width > frame.width {
                (left, line) = (frame.left, line + 1);
            }
            // The end of a folder name is the most informative part.
            let fits = ((frame.width - left - 32.0) / CHARACTER) as usize;
            let cut = label.chars().count().saturating_sub(fits.max(4));
            let label = match cut {
                0 => label.clone(),
                _ => format!("…{}", label.chars().skip(cut + 1).collect::<String>()),
            };
            entries.push(Entry { label, class, left, line });
            left += width + 20.0;
        }
        entries
    }
}

/// A name in a legend, and its position.
struct Entry {
    label: String,
    class: &'static str,
    left: f64,
    line: usize,
}

/// A time in its largest unit and the next smaller one, so that ticks a few seconds apart differ.
fn clock(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds if seconds < 6000.0 => sexagesimal(seconds, "min"),
        seconds => sexagesimal(seconds / 60.0, "h"),
    }
}

/// A number of sixtieths of a unit as `1:05 unit`.
fn sexagesimal(sixtieths: f64, unit: &str) -> String {
    let sixtieths = sixtieths.round() as u64;
    format!("{}:{:02} {unit}", sixtieths / 60, sixtieths % 60)
}

/// Appends formatted text. Writing to a `String` cannot fail.
fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let axis = Axis::new([0.13, 2.31].into_iter(), false, 5.0, (0.0, 100.0));
        assert_eq!(axis.ticks, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(axis.place(1.25), 50.0);
        let flat = Axis::new([0.1, 0.1].into_iter(), false, 5.0, (0.0, 1.0));
        assert!(flat.low <= 0.1 && flat.high > flat.low);
        let nothing = Axis::new(std::iter::empty(), false, 5.0, (0.0, 1.0));
        assert_eq!((nothing.low, nothing.high), (0.0, 1.0));
    }

    /// Finite numbers of all magnitudes, and ranges of all relative sizes: from random bits (SplitMix64).
    fn pairs() -> impl Iterator<Item = [f64; 2]> {
        const EDGES: [f64; 8] = [0.0, 5e-324, f64::MIN_POSITIVE, 1e-290, 1.0, 1e300, 1.7e308, f64::MAX];
        let signed = || EDGES.into_iter().chain(EDGES.map(|edge| -edge));
        let edges = signed().flat_map(move |a| signed().map(move |b| [a, b]));
        let mut state = 7u64;
        let mut bits = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        let random = (0..50_000).map(move |n| {
            let (a, b) = (bits(), bits());
            // A neighbour differs in the last bits only.
            let b = if n % 2 == 0 { b } else { a ^ (b >> (12 + b % 52)) };
            [f64::from_bits(a), f64::from_bits(b)]
        });
        edges.chain(random).filter(|pair| pair.iter().all(|value| value.is_finite()))
    }

    #[test]
    fn all_finite_numbers_have_an_axis() {
        for values in pairs() {
            for (zero, count) in [(false, 3.0), (false, 8.0), (true, 5.0)] {
                let axis = Axis::new(values.into_iter(), zero, count, (300.0, 20.0));
                let ticks = axis.ticks.len();
                assert!((2..=12).contains(&ticks) && axis.ticks.is_sorted_by(|a, b| a < b), "{values:?}: {axis:?}");
                assert!(axis.ticks.iter().all(|tick| tick.is_finite()), "{values:?}: {axis:?}");
                assert!(
                    values.iter().all(|value| (20.0..=300.0).contains(&axis.place(*value))),
                    "{values:?}: {axis:?}"
                );
            }
            let (ticks, _) = round_ticks(values[0], 4.0);
            assert!(ticks.len() <= 6 && ticks.iter().all(|tick| tick.is_finite()), "{values:?}: {ticks:?}");
        }
    }

    #[test]
    fn numbers_that_hardly_differ_are_drawn_as_flat() {
        let flat = |values: [f64; 2]| Axis::new(values.into_iter(), false, 5.0, (0.0, 1.0));
        assert_eq!((flat([0.0, 5e-324]).low, flat([0.0, 5e-324]).high), (0.0, 1.0));
        let close = flat([2.0, 2.0 + 1e-14]);
        assert!(close.low == 2.0 && close.high >= 4.0, "{close:?}");
    }

    #[test]
    fn labels_are_escaped_and_gaps_left_out() {
        let chart = Chart {
            title: "a<b",
            description: String::new(),
            id: "x",
            unit: Unit::Plain,
            steps: 4.0,
            series: vec![Series {
                label: Some("\"l&\"".into()),
                class: "c",
                points: vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)],
                markers: false,
            }],
            levels: vec![],
            times: vec![(2.0, 60.0), (4.0, 240.0)],
        };
        let svg = chart.html();
        assert_eq!(chart.time_of(1.0).unwrap(), "30 s");
        assert_eq!(chart.time_of(3.0).unwrap(), "2:30 min");
        assert_eq!(clock(7499.0), "2:05 h");
        assert_eq!(chart.time_of(5.0), None);
        assert!(svg.contains("a&lt;b") && svg.contains("&quot;l&amp;&quot;") && !svg.contains("NaN"));
    }
}
