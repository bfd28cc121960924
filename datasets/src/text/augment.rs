//! The training augmentation of DB (`AugmentDetectionData`, `RandomCropData`): flips, rotation, scaling and a crop that
//! does not cut text.

use super::TextRegion;
use crate::geometry::{Affine, Bounds, Point, Polygon};
use crate::image::{Image, Rect, Size, warp};
use crate::{DataError, Rng};
use zoo_settings::TextPreparation;

/// Attempts to find a crop with text; then the whole image is taken.
const MAX_TRIES: usize = 10;
/// Least side of a crop, as a part of the image's.
const MIN_CROP_SIDE: f64 = 0.1;

/// How training images are varied.
///
/// The whole chain is one affine map, so an image is interpolated once.
#[derive(Debug, Clone, PartialEq)]
pub struct TextAugment {
    /// Size of the result; the crop is scaled into its upper left corner and the rest stays black.
    pub size: Size,
    /// Flip, rotation, scale, crop and colours. The original changes neither brightness nor contrast.
    pub settings: TextPreparation,
}

impl TextAugment {
    /// No variation: the image scaled into `size`.
    pub fn none(size: Size) -> Self {
        let plain =
            TextPreparation { flip: 0.0, rotation: [0.0; 2], scale: [1.0; 2], crop: false, ..Default::default() };
        Self { size, settings: plain }
    }

    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// If a side is 0 or above 8192, a probability or part is not within 0 to 1, or a range is empty or not finite.
    pub fn check(&self) -> Result<(), DataError> {
        let sided = |side: usize| (1..=8192).contains(&side);
        let part = |value: f64| (0.0..=1.0).contains(&value);
        let ordered = |[low, high]: [f64; 2]| low <= high && low.is_finite() && high.is_finite();
        let &TextPreparation { flip, rotation, scale, brightness, contrast, .. } = &self.settings;
        let sane = sided(self.size.width)
            && sided(self.size.height)
            && [flip, brightness, contrast].into_iter().all(part)
            && ordered(rotation)
            && ordered(scale)
            && scale[0] > 0.0;
        if sane { Ok(()) } else { Err(DataError::Config(format!("text augmentation: {self:?}"))) }
    }

    /// Varies an image and its text, drawing from `rng`. Text that falls outside is dropped.
    pub fn apply(&self, image: &Image, regions: &[TextRegion], rng: &mut Rng) -> TextSample {
        let from = image.size();
        let (spread, canvas) = self.spread(from, rng);
        let moved: Vec<TextRegion> = regions.iter().map(|region| moved(region, &spread)).collect();
        let crop = if self.settings.crop { self.choose_crop(canvas, &moved, rng) } else { Rect::full(canvas) };
        let scale = (self.size.width as f64 / crop.width as f64).min(self.size.height as f64 / crop.height as f64);
        let shown = Size::new(
            ((crop.width as f64 * scale) as usize).clamp(1, self.size.width),
            ((crop.height as f64 * scale) as usize).clamp(1, self.size.height),
        );
        let place = Affine::translation(-(crop.x as f64), -(crop.y as f64)).then(about_corner(scale, scale));
        let &TextPreparation { brightness, contrast, .. } = &self.settings;
        let brightness = rng.uniform(-brightness, brightness) * 255.0;
        let contrast = 1.0 + rng.uniform(-contrast, contrast);
        // Scales are positive, so there is an inverse.
        let back = spread.then(place).inverse().unwrap_or(Affine::IDENTITY);
        let mut part = warp(image, shown, &back, [0; 3]);
        if (brightness, contrast) != (0.0, 1.0) {
            let table: [u8; 256] = std::array::from_fn(|v| ((v as f64 - 127.5) * contrast + 128.0 + brightness) as u8);
            part.pixels_mut().iter_mut().for_each(|value| *value = table[*value as usize]);
        }
        let regions = moved.iter().map(|region| self::moved(region, &place)).filter(|r| !outside(&r.polygon, shown));
        TextSample { regions: regions.collect(), image: padded(part, self.size) }
    }

    /// Flip, rotation and scaling, and the size of the result.
    fn spread(&self, from: Size, rng: &mut Rng) -> (Affine, Size) {
        let (width, height) = (from.width as f64, from.height as f64);
        let flip = if rng.chance(self.settings.flip) {
            Affine { xx: -1.0, dx: width - 1.0, ..Affine::IDENTITY }
        } else {
            Affine::IDENTITY
        };
        let centre = Point::new((width - 1.0) / 2.0, (height - 1.0) / 2.0);
        let turn = Affine::rotation(rng.within(self.settings.rotation).to_radians(), centre);
        let scale = rng.within(self.settings.scale);
        let side = |length: f64| (length * scale).round_ties_even().max(1.0);
        let (to_width, to_height) = (side(width), side(height));
        let grow = about_corner(to_width / width, to_height / height);
        (flip.then(turn).then(grow), Size::new(to_width as usize, to_height as usize))
    }

    /// A part of the canvas whose sides cut through no text that counts and which holds some of it (`crop_area`).
    fn choose_crop(&self, canvas: Size, regions: &[TextRegion], rng: &mut Rng) -> Rect {
        let texts: Vec<Bounds> = regions.iter().filter(|r| !r.ignore).map(|r| r.polygon.bounds()).collect();
        let columns = Free::new(canvas.width, texts.iter().map(|b| (b.low.x, b.high.x)));
        let rows = Free::new(canvas.height, texts.iter().map(|b| (b.low.y, b.high.y)));
        if columns.places.is_empty() || rows.places.is_empty() {
            return Rect::full(canvas);
        }
        for _ in 0..MAX_TRIES {
            let (left, right) = columns.choose(rng);
            let (top, bottom) = rows.choose(rng);
            let (width, height) = (right - left, bottom - top);
            let least = |length: usize| (MIN_CROP_SIDE * length as f64).max(1.0);
            if (width as f64) < least(canvas.width) || (height as f64) < least(canvas.height) {
                continue;
            }
            // Text that only touches the crop would be cut off.
            let (low, high) =
                (Point::new(left as f64 + 1.0, top as f64 + 1.0), Point::new(right as f64 - 1.0, bottom as f64 - 1.0));
            if texts.iter().any(|text| text.overlaps(&Bounds { low, high })) {
                return Rect::new(left, top, width, height);
            }
        }
        Rect::full(canvas)
    }
}

/// Scales so that the corner of the image, half a pixel from the centre of the first pixel, stays.
fn about_corner(x: f64, y: f64) -> Affine {
    Affine::translation(0.5, 0.5).then(Affine::scaling(x, y)).then(Affine::translation(-0.5, -0.5))
}

fn moved(region: &TextRegion, map: &Affine) -> TextRegion {
    TextRegion { polygon: region.polygon.map(|p| map.apply(p)), ..region.clone() }
}

/// True if nothing of the bounds of `polygon` is inside.
fn outside(polygon: &Polygon, size: Size) -> bool {
    let high = Point::new(size.width as f64 - 1.0, size.height as f64 - 1.0);
    !polygon.bounds().overlaps(&Bounds { low: Point::default(), high })
}

/// `part` in the upper left corner of a black image.
fn padded(part: Image, size: Size) -> Image {
    if part.size() == size {
        return part;
    }
    let mut image = Image::filled(size, [0; 3]);
    let (from, to) = (3 * part.width(), 3 * size.width);
    for (out, row) in image.pixels_mut().chunks_exact_mut(to).zip(part.pixels().chunks_exact(from)) {
        out[..from].copy_from_slice(row);
    }
    image
}

/// Places along an axis where no text is.
struct Free {
    places: Vec<usize>,
    /// Runs of neighbouring places, as ranges of `places`.
    runs: Vec<std::ops::Range<usize>>,
}

impl Free {
    fn new(length: usize, texts: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut taken = vec![false; length];
        for (low, high) in texts {
            let place = |value: f64| value.clamp(0.0, length as f64) as usize;
            let (low, high) = (place(low.floor()), place(high.ceil() + 1.0));
            taken[low..high.max(low)].fill(true);
        }
        let places: Vec<usize> = (0..length).filter(|&place| !taken[place]).collect();
        let mut runs = Vec::new();
        let mut start = 0;
        for i in 1..=places.len() {
            if i == places.len() || places[i] != places[i - 1] + 1 {
                runs.push(start..i);
                start = i;
            }
        }
        Self { places, runs }
    }

    /// Two places in order: of two runs, so that narrow gaps are chosen as often as wide ones; if there is one run
    /// only, any two of it.
    fn choose(&self, rng: &mut Rng) -> (usize, usize) {
        let mut one = || {
            let run = &self.runs[rng.below(self.runs.len())];
            self.places[run.start + rng.below(run.len())]
        };
        let (a, b) = (one(), one());
        (a.min(b), a.max(b))
    }
}

/// An image for training, with its text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSample {
    /// The image.
    pub image: Image,
    /// Its text, in pixel coordinates; parts can be outside of the image.
    pub regions: Vec<TextRegion>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A white rectangle on black, annotated.
    fn scene() -> (Image, Vec<TextRegion>) {
        let mut image = Image::filled(Size::new(100, 80), [0; 3]);
        for y in 30..50 {
            image.pixels_mut()[(y * 100 + 20) * 3..(y * 100 + 70) * 3].fill(255);
        }
        // Centres of the outermost pixels.
        let polygon = Polygon::rectangle(20.0, 30.0, 49.0, 19.0);
        (image, vec![TextRegion { polygon, text: "word".into(), ignore: false }])
    }

    #[test]
    fn polygons_stay_on_the_pixels_they_describe() {
        let (image, regions) = scene();
        let augment = TextAugment { size: Size::square(160), settings: TextPreparation::default() };
        augment.check().unwrap();
        let mut cropped = 0;
        for sample in 0..60 {
            let result = augment.apply(&image, &regions, &mut Rng::new(1, 0, sample));
            assert_eq!(result.image.size(), Size::square(160));
            assert_eq!(result.regions.len(), 1);
            let polygon = &result.regions[0].polygon;
            // Text is never cut: all of it is in the result.
            let bounds = polygon.bounds();
            assert!(bounds.low.x > -2.0 && bounds.low.y > -2.0 && bounds.high.x < 162.0 && bounds.high.y < 162.0);
            let bright = result.image.pixels().chunks(3).filter(|p| p[0] > 127).count() as f64;
            // The outline runs through the centres of the outermost pixels, half a pixel of the source inside.
            let expected = polygon.area() * (50.0 * 20.0) / (49.0 * 19.0);
            assert!((bright / expected - 1.0).abs() < 0.05, "{sample}: {bright} pixels, outline of {expected}");
            let centre = polygon.centre();
            let at = (centre.y as usize * 160 + centre.x as usize) * 3;
            assert_eq!(result.image.pixels()[at], 255, "{sample}");
            cropped += usize::from(bright > 160.0 * 160.0 * 0.15);
        }
        assert!(cropped > 5, "{cropped}");
    }

    #[test]
    fn without_variation_only_the_size_changes() {
        let (image, regions) = scene();
        let same = TextAugment::none(image.size()).apply(&image, &regions, &mut Rng::new(0, 0, 0));
        assert_eq!((same.image, &same.regions), (image.clone(), &regions));
        let half = TextAugment::none(Size::new(50, 80)).apply(&image, &regions, &mut Rng::new(0, 0, 0));
        let bounds = half.regions[0].polygon.bounds();
        assert_eq!((bounds.low, bounds.high), (Point::new(9.75, 14.75), Point::new(34.25, 24.25)));
        assert!(half.image.pixels()[50 * 40 * 3..].iter().all(|&v| v == 0));
    }

    #[test]
    fn images_without_text_are_varied_too() {
        let (image, _) = scene();
        let settings = TextPreparation { brightness: 0.2, contrast: 0.3, ..Default::default() };
        let augment = TextAugment { size: Size::new(64, 48), settings };
        for sample in 0..20 {
            let result = augment.apply(&image, &[], &mut Rng::new(2, 1, sample));
            assert!(result.regions.is_empty() && result.image.size() == Size::new(64, 48));
        }
    }

    #[test]
    fn a_text_that_fills_the_image_leaves_no_place_to_cut() {
        let (image, mut regions) = scene();
        regions[0].polygon = Polygon::rectangle(-5.0, -5.0, 120.0, 100.0);
        let settings = TextPreparation { rotation: [0.0; 2], ..Default::default() };
        let augment = TextAugment { size: Size::square(32), settings };
        let result = augment.apply(&image, &regions, &mut Rng::new(0, 0, 0));
        assert_eq!(result.regions.len(), 1);
    }
}
