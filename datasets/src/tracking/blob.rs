//! Textured objects that move, rotate, grow and change their shape, for generated videos.

use std::f64::consts::{PI, TAU};

use crate::Rng;
use crate::geometry::Point;

/// A colour; 0 to 255 per channel.
pub(super) type Colour = [f32; 3];

/// Ranges from which a blob is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlobRanges {
    /// Mean radius in pixels.
    pub radius: [f64; 2],
    /// Speed in pixels per frame.
    pub speed: [f64; 2],
    /// Largest turn per frame, in radians.
    pub turn: f64,
    /// Largest change of size, as a factor's distance from 1.
    pub growth: f64,
    /// Largest amplitude of each wave along the outline, as a part of the radius.
    pub waves: f64,
}

/// An object in a video. Its state in frame t is a function of t.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    start: Point,
    velocity: Point,
    radius: f64,
    angle: f64,
    turn: f64,
    growth: Wave,
    /// Waves along the outline: of twice, three and four times the angle.
    outline: [Wave; 3],
    pattern: Pattern,
    colours: [Colour; 2],
}

/// A sine of time.
#[derive(Debug, Clone, Copy)]
struct Wave {
    amplitude: f64,
    phase: f64,
    /// Radians per frame.
    rate: f64,
}

impl Wave {
    fn random(amplitude: f64, rate: f64, rng: &mut Rng) -> Self {
        Self { amplitude: rng.uniform(0.0, amplitude), phase: rng.uniform(0.0, TAU), rate: rng.uniform(-rate, rate) }
    }

    fn at(&self, time: f64) -> f64 {
        self.amplitude * libm::sin(self.phase + self.rate * time)
    }
}

/// The texture of a blob, in its own coordinates.
#[derive(Debug, Clone, Copy)]
enum Pattern {
    /// Parallel stripes of this width.
    Stripes(f64),
    /// Dots on a square grid of this width.
    Dots(f64),
    /// Squares of random shade, of this width.
    Squares(f64, u64),
}

impl Blob {
    /// A blob that begins somewhere in a scene of `side` pixels, in these colours.
    pub fn random(ranges: &BlobRanges, side: (f64, f64), colours: [Colour; 2], rng: &mut Rng) -> Self {
        let radius = rng.within(ranges.radius);
        let speed = rng.within(ranges.speed);
        let direction = rng.uniform(0.0, TAU);
        let place = |side: f64, rng: &mut Rng| rng.uniform(0.0, (side - 2.0 * radius).max(1.0));
        let width = rng.uniform(0.3, 0.6) * radius;
        Self {
            start: Point::new(place(side.0, rng), place(side.1, rng)),
            velocity: Point::new(libm::cos(direction), libm::sin(direction)) * speed,
            radius,
            angle: rng.uniform(0.0, TAU),
            turn: rng.uniform(-ranges.turn, ranges.turn),
            growth: Wave::random(ranges.growth, 0.15, rng),
            outline: std::array::from_fn(|_| Wave::random(ranges.waves, 0.25, rng)),
            pattern: match rng.below(3) {
                0 => Pattern::Stripes(width),
                1 => Pattern::Dots(width),
                _ => Pattern::Squares(width, rng.bits()),
            },
            colours,
        }
    }

    /// The same object in almost the colours of another one: a distractor that is easily confused.
    pub fn coloured_like(self, other: &Self, rng: &mut Rng) -> Self {
        let colours = other.colours.map(|colour| colour.map(|channel| channel + rng.uniform(-20.0, 20.0) as f32));
        Self { colours, ..self }
    }

    /// Its state in a frame of a scene of `side` pixels.
    pub fn pose(&self, time: f64, side: (f64, f64)) -> Pose<'_> {
        // Things move in straight lines and turn back at the border.
        let back_and_forth = |start: f64, velocity: f64, side: f64| {
            let room = (side - 2.0 * self.radius).max(1.0);
            let at = (start + velocity * time).rem_euclid(2.0 * room);
            self.radius + if at > room { 2.0 * room - at } else { at }
        };
        let angle = self.angle + self.turn * time;
        Pose {
            blob: self,
            centre: Point::new(
                back_and_forth(self.start.x, self.velocity.x, side.0),
                back_and_forth(self.start.y, self.velocity.y, side.1),
            ),
            radius: self.radius * (1.0 + self.growth.at(time)),
            sin_cos: (libm::sin(angle), libm::cos(angle)),
            waves: self.outline.map(|wave| (wave.amplitude, wave.phase + wave.rate * time)),
        }
    }
}

/// A blob at one time.
pub(super) struct Pose<'a> {
    blob: &'a Blob,
    pub centre: Point,
    radius: f64,
    sin_cos: (f64, f64),
    /// Amplitude and phase of each wave along the outline.
    waves: [(f64, f64); 3],
}

impl Pose<'_> {
    /// The largest distance of the outline from the centre.
    pub fn reach(&self) -> f64 {
        self.radius * (1.0 + self.waves.iter().map(|(amplitude, _)| amplitude).sum::<f64>()) + 1.0
    }

    /// How much of the pixel at `p` is covered (0 to 1), and its colour.
    pub fn cover(&self, p: Point) -> (f32, Colour) {
        let away = p - self.centre;
        let (sin, cos) = self.sin_cos;
        let own = Point::new(away.x * cos + away.y * sin, away.y * cos - away.x * sin);
        let distance = own.length();
        let angle = libm::atan2(own.y, own.x);
        let wave = |n: usize| {
            let (amplitude, phase) = self.waves[n];
            amplitude * libm::sin((n + 2) as f64 * angle + phase)
        };
        let outline = self.radius * (1.0 + wave(0) + wave(1) + wave(2));
        let covered = (outline - distance + 0.5).clamp(0.0, 1.0) as f32;
        if covered == 0.0 {
            return (0.0, [0.0; 3]);
        }
        // The pattern grows with the blob.
        let grown = self.blob.radius / self.radius;
        let [a, b] = self.blob.colours;
        let share = self.blob.pattern.share(own * grown) as f32;
        (covered, std::array::from_fn(|channel| a[channel] + (b[channel] - a[channel]) * share))
    }
}

impl Pattern {
    /// How much of the second colour a place has, 0 to 1.
    fn share(self, p: Point) -> f64 {
        let soft = |edge: f64| (edge + 0.5).clamp(0.0, 1.0);
        match self {
            Self::Stripes(width) => soft(width / 3.0 * libm::sin(PI * p.x / width)),
            Self::Dots(width) => {
                let off = |value: f64| value - (value / width).round() * width;
                soft(width * 0.3 - Point::new(off(p.x), off(p.y)).length())
            }
            Self::Squares(width, seed) => {
                let (column, row) = ((p.x / width).floor() as i64, (p.y / width).floor() as i64);
                Rng::new(seed, column as u64, row as u64).unit()
            }
        }
    }
}
