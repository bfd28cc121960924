//! Tables for terminals.

use crate::console::{HEADING, paint};
use anstyle::Style;
use std::fmt;

/// Which side of its column a cell keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A cell: text, perhaps in a style.
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

    /// In a style.
    pub fn styled(text: impl fmt::Display, style: Style) -> Self {
        Self { text: text.to_string(), style }
    }
}

/// The last column is wrapped only if so many characters are left for it.
const NARROWEST: usize = 24;

/// Rows under headings, each column as wide as its widest cell. On a terminal, texts of the last column are wrapped
/// where the line would be too long.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = (&'static str, Align)>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the last column are not shown.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
        cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fitted(screen_width()))
    }
}

impl Table {
    /// The table in lines of at most `screen` characters, as far as wrapping the last column makes that possible.
    fn fitted(&self, screen: Option<usize>) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let room = screen.and_then(|screen| screen.checked_sub(before)).filter(|room| *room >= NARROWEST);
        let room = room.filter(|_| self.columns.last().is_some_and(|(_, align)| *align == Align::Left));
        let headings: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::styled(name, HEADING)).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut row = row.clone();
            let mut more = Vec::new();
            if let (Some(room), Some(last)) = (room, row.get_mut(self.columns.len() - 1)) {
                let mut lines = wrapped(&last.text, room).into_iter();
                last.text = lines.next().unwrap_or_default();
                more = lines.map(|line| Cell::styled(line, last.style)).collect();
            }
            text += &self.line(&row, &widths);
            for cell in more {
                text += &format!("{}{}\n", " ".repeat(before), cell.painted());
            }
        }
        text
    }

    fn line(&self, row: &[Cell], widths: &[usize]) -> String {
        let mut line = String::new();
        let mut pending = 0;
        for ((cell, (_, align)), width) in row.iter().zip(&self.columns).zip(widths) {
            let gap = width.saturating_sub(cell.text.chars().count());
            let (before, after) = if *align == Align::Right { (gap, 0) } else { (0, gap) };
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

/// Columns of the terminal that results go to; `None` if they go elsewhere, and COLUMNS does not say.
fn screen_width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.or_else(|| terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into()))
}

/// The text in lines of at most `width` characters; longer words stay whole.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_at_their_text() {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right), ("note", Align::Left)]);
        table.row(["a".into(), 1.into(), "".into()]);
        table.row(["longer".into(), 1000.into(), Cell::styled("x", Style::new().bold())]);
        let text = |width| anstream::adapter::strip_str(&table.fitted(width)).to_string();
        assert_eq!(text(None), "name       n  note\na          1\nlonger  1000  x\n");
    }

    #[test]
    fn the_last_column_is_wrapped_where_there_is_room_for_it() {
        let mut table = Table::new([("name", Align::Left), ("note", Align::Left)]);
        table.row(["a".into(), "a note of more than twenty-four characters".into()]);
        let wrapped = "name  note\na     a note of more than\n      twenty-four characters\n";
        assert_eq!(anstream::adapter::strip_str(&table.fitted(Some(30))).to_string(), wrapped);
        let whole = "name  note\na     a note of more than twenty-four characters\n";
        assert_eq!(anstream::adapter::strip_str(&table.fitted(Some(20))).to_string(), whole);
    }
}
