//! Backgrounds, strokes, blur and noise.

use ab_glyph_rasterizer::point;

use super::font::Mask;
use crate::Rng;
use crate::image::{Image, Size};

/// A colour; 0 to 255 per channel.
pub(super) type Colour = [f32; 3];

/// Luminance by ITU-R BT.601.
pub(super) fn luminance(colour: Colour) -> f32 {
    0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
}

/// Any colour, uniformly.
pub(super) fn random_colour(rng: &mut Rng) -> Colour {
    std::array::from_fn(|_| rng.uniform(0.0, 255.0) as f32)
}

/// A random colour whose luminance is at least `gap` away from that of `other`, in either direction.
pub(super) fn contrasting_colour(other: Colour, gap: f32, rng: &mut Rng) -> Colour {
    for _ in 0..64 {
        let colour = random_colour(rng);
        if (luminance(colour) - luminance(other)).abs() >= gap {
            return colour;
        }
    }
    // The far end of the grey axis, if chance found nothing.
    [if luminance(other) < 127.5 { 255.0 } else { 0.0 }; 3]
}

/// A square picture in the making, in floating point.
pub(super) struct Canvas {
    side: usize,
    pixels: Vec<Colour>,
}

impl Canvas {
    /// A texture around `colour`: a coarse grid of random offsets up to `amplitude`, interpolated linearly.
    pub fn textured(side: usize, colour: Colour, cells: usize, amplitude: f32, rng: &mut Rng) -> Self {
        let amplitude = f64::from(amplitude);
        let grid: Vec<Colour> = (0..(cells + 1) * (cells + 1))
            .map(|_| colour.map(|channel| channel + rng.uniform(-amplitude, amplitude) as f32))
            .collect();
        let step = cells as f32 / side as f32;
        // Cell and position in it of every pixel along one axis.
        let axis: Vec<(usize, f32)> = (0..side)
            .map(|i| {
                let at = (i as f32 + 0.5) * step;
                let cell = (at as usize).min(cells - 1);
                (cell, at - cell as f32)
            })
            .collect();
        let mut pixels = Vec::with_capacity(side * side);
        for &(row, v) in &axis {
            for &(column, u) in &axis {
                let corner = |r: usize, c: usize| grid[(row + r) * (cells + 1) + column + c];
                let (above, below) = (mix(corner(0, 0), corner(0, 1), u), mix(corner(1, 0), corner(1, 1), u));
                pixels.push(mix(above, below, v));
            }
        }
        Self { side, pixels }
    }

    /// Paints `colour` where `mask` covers.
    pub fn fill(&mut self, mask: &Mask, colour: Colour) {
        mask.for_each_covered(|index, coverage| self.pixels[index] = mix(self.pixels[index], colour, coverage));
    }

    /// Paints a straight stroke of random place, width and colour.
    pub fn stroke(&mut self, mask: &mut Mask, rng: &mut Rng) {
        let side = self.side as f64;
        let mut end = || (rng.uniform(-0.1, 1.1) * side, rng.uniform(-0.1, 1.1) * side);
        let ((ax, ay), (bx, by)) = (end(), end());
        let half_width = rng.uniform(0.5, 1.5) * side / 64.0;
        let (dx, dy) = (bx - ax, by - ay);
        let length = (dx * dx + dy * dy).sqrt().max(1e-6);
        let (nx, ny) = (-dy / length * half_width, dx / length * half_width);
        let corners = [(ax + nx, ay + ny), (bx + nx, by + ny), (bx - nx, by - ny), (ax - nx, ay - ny)]
            .map(|(x, y)| point(x as f32, y as f32));
        mask.clear();
        for i in 0..corners.len() {
            mask.line(corners[i], corners[(i + 1) % corners.len()]);
        }
        self.fill(mask, random_colour(rng));
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
        let side = self.side;
        let blur_rows = |pixels: &[Colour]| -> Vec<Colour> {
            let mut padded = vec![[0.0; 3]; side + 2 * radius];
            let mut out = vec![[0.0; 3]; side * side];
            for (y, row) in pixels.chunks_exact(side).enumerate() {
                padded[..radius].fill(row[0]);
                padded[radius..radius + side].copy_from_slice(row);
                padded[radius + side..].fill(row[side - 1]);
                // Results are written transposed, so that the second pass works on columns.
                for x in 0..side {
                    let centre = &padded[x..=x + 2 * radius];
                    out[x * side + y] = std::array::from_fn(|channel| {
                        (1..=radius).fold(centre[radius][channel] * kernel[0], |sum, i| {
                            sum + kernel[i] * (centre[radius - i][channel] + centre[radius + i][channel])
                        })
                    });
                }
            }
            out
        };
        self.pixels = blur_rows(&blur_rows(&self.pixels));
    }

    /// Adds noise of deviation `sigma` to every channel of every pixel and rounds to 8 bits.
    pub fn finish(self, sigma: f32, rng: &mut Rng) -> Image {
        let mut image = Image::filled(Size::square(self.side), [0; 3]);
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
