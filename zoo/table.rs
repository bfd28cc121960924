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
    /// In a style.
    pub fn styled(text: impl fmt::Display, style: Style) -> Self {
        Self { text: text.to_string(), style }
    }
}

/// Rows under headings, each column as wide as its widest cell.
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
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let headings: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::styled(name, HEADING)).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            let mut pending = 0;
            for ((cell, (_, align)), width) in row.iter().zip(&self.columns).zip(&widths) {
                let gap = width - cell.text.chars().count();
                let (before, after) = if *align == Align::Right { (gap, 0) } else { (0, gap) };
                if cell.text.is_empty() {
                    pending += gap + 2;
                    continue;
                }
                line.push_str(&" ".repeat(pending + before));
                line.push_str(&if cell.style.is_plain() { cell.text.clone() } else { paint(cell.style, &cell.text) });
                pending = after + 2;
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_at_their_text() {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right), ("note", Align::Left)]);
        table.row(["a".into(), 1.into(), "".into()]);
        table.row(["longer".into(), 1000.into(), Cell::styled("x", Style::new().bold())]);
        let text = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(text, "name       n  note\na          1\nlonger  1000  x\n");
    }
}
