//! `step_trace_time.csv`: what Ascend's profiler says of each step. A step is computing, communication that is not
//! overlapped, and free time.

use crate::{
    MeasuredError,
    csv::Table,
    error::{Problem, shortened},
};
use std::io::BufRead;
use std::path::Path;

const FORMAT: &str = "step_trace_time.csv";
const STEP: &str = "Step";
const COMPUTING: &str = "Computing";
const EXPOSED: &str = "Communication(Not Overlapped)";
const FREE: &str = "Free";
const BUBBLE: &str = "Bubble";
const PREPARING: &str = "Preparing";

/// The parts of a step, in ms.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimes {
    /// How the profiler calls it; empty if the file does not name steps.
    pub step: String,
    /// Computation.
    pub computing_ms: f64,
    /// Collectives that no computation hides.
    pub exposed_ms: f64,
    /// Neither.
    pub free_ms: f64,
    /// Waiting for other stages of a pipeline, if the version has it.
    pub bubble_ms: Option<f64>,
    /// From the start of the step to its first kernel, if the version has it.
    pub preparing_ms: Option<f64>,
}

/// Whether the header is that of such a table.
pub(crate) fn is_header(header: &str) -> bool {
    header.contains(COMPUTING) && header.contains(FREE)
}

/// Reads the table.
pub(crate) fn read<R: BufRead>(path: &Path, reader: R) -> Result<Vec<StepTimes>, MeasuredError> {
    let mut table = Table::new(path, reader)?;
    let find = |name: &str| table.header.iter().position(|column| column == name);
    let required = |column: &'static str| {
        find(column).ok_or_else(|| MeasuredError::Column { path: path.to_owned(), column, format: FORMAT })
    };
    let columns = [(COMPUTING, required(COMPUTING)?), (EXPOSED, required(EXPOSED)?), (FREE, required(FREE)?)];
    let (step, bubble, preparing) = (find(STEP), find(BUBBLE), find(PREPARING));
    let mut steps = Vec::new();
    while let Some(fields) = table.next()? {
        let ms = |column: &'static str, place: usize| {
            let field = fields[place].trim();
            let invalid = || Problem::Field { column, found: shortened(field), expected: "a time in microseconds" };
            let us = field.parse().ok().filter(|us: &f64| us.is_finite());
            us.map(|us| 1e-3 * us).ok_or_else(|| table.error(invalid()))
        };
        let [computing, exposed, free] = columns.map(|(column, place)| ms(column, place));
        steps.push(StepTimes {
            step: step.map(|place| fields[place].trim().to_owned()).unwrap_or_default(),
            computing_ms: computing?,
            exposed_ms: exposed?,
            free_ms: free?,
            bubble_ms: bubble.map(|place| ms(BUBBLE, place)).transpose()?,
            preparing_ms: preparing.map(|place| ms(PREPARING, place)).transpose()?,
        });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_step() {
        let text = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n\
                    0,3,1500.5,200,100,300,50,1700,0\n";
        let steps = read(Path::new("step_trace_time.csv"), text.as_bytes()).unwrap();
        let expected = StepTimes {
            step: "3".to_owned(),
            computing_ms: 1.5005,
            exposed_ms: 0.2,
            free_ms: 0.05,
            bubble_ms: Some(0.0),
            preparing_ms: None,
        };
        assert_eq!(steps, [expected]);
    }

    #[test]
    fn what_is_missing_is_said() {
        let message = |text: &str| read(Path::new("t.csv"), text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            message("Step,Computing,Free\n"),
            "t.csv has no column `Communication(Not Overlapped)`: step_trace_time.csv has one"
        );
        let text = "Computing,Communication(Not Overlapped),Free\n1,x,3\n";
        assert_eq!(message(text), "t.csv:2: `Communication(Not Overlapped)` is `x`, not a time in microseconds");
    }
}
