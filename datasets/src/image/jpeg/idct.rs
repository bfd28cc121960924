//! The inverse DCT of libjpeg's `jidctint.c` ("islow"): Loeffler, Ligtenberg and Moschytz, "Practical fast 1-D DCT
//! algorithms with 11 multiplications" (ICASSP 1989), in 13-bit fixed point with 2 extra bits between the passes.

use std::num::Wrapping;

use super::header::QuantTable;

/// Coefficients of a block, row by row.
pub(super) type Block = [i16; 64];

/// One value per column: a vector.
type Lanes = [i32; 8];

const CONST_BITS: u32 = 13;
const PASS1_BITS: u32 = 2;

/// One pass over all eight columns: `rows[i][column]` is element `i`; those from `COUNT` on are zero. Results are
/// rounded and shifted right.
#[inline(always)]
fn pass<const SHIFT: u32, const COUNT: usize>(rows: &mut [Lanes; 8]) {
    #[expect(clippy::needless_range_loop, reason = "a lane of all rows, not an index into one")]
    for lane in 0..8 {
        let at = |i: usize| if i < COUNT { Wrapping(rows[i][lane]) } else { Wrapping(0) };
        let fixed = |c: i32| Wrapping(c);
        // Even part.
        let z1 = (at(2) + at(6)) * fixed(4433);
        let tmp2 = z1 - at(6) * fixed(15137);
        let tmp3 = z1 + at(2) * fixed(6270);
        let tmp0 = (at(0) + at(4)) << CONST_BITS as usize;
        let tmp1 = (at(0) - at(4)) << CONST_BITS as usize;
        let even = [tmp0 + tmp3, tmp1 + tmp2, tmp1 - tmp2, tmp0 - tmp3];
        // Odd part.
        let (t0, t1, t2, t3) = (at(7), at(5), at(3), at(1));
        let z5 = (t0 + t2 + t1 + t3) * fixed(9633);
        let z1 = (t0 + t3) * fixed(-7373);
        let z2 = (t1 + t2) * fixed(-20995);
        let z3 = (t0 + t2) * fixed(-16069) + z5;
        let z4 = (t1 + t3) * fixed(-3196) + z5;
        let odd = [
            t3 * fixed(12299) + z1 + z4,
            t2 * fixed(25172) + z2 + z3,
            t1 * fixed(16819) + z2 + z4,
            t0 * fixed(2446) + z1 + z3,
        ];
        for i in 0..4 {
            let round = Wrapping(1 << (SHIFT - 1));
            rows[i][lane] = (even[i] + odd[i] + round).0 >> SHIFT;
            rows[7 - i][lane] = (even[i] - odd[i] + round).0 >> SHIFT;
        }
    }
}

#[inline(always)]
fn transpose(rows: &[Lanes; 8]) -> [Lanes; 8] {
    let mut out = [[0; 8]; 8];
    for (i, row) in rows.iter().enumerate() {
        for (j, &value) in row.iter().enumerate() {
            out[j][i] = value;
        }
    }
    out
}

/// Which coefficients of a block can be other than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The first alone.
    Flat,
    /// Those of the first four rows and columns.
    Low,
    /// All.
    Full,
}

impl Extent {
    /// The extent of a block whose coefficients beyond place `last` of the zigzag sequence are zero.
    #[inline(always)]
    pub fn up_to(last: usize) -> Self {
        match last {
            0 => Self::Flat,
            // Places 0 to 9 are the diagonals of up to four coefficients.
            1..=9 => Self::Low,
            _ => Self::Full,
        }
    }
}

/// Dequantises `block`, transforms it and writes its samples to `plane` at `position`, `stride` apart.
#[inline(always)]
pub(super) fn inverse_dct(
    block: &Block,
    extent: Extent,
    quant: &QuantTable,
    plane: &mut [u8],
    position: usize,
    stride: usize,
) {
    match extent {
        Extent::Flat => flat(block[0], quant[0], plane, position, stride),
        Extent::Low => transform::<4>(block, quant, plane, position, stride),
        Extent::Full => transform::<8>(block, quant, plane, position, stride),
    }
}

/// The transform of a block whose rows and columns from `COUNT` on are zero.
#[inline(always)]
fn transform<const COUNT: usize>(block: &Block, quant: &QuantTable, plane: &mut [u8], position: usize, stride: usize) {
    let mut rows = [[0; 8]; 8];
    let coefficients = block.as_chunks::<8>().0.iter().zip(quant.as_chunks::<8>().0);
    for (row, (block, quant)) in rows.iter_mut().zip(coefficients).take(COUNT) {
        for (value, (&c, &q)) in row.iter_mut().zip(block.iter().zip(quant)) {
            *value = i32::from(c).wrapping_mul(i32::from(q));
        }
    }
    pass::<{ CONST_BITS - PASS1_BITS }, COUNT>(&mut rows);
    let mut rows = transpose(&rows);
    pass::<{ CONST_BITS + PASS1_BITS + 3 }, COUNT>(&mut rows);
    let rows = transpose(&rows);
    for (y, row) in rows.iter().enumerate() {
        let out = &mut plane[position + y * stride..][..8];
        for (out, &value) in out.iter_mut().zip(row) {
            *out = value.wrapping_add(128).clamp(0, 255) as u8;
        }
    }
}

/// The transform of a block whose only coefficient is `dc`.
#[inline(always)]
fn flat(dc: i16, quant: u16, plane: &mut [u8], position: usize, stride: usize) {
    let value = i32::from(dc).wrapping_mul(i32::from(quant)) << PASS1_BITS;
    let round = 1 << (PASS1_BITS + 2);
    let sample = (value.wrapping_add(round) >> (PASS1_BITS + 3)).wrapping_add(128).clamp(0, 255) as u8;
    for y in 0..8 {
        plane[position + y * stride..][..8].fill(sample);
    }
}
