//! Generated videos: a textured object that moves, rotates, grows and changes its shape among similar objects,
//! sometimes partly hidden, on a textured background.

use super::blob::{Blob, BlobRanges, Colour, Pose};
use super::{TargetBox, VideoDataset, VideoFrame};
use crate::geometry::Point;
use crate::grid::{Grid, Mask};
use crate::image::{Rect, Size};
use crate::paint::{Canvas, contrasting_colour, random_colour};
use crate::{DataError, Rng, checks::Checks};
use zoo_settings as settings;

/// Largest turn per frame, in degrees.
const TURN: f64 = 4.0;
/// Largest change of size, as a factor's distance from 1.
const GROWTH: f64 = 0.2;
/// Width of the bar that hides parts of the target, in pixels.
const BAR: [f64; 2] = [8.0, 18.0];
/// Smallest difference of luminance (0..255) between objects and background.
const LUMINANCE_GAP: [f64; 2] = [25.0, 60.0];
/// Largest deviation of the texture's grid from the background colour, per channel.
const TEXTURE: [f64; 2] = [10.0, 50.0];
/// Deviation of the noise, in levels of 0..255.
const NOISE: [f64; 2] = [2.0, 8.0];

/// Generated videos: frame `t` of video `i` is a pure function of the settings, their seed, `first + i` and `t`.
#[derive(Debug, Clone)]
pub struct Videos {
    settings: settings::Videos,
    first: u64,
    len: usize,
}

impl Videos {
    /// Where held-out videos start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Videos `first..first + len` of the set that the settings describe.
    ///
    /// # Errors
    /// If a side is below 32 or above 4096, there are no frames, or a range is empty, not finite or, where that makes
    /// no sense, negative.
    pub fn new(settings: &settings::Videos, first: u64, len: usize) -> Result<Self, DataError> {
        Checks::of("videos")
            .size(Size::square(settings.size), 32)
            .count("frames", [1, settings.frames], 100_000)
            .range("radius", settings.radius, [2.0, 1e4])
            .range("speed", settings.speed, [0.0, 1e4])
            .count("distractors", settings.distractors, 100)
            .limit("waves", settings.waves, 0.3)
            .limit("occluded", settings.occluded, 1.0)
            .done()?;
        Ok(Self { settings: settings.clone(), first, len })
    }

    /// Draws frame `frame` of video `index`.
    pub fn render(&self, index: usize, frame: usize) -> VideoFrame {
        let number = self.first.wrapping_add(index as u64);
        let scene = Scene::new(&self.settings, Rng::new(self.settings.seed, 0, number));
        // The noise of each frame is its own.
        scene.draw(frame, Rng::new(self.settings.seed, 1 + frame as u64, number))
    }
}

/// The contents of a video that do not depend on the frame.
struct Scene {
    background: Canvas,
    target: Blob,
    others: Vec<Blob>,
    bar: Option<Bar>,
    noise: f32,
}

/// A straight bar across the scene that passes over the target.
struct Bar {
    /// Places along which its middle moves, per frame.
    start: Point,
    velocity: Point,
    /// Unit vector across the bar.
    across: Point,
    half_width: f64,
    colour: Colour,
}

impl Scene {
    fn new(settings: &settings::Videos, mut rng: Rng) -> Self {
        let size = Size::square(settings.size);
        let gap = rng.within(LUMINANCE_GAP) as f32;
        let amplitude = rng.within(TEXTURE) as f32;
        let noise = rng.within(NOISE) as f32;
        let half_width = rng.within(BAR) / 2.0;
        let cells = 3 + rng.below(10);
        let backdrop = random_colour(&mut rng);
        let mut background = Canvas::textured(size, backdrop, cells, amplitude, &mut rng);
        for _ in 0..rng.below(5) {
            stroke(&mut background, &mut rng);
        }
        let ranges = BlobRanges {
            radius: settings.radius,
            speed: settings.speed,
            turn: TURN.to_radians(),
            growth: GROWTH,
            waves: settings.waves,
        };
        let side = (size.width as f64, size.height as f64);
        let blob = |rng: &mut Rng| {
            let colours = [contrasting_colour(backdrop, gap, rng), random_colour(rng)];
            Blob::random(&ranges, side, colours, rng)
        };
        let target = blob(&mut rng);
        let count = rng.count(settings.distractors);
        let others = (0..count).map(|i| {
            let other = blob(&mut rng);
            if i == 0 { other.coloured_like(&target, &mut rng) } else { other }
        });
        let others = others.collect();
        let bar = rng.chance(settings.occluded).then(|| {
            let angle = rng.uniform(0.0, std::f64::consts::TAU);
            let across = Point::new(libm::cos(angle), libm::sin(angle));
            // It meets the target in some frame.
            let time = rng.unit() * settings.frames as f64;
            let velocity = across * rng.uniform(-4.0, 4.0);
            let start = target.pose(time, side).centre - velocity * time;
            Bar { start, velocity, across, half_width, colour: random_colour(&mut rng) }
        });
        Self { background, target, others, bar, noise }
    }

    fn draw(mut self, frame: usize, mut rng: Rng) -> VideoFrame {
        let (time, size) = (frame as f64, self.background.size());
        let side = (size.width as f64, size.height as f64);
        // How much of each pixel shows the target.
        let mut shown = Grid::filled(size, 0.0_f32);
        for other in &self.others {
            paint(&mut self.background, &other.pose(time, side), |_, _| {});
        }
        paint(&mut self.background, &self.target.pose(time, side), |i, covered| shown.values_mut()[i] = covered);
        if let Some(bar) = &self.bar {
            let at = bar.start + bar.velocity * time;
            let across = |p: Point| bar.half_width - (p - at).dot(bar.across).abs();
            paint_where(&mut self.background, Rect::full(size), across, bar.colour, |i, covered| {
                shown.values_mut()[i] *= 1.0 - covered;
            });
        }
        let mask: Mask = shown.map(|shown| shown > 0.5);
        let target = mask.bounds().map(|bounds| {
            // Pixels reach half a pixel to both sides of their centres, which are whole numbers.
            let target = TargetBox::from_rect(bounds);
            TargetBox { centre: target.centre - Point::new(0.5, 0.5), ..target }
        });
        VideoFrame { image: self.background.finish(self.noise, &mut rng), target, mask: Some(mask) }
    }
}

/// Paints a straight line of random place, width and colour.
fn stroke(canvas: &mut Canvas, rng: &mut Rng) {
    let size = canvas.size();
    let mut place = || Point::new(rng.unit() * size.width as f64, rng.unit() * size.height as f64);
    let (a, b) = (place(), place());
    let half_width = rng.uniform(1.5, 6.0);
    let along = b - a;
    let inside = |p: Point| {
        let t = ((p - a).dot(along) / along.dot(along).max(1e-9)).clamp(0.0, 1.0);
        half_width - p.distance(a + along * t)
    };
    let limit = |value: f64, length: usize| value.clamp(0.0, length as f64) as usize;
    let (left, top) = (limit(a.x.min(b.x) - 8.0, size.width), limit(a.y.min(b.y) - 8.0, size.height));
    let (right, bottom) = (limit(a.x.max(b.x) + 8.0, size.width), limit(a.y.max(b.y) + 8.0, size.height));
    let colour = random_colour(rng);
    paint_where(canvas, Rect::new(left, top, right - left, bottom - top), inside, colour, |_, _| {});
}

/// Paints the pixels of `rect` in one colour by their distance inside a border (negative outside), and reports how much
/// of each of them is covered.
fn paint_where(
    canvas: &mut Canvas,
    rect: Rect,
    inside: impl Fn(Point) -> f64,
    colour: Colour,
    mut report: impl FnMut(usize, f32),
) {
    let width = canvas.size().width;
    for y in rect.y..rect.bottom() {
        for x in rect.x..rect.right() {
            let covered = (inside(Point::new(x as f64, y as f64)) + 0.5).clamp(0.0, 1.0) as f32;
            if covered > 0.0 {
                canvas.blend(y * width + x, colour, covered);
                report(y * width + x, covered);
            }
        }
    }
}

/// Paints a blob and reports how much of each of its pixels it covers.
fn paint(canvas: &mut Canvas, pose: &Pose<'_>, mut report: impl FnMut(usize, f32)) {
    let size: Size = canvas.size();
    let reach = pose.reach();
    let range = |middle: f64, length: usize| {
        let limit = |value: f64| value.clamp(0.0, length as f64) as usize;
        limit(middle - reach)..limit(middle + reach + 1.0)
    };
    let columns = range(pose.centre.x, size.width);
    for y in range(pose.centre.y, size.height) {
        for x in columns.clone() {
            let (covered, colour) = pose.cover(Point::new(x as f64, y as f64));
            if covered > 0.0 {
                canvas.blend(y * size.width + x, colour, covered);
                report(y * size.width + x, covered);
            }
        }
    }
}

impl VideoDataset for Videos {
    fn len(&self) -> usize {
        self.len
    }

    fn name(&self, index: usize) -> String {
        format!("videos(seed {})[{}]", self.settings.seed, self.first.wrapping_add(index as u64))
    }

    fn frames(&self, _index: usize) -> usize {
        self.settings.frames
    }

    fn frame(&self, index: usize, frame: usize) -> Result<VideoFrame, DataError> {
        Ok(self.render(index, frame))
    }
}
