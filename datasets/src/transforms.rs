//! From images of any size to the input of the network.
//!
//! A [`Pipeline`] is a list of [`Step`]s on 8-bit pixels, a [`Normalize`], and optionally a [`RandomErasing`]. Random
//! steps use the random stream of (seed, epoch, sample), so that results depend on nothing else. The operations on an
//! image only depend on sizes and random numbers ([`Plan`]), so only the required part of it is decoded and resized.

mod adjust;
mod color_jitter;
mod covering_crop;
mod crop;
mod flip;
mod normalize;
mod plan;
mod rand_augment;
mod random_erasing;
mod random_resized_crop;
mod resize;
mod shorter_side;
mod trivial_augment;

pub use normalize::Normalize;
pub use plan::{Plan, reflected_place};
pub use resize::resize;
pub use shorter_side::shorter_side;
pub use zoo_settings::Filter;

use zoo_settings::{CenterCrop, HorizontalFlip, ImageSize, RandomErasing, RandomResizedCrop, Resize, Step};

use crate::image::{Image, Size};
use crate::{DataError, Rng};
use plan::Op;

/// A transform of 8-bit pixels: what each file adds to its settings.
trait Transform {
    /// Refuses settings that make no sense.
    fn check(&self) -> Result<(), String>;

    /// The operations on an image of size `from`.
    fn plan(&self, from: Size, rng: &mut Rng) -> Vec<Op>;

    /// Size of the result for images of size `from`; `None` where it differs from image to image.
    fn output(&self, from: Option<Size>) -> Option<Size> {
        from
    }
}

/// The transform of a step; `None` for steps that work on the numbers after it.
fn transform(step: &Step) -> Option<&dyn Transform> {
    match step {
        Step::Resize(step) => Some(step),
        Step::ResizeTo(step) => Some(step),
        Step::CenterCrop(step) => Some(step),
        Step::RandomCrop(step) => Some(step),
        Step::RandomResizedCrop(step) => Some(step),
        Step::RandomCoveringCrop(step) => Some(step),
        Step::HorizontalFlip(step) => Some(step),
        Step::ColorJitter(step) => Some(step),
        Step::RandAugment(step) => Some(step),
        Step::TrivialAugment(step) => Some(step),
        Step::Normalize(_) | Step::RandomErasing(_) => None,
    }
}

fn sized(size: Size) -> Result<(), String> {
    let sane = (1..=MAX_OUTPUT_SIDE).contains(&size.width) && (1..=MAX_OUTPUT_SIDE).contains(&size.height);
    if sane { Ok(()) } else { Err(format!("a size of {size} is not within 1 to {MAX_OUTPUT_SIDE} a side")) }
}

fn ordered(what: &str, [low, high]: [f64; 2]) -> Result<(), String> {
    let sane = low > 0.0 && low <= high && high.is_finite();
    if sane { Ok(()) } else { Err(format!("{what} {low} to {high} is not a range of positive numbers")) }
}

fn is_probability(probability: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&probability) {
        Ok(())
    } else {
        Err(format!("a probability of {probability} is not between 0 and 1"))
    }
}

/// Longest side that a transform may produce.
const MAX_OUTPUT_SIDE: usize = 8192;

/// torchvision's random resized crop to a square: area 0.08 to 1, shape 3/4 to 4/3, bilinear.
const fn torchvision_crop(size: usize) -> RandomResizedCrop {
    RandomResizedCrop { size, scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0], filter: Filter::Bilinear }
}

/// Steps and normalisation, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    steps: Vec<Step>,
    normalize: Normalize,
    erasing: Option<RandomErasing>,
}

impl Pipeline {
    /// A pipeline of `steps`, in order, and `normalize` at the end.
    ///
    /// # Errors
    /// If a step has an impossible size, range or probability or is no transform of pixels, or a deviation is not
    /// positive.
    pub fn new(steps: Vec<Step>, normalize: Normalize) -> Result<Self, DataError> {
        for step in &steps {
            let checked = transform(step).map_or(Err("no transform of pixels".to_owned()), Transform::check);
            checked.map_err(|reason| DataError::Config(format!("{step:?}: {reason}")))?;
        }
        let finite = normalize.mean.iter().all(|m| m.is_finite());
        if !finite || !normalize.std.iter().all(|&s| s > 0.0 && s.is_finite()) {
            return Err(DataError::Config(format!("{normalize:?}: means must be finite, deviations positive")));
        }
        Ok(Self { steps, normalize, erasing: None })
    }

    /// With a part of the result erased after the normalisation.
    ///
    /// # Errors
    /// An impossible range or probability.
    pub fn erasing(self, erasing: RandomErasing) -> Result<Self, DataError> {
        let &RandomErasing { p, scale, ratio, value } = &erasing;
        let checked = is_probability(p)
            .and_then(|()| ordered("scale", scale))
            .and_then(|()| ordered("ratio", ratio))
            .and_then(|()| if value.is_finite() { Ok(()) } else { Err(format!("a value of {value}")) });
        checked.map_err(|reason| DataError::Config(format!("{erasing:?}: {reason}")))?;
        Ok(Self { erasing: Some(erasing), ..self })
    }

    /// Evaluation as torchvision's classifiers do it: shorter side to `resize`, the middle `crop` x `crop`, bilinear.
    pub fn evaluation(resize: usize, crop: usize, normalize: Normalize) -> Result<Self, DataError> {
        let steps = vec![
            Step::Resize(Resize { shorter: resize, filter: Filter::Bilinear }),
            Step::CenterCrop(CenterCrop { size: ImageSize::Square(crop) }),
        ];
        Self::new(steps, normalize)
    }

    /// Training as torchvision's classifiers do it: random resized crop to `crop` x `crop`, mirrored half of the time.
    pub fn training(crop: usize, normalize: Normalize) -> Result<Self, DataError> {
        let steps = vec![
            Step::RandomResizedCrop(torchvision_crop(crop)),
            Step::HorizontalFlip(HorizontalFlip { p: 0.5, alternate: false }),
        ];
        Self::new(steps, normalize)
    }

    /// The normalisation at the end.
    pub fn normalize(&self) -> &Normalize {
        &self.normalize
    }

    /// Size of all results for images of size `from` (`None`: of any size); `None` if results differ in size.
    pub fn output(&self, from: Option<Size>) -> Option<Size> {
        self.steps.iter().filter_map(transform).fold(from, |size, step| step.output(size))
    }

    /// Plans the operations on an image of size `from`, with random numbers from `rng`.
    pub fn plan(&self, from: Size, rng: &mut Rng) -> Plan {
        let mut size = from;
        let mut ops = Vec::new();
        for step in self.steps.iter().filter_map(transform) {
            let more = step.plan(size, rng);
            size = more.iter().fold(size, |size, op| op.size(size));
            ops.extend(more);
        }
        Plan::new(from, &ops, self.erasing.as_ref().and_then(|erasing| random_erasing::rect(erasing, size, rng)))
    }

    /// Writes the result of a plan as the network takes it: `planes * height * width` numbers in CHW order.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn finish(&self, plan: &Plan, image: &Image, out: &mut [f32]) {
        self.normalize.apply(image, out);
        if let Some((erasing, rect)) = self.erasing.as_ref().zip(plan.erased()) {
            random_erasing::erase(erasing.value as f32, rect, image.size(), out);
        }
    }

    /// Transforms a whole image, without normalising it.
    pub fn apply(&self, image: &Image, rng: &mut Rng) -> Image {
        let plan = self.plan(image.size(), rng);
        // The region of a plan is always inside the image it was made for.
        plan.run(image.crop(plan.region()).unwrap_or_else(|| image.clone()))
    }
}
