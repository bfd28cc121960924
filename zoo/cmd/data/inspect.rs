//! `zoo data inspect`: what a data set holds, and what of it is broken.

use super::Selection;
use crate::cli::Format;
use crate::cmd::{Context, SCHEMA_VERSION};
use crate::console::{BAD, DIM, HEADING, paint};
use crate::numbers::grouped;
use crate::table::{Align, Table};
use crate::{Exit, Failure};
use rayon::prelude::*;
use serde::Serialize;
use std::io::Write;
use zoo_datasets::{Dataset, Image};

/// Count samples and classes, measure pixels, name broken files.
///
/// Reads every image. Exits with 3 if one of them cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo data inspect resnet50 --profile mini
  zoo data inspect resnet50 --data ../cifar10
  zoo data inspect resnet50 --data photos --set data.on_error=skip      count stray files instead of stopping at the first
  zoo data inspect resnet50 --data photos --format json | jq '.splits[].broken'")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
}

/// Training or validation part.
#[derive(Serialize)]
struct Split {
    name: &'static str,
    samples: usize,
    /// Samples of each class.
    classes: Vec<(String, usize)>,
    /// Smallest and largest width, smallest and largest height.
    width: Option<(usize, usize)>,
    height: Option<(usize, usize)>,
    /// Mean over all pixels of each channel, in 0..1.
    mean: [f64; 3],
    /// Standard deviation over all pixels of each channel, in 0..1.
    std: [f64; 3],
    /// What could not be read, and why.
    broken: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    description: String,
    /// Stray or unreadable entries left out when the folder was listed.
    skipped: usize,
    splits: Vec<Split>,
}

/// Reads everything and reports.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let (_, sets) = args.selection.open(context)?;
    let mut splits = Vec::new();
    for (name, set) in [("train", &sets.train), ("val", &sets.val)] {
        let bar = context.progress.bar(set.len() as u64);
        bar.message(name);
        splits.push(Split::of(name, set.as_ref(), &|| bar.advance()));
    }
    let report =
        Report { schema_version: SCHEMA_VERSION, description: sets.description, skipped: sets.skipped, splits };
    match context.format {
        Format::Json => context.out.json(&report)?,
        Format::Text => print(&report, context)?,
    }
    let whole = report.splits.iter().all(|split| split.broken.is_empty());
    Ok(if whole { Exit::Pass } else { Exit::Missing })
}

/// Sums over the pixels of images, exact in integers and so the same in any order.
#[derive(Clone, Debug, Default)]
struct Sums {
    pixels: u64,
    first: [u64; 3],
    second: [u64; 3],
    width: Option<(usize, usize)>,
    height: Option<(usize, usize)>,
    broken: Vec<String>,
}

impl Sums {
    fn of(image: &Image) -> Self {
        let size = image.size();
        let (width, height) = (Some((size.width, size.width)), Some((size.height, size.height)));
        let mut sums = Self { pixels: size.area() as u64, width, height, ..Self::default() };
        for pixel in image.pixels().chunks_exact(3) {
            for (channel, value) in pixel.iter().map(|v| u64::from(*v)).enumerate() {
                sums.first[channel] += value;
                sums.second[channel] += value * value;
            }
        }
        sums
    }

    fn join(mut self, other: Self) -> Self {
        let range = |a: Option<(usize, usize)>, b: Option<(usize, usize)>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.pixels += other.pixels;
        for channel in 0..3 {
            self.first[channel] += other.first[channel];
            self.second[channel] += other.second[channel];
        }
        self.width = range(self.width, other.width);
        self.height = range(self.height, other.height);
        self.broken.extend(other.broken);
        self
    }
}

impl Split {
    fn of(name: &'static str, set: &dyn Dataset, done: &(dyn Fn() + Sync)) -> Self {
        let read = |index: usize| {
            let sums = match set.image(index) {
                Ok(image) => Sums::of(&image),
                Err(error) => Sums { broken: vec![error.to_string()], ..Sums::default() },
            };
            done();
            sums
        };
        let sums = (0..set.len()).into_par_iter().map(read).reduce(Sums::default, Sums::join);
        let mut counts = vec![0; set.classes().len()];
        for index in 0..set.len() {
            if let Some(count) = counts.get_mut(set.label(index) as usize) {
                *count += 1;
            }
        }
        let n = sums.pixels.max(1) as f64;
        let mean = sums.first.map(|sum| sum as f64 / n / 255.0);
        let second = sums.second.map(|sum| sum as f64 / n / (255.0 * 255.0));
        Self {
            name,
            samples: set.len(),
            classes: set.classes().iter().cloned().zip(counts).collect(),
            width: sums.width,
            height: sums.height,
            mean,
            std: std::array::from_fn(|channel| (second[channel] - mean[channel] * mean[channel]).max(0.0).sqrt()),
            broken: sums.broken,
        }
    }
}

/// Classes and broken files that are listed.
const LISTED: usize = 10;

fn print(report: &Report, context: &mut Context) -> Result<(), Failure> {
    writeln!(context.out, "{}\n", paint(HEADING, &report.description))?;
    let mut table = Table::new([
        ("split", Align::Left),
        ("samples", Align::Right),
        ("classes", Align::Right),
        ("per class", Align::Right),
        ("size", Align::Left),
        ("mean", Align::Left),
        ("std", Align::Left),
        ("broken", Align::Right),
    ]);
    let range = |range: Option<(usize, usize)>| match range {
        Some((low, high)) if low == high => low.to_string(),
        Some((low, high)) => format!("{low}..{high}"),
        None => "-".to_owned(),
    };
    let channels = |values: [f64; 3]| values.map(|v| format!("{v:.3}")).join(" ");
    for split in &report.splits {
        let counts = split.classes.iter().map(|(_, count)| *count);
        table.row([
            split.name.into(),
            grouped(split.samples as u64).into(),
            split.classes.len().into(),
            range(counts.clone().min().zip(counts.max())).into(),
            format!("{}x{}", range(split.width), range(split.height)).into(),
            channels(split.mean).into(),
            channels(split.std).into(),
            split.broken.len().into(),
        ]);
    }
    write!(context.out, "{table}")?;
    if let Some(split) = report.splits.first() {
        let names: Vec<&str> = split.classes.iter().take(LISTED).map(|(name, _)| name.as_str()).collect();
        let more = if split.classes.len() > LISTED { ", ..." } else { "" };
        writeln!(context.out, "\nclasses: {}{more}", names.join(", "))?;
    }
    if report.skipped > 0 {
        writeln!(context.out, "{} entries left out", report.skipped)?;
    }
    for split in report.splits.iter().filter(|split| !split.broken.is_empty()) {
        writeln!(context.out, "\n{} in {}:", paint(BAD, "broken"), split.name)?;
        for broken in split.broken.iter().take(LISTED) {
            writeln!(context.out, "  {broken}")?;
        }
        if split.broken.len() > LISTED {
            writeln!(context.out, "  {}", paint(DIM, format!("... and {} more", split.broken.len() - LISTED)))?;
        }
    }
    Ok(())
}
