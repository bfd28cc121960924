//! Every operation on every level against plain arithmetic.

use super::*;
use crate::Isa;
use proptest::prelude::*;
use std::array;

/// What one level computes from two vectors: one row per operation, as bits.
type Results = (Vec<[u32; C0]>, Vec<[u64; C0]>);

#[inline(always)]
fn bits<S: Simd>(simd: S, value: S::F32) -> [u32; C0] {
    let out = Cell::new([0.0; C0]);
    simd.store(value, &out);
    out.get().map(f32::to_bits)
}

/// Through 16-bit stores of both halves.
#[inline(always)]
fn bits_u32<S: Simd>(simd: S, value: S::U32) -> [u32; C0] {
    let (mut low, mut high, mut whole) = ([0; C0], [0; C0], [0; C0]);
    simd.store_u16(value, &mut low);
    simd.store_u16(simd.shr_u32::<16>(value), &mut high);
    simd.store_u32(value, &mut whole);
    assert_eq!(whole, array::from_fn(|i| u32::from(low[i]) | u32::from(high[i]) << 16));
    whole
}

vectorised! {
    fn operations(simd, a: &Lanes, b: &Lanes, u: &[u32; C0], w: &[u32; C0], halves: &[u16; C0]) -> Results {
        let (x, y) = (simd.load(a), simd.load(b));
        let (one, zero) = (simd.splat(1.0), simd.splat(0.0));
        let f32s = [
            simd.add(x, y),
            simd.sub(x, y),
            simd.mul(x, y),
            simd.relu(x),
            simd.select(simd.greater(x, y), one, zero),
            simd.select(simd.at_most(x, y), one, zero),
            simd.select(simd.is_nan(x), one, zero),
            simd.select(simd.or(simd.greater(x, y), simd.is_nan(x)), one, zero),
            simd.narrow(simd.load_f64(&array::from_fn(|i| f64::from(a[i]) / 3.0))),
        ];
        let (p, q) = (simd.load_u32(u), simd.load_u32(w));
        let (yes, no) = (simd.splat_u32(1), simd.splat_u32(0));
        let u32s = [
            simd.add_u32(p, q),
            simd.mul_u32(p, q),
            simd.xor_u32(p, q),
            simd.and_u32(p, q),
            simd.or_u32(p, q),
            simd.bits(simd.float(p)),
            simd.shr_u32::<7>(p),
            simd.select_u32(simd.equal_u32(p, q), yes, no),
            simd.select_u32(simd.at_least_u32(p, q), yes, no),
            simd.load_u16(halves),
        ];
        let wide = simd.widen(x);
        let f64s = [
            wide,
            simd.add_f64(wide, simd.widen(y)),
            simd.load_f64(&array::from_fn(|i| f64::from(a[i]) / 3.0)),
        ];
        let mut rows: Vec<_> = f32s.into_iter().map(|v| bits(simd, v)).collect();
        rows.extend(u32s.map(|v| bits_u32(simd, v)));
        (rows, f64s.map(|v| simd.array_f64(v).map(f64::to_bits)).to_vec())
    }
}

/// The same by plain arithmetic.
fn expected(a: &Lanes, b: &Lanes, u: &[u32; C0], w: &[u32; C0], halves: &[u16; C0]) -> Results {
    let f = |op: &dyn Fn(f32, f32) -> f32| array::from_fn(|i| op(a[i], b[i]).to_bits());
    let n = |op: &dyn Fn(u32, u32) -> u32| array::from_fn(|i| op(u[i], w[i]));
    let truth = |value: bool| f32::from(u8::from(value));
    let rows = vec![
        f(&|a, b| a + b),
        f(&|a, b| a - b),
        f(&|a, b| a * b),
        f(&|a, _| if a < 0.0 { 0.0 } else { a }),
        f(&|a, b| truth(a > b)),
        f(&|a, b| truth(a <= b)),
        f(&|a, _| truth(a.is_nan())),
        f(&|a, b| truth(a > b || a.is_nan())),
        f(&|a, _| (f64::from(a) / 3.0) as f32),
        n(&u32::wrapping_add),
        n(&u32::wrapping_mul),
        n(&|u, w| u ^ w),
        n(&|u, w| u & w),
        n(&|u, w| u | w),
        n(&|u, _| u),
        n(&|u, _| u >> 7),
        n(&|u, w| u32::from(u == w)),
        n(&|u, w| u32::from(u >= w)),
        halves.map(u32::from),
    ];
    let d = |op: &dyn Fn(f64, f64) -> f64| array::from_fn(|i| op(f64::from(a[i]), f64::from(b[i])).to_bits());
    (rows, vec![d(&|a, _| a), d(&|a, b| a + b), d(&|a, _| a / 3.0)])
}

fn lanes() -> impl Strategy<Value = Lanes> {
    let value = prop_oneof![
        8 => -4.0f32..4.0,
        1 => Just(0.0),
        1 => Just(f32::INFINITY),
        1 => Just(f32::NEG_INFINITY),
        1 => Just(f32::NAN),
    ];
    prop::array::uniform16(value)
}

/// NaN bits may differ in sign and payload between instructions; everything else may not.
fn without_nan_payload((rows, wide): Results) -> Results {
    let quiet = |bits: u32| if f32::from_bits(bits).is_nan() { f32::NAN.to_bits() } else { bits };
    let quiet_wide = |bits: u64| if f64::from_bits(bits).is_nan() { f64::NAN.to_bits() } else { bits };
    (rows.into_iter().map(|row| row.map(quiet)).collect(), wide.into_iter().map(|row| row.map(quiet_wide)).collect())
}

proptest! {
    #[test]
    fn operations_agree_with_plain_arithmetic(
        a in lanes(),
        b in lanes(),
        u in prop::array::uniform16(any::<u32>()),
        mut w in prop::array::uniform16(any::<u32>()),
        halves in prop::array::uniform16(any::<u16>()),
    ) {
        w[3] = u[3];
        let want = without_nan_payload(expected(&a, &b, &u, &w, &halves));
        for isa in Isa::available() {
            let got = without_nan_payload(operations(isa, &a, &b, &u, &w, &halves));
            prop_assert_eq!(&got, &want, "{:?}", isa);
        }
    }
}

vectorised! {
    fn fused(simd, a: f32, b: f32, c: f32) -> [f64; 3] {
        let (x, y, z) = (simd.splat(a), simd.splat(b), simd.splat(c));
        let out = Cell::new([0.0; C0]);
        simd.store(simd.mul_add(x, y, z), &out);
        let wide = simd.mul_add_f64(simd.widen(x), simd.widen(y), simd.widen(z));
        [f64::from(out.get()[5]), f64::from(simd.fma(a, b, c)), simd.array_f64(wide)[5]]
    }
}

#[test]
fn multiply_add_multiplies_and_adds() {
    for isa in Isa::available() {
        assert_eq!(fused(isa, 3.0, 5.0, 7.0), [22.0; 3], "{isa:?}");
        // The product of two f32 is exact in f64.
        let tiny = 1.0 + f32::EPSILON;
        let exact = f64::from(tiny) * f64::from(tiny) - 1.0;
        assert_eq!(fused(isa, tiny, tiny, -1.0)[2], exact, "{isa:?}");
    }
}

vectorised! {
    fn transposed(simd, rows: &[Lanes; C0]) -> [Lanes; C0] {
        let columns = simd.transpose(array::from_fn(|i| simd.load(&rows[i])));
        let out: [Cell<Lanes>; C0] = array::from_fn(|_| Cell::new([0.0; C0]));
        for (column, out) in columns.into_iter().zip(&out) {
            simd.store(column, out);
        }
        out.map(Cell::into_inner)
    }
}

#[test]
fn transpose_swaps_rows_and_columns() {
    let rows: [Lanes; C0] = array::from_fn(|i| array::from_fn(|j| (100 * i + j) as f32));
    let columns: [Lanes; C0] = array::from_fn(|j| array::from_fn(|i| (100 * i + j) as f32));
    for isa in Isa::available() {
        assert_eq!(transposed(isa, &rows), columns, "{isa:?}");
    }
}
