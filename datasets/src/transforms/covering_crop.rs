//! The random crop of TensorFlow's ImageNet pipelines.

use zoo_settings::RandomCoveringCrop;

use super::plan::Op;
use super::{Transform, ordered};
use crate::Rng;
use crate::image::{Rect, Size};

/// Attempts before the whole image is taken (`max_attempts`).
const ATTEMPTS: usize = 100;

/// The rule of `tf.image.sample_distorted_bounding_box` (`sample_distorted_bounding_box_op.cc`) with the whole image as
/// the box. Other than in a random resized crop, the shape is uniform itself and the height, not the area, is uniform
/// among those allowed.
impl Transform for RandomCoveringCrop {
    fn check(&self) -> Result<(), String> {
        ordered("area", self.area)?;
        ordered("ratio", self.ratio)
    }

    fn plan(&self, from: Size, rng: &mut Rng) -> Vec<Op> {
        let crop = (0..ATTEMPTS).find_map(|_| attempt(self, from, rng));
        vec![Op::Crop(crop.unwrap_or(Rect::full(from)))]
    }

    fn output(&self, _from: Option<Size>) -> Option<Size> {
        None
    }
}

fn attempt(crop: &RandomCoveringCrop, from: Size, rng: &mut Rng) -> Option<Rect> {
    let aspect = rng.within(crop.ratio);
    let round = |x: f64| x.round_ties_even() as usize;
    let total = from.area() as f64;
    let [smallest, largest] = crop.area.map(|share| share * total);
    let mut highest = round((largest / aspect).sqrt());
    if round(highest as f64 * aspect) > from.width {
        // The tallest crop whose rounded width still fits.
        highest = ((from.width as f64 + 0.5 - 1e-7) / aspect) as usize;
        if round(highest as f64 * aspect) > from.width {
            highest = highest.saturating_sub(1);
        }
    }
    highest = highest.min(from.height);
    let mut height = round((smallest / aspect).sqrt()).min(highest);
    height += rng.below(highest - height + 1);
    let area = |height: usize| (round(height as f64 * aspect) * height) as f64;
    // Rounding may leave the allowed range by one row.
    if area(height) < smallest {
        height += 1;
    }
    if area(height) > largest {
        height = height.saturating_sub(1);
    }
    let width = round(height as f64 * aspect);
    let covered = area(height) / total;
    let allowed = (smallest..=largest).contains(&area(height)) && covered >= crop.min_covered;
    if !allowed || width == 0 || width > from.width || height > from.height {
        return None;
    }
    let y = rng.below(from.height - height);
    let x = rng.below(from.width - width);
    Some(Rect::new(x, y, width, height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crops_stay_inside_and_cover_enough() {
        let crop = RandomCoveringCrop::default();
        for from in [Size::new(500, 375), Size::new(61, 97), Size::square(1), Size::new(4000, 2)] {
            for sample in 0..500 {
                let ops = crop.plan(from, &mut Rng::new(9, 0, sample));
                let [Op::Crop(rect)] = ops[..] else { panic!("one crop") };
                assert!(rect.right() <= from.width && rect.bottom() <= from.height);
                assert!(rect.size().area() as f64 >= 0.1 * from.area() as f64);
            }
        }
    }

    #[test]
    fn an_impossible_range_takes_the_whole_image() {
        let crop = RandomCoveringCrop { min_covered: 1.1, ..Default::default() };
        let from = Size::new(30, 20);
        assert_eq!(crop.plan(from, &mut Rng::new(0, 0, 0)), [Op::Crop(Rect::full(from))]);
    }
}
