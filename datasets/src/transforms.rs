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

pub use color_jitter::ColorJitter;
pub use covering_crop::RandomCoveringCrop;
pub use crop::{Border, CenterCrop, RandomCrop};
pub use flip::HorizontalFlip;
pub use normalize::{ChannelOrder, Normalize, PixelScale};
pub use plan::{Plan, reflected_place};
pub use rand_augment::RandAugment;
pub use random_erasing::RandomErasing;
pub use random_resized_crop::RandomResizedCrop;
pub use resize::{Filter, Resize, resize};
pub use shorter_side::ShorterSide;
pub use trivial_augment::TrivialAugment;

use crate::image::{Image, Size};
use crate::{DataError, Rng};
use plan::Op;

/// A transform of 8-bit pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Resize by the shorter side, keeping the shape.
    ShorterSide(ShorterSide),
    /// Resize to a fixed size.
    Resize(Resize),
    /// The middle.
    CenterCrop(CenterCrop),
    /// A crop from a random place.
    RandomCrop(RandomCrop),
    /// A random crop of random area and shape, resized.
    RandomResizedCrop(RandomResizedCrop),
    /// A random crop of random shape and height that covers enough of the image.
    RandomCoveringCrop(RandomCoveringCrop),
    /// Random flips.
    HorizontalFlip(HorizontalFlip),
    /// Random colours.
    ColorJitter(ColorJitter),
    /// Random operations of one magnitude.
    RandAugment(RandAugment),
    /// One random operation of random magnitude.
    TrivialAugment(TrivialAugment),
}

impl Step {
    fn plan(self, from: Size, rng: &mut Rng) -> Vec<Op> {
        match self {
            Self::ShorterSide(step) => vec![Op::Resize { to: step.target(from), filter: step.filter }],
            Self::Resize(step) => vec![step.into()],
            Self::CenterCrop(step) => step.plan(from),
            Self::RandomCrop(step) => step.plan(from, rng),
            Self::RandomResizedCrop(step) => step.plan(from, rng),
            Self::RandomCoveringCrop(step) => step.plan(from, rng),
            Self::HorizontalFlip(step) => step.plan(rng),
            Self::ColorJitter(step) => step.plan(rng),
            Self::RandAugment(step) => step.plan(from, rng),
            Self::TrivialAugment(step) => step.plan(from, rng),
        }
    }

    /// Size of the result for images of size `from`; `None` where it differs from image to image.
    fn output(self, from: Option<Size>) -> Option<Size> {
        match self {
            Self::ShorterSide(step) => from.map(|from| step.target(from)),
            Self::Resize(Resize { size, .. })
            | Self::CenterCrop(CenterCrop { size })
            | Self::RandomCrop(RandomCrop { size, .. })
            | Self::RandomResizedCrop(RandomResizedCrop { size, .. }) => Some(size),
            Self::RandomCoveringCrop(_) => None,
            Self::HorizontalFlip(_) | Self::ColorJitter(_) | Self::RandAugment(_) | Self::TrivialAugment(_) => from,
        }
    }

    fn check(self) -> Result<(), String> {
        let sized = |size: Size| {
            let sane = (1..=MAX_OUTPUT_SIDE).contains(&size.width) && (1..=MAX_OUTPUT_SIDE).contains(&size.height);
            if sane { Ok(()) } else { Err(format!("a size of {size} is not within 1 to {MAX_OUTPUT_SIDE} a side")) }
        };
        match self {
            Self::ShorterSide(step) => sized(Size::square(step.size)),
            Self::Resize(Resize { size, .. }) | Self::CenterCrop(CenterCrop { size }) => sized(size),
            Self::RandomCrop(step) => {
                sized(step.size)?;
                let sane = step.padding <= MAX_OUTPUT_SIDE;
                if sane { Ok(()) } else { Err(format!("padding of {} pixels", step.padding)) }
            }
            Self::RandomResizedCrop(step) => {
                sized(step.size)?;
                ordered("scale", step.scale)?;
                ordered("ratio", step.ratio)
            }
            Self::RandomCoveringCrop(step) => {
                ordered("area", step.area)?;
                ordered("ratio", step.ratio)
            }
            Self::HorizontalFlip(HorizontalFlip { probability, alternate: _ }) => is_probability(probability),
            Self::ColorJitter(ColorJitter { brightness, contrast, saturation, hue }) => {
                let sane = [brightness, contrast, saturation].iter().all(|within| *within >= 0.0 && within.is_finite());
                if !sane {
                    return Err("brightness, contrast and saturation must be at least 0".to_owned());
                }
                if (0.0..=0.5).contains(&hue) {
                    Ok(())
                } else {
                    Err(format!("a hue of {hue} is not between 0 and 0.5"))
                }
            }
            Self::RandAugment(RandAugment { operations: _, magnitude, bins }) => {
                let sane = bins >= 2 && magnitude < bins;
                if sane {
                    Ok(())
                } else {
                    Err(format!("magnitude {magnitude} must be below bins {bins}, and bins at least 2"))
                }
            }
            Self::TrivialAugment(TrivialAugment { bins }) => {
                if bins >= 2 {
                    Ok(())
                } else {
                    Err(format!("{bins} bins of magnitudes; there must be at least 2"))
                }
            }
        }
    }
}

fn ordered(what: &str, (low, high): (f64, f64)) -> Result<(), String> {
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
    /// If a step has an impossible size, range or probability, or a deviation is not positive.
    pub fn new(steps: Vec<Step>, normalize: Normalize) -> Result<Self, DataError> {
        for step in &steps {
            step.check().map_err(|reason| DataError::Config(format!("{step:?}: {reason}")))?;
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
        let RandomErasing { probability, scale, ratio, value } = erasing;
        let checked = is_probability(probability)
            .and_then(|()| ordered("scale", scale))
            .and_then(|()| ordered("ratio", ratio))
            .and_then(|()| if value.is_finite() { Ok(()) } else { Err(format!("a value of {value}")) });
        checked.map_err(|reason| DataError::Config(format!("{erasing:?}: {reason}")))?;
        Ok(Self { erasing: Some(erasing), ..self })
    }

    /// Evaluation as torchvision's classifiers do it: shorter side to `resize`, the middle `crop` x `crop`, bilinear.
    pub fn evaluation(resize: usize, crop: usize, normalize: Normalize) -> Result<Self, DataError> {
        let steps = vec![
            Step::ShorterSide(ShorterSide { size: resize, filter: Filter::Bilinear }),
            Step::CenterCrop(CenterCrop { size: Size::square(crop) }),
        ];
        Self::new(steps, normalize)
    }

    /// Training as torchvision's classifiers do it: random resized crop to `crop` x `crop`, mirrored half of the time.
    pub fn training(crop: usize, normalize: Normalize) -> Result<Self, DataError> {
        let steps = vec![
            Step::RandomResizedCrop(RandomResizedCrop::new(Size::square(crop))),
            Step::HorizontalFlip(HorizontalFlip { probability: 0.5, alternate: false }),
        ];
        Self::new(steps, normalize)
    }

    /// The normalisation at the end.
    pub fn normalize(&self) -> &Normalize {
        &self.normalize
    }

    /// Size of all results for images of size `from` (`None`: of any size); `None` if results differ in size.
    pub fn output(&self, from: Option<Size>) -> Option<Size> {
        self.steps.iter().fold(from, |size, step| step.output(size))
    }

    /// Plans the operations on an image of size `from`, with random numbers from `rng`.
    pub fn plan(&self, from: Size, rng: &mut Rng) -> Plan {
        let mut size = from;
        let mut ops = Vec::new();
        for step in &self.steps {
            let more = step.plan(size, rng);
            size = more.iter().fold(size, |size, op| op.size(size));
            ops.extend(more);
        }
        Plan::new(from, &ops, self.erasing.and_then(|erasing| erasing.rect(size, rng)))
    }

    /// Writes the result of a plan as the network takes it: `planes * height * width` numbers in CHW order.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn finish(&self, plan: &Plan, image: &Image, out: &mut [f32]) {
        self.normalize.apply(image, out);
        if let Some((erasing, rect)) = self.erasing.zip(plan.erased()) {
            erasing.run(rect, image.size(), out);
        }
    }

    /// Transforms a whole image, without normalising it.
    pub fn apply(&self, image: &Image, rng: &mut Rng) -> Image {
        let plan = self.plan(image.size(), rng);
        // The region of a plan is always inside the image it was made for.
        plan.run(image.crop(plan.region()).unwrap_or_else(|| image.clone()))
    }
}
