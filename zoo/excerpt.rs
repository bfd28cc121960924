//! Excerpts of recipes for reports.

use crate::console::{DIM, paint};
use crate::table::screen_width;
use std::fs;

/// `file:line:column` with the line itself and a mark below, if the file is readable. `sets` are the values of
/// `--set`.
pub fn excerpt(place: &str, sets: &[String]) -> String {
    let mut text = format!("{} {}", paint(DIM, "-->"), short(place));
    if let Some((line, column, source)) = source(place, sets) {
        let margin = " ".repeat(line.len());
        let bar = paint(DIM, "|");
        // Reserves space for the bar, its blanks, and the indentation of some reports.
        let room = screen_width().unwrap_or(usize::MAX).saturating_sub(line.len() + 5).max(LEAST_WIDTH);
        let (source, column) = part_around(&source, column, room);
        let mark = " ".repeat(column.saturating_sub(1));
        text = format!("{margin}{text}\n{margin} {bar}\n{} {bar} {source}\n{margin} {bar} {mark}^", paint(DIM, &line));
    }
    text
}

/// The least number of characters of a line to show.
const LEAST_WIDTH: usize = 20;
const CUT: &str = "...";

/// The part of a line around a column, at most `room` characters long, and the column within it.
fn part_around(source: &str, column: usize, room: usize) -> (String, usize) {
    let length = source.chars().count();
    if length <= room {
        return (source.to_owned(), column);
    }
    let from = if column + CUT.len() <= room { 0 } else { column.saturating_sub(room / 2).min(length - room) };
    let mut part: String = source.chars().skip(from).take(room).collect();
    let cut = |part: &str, from, count| part.chars().skip(from).take(count).collect::<String>();
    if from > 0 {
        part = format!("{CUT}{}", cut(&part, CUT.len(), room));
    }
    if from + room < length {
        part = format!("{}{CUT}", cut(&part, 0, room - CUT.len()));
    }
    (part, column - from)
}

/// The position, with the home folder abbreviated to `~`: built-in recipes are in a folder below it.
fn short(place: &str) -> String {
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 1);
    let inner = home.as_deref().and_then(|home| place.strip_prefix(home.trim_end_matches('/'))?.strip_prefix('/'));
    inner.map_or_else(|| place.to_owned(), |inner| format!("~/{inner}"))
}

/// Number, column and text of a line.
fn source(place: &str, sets: &[String]) -> Option<(String, usize, String)> {
    let (rest, column) = place.rsplit_once(':')?;
    let (file, line) = rest.rsplit_once(':')?;
    let (number, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
    let index = number.checked_sub(1)?;
    let source = if file == zoo_recipe::Span::OVERRIDES {
        sets.get(index)?.clone()
    } else {
        fs::read_to_string(file).ok()?.lines().nth(index)?.to_owned()
    };
    Some((line.to_owned(), column, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_around_its_mark() {
        let line = "0123456789 abcdefghij klmnopqrst uvwxyz";
        assert_eq!(part_around(line, 1, 39), (line.to_owned(), 1));
        assert_eq!(part_around(line, 12, 20), ("0123456789 abcdef...".to_owned(), 12));
        assert_eq!(part_around(line, 23, 20), ("...fghij klmnopqr...".to_owned(), 10));
        assert_eq!(part_around(line, 38, 20), ("...klmnopqrst uvwxyz".to_owned(), 19));
    }

    #[test]
    fn points_into_overrides_and_files() {
        let sets = ["train.batch=4".to_owned()];
        let text = anstream::adapter::strip_str(&excerpt("--set:1:13", &sets)).to_string();
        assert_eq!(text, " --> --set:1:13\n  |\n1 | train.batch=4\n  |             ^");
        let gone = anstream::adapter::strip_str(&excerpt("no/such.yaml:3:1", &[])).to_string();
        assert_eq!(gone, "--> no/such.yaml:3:1");
    }
}
