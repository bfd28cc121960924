//! Finds out what a path is, and reads it.

use crate::{
    MeasuredError, Names,
    columns::Rows,
    communication, kernel_details, op_summary, pytorch,
    recording::{Format, Recording, Step},
    step_times,
    timeline::{self, Draft},
    trace_view,
};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// The beginning of a file, by which its kind is told.
const BEGINNING: usize = 1 << 16;

/// How deep folders are searched: `HOST_PID_TIME_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv`.
const DEPTH: usize = 4;

/// Reads a file of a profiler, or the folder that a profiler wrote.
///
/// # Errors
/// A file that cannot be read, is of no known kind, is cut off or otherwise not what its format says; a folder without
/// a recording, or with several.
pub fn open(path: &Path) -> Result<Recording, MeasuredError> {
    if path.is_dir() { folder(path) } else { file(path) }
}

type Text = BufReader<Box<dyn Read>>;

/// Opens a file, plain or with gzip, which its first bytes tell.
fn text(path: &Path) -> Result<Text, MeasuredError> {
    let read = |source| MeasuredError::Read { path: path.to_owned(), source };
    let mut file = BufReader::with_capacity(BEGINNING, File::open(path).map_err(read)?);
    let is_gzip = file.fill_buf().map_err(read)?.starts_with(&[0x1f, 0x8b]);
    let plain: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    Ok(BufReader::with_capacity(BEGINNING, plain))
}

/// The beginning of a text, which stays unread.
fn beginning(path: &Path, text: &mut Text) -> Result<String, MeasuredError> {
    let bytes = text.fill_buf().map_err(|source| MeasuredError::Read { path: path.to_owned(), source })?;
    Ok(String::from_utf8_lossy(bytes).trim_start_matches('\u{feff}').trim_start().to_owned())
}

fn file(path: &Path) -> Result<Recording, MeasuredError> {
    let mut text = text(path)?;
    let beginning = beginning(path, &mut text)?;
    if beginning.starts_with(['{', '[']) {
        let is_ascend = path.file_name().is_some_and(|name| name == "trace_view.json");
        return match is_ascend || trace_view::is_beginning(&beginning) {
            true => trace_view::read(path, text),
            false => pytorch::read(path, text),
        };
    }
    let header = beginning.lines().next().unwrap_or_default();
    let mut names = Names::default();
    if kernel_details::is_header(header) {
        let rows = kernel_details::read(path, text, &mut names)?;
        return table(path, Format::KernelDetails, rows, names);
    }
    if op_summary::is_header(header) {
        let rows = op_summary::read(path, text, &mut names)?;
        return table(path, Format::OpSummary, rows, names);
    }
    Err(MeasuredError::Unknown { path: path.to_owned() })
}

/// What tables of kernels never have.
const REASONS: &str = "reasons of gaps";

/// The recording of a table of kernels.
fn table(path: &Path, format: Format, rows: Rows, names: Names) -> Result<Recording, MeasuredError> {
    let Rows { mut kernels, labels, mut absent } = rows;
    kernels.sort_by_key(|kernel| (kernel.start, kernel.duration));
    let modules = if kernels.iter().any(|kernel| kernel.module.is_some()) { "" } else { "modules and " };
    absent.push(format!("{modules}{REASONS}: tables of kernels have none (trace_view.json has them)"));
    let mut steps = timeline::device_steps(&[], &kernels);
    for (step, label) in steps.iter_mut().zip(labels) {
        step.label = label;
    }
    let axis = timeline::divide(&mut kernels, &steps);
    let gaps = timeline::gaps(&axis, &steps, &kernels, |start, end| vec![timeline::unexplained(start, end)]);
    Draft { path, format, names, absent, peak_memory: None }.finish(steps, kernels, gaps)
}

/// The files of a folder with a name that begins and ends so.
fn found(files: &[PathBuf], begins: &str, ends: &[&str]) -> Vec<PathBuf> {
    let fits = |path: &&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(begins) && ends.iter().any(|end| name.ends_with(end))
    };
    files.iter().filter(fits).cloned().collect()
}

fn folder(path: &Path) -> Result<Recording, MeasuredError> {
    let entries = WalkDir::new(path).max_depth(DEPTH).sort_by_file_name().into_iter().filter_map(Result::ok);
    let files: Vec<PathBuf> = entries.filter(|entry| entry.file_type().is_file()).map(|e| e.into_path()).collect();
    let kinds = [
        found(&files, "", &[".pt.trace.json", ".pt.trace.json.gz"]),
        found(&files, "kernel_details", &[".csv"]),
        found(&files, "op_summary", &[".csv"]),
        found(&files, "trace_view", &[".json", ".json.gz"]),
    ];
    let problem = |problem: String| MeasuredError::Folder { path: path.to_owned(), problem };
    let Some(of_kind) = kinds.iter().find(|kind| !kind.is_empty()) else {
        return Err(problem("has no file of a profiler".to_owned()));
    };
    let [only] = of_kind.as_slice() else {
        let names: Vec<String> = of_kind.iter().take(8).map(|path| path.display().to_string()).collect();
        let count = of_kind.len();
        return Err(problem(format!(
            "has {count} recordings, of several ranks or runs; name one: {}",
            names.join(", ")
        )));
    };
    let mut recording = file(only)?;
    if let [trace] = kinds[3].as_slice()
        && recording.format == Format::KernelDetails
    {
        explain(&mut recording, file(trace)?);
    }
    if let [times] = found(&files, "step_trace_time", &[".csv"]).as_slice() {
        let mut text = text(times)?;
        let beginning = beginning(times, &mut text)?;
        if step_times::is_header(beginning.lines().next().unwrap_or_default()) {
            recording.step_times = step_times::read(times, text)?;
        }
    }
    if let [file] = found(&files, "communication", &["communication.json"]).as_slice() {
        recording.collectives = communication::read(file, text(file)?)?;
    }
    Ok(recording)
}

/// Adds what a trace knows of the kernels of a table: modules, parts and the reasons of gaps.
fn explain(table: &mut Recording, trace: Recording) {
    let mut known = 0;
    for kernel in &mut table.kernels {
        let first = trace.kernels.partition_point(|other| other.start < kernel.start);
        let same = trace.kernels[first..].iter().take_while(|other| other.start == kernel.start);
        let name = table.names.text(kernel.name).to_owned();
        let Some(other) = same.into_iter().find(|other| trace.names.text(other.name) == name) else { continue };
        known += 1;
        kernel.part = other.part.or(kernel.part);
        let module = other.module.and_then(|module| table.names.add(trace.names.text(module)));
        kernel.module = module.or(kernel.module);
    }
    if known == table.kernels.len() && trace.steps.len() == table.steps.len() {
        let Recording { steps, mut gaps, names, .. } = trace;
        for gap in &mut gaps {
            gap.module = gap.module.and_then(|module| table.names.add(names.text(module)));
        }
        let labels = table.steps.iter().map(|step| step.label.clone()).collect::<Vec<_>>();
        table.steps = labels.into_iter().zip(steps).map(|(label, step)| Step { label, ..step }).collect();
        table.gaps = gaps;
        for (kernel, other) in table.kernels.iter_mut().zip(&trace.kernels) {
            kernel.own = other.own;
        }
        table.absent.retain(|sentence| !sentence.contains(REASONS));
    }
}
