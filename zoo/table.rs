//! Tables for terminals.

use crate::console::{HEADING, paint};
use anstyle::Style;
use std::fmt;

/// A cell: text with a style.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl<T: fmt::Display> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.to_string(), style: Style::new() }
    }
}

impl Cell {
    fn painted(&self) -> String {
        if self.style.is_plain() { self.text.clone() } else { paint(self.style, &self.text) }
    }

    /// A cell with a style.
    pub fn styled(text: impl fmt::Display, style: Style) -> Self {
        Self { text: text.to_string(), style }
    }
}

/// The last column is wrapped in place only if at least this many characters are left for it.
const NARROWEST: usize = 24;
/// Indentation of text that is moved below its row.
const INDENT: usize = 4;

/// A column of texts, or of numbers, which are aligned on the right.
#[derive(Clone, Debug)]
struct Column {
    heading: String,
    is_number: bool,
}

/// A table with headings, each column as wide as its widest cell. On a narrow terminal, the texts of the last column
/// are wrapped or placed below their rows, and then cells are wrapped at spaces and between the parts of names.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows. Columns of numbers have a `>` before their headings, which is not shown.
    pub fn new<'h>(headings: impl IntoIterator<Item = &'h str>) -> Self {
        let column = |heading: &str| match heading.strip_prefix('>') {
            Some(heading) => Column { heading: heading.to_owned(), is_number: true },
            None => Column { heading: heading.to_owned(), is_number: false },
        };
        Self { columns: headings.into_iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the last column are not shown.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
        cells.chain([self.columns[column].heading.chars().count()]).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fitted(screen_width()))
    }
}

impl Table {
    /// The table in lines of at most `screen` characters, if wrapping permits.
    fn fitted(&self, screen: Option<usize>) -> String {
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let mut below = false;
        if let Some(screen) = screen {
            let before = total(&widths[..widths.len().saturating_sub(1)]);
            let is_text = self.columns.last().is_some_and(|column| !column.is_number);
            if let Some(last) = widths.last_mut().filter(|last| is_text && before + **last > screen) {
                let left = screen.saturating_sub(before);
                below = left < NARROWEST && *last > NARROWEST;
                *last = if below { 0 } else { left.clamp((*last).min(NARROWEST), *last) };
            }
            self.narrow(&mut widths, screen);
        }
        let headings: Vec<Cell> = self.columns.iter().map(|column| Cell::styled(&column.heading, HEADING)).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let (row, under) = match (below, row.split_last()) {
                (true, Some((last, rest))) if row.len() == widths.len() => (rest, Some(last)),
                _ => (row.as_slice(), None),
            };
            let cells: Vec<Vec<String>> =
                row.iter().zip(&widths).map(|(cell, width)| wrapped(&cell.text, *width)).collect();
            for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let part = |(cell, lines): (&Cell, &Vec<String>)| Cell {
                    text: lines.get(line).cloned().unwrap_or_default(),
                    style: cell.style,
                };
                text += &self.line(&row.iter().zip(&cells).map(part).collect::<Vec<_>>(), &widths);
            }
            if let (Some(under), Some(screen)) = (under.filter(|cell| !cell.text.is_empty()), screen) {
                for line in wrapped(&under.text, screen.saturating_sub(INDENT)) {
                    text += &format!("{}{}\n", " ".repeat(INDENT), Cell { text: line, style: under.style }.painted());
                }
            }
        }
        text
    }

    /// Narrows the widest column whose cells can be wrapped, until the lines fit or nothing can be wrapped.
    fn narrow(&self, widths: &mut [usize], screen: usize) {
        let least: Vec<usize> = (0..widths.len()).map(|column| self.least_width(column)).collect();
        while total(widths).saturating_sub(2) > screen {
            let wide = (0..widths.len()).filter(|column| widths[*column] > least[*column]);
            let Some(widest) = wide.max_by_key(|column| widths[*column]) else { return };
            widths[widest] -= 1;
        }
    }

    /// The width of the longest part of a column that cannot be split.
    fn least_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).flat_map(|cell| parts(&cell.text));
        let longest = cells.map(|part| part.trim_end().chars().count()).max().unwrap_or(0);
        longest.max(self.columns[column].heading.chars().count())
    }

    fn line(&self, row: &[Cell], widths: &[usize]) -> String {
        let mut line = String::new();
        let mut pending = 0;
        for ((cell, column), width) in row.iter().zip(&self.columns).zip(widths) {
            let gap = width.saturating_sub(cell.text.chars().count());
            let (before, after) = if column.is_number { (gap, 0) } else { (0, gap) };
            if cell.text.is_empty() {
                pending += gap + 2;
                continue;
            }
            line.push_str(&" ".repeat(pending + before));
            line.push_str(&cell.painted());
            pending = after + 2;
        }
        line.push('\n');
        line
    }
}

/// Total width of the columns, including the gap after each.
fn total(widths: &[usize]) -> usize {
    widths.iter().map(|width| width + 2).sum()
}

/// Wraps text to the width of the terminal, if stdout is one.
pub fn fitted(text: &str) -> String {
    fitted_after(text, 0)
}

/// As [`fitted`], for a text after a margin of `indent` characters; later lines are indented by spaces.
pub fn fitted_after(text: &str, indent: usize) -> String {
    match screen_width() {
        Some(width) => wrapped(text, width.saturating_sub(indent)).join(&format!("\n{}", " ".repeat(indent))),
        None => text.to_owned(),
    }
}

/// Width of the terminal on stdout; `None` if stdout is not a terminal and COLUMNS is not set.
pub fn screen_width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.or_else(|| terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into()))
}

/// Wraps text to lines of at most `width` characters; longer parts are not split. A text that fits is one line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    if length(text) <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        // A word that is too long for a line is split.
        let pieces = if length(word.trim_end()) > width { parts(word) } else { vec![word] };
        for piece in pieces {
            match lines.last_mut() {
                Some(line) if line.is_empty() || length(line) + length(piece.trim_end()) <= width => *line += piece,
                _ => lines.push(piece.to_owned()),
            }
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// The parts of a text that are not split: it can be split after spaces, and in words with letters after `.`, `/`,
/// `_` and `-` and before a capital (`MaxPool`). Numbers are not split, nor from their `%`.
fn parts(text: &str) -> Vec<&str> {
    let mut cuts = vec![0];
    let mut begin = 0;
    for word in text.split_inclusive(' ') {
        if begin > 0 && word.trim_end() != "%" {
            cuts.push(begin);
        }
        if word.chars().any(char::is_alphabetic) && word.trim_end().parse::<f64>().is_err() {
            cuts.extend(splits(word).into_iter().map(|at| begin + at));
        }
        begin += word.len();
    }
    cuts.push(text.len());
    cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).filter(|part| !part.is_empty()).collect()
}

/// Where a word of several parts can be split.
fn splits(word: &str) -> Vec<usize> {
    let chars: Vec<(usize, char)> = word.char_indices().collect();
    let between = |window: &[(usize, char)]| {
        let (&[(_, before), (at, after)], next) = (window.first_chunk()?, window.get(2));
        let is_capital =
            before.is_lowercase() && after.is_uppercase() && next.is_some_and(|(_, next)| next.is_lowercase());
        let is_joint = matches!(before, '.' | '/' | '_' | '-') && after != ' ';
        (is_capital || is_joint).then_some(at)
    };
    (0..chars.len()).filter_map(|at| between(&chars[at..])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_at_their_text() {
        let mut table = Table::new(["name", ">n", "note"]);
        table.row(["a".into(), 1.into(), "".into()]);
        table.row(["longer".into(), 1000.into(), Cell::styled("x", Style::new().bold())]);
        let text = |width| anstream::adapter::strip_str(&table.fitted(width)).to_string();
        assert_eq!(text(None), "name       n  note\na          1\nlonger  1000  x\n");
    }

    #[test]
    fn the_last_column_is_wrapped_where_there_is_room_for_it() {
        let mut table = Table::new(["name", "note"]);
        table.row(["a".into(), "a note of more than twenty-four characters".into()]);
        let wrapped = "name  note\na     a note of more than\n      twenty-four characters\n";
        assert_eq!(anstream::adapter::strip_str(&table.fitted(Some(30))).to_string(), wrapped);
        let below = "name\n    note\na\n    a note of more\n    than twenty-four\n    characters\n";
        assert_eq!(anstream::adapter::strip_str(&table.fitted(Some(20))).to_string(), below);
    }

    #[test]
    fn numbers_stay_whole() {
        assert_eq!(parts("layer1.conv 1.0e-9 a-b"), ["layer1.", "conv ", "1.0e-9 ", "a-", "b"]);
        assert_eq!(parts("24.7 % of it"), ["24.7 % ", "of ", "it"]);
        assert_eq!(parts("3.19 MiB"), ["3.19 ", "MiB"]);
        assert_eq!(parts("MaxPoolGrad+Conv2DBackpropInput"), ["Max", "Pool", "Grad+Conv2DBackprop", "Input"]);
        assert!(parts("").is_empty());
    }

    #[test]
    fn shares_keep_their_sign_and_names_are_split_instead() {
        let mut table = Table::new(["operator", ">kernels", ">ms", ">share", ">TFLOP/s", ">GB/s", "bound"]);
        let numbers = ["1", "0.02", "24.7 %", "0.0", "17"].map(Cell::from);
        table.row(["SoftmaxCrossEntropyWithLogits".into()].into_iter().chain(numbers).chain(["launch".into()]));
        let fitted = anstream::adapter::strip_str(&table.fitted(Some(60))).to_string();
        assert!(fitted.contains("  24.7 %  ") && fitted.contains("\nEntropyWith"), "{fitted}");
        assert!(fitted.lines().all(|line| line.chars().count() <= 60), "{fitted}");
    }

    #[test]
    fn names_are_wrapped_where_the_terminal_is_narrow() {
        let mut table = Table::new(["worst", ">error", "verdict"]);
        table.row(["layer4.1.bn2.bias/momentum_buffer".into(), "2.3e-4".into(), "pass".into()]);
        let narrow = "worst                 error  verdict\nlayer4.1.bn2.bias/   2.3e-4  pass\nmomentum_buffer\n";
        let fitted = anstream::adapter::strip_str(&table.fitted(Some(36))).to_string();
        assert_eq!(fitted, narrow);
        assert!(fitted.lines().all(|line| line.chars().count() <= 36), "{fitted}");
    }
}
