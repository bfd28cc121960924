//! Test cases and their outcomes.

use std::path::Path;
use std::time::Duration;
use zoo_recipe::Span;

/// The test cases of one recipe.
#[derive(Clone, Debug, Default)]
pub struct Suite {
    /// The recipe, and the kind of judgement if a recipe has several.
    pub name: String,
    /// The cases, in order.
    pub cases: Vec<Case>,
    /// Time of all cases together.
    pub time: Duration,
}

impl Suite {
    /// A suite with one case that was not judged, with the reason.
    pub fn absent(name: String, why: impl Into<String>) -> Self {
        let case = Case { name: "golden".to_owned(), outcome: Outcome::Absent(why.into()) };
        Self { name, cases: vec![case], time: Duration::ZERO }
    }
}

/// One judgement.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name within the suite.
    pub name: String,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a test case.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Passed.
    Pass,
    /// Not judged, with the reason.
    Absent(String),
    /// Failed.
    Fail(Fault),
    /// It could not be judged because of an error.
    Error(Fault),
}

/// A failure and its position.
#[derive(Clone, Debug, Default)]
pub struct Fault {
    /// The message in one line.
    pub message: String,
    /// The full message.
    pub details: String,
    /// The faulty line.
    pub place: Option<Position>,
    /// Whether this is the first fault: consequences of other faults are not annotated.
    pub first: bool,
}

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The file.
    pub file: String,
    /// Counted from one.
    pub line: usize,
    /// Counted from one.
    pub column: usize,
}

impl Position {
    /// Parses `file:line:column`; `None` for other text and for `--set`, which is not in a file.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, column) = text.rsplit_once(':')?;
        let (file, line) = rest.rsplit_once(':')?;
        let (line, column) = (line.parse().ok()?, column.parse().ok()?);
        (file != Span::OVERRIDES).then(|| Self { file: file.to_owned(), line, column })
    }

    /// The beginning of a file.
    pub fn top(file: &Path) -> Self {
        Self { file: file.display().to_string(), line: 1, column: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let place = Position { file: "a:b/c.yaml".into(), line: 31, column: 9 };
        assert_eq!(Position::parse("a:b/c.yaml:31:9"), Some(place));
        for text in ["c.yaml", "c.yaml:3", "c.yaml:x:3", "--set:1:4", ""] {
            assert_eq!(Position::parse(text), None, "{text}");
        }
    }
}
