//! The linear baseline of a data set.

use rayon::prelude::*;

use crate::image::Size;
use crate::transforms::{Filter, resize};
use crate::{DataError, Dataset, OnError, shuffled};

const EPOCHS: u64 = 5;
const BATCH: usize = 100;
const MOMENTUM: f32 = 0.9;
/// Learning rate times the number of features: rows are of unit order per feature, so steps shrink with their length.
const RATE: f32 = 10.0;
/// Multiplications that a processor core does in less than ten seconds.
const MOST: f64 = 1e11;
/// Features that one task of the gradient works on.
const BLOCK: usize = 512;
/// Independent partial sums of a dot product, in a fixed order for any vector width.
const LANES: usize = 32;

/// Accuracy on `val` (top-1, as a fraction) of softmax regression on the pixels of `train`.
///
/// Of data whose classes and pixels would take too long, both sets are sampled ([`linear_baseline_samples`]). Images are
/// resized to `size` if they have another one; pixels enter as (value - 128) / 64. Plain SGD with momentum
/// 0.9 on shuffled batches of 100, 5 epochs, rate 10 / number of features, from zero weights. The result does not
/// depend on the number of threads. `progress` hears how many images were read or learnt from, and of how many.
///
/// # Errors
/// If an image cannot be read, unless `on_error` leaves it out, or a set is empty.
pub fn linear_baseline(
    train: &dyn Dataset,
    val: &dyn Dataset,
    size: Size,
    on_error: OnError,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<f64, DataError> {
    let [train_places, val_places] = places(train, val, size);
    let of = train_places.len() * (1 + EPOCHS as usize) + val_places.len();
    let mut done = 0;
    let mut advance = |images| {
        done += images;
        progress(done, of);
    };
    let train_rows = Rows::read(train, &train_places, size, on_error, &mut advance)?;
    let val = Rows::read(val, &val_places, size, on_error, &mut advance)?;
    let model = Softmax::fit(&train_rows, train.classes().len(), &mut advance);
    let right = (0..val.labels.len()).into_par_iter().filter(|&i| model.predict(&val, i) == val.labels[i]).count();
    Ok(right as f64 / val.labels.len().max(1) as f64)
}

/// Number of images that [`linear_baseline`] learns from and is evaluated on.
pub fn linear_baseline_samples(train: &dyn Dataset, val: &dyn Dataset, size: Size) -> [usize; 2] {
    places(train, val, size).map(|places| places.len())
}

/// The images that are used: all, or as many that there are about [`MOST`] multiplications.
fn places(train: &dyn Dataset, val: &dyn Dataset, size: Size) -> [Vec<usize>; 2] {
    let each = 3.0 * size.area() as f64 * train.classes().len() as f64;
    // Forward and backward in each epoch, and forward once.
    let all = each * (2.0 * EPOCHS as f64 * train.len() as f64 + val.len() as f64);
    let share = MOST / all;
    [train.len(), val.len()].map(|len| {
        if share >= 1.0 {
            return (0..len).collect();
        }
        let mut places = shuffled(len, 0, 0);
        places.truncate(((share * len as f64) as usize).max(BATCH));
        places.sort_unstable();
        places
    })
}

/// Memory that [`linear_baseline`] takes, in bytes: all pixels, a batch of them as f32, weights and their velocity.
pub fn linear_baseline_bytes(train: &dyn Dataset, val: &dyn Dataset, size: Size) -> u64 {
    let images = linear_baseline_samples(train, val, size).iter().sum::<usize>() as u64;
    let classes = train.classes().len() as u64;
    let numbers = (BATCH as u64 + 2 * classes) * size_of::<f32>() as u64;
    3 * size.area() as u64 * (images + numbers)
}

/// The pixels of all images, one row each, and their classes.
struct Rows {
    pixels: Vec<u8>,
    features: usize,
    labels: Vec<u32>,
}

impl Rows {
    /// Reads the images at some places.
    fn read(
        dataset: &dyn Dataset,
        places: &[usize],
        size: Size,
        on_error: OnError,
        advance: &mut dyn FnMut(usize),
    ) -> Result<Self, DataError> {
        if places.is_empty() || size.area() == 0 {
            return Err(DataError::Config("a linear baseline needs images of at least one pixel".into()));
        }
        let features = 3 * size.area();
        let mut pixels = vec![0; places.len() * features];
        let mut labels = Vec::with_capacity(places.len());
        for (batch, rows) in pixels.chunks_mut(BATCH * features).enumerate() {
            let read = rows.par_chunks_exact_mut(features).enumerate().map(|(place, row)| {
                let index = places[batch * BATCH + place];
                let image = match (dataset.image(index), on_error) {
                    (Ok(image), _) => image,
                    (Err(_), OnError::Skip) => return Ok(None),
                    (Err(error), OnError::Fail) => return Err(error),
                };
                let image = if image.size() == size { image } else { resize(&image, size, Filter::Bilinear) };
                row.copy_from_slice(image.pixels());
                Ok(Some(dataset.label(index)))
            });
            labels.extend(read.collect::<Result<Vec<Option<u32>>, DataError>>()?);
            advance(rows.len() / features);
        }
        // Rows that could not be read leave no gap.
        let mut kept = 0;
        for (index, _) in labels.iter().enumerate().filter(|(_, label)| label.is_some()) {
            pixels.copy_within(index * features..(index + 1) * features, kept * features);
            kept += 1;
        }
        pixels.truncate(kept * features);
        Ok(Self { pixels, features, labels: labels.into_iter().flatten().collect() })
    }

    fn normalized(&self, index: usize, out: &mut [f32]) {
        for (out, &pixel) in out.iter_mut().zip(&self.pixels[index * self.features..]) {
            *out = (f32::from(pixel) - 128.0) / 64.0;
        }
    }
}

/// Softmax regression: one row of weights per class, and a bias.
struct Softmax {
    weights: Vec<f32>,
    bias: Vec<f32>,
    features: usize,
}

impl Softmax {
    fn fit(rows: &Rows, classes: usize, advance: &mut dyn FnMut(usize)) -> Self {
        let features = rows.features;
        let mut model = Self { weights: vec![0.0; classes * features], bias: vec![0.0; classes], features };
        let mut velocity = Self { weights: vec![0.0; classes * features], bias: vec![0.0; classes], features };
        let mut x = vec![0.0; BATCH * features];
        for epoch in 0..EPOCHS {
            for batch in shuffled(rows.labels.len(), 0, epoch).chunks(BATCH) {
                let x = &mut x[..batch.len() * features];
                x.par_chunks_exact_mut(features).zip(batch).for_each(|(row, &i)| rows.normalized(i, row));
                let errors: Vec<Vec<f32>> = x
                    .par_chunks_exact(features)
                    .zip(batch)
                    .map(|(row, &i)| model.error(row, rows.labels[i] as usize, batch.len()))
                    .collect();
                model.step(&mut velocity, x, &errors);
                advance(batch.len());
            }
        }
        model
    }

    fn logits(&self, x: &[f32]) -> Vec<f32> {
        pulp::Arch::new().dispatch(Logits { model: self, x })
    }

    /// Gradient of the mean cross entropy with respect to one sample's logits: (softmax - one-hot) / batch.
    fn error(&self, x: &[f32], label: usize, batch: usize) -> Vec<f32> {
        let mut logits = self.logits(x);
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        logits.iter_mut().for_each(|logit| *logit = libm::expf(*logit - highest));
        let sum: f32 = logits.iter().sum();
        logits.iter_mut().for_each(|p| *p /= sum * batch as f32);
        if let Some(p) = logits.get_mut(label) {
            *p -= 1.0 / batch as f32;
        }
        logits
    }

    /// One step of SGD with momentum on a batch of rows and the gradients of their logits.
    fn step(&mut self, velocity: &mut Self, x: &[f32], errors: &[Vec<f32>]) {
        let (features, rate) = (self.features, RATE / self.features as f32);
        for (class, (bias, v)) in self.bias.iter_mut().zip(&mut velocity.bias).enumerate() {
            *v = MOMENTUM * *v + errors.iter().map(|error| error[class]).sum::<f32>();
            *bias -= rate * *v;
        }
        let rows = self.weights.par_chunks_exact_mut(features).zip(velocity.weights.par_chunks_exact_mut(features));
        rows.enumerate().for_each(|(class, (weights, velocity))| {
            let blocks = weights.par_chunks_mut(BLOCK).zip(velocity.par_chunks_mut(BLOCK));
            blocks.enumerate().for_each(|(block, (weights, velocity))| {
                let width = weights.len();
                let rows = x.chunks_exact(features).map(|row| &row[block * BLOCK..][..width]);
                pulp::Arch::new().dispatch(Descent {
                    weights,
                    velocity,
                    rate,
                    gradient: rows.zip(errors.iter().map(|error| error[class])),
                });
            });
        });
    }

    fn predict(&self, rows: &Rows, index: usize) -> u32 {
        let mut x = vec![0.0; self.features];
        rows.normalized(index, &mut x);
        let logits = self.logits(&x);
        let best = (0..logits.len()).fold(0, |best, class| if logits[class] > logits[best] { class } else { best });
        best as u32
    }
}

/// The logits of one sample, compiled for each vector unit.
struct Logits<'a> {
    model: &'a Softmax,
    x: &'a [f32],
}

impl pulp::NullaryFnOnce for Logits<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn call(self) -> Vec<f32> {
        let Softmax { weights, bias, features } = self.model;
        weights.chunks_exact(*features).zip(bias).map(|(w, bias)| bias + dot(w, self.x)).collect()
    }
}

/// One step of SGD with momentum on a block of weights, compiled for each vector unit.
struct Descent<'a, G> {
    weights: &'a mut [f32],
    velocity: &'a mut [f32],
    rate: f32,
    /// Rows and their factors; their weighted sum is the gradient.
    gradient: G,
}

impl<'a, G: Iterator<Item = (&'a [f32], f32)>> pulp::NullaryFnOnce for Descent<'a, G> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { weights, velocity, rate, gradient } = self;
        velocity.iter_mut().for_each(|v| *v *= MOMENTUM);
        for (row, factor) in gradient {
            velocity.iter_mut().zip(row).for_each(|(v, x)| *v += factor * x);
        }
        weights.iter_mut().zip(&*velocity).for_each(|(w, v)| *w -= rate * v);
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
