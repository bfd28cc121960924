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
use zoo_datasets::{Dataset, Image, text::TextDataset, tracking::VideoDataset};
use zoo_input::Samples;

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
    /// What is known about the samples.
    #[serde(flatten)]
    truth: Truth,
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

/// What is known about samples.
#[derive(Serialize)]
#[serde(untagged)]
enum Truth {
    /// Samples of each class.
    Images { classes: Vec<(String, usize)> },
    /// Texts, those of them that are to be ignored, and images without text.
    Text { texts: usize, ignored: usize, without_text: usize },
    /// Frames that were read, and how many show their target and its mask.
    Videos { frames: usize, targets: usize, masks: usize },
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
    let (recipe, sets) = args.selection.open(context)?;
    let drawn = args.selection.data.is_none() && recipe.data.source.generated();
    let progress = |name: &'static str, len: usize| {
        let bar = context.progress.bar(len as u64);
        bar.message(name);
        bar
    };
    let splits = match &sets.samples {
        Samples::Images { train, val } => [("train", train), ("val", val)]
            .map(|(name, set)| {
                let bar = progress(name, set.len());
                Split::of_images(name, set.as_ref(), &|| bar.advance())
            })
            .into(),
        Samples::Text { train, val } => [("train", train), ("val", val)]
            .map(|(name, set)| {
                let bar = progress(name, set.len());
                Split::of_text(name, set.as_ref(), &|| bar.advance())
            })
            .into(),
        Samples::Videos { train, val, sequences, .. } => [("train", train), ("val", val), ("sequences", sequences)]
            .map(|(name, set)| {
                let bar = progress(name, set.len());
                Split::of_videos(name, set.as_ref(), drawn, &|| bar.advance())
            })
            .into(),
    };
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
    fn of_images(name: &'static str, set: &dyn Dataset, done: &(dyn Fn() + Sync)) -> Self {
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
        let classes = set.classes().iter().cloned().zip(counts).collect();
        Self::new(name, set.len(), Truth::Images { classes }, sums)
    }

    fn of_text(name: &'static str, set: &dyn TextDataset, done: &(dyn Fn() + Sync)) -> Self {
        let read = |index: usize| {
            let found = match set.load(index) {
                Ok((image, regions)) => {
                    let ignored = regions.iter().filter(|region| region.ignore).count();
                    (Sums::of(&image), [regions.len(), ignored, usize::from(regions.is_empty())])
                }
                Err(error) => (Sums { broken: vec![error.to_string()], ..Sums::default() }, [0; 3]),
            };
            done();
            found
        };
        let (sums, [texts, ignored, without_text]) =
            (0..set.len()).into_par_iter().map(read).reduce(Default::default, join);
        Self::new(name, set.len(), Truth::Text { texts, ignored, without_text }, sums)
    }

    /// Of videos that are `drawn` one frame each tells enough.
    fn of_videos(name: &'static str, set: &dyn VideoDataset, drawn: bool, done: &(dyn Fn() + Sync)) -> Self {
        let read = |index: usize| {
            let frames = if drawn { 1 } else { set.frames(index) };
            let one = |frame: usize| match set.frame(index, frame) {
                Ok(frame) => (
                    Sums::of(&frame.image),
                    [1, usize::from(frame.target.is_some()), usize::from(frame.mask.is_some())],
                ),
                Err(error) => (Sums { broken: vec![error.to_string()], ..Sums::default() }, [0; 3]),
            };
            let found = (0..frames).map(one).fold(Default::default(), join);
            done();
            found
        };
        let (sums, [frames, targets, masks]) = (0..set.len()).into_par_iter().map(read).reduce(Default::default, join);
        Self::new(name, set.len(), Truth::Videos { frames, targets, masks }, sums)
    }

    fn new(name: &'static str, samples: usize, truth: Truth, sums: Sums) -> Self {
        let n = sums.pixels.max(1) as f64;
        let mean = sums.first.map(|sum| sum as f64 / n / 255.0);
        let second = sums.second.map(|sum| sum as f64 / n / (255.0 * 255.0));
        Self {
            name,
            samples,
            truth,
            width: sums.width,
            height: sums.height,
            mean,
            std: std::array::from_fn(|channel| (second[channel] - mean[channel] * mean[channel]).max(0.0).sqrt()),
            broken: sums.broken,
        }
    }
}

/// Sums and counts of two parts.
fn join((a, counts): (Sums, [usize; 3]), (b, more): (Sums, [usize; 3])) -> (Sums, [usize; 3]) {
    (a.join(b), std::array::from_fn(|i| counts[i] + more[i]))
}

/// Classes and broken files that are listed.
const LISTED: usize = 10;

fn print(report: &Report, context: &mut Context) -> Result<(), Failure> {
    writeln!(context.out, "{}\n", paint(HEADING, &report.description))?;
    let [first, second] = match report.splits.first().map(|split| &split.truth) {
        None | Some(Truth::Images { .. }) => ["classes", "per class"],
        Some(Truth::Text { .. }) => ["texts", "ignored"],
        Some(Truth::Videos { .. }) => ["frames", "with mask"],
    };
    let mut table = Table::new([
        ("split", Align::Left),
        ("samples", Align::Right),
        (first, Align::Right),
        (second, Align::Right),
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
        let known = match &split.truth {
            Truth::Images { classes } => {
                let counts = classes.iter().map(|(_, count)| *count);
                [classes.len().to_string(), range(counts.clone().min().zip(counts.max()))]
            }
            Truth::Text { texts, ignored, .. } => [*texts, *ignored].map(|n| grouped(n as u64)),
            Truth::Videos { frames, masks, .. } => [*frames, *masks].map(|n| grouped(n as u64)),
        };
        let [first, second] = known;
        table.row([
            split.name.into(),
            grouped(split.samples as u64).into(),
            first.into(),
            second.into(),
            format!("{}x{}", range(split.width), range(split.height)).into(),
            channels(split.mean).into(),
            channels(split.std).into(),
            split.broken.len().into(),
        ]);
    }
    write!(context.out, "{table}")?;
    if let Some(Truth::Images { classes }) = report.splits.first().map(|split| &split.truth) {
        let names: Vec<&str> = classes.iter().take(LISTED).map(|(name, _)| name.as_str()).collect();
        let more = if classes.len() > LISTED { ", ..." } else { "" };
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
