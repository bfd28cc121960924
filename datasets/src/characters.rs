//! A generated classification set: rendered characters.
//!
//! Each image shows one character in one of nine embedded fonts, with random position, scale, rotation, shear and
//! colour, on a textured background with strokes, blur and noise. The character can be lighter or darker than the
//! background, so the brightness of a single pixel carries little information: a linear classifier stays near chance,
//! while a network learns the set in minutes.

use std::sync::Arc;

use crate::geometry::Affine;
use crate::image::{Image, Size};
use crate::paint::{Canvas, Coverage, Outline, contrasting_colour, embedded_faces, random_colour};
use crate::{DataError, Dataset, Rng, Source, checks::Checks};
use zoo_settings as settings;

/// Side in pixels of the image that lengths are given for.
const UNIT_SIDE: f64 = 64.0;
/// Largest deviation of the texture's grid from the background colour, per channel.
const TEXTURE: [f64; 2] = [10.0, 50.0];

/// Rendered characters: sample `i` is a pure function of the settings, their seed and `first + i`.
#[derive(Debug, Clone)]
pub struct Characters {
    settings: settings::Characters,
    texture: [f64; 2],
    first: u64,
    len: usize,
    classes: Vec<String>,
    /// Outlines by class and face.
    outlines: Arc<Vec<Vec<Outline>>>,
}

impl Characters {
    /// Where held-out samples start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Samples `first..first + len` of the set that the settings describe.
    ///
    /// # Errors
    /// If the number of classes is not within 1 to 36, the side is 0 or above 4096, or a range is empty, not finite or,
    /// where that makes no sense, negative.
    pub fn new(settings: &settings::Characters, first: u64, len: usize) -> Result<Self, DataError> {
        const MOST: f64 = 1e4;
        let in_unit = |share: f64| share * UNIT_SIDE;
        Checks::of("characters")
            .size(Size::square(settings.size), 1)
            .count("classes", [1, settings.classes], 36)
            .range("font", settings.font.map(in_unit), [1.0, MOST])
            .limit("shift", in_unit(settings.shift), MOST)
            .limit("rotation", settings.rotation, 180.0)
            .limit("shear", settings.shear, 4.0)
            .range("stretch", settings.stretch, [0.1, MOST])
            .range("contrast", settings.contrast, [0.0, MOST])
            .range("blur", settings.blur, [0.0, MOST])
            .range("noise", settings.noise, [0.0, MOST])
            .done()?;
        let characters = || ('0'..='9').chain('A'..='Z').take(settings.classes);
        let faces = embedded_faces();
        let of_character = |c| faces.iter().filter_map(|face| face.centred(c)).collect();
        let outlines = Arc::new(characters().map(of_character).collect());
        let classes = characters().map(String::from).collect();
        Ok(Self { settings: settings.clone(), texture: TEXTURE, first, len, classes, outlines })
    }

    /// Draws sample `index`.
    pub fn render(&self, index: usize) -> Image {
        let settings = &self.settings;
        let sample = self.first.wrapping_add(index as u64);
        let mut rng = Rng::new(settings.seed, 0, sample);
        let unit = settings.size as f64 / UNIT_SIDE;

        let map = placement(settings, unit, &mut rng);
        let gap = rng.within(settings.contrast) as f32;
        let amplitude = rng.within(self.texture) as f32;
        let blur = (rng.within(settings.blur) * unit) as f32;
        let noise = rng.within(settings.noise) as f32;
        let strokes = rng.below(settings.strokes + 1);
        let over = rng.below(strokes + 1);

        let size = Size::square(settings.size);
        let mut coverage = Coverage::new(size, settings.size / 2);
        let background = random_colour(&mut rng);
        let cells = 2 + rng.below(7);
        let mut canvas = Canvas::textured(size, background, cells, amplitude, &mut rng);
        for _ in over..strokes {
            canvas.stroke(&mut coverage, &mut rng);
        }
        let faces = &self.outlines[self.label(index) as usize];
        coverage.clear();
        if let Some(outline) = faces.get(rng.below(faces.len())) {
            outline.draw(&mut coverage, |p| map.apply(p));
        }
        canvas.fill(&coverage, contrasting_colour(background, gap, &mut rng));
        for _ in 0..over {
            canvas.stroke(&mut coverage, &mut rng);
        }
        canvas.blur(blur);
        canvas.finish(noise, &mut rng)
    }
}

/// The map from a centred outline of one em, y upwards, to pixels: stretched, sheared, turned and shifted.
fn placement(settings: &settings::Characters, unit: f64, rng: &mut Rng) -> Affine {
    let size = rng.within(settings.font.map(|share| share * UNIT_SIDE)) * unit;
    let x_scale = rng.within(settings.stretch);
    let shear = rng.uniform(-settings.shear, settings.shear);
    let angle = rng.uniform(-settings.rotation, settings.rotation).to_radians();
    // libm, because the platforms' own functions differ in the last bit.
    let (sin, cos) = (libm::sin(angle), libm::cos(angle));
    let shift = settings.shift * UNIT_SIDE * unit;
    let centre = settings.size as f64 / 2.0;
    Affine {
        xx: size * cos * x_scale,
        xy: size * (cos * shear + sin),
        yx: size * sin * x_scale,
        yy: size * (sin * shear - cos),
        dx: centre + rng.uniform(-shift, shift),
        dy: centre + rng.uniform(-shift, shift),
    }
}

impl Dataset for Characters {
    fn len(&self) -> usize {
        self.len
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> u32 {
        (self.first.wrapping_add(index as u64) % self.classes.len() as u64) as u32
    }

    fn name(&self, index: usize) -> String {
        format!("characters(seed {})[{}]", self.settings.seed, self.first.wrapping_add(index as u64))
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::square(self.settings.size))
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        Ok(Source::Decoded(self.render(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without noise, blur and clutter every image shows something that stands out of its background.
    #[test]
    fn characters_stand_out() {
        let plain = settings::Characters {
            classes: 36,
            strokes: 0,
            blur: [0.0; 2],
            noise: [0.0; 2],
            seed: 3,
            ..Default::default()
        };
        let set = Characters { texture: [0.0; 2], ..Characters::new(&plain, 0, 360).unwrap() };
        for i in 0..set.len() {
            let image = set.image(i).unwrap();
            let luminance = |p: &[u8]| 0.299 * f64::from(p[0]) + 0.587 * f64::from(p[1]) + 0.114 * f64::from(p[2]);
            let background = luminance(image.pixels());
            let painted = image.pixels().chunks(3).filter(|p| (luminance(p) - background).abs() > 55.0).count();
            assert!((60..2500).contains(&painted), "{}: {painted} pixels", set.name(i));
        }
    }
}
