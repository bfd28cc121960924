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
use crate::{DataError, Dataset, Rng, Source};

/// The characters that are the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Alphabet {
    /// 0 to 9.
    #[default]
    Digits,
    /// 0 to 9 and A to Z.
    Alphanumeric,
}

impl Alphabet {
    fn characters(self) -> impl Iterator<Item = char> {
        let letters = match self {
            Self::Digits => 0,
            Self::Alphanumeric => 26,
        };
        ('0'..='9').chain(('A'..='Z').take(letters))
    }
}

/// How characters are drawn. Lengths are pixels of a 64-pixel image and scale with its side; pairs are the smallest
/// and the largest value of a uniform draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CharactersConfig {
    /// The classes.
    pub alphabet: Alphabet,
    /// Side of the square images in pixels.
    pub side: usize,
    /// Size of an em.
    pub font_size: (f64, f64),
    /// Largest shift from the centre, in each direction.
    pub shift: f64,
    /// Largest rotation in degrees, in each direction.
    pub rotation: f64,
    /// Largest horizontal shear (x moved per y), in each direction.
    pub shear: f64,
    /// Horizontal stretching.
    pub x_scale: (f64, f64),
    /// Least difference of luminance (0..255) between character and background.
    pub luminance_gap: (f64, f64),
    /// Largest deviation of the texture's grid from the background colour, per channel.
    pub texture: (f64, f64),
    /// Most strokes of clutter.
    pub strokes: usize,
    /// Deviation of the Gaussian blur.
    pub blur: (f64, f64),
    /// Deviation of the noise, in levels of 0..255.
    pub noise: (f64, f64),
}

impl CharactersConfig {
    /// Side in pixels of the image that lengths are given for.
    pub const UNIT_SIDE: f64 = 64.0;
}

impl Default for CharactersConfig {
    fn default() -> Self {
        Self {
            alphabet: Alphabet::Digits,
            side: 64,
            font_size: (38.0, 56.0),
            shift: 5.0,
            rotation: 10.0,
            shear: 0.15,
            x_scale: (0.85, 1.15),
            luminance_gap: (60.0, 100.0),
            texture: (10.0, 50.0),
            strokes: 3,
            blur: (0.0, 1.2),
            noise: (2.0, 10.0),
        }
    }
}

/// Rendered characters: sample `i` is a pure function of configuration, seed and `first + i`.
#[derive(Debug, Clone)]
pub struct Characters {
    config: CharactersConfig,
    seed: u64,
    first: u64,
    len: usize,
    classes: Vec<String>,
    /// Outlines by class and face.
    outlines: Arc<Vec<Vec<Outline>>>,
}

impl Characters {
    /// Where held-out samples start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Samples `first..first + len` of the set that `config` and `seed` describe.
    ///
    /// # Errors
    /// If `config` has a side of 0 or above 4096, or a range that is empty, not finite or, where that makes no
    /// sense, negative.
    pub fn new(config: CharactersConfig, seed: u64, first: u64, len: usize) -> Result<Self, DataError> {
        check(&config).map_err(|reason| DataError::Config(format!("characters: {reason}")))?;
        let classes = config.alphabet.characters().map(String::from).collect();
        let faces = embedded_faces();
        let of_character = |c| faces.iter().filter_map(|face| face.centred(c)).collect();
        let outlines = Arc::new(config.alphabet.characters().map(of_character).collect());
        Ok(Self { config, seed, first, len, classes, outlines })
    }

    /// Draws sample `index`.
    pub fn render(&self, index: usize) -> Image {
        let config = &self.config;
        let sample = self.first.wrapping_add(index as u64);
        let mut rng = Rng::new(self.seed, 0, sample);
        let mut within = |(low, high): (f64, f64)| rng.uniform(low, high);
        let unit = config.side as f64 / CharactersConfig::UNIT_SIDE;

        let map = placement(config, unit, &mut within);
        let gap = within(config.luminance_gap) as f32;
        let amplitude = within(config.texture) as f32;
        let blur = (within(config.blur) * unit) as f32;
        let noise = within(config.noise) as f32;
        let strokes = rng.below(config.strokes + 1);
        let over = rng.below(strokes + 1);

        let size = Size::square(config.side);
        let mut coverage = Coverage::new(size, config.side / 2);
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
fn placement(config: &CharactersConfig, unit: f64, within: &mut impl FnMut((f64, f64)) -> f64) -> Affine {
    let size = within(config.font_size) * unit;
    let x_scale = within(config.x_scale);
    let shear = within((-config.shear, config.shear));
    let angle = within((-config.rotation, config.rotation)).to_radians();
    // libm, because the platforms' own functions differ in the last bit.
    let (sin, cos) = (libm::sin(angle), libm::cos(angle));
    let shift = config.shift * unit;
    let centre = config.side as f64 / 2.0;
    Affine {
        xx: size * cos * x_scale,
        xy: size * (cos * shear + sin),
        yx: size * sin * x_scale,
        yy: size * (sin * shear - cos),
        dx: centre + within((-shift, shift)),
        dy: centre + within((-shift, shift)),
    }
}

fn check(config: &CharactersConfig) -> Result<(), String> {
    if !(1..=4096).contains(&config.side) {
        return Err(format!("images of {} pixels a side", config.side));
    }
    let around_zero = |limit: f64| (-limit, limit);
    let ranges = [
        ("font_size", config.font_size, 1.0),
        ("shift", (0.0, config.shift), 0.0),
        ("rotation", around_zero(config.rotation), -180.0),
        ("shear", around_zero(config.shear), -4.0),
        ("x_scale", config.x_scale, 0.1),
        ("luminance_gap", config.luminance_gap, 0.0),
        ("texture", config.texture, 0.0),
        ("blur", config.blur, 0.0),
        ("noise", config.noise, 0.0),
    ];
    for (name, (low, high), least) in ranges {
        if !(low >= least && low <= high && high <= 1e4) {
            return Err(format!("{name} from {low} to {high}"));
        }
    }
    Ok(())
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
        format!("characters(seed {})[{}]", self.seed, self.first.wrapping_add(index as u64))
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::square(self.config.side))
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        Ok(Source::Decoded(self.render(index)))
    }
}
