//! JUnit XML for CI systems.

use super::suite::{Case, Fault, Outcome, Suite};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// The judgements of a command as a report.
pub fn report(verb: &str, suites: &[Suite]) -> Report {
    let mut report = Report::new(format!("zoo {verb}"));
    report.set_time(suites.iter().map(|suite| suite.time).sum());
    for suite in suites {
        let mut element = TestSuite::new(suite.name.as_str());
        element.set_time(suite.time);
        for case in &suite.cases {
            element.add_test_case(test_case(verb, suite, case));
        }
        report.add_test_suite(element);
    }
    report
}

fn test_case(verb: &str, suite: &Suite, case: &Case) -> TestCase {
    let status = match &case.outcome {
        Outcome::Pass => TestCaseStatus::success(),
        Outcome::Absent(why) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(why.as_str());
            status
        }
        Outcome::Fail(fault) => fault_status(NonSuccessKind::Failure, fault),
        Outcome::Error(fault) => fault_status(NonSuccessKind::Error, fault),
    };
    let mut element = TestCase::new(case.name.as_str(), status);
    element.set_classname(format!("zoo.{verb}.{}", suite.name.replace([' ', '.'], "_")));
    if let Outcome::Fail(Fault { place: Some(place), .. }) | Outcome::Error(Fault { place: Some(place), .. }) =
        &case.outcome
    {
        // Not in the schema, but pytest writes these attributes, and reporters read them.
        element.extra.insert("file".into(), place.file.as_str().into());
        element.extra.insert("line".into(), place.line.to_string().into());
    }
    element
}

fn fault_status(kind: NonSuccessKind, fault: &Fault) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(fault.message.as_str()).set_description(fault.details.as_str());
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::Position;
    use std::time::Duration;

    #[test]
    fn every_outcome_has_its_element() {
        let place = Some(Position { file: "recipes/x.yaml".into(), line: 31, column: 7 });
        let fault =
            Fault { message: "1 of 3: <off>".into(), details: "a\n\u{1b}[1mb\u{1b}[0m".into(), place, first: true };
        let case = |name: &str, outcome| Case { name: name.into(), outcome };
        let suite = Suite {
            name: "x f32".into(),
            cases: vec![
                case("init", Outcome::Pass),
                case("schedule", Outcome::Absent("no data".into())),
                case("forward", Outcome::Fail(fault.clone())),
                case("loss", Outcome::Error(Fault { place: None, ..fault })),
            ],
            time: Duration::from_millis(1500),
        };
        insta::assert_snapshot!(report("check", &[suite]).to_string().unwrap());
    }
}
