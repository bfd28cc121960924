//! The line of a recipe that a report points to.

use crate::console::{DIM, paint};
use std::fs;

/// `file:line:column` with the line itself and a mark below, if the file can still be read; `sets` are what `--set`
/// says.
pub fn excerpt(place: &str, sets: &[String]) -> String {
    let mut text = format!("{} {}", paint(DIM, "-->"), short(place));
    if let Some((line, column, source)) = source(place, sets) {
        let margin = " ".repeat(line.len());
        let bar = paint(DIM, "|");
        let mark = " ".repeat(column.saturating_sub(1));
        text = format!("{margin}{text}\n{margin} {bar}\n{} {bar} {source}\n{margin} {bar} {mark}^", paint(DIM, &line));
    }
    text
}

/// The place, with the home folder as shells write it: recipes that are built in lie deep below it.
fn short(place: &str) -> String {
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 1);
    let inner = home.as_deref().and_then(|home| place.strip_prefix(home.trim_end_matches('/'))?.strip_prefix('/'));
    inner.map_or_else(|| place.to_owned(), |inner| format!("~/{inner}"))
}

/// Number, column and text of the line.
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
    fn points_into_overrides_and_files() {
        let sets = ["train.batch=4".to_owned()];
        let text = anstream::adapter::strip_str(&excerpt("--set:1:13", &sets)).to_string();
        assert_eq!(text, " --> --set:1:13\n  |\n1 | train.batch=4\n  |             ^");
        let gone = anstream::adapter::strip_str(&excerpt("no/such.yaml:3:1", &[])).to_string();
        assert_eq!(gone, "--> no/such.yaml:3:1");
    }
}
