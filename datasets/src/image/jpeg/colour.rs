//! Colour conversion of libjpeg's `jdcolor.c` in 16-bit fixed point, and Pillow's from CMYK to RGB.

use super::header::ColourModel;

/// Writes one row of RGB pixels from the rows of the components.
#[inline(always)]
pub(super) fn convert(model: ColourModel, rows: &[&[u8]], out: &mut [[u8; 3]]) {
    match (model, rows) {
        (ColourModel::YCbCr, [y, cb, cr]) => {
            for (((out, &y), &cb), &cr) in out.iter_mut().zip(*y).zip(*cb).zip(*cr) {
                *out = rgb(y, cb, cr);
            }
        }
        (ColourModel::Rgb, [r, g, b]) => {
            for (((out, &r), &g), &b) in out.iter_mut().zip(*r).zip(*g).zip(*b) {
                *out = [r, g, b];
            }
        }
        (ColourModel::Cmyk, [c, m, y, k]) => {
            for ((((out, &c), &m), &y), &k) in out.iter_mut().zip(*c).zip(*m).zip(*y).zip(*k) {
                *out = from_inverted_cmyk([c, m, y], k);
            }
        }
        (ColourModel::Ycck, [y, cb, cr, k]) => {
            for ((((out, &y), &cb), &cr), &k) in out.iter_mut().zip(*y).zip(*cb).zip(*cr).zip(*k) {
                *out = from_inverted_cmyk(rgb(y, cb, cr).map(|v| 255 - v), k);
            }
        }
        // One component; the frame header admits no other number.
        _ => {
            for (out, &grey) in out.iter_mut().zip(rows.first().copied().unwrap_or_default()) {
                *out = [grey; 3];
            }
        }
    }
}

/// JFIF's YCbCr to RGB (ITU-T T.871), each product rounded as libjpeg rounds it.
#[inline(always)]
fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    // 1.402, 0.34414, 0.71414 and 1.772, times 2^16.
    let r = y + ((91_881 * cr + HALF) >> 16);
    let g = y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16);
    let b = y + ((116_130 * cb + HALF) >> 16);
    [r, g, b].map(|v| v.clamp(0, 255) as u8)
}

/// CMYK as Adobe's programs store it, inverted, to RGB as Pillow converts it (`MULDIV255` in `Convert.c`).
#[inline(always)]
fn from_inverted_cmyk(inks: [u8; 3], k: u8) -> [u8; 3] {
    inks.map(|ink| {
        let product = u32::from(255 - ink) * u32::from(k) + 128;
        k - (((product >> 8) + product) >> 8) as u8
    })
}
