//! Colour operations: Pillow's `ImageEnhance` and `ImageOps`, bit for bit.

use super::normalize::luminance;
use crate::image::Image;

/// A colour operation. Factors are those of Pillow: 1 does not change the image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Adjust {
    /// Blends with black: `ImageEnhance.Brightness`.
    Brightness(f32),
    /// Blends with the mean luminance of the image: `ImageEnhance.Contrast`.
    Contrast(f32),
    /// Blends with the luminance of each pixel: `ImageEnhance.Color`.
    Saturation(f32),
    /// Blends with the smoothed image: `ImageEnhance.Sharpness`.
    Sharpness(f32),
    /// Rotates the hue by this many 255ths of a circle (`torchvision.transforms.functional.adjust_hue`).
    Hue(u8),
    /// Keeps this many high bits of each level: `ImageOps.posterize`.
    Posterize(u32),
    /// Inverts levels that reach this threshold: `ImageOps.solarize`.
    Solarize(f64),
    /// Stretches each channel to all levels: `ImageOps.autocontrast`.
    AutoContrast,
    /// Makes all levels of a channel equally frequent: `ImageOps.equalize`.
    Equalize,
}

impl Adjust {
    /// Whether each output pixel depends on one input pixel only.
    pub(super) fn is_local(self) -> bool {
        match self {
            Self::Brightness(_) | Self::Saturation(_) | Self::Hue(_) | Self::Posterize(_) | Self::Solarize(_) => true,
            Self::Contrast(_) | Self::Sharpness(_) | Self::AutoContrast | Self::Equalize => false,
        }
    }

    pub(super) fn run(self, mut image: Image) -> Image {
        match self {
            Self::Brightness(factor) => each(&mut image, |pixel| pixel.map(|level| blend(0, level, factor))),
            Self::Contrast(factor) => {
                let mean = mean_luminance(&image);
                each(&mut image, |pixel| pixel.map(|level| blend(mean, level, factor)));
            }
            Self::Saturation(factor) => each(&mut image, |pixel| {
                let grey = luminance(pixel);
                pixel.map(|level| blend(grey, level, factor))
            }),
            Self::Sharpness(factor) => {
                let smooth = smoothed(&image);
                let levels = image.pixels_mut().iter_mut().zip(smooth.pixels());
                levels.for_each(|(level, smooth)| *level = blend(*smooth, *level, factor));
            }
            Self::Hue(turn) => each(&mut image, |pixel| {
                let [h, s, v] = hsv(pixel);
                rgb([h.wrapping_add(turn), s, v])
            }),
            Self::Posterize(bits) => {
                let mask = !u8::MAX.checked_shr(bits).unwrap_or(0);
                each(&mut image, |pixel| pixel.map(|level| level & mask));
            }
            Self::Solarize(threshold) => each(&mut image, |pixel| {
                pixel.map(|level| if f64::from(level) < threshold { level } else { 255 - level })
            }),
            Self::AutoContrast => look_up(&mut image, stretched),
            Self::Equalize => look_up(&mut image, equalized),
        }
        image
    }
}

fn each(image: &mut Image, of: impl Fn([u8; 3]) -> [u8; 3]) {
    image.pixels_mut().as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| *pixel = of(*pixel));
}

/// `ImagingBlend`: in f32, truncated.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    // The conversion saturates, as Pillow does.
    (f32::from(from) + factor * f32::from(i16::from(to) - i16::from(from))) as u8
}

/// The mean of `convert("L")`, rounded half up.
fn mean_luminance(image: &Image) -> u8 {
    let pixels = image.pixels().as_chunks::<3>().0;
    let sum: u64 = pixels.iter().map(|pixel| u64::from(luminance(*pixel))).sum();
    (sum as f64 / pixels.len() as f64 + 0.5) as u8
}

/// `ImageFilter.SMOOTH`: weight 5 for the pixel and 1 for its neighbours, divided by 13. Border pixels do not change.
fn smoothed(image: &Image) -> Image {
    let mut smooth = image.clone();
    let (width, height) = (image.width(), image.height());
    for y in 1..height.saturating_sub(1) {
        let rows = [y - 1, y, y + 1].map(|y| image.row(y));
        for at in 3..(3 * width).saturating_sub(3) {
            let sum: u32 = rows.iter().flat_map(|row| [row[at - 3], row[at], row[at + 3]]).map(u32::from).sum();
            let sum = sum + 4 * u32::from(rows[1][at]);
            // No ties: 13 is odd.
            smooth.pixels_mut()[3 * y * width + at] = ((2 * sum + 13) / 26) as u8;
        }
    }
    smooth
}

/// Maps the levels of each channel by a table made from their histogram.
fn look_up(image: &mut Image, table: impl Fn(&[u32; 256]) -> [u8; 256]) {
    let mut histograms = [[0; 256]; 3];
    for pixel in image.pixels().as_chunks::<3>().0 {
        histograms.iter_mut().zip(pixel).for_each(|(histogram, level)| histogram[usize::from(*level)] += 1);
    }
    let tables = histograms.each_ref().map(table);
    each(image, |pixel| std::array::from_fn(|channel| tables[channel][usize::from(pixel[channel])]));
}

const IDENTITY: [u8; 256] = {
    let mut levels = [0; 256];
    let mut level = 0;
    while level < 256 {
        levels[level] = level as u8;
        level += 1;
    }
    levels
};

fn stretched(histogram: &[u32; 256]) -> [u8; 256] {
    let there = |count: &u32| *count > 0;
    let (low, high) = (histogram.iter().position(there), histogram.iter().rposition(there));
    match low.zip(high) {
        Some((low, high)) if high > low => {
            let scale = 255.0 / (high - low) as f64;
            let offset = -(low as f64) * scale;
            std::array::from_fn(|level| (level as f64 * scale + offset) as u8)
        }
        _ => IDENTITY,
    }
}

fn equalized(histogram: &[u32; 256]) -> [u8; 256] {
    let last = histogram.iter().rev().find(|count| **count > 0).copied().unwrap_or(0);
    let step = (histogram.iter().sum::<u32>() - last) / 255;
    if step == 0 {
        return IDENTITY;
    }
    let mut below = step / 2;
    histogram.map(|count| {
        let level = (below / step).min(255) as u8;
        below += count;
        level
    })
}

/// Hue, saturation and value as in Pillow's `rgb2hsv_row`: f32 with some steps in f64.
fn hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let saturation = range / f32::from(most);
    let [red, green, blue] = [r, g, b].map(|level| f32::from(most - level) / range);
    let hue = if r == most {
        blue - green
    } else if g == most {
        (2.0 + f64::from(red) - f64::from(blue)) as f32
    } else {
        (4.0 + f64::from(green) - f64::from(red)) as f32
    };
    let hue = ((f64::from(hue) / 6.0 + 1.0) % 1.0) as f32;
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

/// The inverse of [`hsv`]: Pillow's `hsv2rgb`.
fn rgb([h, s, v]: [u8; 3]) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let sixths = f64::from(f32::from(h)) * 6.0 / 255.0;
    let sector = sixths.floor();
    let rest = f64::from((sixths - sector) as f32);
    let saturation = f64::from((f64::from(s) / 255.0) as f32);
    let value = f64::from(v);
    let part = |share: f64| (value * (1.0 - share)).round() as u8;
    let [p, q, t] = [saturation, saturation * rest, saturation * (1.0 - rest)].map(part);
    match sector as u8 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}

#[cfg(test)]
pub(in crate::transforms) mod tests;
