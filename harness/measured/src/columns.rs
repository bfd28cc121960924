//! Tables with a kernel in each row: the same content under the names of torch_npu and of msprof.

use crate::{
    MeasuredError, Names, Nanos,
    csv::Table,
    error::{Problem, shortened},
    recording::{Kernel, Unit},
    scope::place,
    time,
};
use std::io::BufRead;
use std::path::Path;

/// The names of the columns of one kind of table; the first of several is the newest.
pub(crate) struct Columns {
    /// How the table is called.
    pub format: &'static str,
    /// The kernel.
    pub name: &'static str,
    /// Its operator.
    pub operator: &'static str,
    /// What ran it.
    pub unit: &'static str,
    /// Its start.
    pub start: &'static str,
    /// Its duration.
    pub duration: &'static str,
}

/// The rows of a table.
#[derive(Debug)]
pub(crate) struct Rows {
    /// Kernels in the order of the table; their step is the index into `labels`.
    pub kernels: Vec<Kernel>,
    /// Their steps, as the table calls them; one without a name if it has no steps.
    pub labels: Vec<String>,
    /// Columns that it lacks.
    pub absent: Vec<String>,
}

const STEP: &str = "Step Id";
const SHAPES: [&str; 4] = ["Input Shapes", "Input Data Types", "Input Formats", "Output Shapes"];
const CORES: [&str; 2] = ["Block Num", "Block Dim"];

/// Reads all rows.
pub(crate) fn rows<R: BufRead>(
    path: &Path,
    reader: R,
    columns: &Columns,
    names: &mut Names,
) -> Result<Rows, MeasuredError> {
    let mut table = Table::new(path, reader)?;
    let find = |name: &str| table.header.iter().position(|column| column.eq_ignore_ascii_case(name));
    let required = |column: &'static str| {
        let missing = || MeasuredError::Column { path: path.to_owned(), column, format: columns.format };
        find(column).ok_or_else(missing)
    };
    let name = required(columns.name)?;
    let operator = required(columns.operator)?;
    let (start, duration) = (required(columns.start)?, required(columns.duration)?);
    let (step, unit, shapes) = (find(STEP), find(columns.unit), SHAPES.map(find));
    let cores = CORES.iter().find_map(|column| find(column));
    let wanted = [(step, STEP), (unit, columns.unit), (cores, CORES[0])];
    let wanted = wanted.into_iter().chain(shapes.into_iter().zip(SHAPES));
    let absent = wanted.filter(|(place, _)| place.is_none()).map(|(_, column)| format!("no column `{column}`"));
    let mut rows = Rows { kernels: Vec::new(), labels: Vec::new(), absent: absent.collect() };
    while let Some(fields) = table.next()? {
        let time = |place: usize, column: &'static str| -> Result<Nanos, MeasuredError> {
            let field = fields[place].trim();
            let invalid = || Problem::Field { column, found: shortened(field), expected: "a time in microseconds" };
            time::of_text(field).filter(|time| *time >= 0).ok_or_else(|| table.error(invalid()))
        };
        let mut text = |place: usize| {
            let field = fields[place].trim().trim_matches('"');
            if matches!(field, "" | "N/A" | "NULL") { None } else { names.add(field) }
        };
        let label = step.map(|place| fields[place].trim()).unwrap_or_default();
        let index = match rows.labels.iter().rposition(|known| known == label) {
            Some(index) => index,
            None => {
                rows.labels.push(label.to_owned());
                rows.labels.len() - 1
            }
        };
        let known = |place: Option<usize>| place.map_or("", |place| fields[place].trim());
        let duration = time(duration, columns.duration)?;
        let (Some(name), Some(kind)) = (text(name), text(operator)) else {
            let column = columns.name;
            return Err(table.error(Problem::Field { column, found: String::new(), expected: "a name" }));
        };
        let [inputs, types, formats, outputs] = shapes.map(|place| place.and_then(&mut text));
        let mut kernel = Kernel {
            name,
            operator: kind,
            unit: named_unit(known(unit), known(Some(operator))),
            step: u32::try_from(index).unwrap_or(u32::MAX),
            start: time(start, columns.start)?,
            duration,
            own: duration,
            module: None,
            part: None,
            inputs,
            types,
            formats,
            outputs,
            cores: known(cores).parse().ok().filter(|cores| *cores > 0),
        };
        place(&mut kernel, names);
        rows.kernels.push(kernel);
    }
    Ok(rows)
}

/// The unit by the name of Ascend's `Accelerator Core`; without it, by what is no computation.
pub(crate) fn named_unit(core: &str, operator: &str) -> Unit {
    match core {
        "AI_CORE" | "AIC" => Unit::Cube,
        "AI_VECTOR_CORE" | "AIV" => Unit::Vector,
        "MIX_AIC" | "MIX_AIV" => Unit::Mixed,
        "AI_CPU" => Unit::AiCpu,
        "HCCL" | "COMMUNICATION" => Unit::Link,
        "DSA_SQE" | "DSA" => Unit::Random,
        _ if operator.starts_with("hcom_") => Unit::Link,
        _ => Unit::Device,
    }
}
