//! Backgrounds, strokes, blur and noise.

use super::Coverage;
use crate::Rng;
use crate::geometry::Point;
use crate::image::{Image, Rect, Size};

/// A colour; 0 to 255 per channel.
pub(crate) type Colour = [f32; 3];

/// Luminance by ITU-R BT.601.
fn luminance(colour: Colour) -> f32 {
    0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
}

/// Any colour, uniformly.
pub(crate) fn random_colour(rng: &mut Rng) -> Colour {
    std::array::from_fn(|_| rng.uniform(0.0, 255.0) as f32)
}

/// A random colour whose luminance is at least `gap` away from that of `other`, in either direction.
pub(crate) fn contrasting_colour(other: Colour, gap: f32, rng: &mut Rng) -> Colour {
    for _ in 0..64 {
        let colour = random_colour(rng);
        if (luminance(colour) - luminance(other)).abs() >= gap {
            return colour;
        }
    }
    // The far end of the grey axis, if chance found nothing.
    [if luminance(other) < 127.5 { 255.0 } else { 0.0 }; 3]
}

/// A picture in the making, in floating point.
pub(crate) struct Canvas {
    size: Size,
    pixels: Vec<Colour>,
}

impl Canvas {
    /// A texture around `colour`: a coarse grid of random offsets up to `amplitude`, interpolated linearly.
    pub fn textured(size: Size, colour: Colour, cells: usize, amplitude: f32, rng: &mut Rng) -> Self {
        let amplitude = f64::from(amplitude);
        let grid: Vec<Colour> = (0..(cells + 1) * (cells + 1))
            .map(|_| colour.map(|channel| channel + rng.uniform(-amplitude, amplitude) as f32))
            .collect();
        // Cell and position in it of every pixel along one axis.
        let axis = |length: usize| -> Vec<(usize, f32)> {
            let step = cells as f32 / length as f32;
            let place = |i: usize| {
                let at = (i as f32 + 0.5) * step;
                let cell = (at as usize).min(cells - 1);
                (cell, at - cell as f32)
            };
            (0..length).map(place).collect()
        };
        let (rows, columns) = (axis(size.height), axis(size.width));
        let mut pixels = Vec::with_capacity(size.area());
        for &(row, v) in &rows {
            for &(column, u) in &columns {
                let corner = |r: usize, c: usize| grid[(row + r) * (cells + 1) + column + c];
                let (above, below) = (mix(corner(0, 0), corner(0, 1), u), mix(corner(1, 0), corner(1, 1), u));
                pixels.push(mix(above, below, v));
            }
        }
        Self { size, pixels }
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Mixes `colour` into pixel `index`, counted row by row.
    pub fn blend(&mut self, index: usize, colour: Colour, covered: f32) {
        self.pixels[index] = mix(self.pixels[index], colour, covered);
    }

    /// The colour of pixel `index`, counted row by row.
    pub fn colour(&self, index: usize) -> Colour {
        self.pixels[index]
    }

    /// Paints `colour` on covered pixels.
    pub fn fill(&mut self, coverage: &Coverage, colour: Colour) {
        coverage.for_each_covered(|index, coverage| self.pixels[index] = mix(self.pixels[index], colour, coverage));
    }

    /// Paints covered pixels in a random texture whose luminance differs from that of pixel `middle` by at least a
    /// random number in the range `gap`.
    pub fn fill_contrasting(&mut self, coverage: &Coverage, middle: usize, gap: [f64; 2], rng: &mut Rng) {
        let gap = rng.within(gap) as f32;
        let colour = contrasting_colour(self.colour(middle), gap, rng);
        let amplitude = rng.uniform(5.0, 30.0) as f32;
        let texture = Self::textured(self.size, colour, 3 + rng.below(8), amplitude, rng);
        coverage.for_each_covered(|index, covered| self.blend(index, texture.colour(index), covered));
    }

    /// The mean colour of the pixels of `rect`, which must be inside.
    pub fn mean(&self, rect: Rect) -> Colour {
        let rows = (rect.y..rect.bottom()).map(|y| &self.pixels[y * self.size.width..][rect.x..rect.right()]);
        let mut sum = [0.0_f64; 3];
        rows.flatten().for_each(|pixel| sum.iter_mut().zip(pixel).for_each(|(sum, &v)| *sum += f64::from(v)));
        sum.map(|sum| (sum / rect.size().area().max(1) as f64) as f32)
    }

    /// Paints a straight stroke of random place, width and colour.
    pub fn stroke(&mut self, coverage: &mut Coverage, rng: &mut Rng) {
        let (width, height) = (self.size.width as f64, self.size.height as f64);
        let mut end = || Point::new(rng.uniform(-0.1, 1.1) * width, rng.uniform(-0.1, 1.1) * height);
        let (a, b) = (end(), end());
        let half_width = rng.uniform(0.5, 1.5) * width.min(height) / 64.0;
        let (dx, dy) = (b.x - a.x, b.y - a.y);
        let length = (dx * dx + dy * dy).sqrt().max(1e-6);
        let normal = Point::new(-dy / length * half_width, dx / length * half_width);
        coverage.clear();
        coverage.polygon(&[a + normal, b + normal, b - normal, a - normal]);
        self.fill(coverage, random_colour(rng));
    }

    /// Gaussian blur of deviation `sigma` pixels; pixels beyond the border repeat it.
    pub fn blur(&mut self, sigma: f32) {
        let radius = (3.0 * sigma).ceil() as usize;
        if radius == 0 {
            return;
        }
        let mut kernel: Vec<f32> = (0..=radius).map(|i| libm::expf(-0.5 * (i as f32 / sigma).powi(2))).collect();
        let sum = kernel[0] + 2.0 * kernel[1..].iter().sum::<f32>();
        kernel.iter_mut().for_each(|weight| *weight /= sum);
        let blur_rows = |pixels: &[Colour], width: usize| -> Vec<Colour> {
            let height = pixels.len() / width;
            let mut padded = vec![[0.0; 3]; width + 2 * radius];
            let mut out = vec![[0.0; 3]; pixels.len()];
            for (y, row) in pixels.chunks_exact(width).enumerate() {
                padded[..radius].fill(row[0]);
                padded[radius..radius + width].copy_from_slice(row);
                padded[radius + width..].fill(row[width - 1]);
                // Results are written transposed, so that the second pass works on columns.
                for x in 0..width {
                    let centre = &padded[x..=x + 2 * radius];
                    out[x * height + y] = std::array::from_fn(|channel| {
                        (1..=radius).fold(centre[radius][channel] * kernel[0], |sum, i| {
                            sum + kernel[i] * (centre[radius - i][channel] + centre[radius + i][channel])
                        })
                    });
                }
            }
            out
        };
        self.pixels = blur_rows(&blur_rows(&self.pixels, self.size.width), self.size.height);
    }

    /// Adds noise of deviation `sigma` to every channel of every pixel and rounds to 8 bits.
    pub fn finish(self, sigma: f32, rng: &mut Rng) -> Image {
        let mut image = Image::filled(self.size, [0; 3]);
        for (value, out) in self.pixels.as_flattened().iter().zip(image.pixels_mut()) {
            // The cast truncates and saturates at 0 and 255.
            *out = (value + sigma * rng.normal() + 0.5) as u8;
        }
        image
    }
}

/// `a` at t = 0, `b` at t = 1.
fn mix(a: Colour, b: Colour, t: f32) -> Colour {
    std::array::from_fn(|channel| a[channel] + (b[channel] - a[channel]) * t)
}
