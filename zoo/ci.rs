//! Output for continuous integration: JUnit XML and GitHub annotations.
//!
//! Commands that judge [`Ci::record`] a [`Suite`] per recipe. Failed cases are annotated at once. At the end, all
//! suites are written as JUnit XML, even if the command fails.

mod github;
mod junit;
mod suite;

pub use suite::{Case, Fault, Outcome, Position, Suite};

use crate::options::{Annotations, Global};
use crate::progress::Progress;
use crate::{Exit, Failure};
use std::path::Path;
use std::time::Duration;
use zoo_recipe::{Diagnostic, Severity};

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
        let place = Position { file: span.file.to_string(), line: span.line, column: span.column };
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

    fn annotate(&self, severity: Severity, title: &str, message: &str, place: Option<&Position>) {
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
