//! Output for continuous integration: JUnit XML and GitHub annotations.
//!
//! Commands that judge [`Ci::record`] a [`Suite`] per recipe. Failed cases are annotated at once. At the end, all
//! suites are written as JUnit XML, even if the command fails.

mod github;
mod junit;

use crate::options::{Annotations, Global};
use crate::progress::Progress;
use crate::{Exit, Failure};
use std::path::Path;
use std::time::Duration;
use zoo_recipe::{Diagnostic, Severity, Span};

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
    pub place: Option<Place>,
    /// Whether this is the first fault: consequences of other faults are not annotated.
    pub first: bool,
}

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// Counted from one.
    pub line: usize,
    /// Counted from one.
    pub column: usize,
}

impl Place {
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

/// The recorded suites.
pub struct Ci {
    annotates: bool,
    progress: Progress,
    suites: Vec<Suite>,
}

impl Ci {
    /// Reads the settings from the command line and the environment.
    pub fn new(global: &Global, progress: &Progress) -> Self {
        let annotates = match global.annotations {
            Annotations::Auto => std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true"),
            Annotations::Github => true,
            Annotations::None => false,
        };
        Self { annotates, progress: progress.clone(), suites: Vec::new() }
    }

    /// Records a suite, and annotates its first fault.
    pub fn record(&mut self, suite: Suite) {
        for case in &suite.cases {
            if let Outcome::Fail(fault) | Outcome::Error(fault) = &case.outcome
                && fault.first
            {
                let title = format!("zoo: {}, {}", suite.name, case.name);
                self.annotate(Severity::Error, &title, &fault.message, fault.place.as_ref());
            }
        }
        self.suites.push(suite);
    }

    /// Annotates a diagnostic of a recipe.
    pub fn diagnostic(&self, diagnostic: &Diagnostic) {
        let span = &diagnostic.span;
        let place = Place { file: span.file.to_string(), line: span.line, column: span.column };
        let hint = diagnostic.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        let message = format!("{}{hint}", diagnostic.message);
        self.annotate(diagnostic.severity, "zoo", &message, Some(&place).filter(|_| !span.is_override()));
    }

    /// Annotates the error of a command.
    pub fn failure(&self, failure: &Failure) {
        match failure {
            Failure::Recipe(diagnostics) => diagnostics.iter().for_each(|diagnostic| self.diagnostic(diagnostic)),
            other => self.annotate(Severity::Error, "zoo", &other.to_string(), None),
        }
    }

    fn annotate(&self, severity: Severity, title: &str, message: &str, place: Option<&Place>) {
        if self.annotates {
            self.progress.line(&github::annotation(severity, title, message, place));
        }
    }

    /// Writes all suites as JUnit XML, with the error of the command if it failed.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_junit(&self, verb: &str, file: &Path, end: &Result<Exit, Failure>) -> Result<(), Failure> {
        let mut suites = self.suites.clone();
        suites.extend(unfinished(verb, end));
        let unwritable = |source| Failure::Unwritable { path: file.to_owned(), source };
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(unwritable)?;
        }
        let report = junit::report(verb, &suites);
        let write = |out: &mut dyn std::io::Write| report.serialize(out).map_err(std::io::Error::other);
        zoo_datasets::atomic::replace(file, write).map_err(unwritable)
    }
}

/// A suite for a command that did not complete.
fn unfinished(verb: &str, end: &Result<Exit, Failure>) -> Option<Suite> {
    let fault = match end {
        Ok(Exit::Interrupted) => Fault { message: "interrupted".to_owned(), ..Fault::default() },
        Ok(_) => return None,
        Err(failure) => {
            let details = failure.to_string();
            let message = details.lines().next().unwrap_or_default().to_owned();
            Fault { message, details, ..Fault::default() }
        }
    };
    let case = Case { name: verb.to_owned(), outcome: Outcome::Error(fault) };
    Some(Suite { name: format!("zoo {verb}"), cases: vec![case], time: Duration::ZERO })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let place = Place { file: "a:b/c.yaml".into(), line: 31, column: 9 };
        assert_eq!(Place::parse("a:b/c.yaml:31:9"), Some(place));
        for text in ["c.yaml", "c.yaml:3", "c.yaml:x:3", "--set:1:4", ""] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
