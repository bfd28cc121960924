//! The contents of a split of a data set, and its broken files.

use indexmap::IndexMap;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;
use zoo_datasets::{Annotated, DataError, Image};

/// The contents of a split of a data set.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// The split: `train`, `val`, ...
    pub name: &'static str,
    /// Samples.
    pub samples: usize,
    /// Properties of the samples.
    #[serde(flatten)]
    pub facts: IndexMap<&'static str, Value>,
    /// The most informative property: its name, minimum and maximum.
    #[serde(skip)]
    pub columns: Vec<(&'static str, Option<(u64, u64)>)>,
    /// Pixel statistics, if samples are images.
    #[serde(flatten)]
    pub pixels: Option<Pixels>,
    /// Unreadable entries, with the reason.
    pub broken: Vec<String>,
}

/// Sizes of images, and statistics of their pixels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pixels {
    /// Smallest and largest width.
    pub width: Option<(usize, usize)>,
    /// Smallest and largest height.
    pub height: Option<(usize, usize)>,
    /// Mean over all pixels of each channel, in 0..1.
    pub mean: [f64; 3],
    /// Standard deviation over all pixels of each channel, in 0..1.
    pub std: [f64; 3],
}

/// Sums over the pixels of images, and `N` further counts. The sums are exact integers and therefore independent of
/// the order.
#[derive(Clone, Debug)]
pub(crate) struct Sums<const N: usize> {
    pub counts: [usize; N],
    pixels: u64,
    first: [u64; 3],
    second: [u64; 3],
    width: Option<(usize, usize)>,
    height: Option<(usize, usize)>,
    pub broken: Vec<String>,
}

impl<const N: usize> Default for Sums<N> {
    fn default() -> Self {
        Self { counts: [0; N], pixels: 0, first: [0; 3], second: [0; 3], width: None, height: None, broken: Vec::new() }
    }
}

impl<const N: usize> Sums<N> {
    /// Sums over `samples` samples. `read` returns the sums of one; `done` is called after each.
    pub fn over(samples: usize, read: impl Fn(usize) -> Self + Sync, done: &(dyn Fn() + Sync)) -> Self {
        let one = |index| {
            let sums = read(index);
            done();
            sums
        };
        (0..samples).into_par_iter().map(one).reduce(Self::default, Self::join)
    }

    /// Sums over all images of a set, with the counts of their annotations; `done` is called after each.
    pub fn over_images<A>(
        set: &dyn Annotated<A>,
        counts: impl Fn(&A) -> [usize; N] + Sync,
        done: &(dyn Fn() + Sync),
    ) -> Self {
        let read = |index| {
            Self::of(set.load(index).map(|(image, annotation)| {
                let counts = counts(&annotation);
                (image, counts)
            }))
        };
        Self::over(set.len(), read, done)
    }

    /// The sums of one image with its counts, or an unreadable entry.
    pub fn of(found: Result<(Image, [usize; N]), DataError>) -> Self {
        let (image, counts) = match found {
            Ok(found) => found,
            Err(error) => return Self { broken: vec![error.to_string()], ..Self::default() },
        };
        let size = image.size();
        let (width, height) = (Some((size.width, size.width)), Some((size.height, size.height)));
        let mut sums = Self { counts, pixels: size.area() as u64, width, height, ..Self::default() };
        for pixel in image.pixels().chunks_exact(3) {
            for (channel, value) in pixel.iter().map(|v| u64::from(*v)).enumerate() {
                sums.first[channel] += value;
                sums.second[channel] += value * value;
            }
        }
        sums
    }

    /// Adds the sums of another part.
    pub fn join(mut self, other: Self) -> Self {
        let range = |a: Option<(usize, usize)>, b: Option<(usize, usize)>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.counts = std::array::from_fn(|i| self.counts[i] + other.counts[i]);
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

    /// The contents of a part with this name and number of samples: the counts by name, in the facts and, if they have
    /// a second name, in the columns.
    pub fn inspection(
        self,
        name: &'static str,
        samples: usize,
        counted: [(&'static str, Option<&'static str>); N],
    ) -> Inspection {
        let named = || counted.into_iter().zip(self.counts);
        let columns = named().filter_map(|((_, column), n)| Some((column?, Some((n as u64, n as u64)))));
        Inspection {
            name,
            samples,
            facts: named().map(|((fact, _), n)| (fact, n.into())).collect(),
            columns: columns.collect(),
            pixels: Some(self.pixels()),
            broken: self.broken,
        }
    }

    /// Mean and standard deviation of the pixels, and the range of sizes.
    pub fn pixels(&self) -> Pixels {
        let n = self.pixels.max(1) as f64;
        let mean = self.first.map(|sum| sum as f64 / n / 255.0);
        let second = self.second.map(|sum| sum as f64 / n / (255.0 * 255.0));
        let std = std::array::from_fn(|channel| (second[channel] - mean[channel] * mean[channel]).max(0.0).sqrt());
        Pixels { width: self.width, height: self.height, mean, std }
    }
}
