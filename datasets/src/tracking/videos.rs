//! Generated videos: a textured object that moves, rotates, grows and changes its shape among similar objects,
//! sometimes partly hidden, on a textured background.

use super::blob::{Blob, BlobRanges, Colour, Pose};
use super::{TargetBox, VideoDataset, VideoFrame};
use crate::geometry::Point;
use crate::grid::{Grid, Mask};
use crate::image::{Rect, Size};
use crate::paint::{Canvas, contrasting_colour, random_colour};
use crate::{DataError, Rng};

/// How videos are drawn. Pairs are the smallest and the largest value of a uniform draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VideosConfig {
    /// Size of the frames.
    pub size: Size,
    /// Number of frames of a video.
    pub frames: usize,
    /// Mean radius of objects, in pixels.
    pub radius: (f64, f64),
    /// Speed in pixels per frame.
    pub speed: (f64, f64),
    /// Largest turn per frame, in degrees.
    pub turn: f64,
    /// Largest change of size, as a factor's distance from 1.
    pub growth: f64,
    /// Largest amplitude of the waves along the outline, as a part of the radius.
    pub waves: f64,
    /// Other objects in the scene; one of them has almost the colours of the target.
    pub distractors: (usize, usize),
    /// Part of the videos in which a bar hides parts of the target at times.
    pub occluded: f64,
    /// Width of that bar, in pixels.
    pub bar: (f64, f64),
    /// Smallest difference of luminance (0..255) between objects and background.
    pub luminance_gap: (f64, f64),
    /// Largest deviation of the texture's grid from the background colour, per channel.
    pub texture: (f64, f64),
    /// Deviation of the noise, in levels of 0..255.
    pub noise: (f64, f64),
}

impl Default for VideosConfig {
    fn default() -> Self {
        Self {
            size: Size::square(360),
            frames: 20,
            radius: (22.0, 42.0),
            speed: (0.0, 5.0),
            turn: 4.0,
            growth: 0.2,
            waves: 0.3,
            distractors: (1, 3),
            occluded: 0.3,
            bar: (8.0, 18.0),
            luminance_gap: (25.0, 60.0),
            texture: (10.0, 50.0),
            noise: (2.0, 8.0),
        }
    }
}

/// Generated videos: frame `t` of video `i` is a pure function of configuration, seed, `first + i` and `t`.
#[derive(Debug, Clone)]
pub struct Videos {
    config: VideosConfig,
    seed: u64,
    first: u64,
    len: usize,
}

impl Videos {
    /// Where held-out videos start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Videos `first..first + len` of the set that `config` and `seed` describe.
    ///
    /// # Errors
    /// If `config` has a side below 32 or above 4096, no frames, or a range that is empty, not finite or, where that
    /// makes no sense, negative.
    pub fn new(config: VideosConfig, seed: u64, first: u64, len: usize) -> Result<Self, DataError> {
        check(&config).map_err(|reason| DataError::Config(format!("videos: {reason}")))?;
        Ok(Self { config, seed, first, len })
    }

    /// Draws frame `frame` of video `index`.
    pub fn render(&self, index: usize, frame: usize) -> VideoFrame {
        let number = self.first.wrapping_add(index as u64);
        let scene = Scene::new(&self.config, Rng::new(self.seed, 0, number));
        // The noise of each frame is its own.
        scene.draw(frame, Rng::new(self.seed, 1 + frame as u64, number))
    }
}

/// The contents of a video that do not depend on the frame.
struct Scene<'a> {
    config: &'a VideosConfig,
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

impl<'a> Scene<'a> {
    fn new(config: &'a VideosConfig, mut rng: Rng) -> Self {
        let mut within = |(low, high): (f64, f64)| rng.uniform(low, high);
        let gap = within(config.luminance_gap) as f32;
        let amplitude = within(config.texture) as f32;
        let noise = within(config.noise) as f32;
        let half_width = within(config.bar) / 2.0;
        let cells = 3 + rng.below(10);
        let backdrop = random_colour(&mut rng);
        let mut background = Canvas::textured(config.size, backdrop, cells, amplitude, &mut rng);
        for _ in 0..rng.below(5) {
            stroke(&mut background, &mut rng);
        }
        let ranges = BlobRanges {
            radius: config.radius,
            speed: config.speed,
            turn: config.turn.to_radians(),
            growth: config.growth,
            waves: config.waves,
        };
        let side = (config.size.width as f64, config.size.height as f64);
        let blob = |rng: &mut Rng| {
            let colours = [contrasting_colour(backdrop, gap, rng), random_colour(rng)];
            Blob::random(&ranges, side, colours, rng)
        };
        let target = blob(&mut rng);
        let count = config.distractors.0 + rng.below(config.distractors.1 - config.distractors.0 + 1);
        let others = (0..count).map(|i| {
            let other = blob(&mut rng);
            if i == 0 { other.coloured_like(&target, &mut rng) } else { other }
        });
        let others = others.collect();
        let bar = rng.chance(config.occluded).then(|| {
            let angle = rng.uniform(0.0, std::f64::consts::TAU);
            let across = Point::new(libm::cos(angle), libm::sin(angle));
            // It meets the target in some frame.
            let time = rng.unit() * config.frames as f64;
            let velocity = across * rng.uniform(-4.0, 4.0);
            let start = target.pose(time, side).centre - velocity * time;
            Bar { start, velocity, across, half_width, colour: random_colour(&mut rng) }
        });
        Self { config, background, target, others, bar, noise }
    }

    fn draw(mut self, frame: usize, mut rng: Rng) -> VideoFrame {
        let (time, size) = (frame as f64, self.config.size);
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

fn check(config: &VideosConfig) -> Result<(), String> {
    let sided = |side: usize| (32..=4096).contains(&side);
    if !sided(config.size.width) || !sided(config.size.height) || !(1..=100_000).contains(&config.frames) {
        return Err(format!("{} frames of {} pixels", config.frames, config.size));
    }
    let up_to = |limit: f64| (0.0, limit);
    let ranges = [
        ("radius", config.radius, 2.0),
        ("speed", config.speed, 0.0),
        ("turn", up_to(config.turn), 0.0),
        ("bar", config.bar, 0.0),
        ("luminance_gap", config.luminance_gap, 0.0),
        ("texture", config.texture, 0.0),
        ("noise", config.noise, 0.0),
    ];
    for (name, (low, high), least) in ranges {
        if !(low >= least && low <= high && high <= 1e4) {
            return Err(format!("{name} from {low} to {high}"));
        }
    }
    if config.distractors.0 > config.distractors.1 || config.distractors.1 > 100 {
        return Err(format!("distractors from {} to {}", config.distractors.0, config.distractors.1));
    }
    let parts = [("growth", config.growth, 0.9), ("waves", config.waves, 0.3), ("occluded", config.occluded, 1.0)];
    match parts.into_iter().find(|(_, part, most)| !(0.0..=*most).contains(part)) {
        Some((name, part, most)) => Err(format!("{name} is {part}, not within 0 to {most}")),
        None => Ok(()),
    }
}

impl VideoDataset for Videos {
    fn len(&self) -> usize {
        self.len
    }

    fn name(&self, index: usize) -> String {
        format!("videos(seed {})[{}]", self.seed, self.first.wrapping_add(index as u64))
    }

    fn frames(&self, _index: usize) -> usize {
        self.config.frames
    }

    fn frame(&self, index: usize, frame: usize) -> Result<VideoFrame, DataError> {
        Ok(self.render(index, frame))
    }
}
