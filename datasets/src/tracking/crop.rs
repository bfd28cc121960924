//! Cutting template and search images around a target (`crop_like_SiamFCx`, `Augmentation`).

use super::TargetBox;
use crate::Rng;
use crate::geometry::{Affine, Point};
use crate::grid::{Grid, Mask};
use crate::image::{Image, Size, warp, warp_grid};
use zoo_settings::CropVariation;

/// Side of the square around a target that becomes the template: its sides with a margin of half their sum (`context`)
/// in all, as a geometric mean.
pub fn context_side(width: f64, height: f64, context: f64) -> f64 {
    let margin = context * (width + height);
    ((width + margin) * (height + margin)).sqrt()
}

/// The part of half of the sum of a target's sides that is added to each of them.
pub(super) const CONTEXT: f64 = 0.5;

/// Side of the square around a target from which crops are taken, in pixels of the template's scale.
const CANVAS: f64 = 511.0;

/// A crop: pixels as f32 in CHW order (RGB, 0 to 255 before colours are shifted), the target in it, and the mask.
pub(super) struct Crop {
    pub pixels: Vec<f32>,
    pub target: TargetBox,
    pub mask: Mask,
}

/// Cuts `size` x `size` pixels around `target`, at the scale at which its context is `template` pixels wide.
pub(super) fn crop(
    (image, mask): (&Image, Option<&Mask>),
    target: &TargetBox,
    (size, template): (usize, usize),
    augment: &CropVariation,
    rng: &mut Rng,
) -> Crop {
    // Pixels of the image per pixel at the template's scale.
    let unit = (context_side(target.width, target.height, CONTEXT) / template as f64).max(1e-6);
    let mut around_zero = |limit: f64| rng.uniform(-limit, limit);
    let (shift_x, shift_y) = (around_zero(augment.shift), around_zero(augment.shift));
    let (scale_x, scale_y) = (1.0 + around_zero(augment.scale), 1.0 + around_zero(augment.scale));
    // One axis: side of the crop, and its middle relative to the target, both at the template's scale. Crops stay on
    // the canvas that the original stores.
    let axis = |scale: f64, shift: f64| {
        let side = ((size as f64 - 1.0) * scale).clamp(1e-3, CANVAS);
        let room = (CANVAS - 1.0 - side).max(0.0) / 2.0;
        (side, shift.clamp(-room, room))
    };
    let ((width, x), (height, y)) = (axis(scale_x, shift_x), axis(scale_y, shift_y));
    // Pixel 0 shows the left border of the crop and the last pixel its right one.
    let last = (size as f64 - 1.0).max(1.0);
    let map = Affine {
        dx: target.centre.x + (x - width / 2.0) * unit,
        dy: target.centre.y + (y - height / 2.0) * unit,
        ..Affine::scaling(width / last * unit, height / last * unit)
    };
    let to = Size::square(size);
    let cut = warp(image, to, &map, mean_colour(image));
    let mask = match mask {
        Some(mask) => warp_grid(&mask.map(|inside| f32::from(u8::from(inside))), to, &map, 0.0).map(|v| v > 0.5),
        None => Mask::filled(to, false),
    };
    let target = TargetBox {
        centre: Point::new((target.centre.x - map.dx) / map.xx, (target.centre.y - map.dy) / map.yy),
        width: target.width / map.xx,
        height: target.height / map.yy,
    };
    let mut planes = planes(&cut);
    if augment.colour {
        shift_colour(&mut planes, to.area(), rng);
    }
    if rng.chance(augment.blur) {
        blur(&mut planes, to, rng);
    }
    Crop { pixels: planes, target, mask }
}

/// Pixels as f32, one plane per channel.
pub(super) fn planes(image: &Image) -> Vec<f32> {
    let pixels = image.pixels().as_chunks::<3>().0;
    (0..3).flat_map(|channel| pixels.iter().map(move |pixel| f32::from(pixel[channel]))).collect()
}

/// The mean colour of an image, which fills the area outside its border.
pub(super) fn mean_colour(image: &Image) -> [u8; 3] {
    let pixels = image.pixels().as_chunks::<3>().0;
    std::array::from_fn(|channel| {
        let sum: u64 = pixels.iter().map(|pixel| u64::from(pixel[channel])).sum();
        (sum / pixels.len() as u64) as u8
    })
}

/// Subtracts a random colour (`rgbVar`).
fn shift_colour(planes: &mut [f32], area: usize, rng: &mut Rng) {
    const DIRECTIONS: [[f64; 3]; 3] = [
        [-0.559_193_61, 0.980_628_31, -0.419_406_27],
        [1.720_914_13, 0.198_793_34, -1.829_685_81],
        [4.644_679_07, 4.737_102_03, 4.883_241_18],
    ];
    let draws: [f64; 3] = std::array::from_fn(|_| rng.normal().into());
    for (plane, direction) in planes.chunks_exact_mut(area).zip(DIRECTIONS) {
        let offset = direction.iter().zip(draws).map(|(d, n)| d * n).sum::<f64>() as f32;
        plane.iter_mut().for_each(|value| *value -= offset);
    }
}

/// Half of the time, the mean along a line, partly to the sides and partly up and down (`blur_image`).
fn blur(planes: &mut [f32], size: Size, rng: &mut Rng) {
    // Rounded half to even, like numpy.
    let reach = f64::from(rng.normal()).round_ties_even();
    let vertical = rng.unit() as f32;
    if reach < 1.0 || rng.chance(0.5) {
        return;
    }
    let reach = reach.min(22.0) as isize;
    let weight = 1.0 / (2 * reach + 1) as f32;
    for plane in planes.chunks_exact_mut(size.area()) {
        let Some(before) = Grid::new(size, plane.to_vec()) else { return };
        for (i, value) in plane.iter_mut().enumerate() {
            let (x, y) = ((i % size.width) as isize, (i / size.width) as isize);
            let along = |dx: isize, dy: isize| -> f32 {
                (-reach..=reach)
                    .map(|t| (mirrored(x + t * dx, size.width), mirrored(y + t * dy, size.height)))
                    .filter_map(|(x, y)| before.get(x, y))
                    .sum()
            };
            *value = weight * (vertical * along(0, 1) + (1.0 - vertical) * along(1, 0));
        }
    }
}

/// A place beyond the border mirrored at the outermost pixel (OpenCV's `BORDER_REFLECT_101`).
fn mirrored(at: isize, length: usize) -> isize {
    let last = length as isize - 1;
    let at = at.abs();
    (if at > last { 2 * last - at } else { at }).clamp(0, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A white box with a white mask on black.
    fn scene() -> (Image, Mask, TargetBox) {
        let size = Size::new(300, 200);
        let mask = Mask::new(
            size,
            (0..size.area()).map(|i| (100..140).contains(&(i % 300)) && (60..90).contains(&(i / 300))).collect(),
        );
        let mask = mask.unwrap();
        let pixels = mask.values().iter().flat_map(|&inside| [if inside { 255 } else { 0 }; 3]).collect();
        let target = TargetBox::from_corners(Point::new(99.5, 59.5), Point::new(139.5, 89.5));
        (Image::new(size, pixels).unwrap(), mask, target)
    }

    #[test]
    fn the_context_of_a_square_is_twice_its_side() {
        assert_eq!(context_side(50.0, 50.0, 0.5), 100.0);
        assert!((context_side(40.0, 30.0, 0.5) - (75.0_f64 * 65.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn the_target_lies_in_the_middle_at_the_right_scale() {
        let (image, mask, target) = scene();
        let unit = context_side(40.0, 30.0, 0.5) / 127.0;
        let cut = crop((&image, Some(&mask)), &target, (255, 127), &CropVariation::default(), &mut Rng::new(0, 0, 0));
        assert_eq!(cut.target.centre, Point::new(127.0, 127.0));
        assert!((cut.target.width - 40.0 / unit).abs() < 1e-9 && (cut.target.height - 30.0 / unit).abs() < 1e-9);
        let expected = 40.0 * 30.0 / (unit * unit);
        assert!((cut.mask.count() as f64 / expected - 1.0).abs() < 0.03);
        assert_eq!((cut.pixels[127 * 255 + 127], cut.pixels[0], cut.pixels.len()), (255.0, 0.0, 3 * 255 * 255));
    }

    #[test]
    fn shifted_and_scaled_crops_keep_box_and_mask_together() {
        let (image, mask, target) = scene();
        for sample in 0..30 {
            let mut rng = Rng::new(0, 0, sample);
            let cut = crop(
                (&image, Some(&mask)),
                &target,
                (255, 127),
                &zoo_settings::PairPreparation::default().search,
                &mut rng,
            );
            let found = TargetBox::from_rect(cut.mask.bounds().unwrap());
            // Pixels from 100 to 139 have their borders at 99.5 and 139.5; `from_rect` counts from their left border.
            let seen = TargetBox { centre: found.centre - Point::new(0.5, 0.5), ..found };
            assert!(seen.iou(&cut.target) > 0.95, "{seen:?} {:?}", cut.target);
            assert!((cut.target.centre.x - 127.0).abs() < 80.0);
        }
    }

    #[test]
    fn the_border_is_mirrored_without_repeating_it() {
        assert_eq!([-2, -1, 0, 4, 5, 6].map(|at| mirrored(at, 5)), [2, 1, 0, 4, 3, 2]);
        assert_eq!(mirrored(9, 1), 0);
    }
}
