//! What the tests of several kernels share: data, layouts, comparison, and the check of determinism.

use crate::{Blocked, Isa};

/// Whether a test runs a case of so many multiplications: all of them, but under Miri, to which each is work, the small
/// ones.
pub(crate) const fn affordable(multiplications: usize) -> bool {
    !cfg!(miri) || multiplications <= 2_500
}

/// `len` values in (-2, 2) that repeat for the same `salt`.
pub(crate) fn filled(len: usize, salt: u64) -> Vec<f32> {
    (0..len as u64)
        .map(|i| {
            let mut z = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt.wrapping_mul(0xD1B5_4A32_D192_ED03);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z >> 40) as f32 / (1u32 << 24) as f32) * 4.0 - 2.0
        })
        .collect()
}

/// A blocked tensor of values in (-2, 2), and the same in row-major NCHW as f64.
pub(crate) fn blocked(shape: Blocked, salt: u64) -> (Vec<f32>, Vec<f64>) {
    let nchw = filled(shape.n * shape.c * shape.pixels(), salt);
    (scattered(shape, &nchw), nchw.into_iter().map(f64::from).collect())
}

/// NCHW to blocked, element by element.
pub(crate) fn scattered(shape: Blocked, nchw: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; shape.len()];
    for (i, value) in nchw.iter().enumerate() {
        out[position(shape, i)] = *value;
    }
    out
}

/// Where element `i` of the NCHW tensor lies in the blocked one.
pub(crate) fn position(shape: Blocked, i: usize) -> usize {
    let Blocked { c, h, w, .. } = shape;
    shape.index(i / (c * h * w), i / (h * w) % c, i / w % h, i % w)
}

/// Compares a blocked tensor with NCHW values to `tolerance` times their largest magnitude, and requires zero tail
/// lanes.
#[track_caller]
pub(crate) fn expect_blocked(name: &str, shape: Blocked, found: &[f32], expected: &[f64], tolerance: f64) {
    let gathered: Vec<f32> = (0..expected.len()).map(|i| found[position(shape, i)]).collect();
    expect_close(name, &gathered, expected, tolerance);
    let mut tails = found.to_vec();
    for i in 0..expected.len() {
        tails[position(shape, i)] = 0.0;
    }
    assert!(tails.iter().all(|v| v.to_bits() == 0), "{name}: a lane beyond the last channel is not zero");
}

/// Compares to `tolerance` times the largest expected magnitude; NaN only equals NaN.
#[track_caller]
pub(crate) fn expect_close(name: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let scale = expected.iter().fold(f64::MIN_POSITIVE, |max, v| max.max(v.abs()));
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let same = f64::from(f) == e || (f.is_nan() && e.is_nan()) || (f64::from(f) - e).abs() <= tolerance * scale;
        assert!(same, "{name}[{i}]: {f} instead of {e} (scale {scale})");
    }
}

/// Requires the same bits from 1 to 4 threads, for every level.
#[track_caller]
pub(crate) fn same_bits_on_any_threads(kernel: impl Fn(Isa) -> Vec<Vec<f32>> + Sync) {
    let bits = |tensors: Vec<Vec<f32>>| -> Vec<Vec<u32>> {
        tensors.into_iter().map(|t| t.into_iter().map(f32::to_bits).collect()).collect()
    };
    for isa in Isa::available() {
        let [one, others @ ..] = [1, 2, 3, 4].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            bits(pool.install(|| kernel(isa)))
        });
        for (threads, other) in (2..).zip(others) {
            assert!(one == other, "{isa:?}: {threads} threads differ from one");
        }
    }
}
