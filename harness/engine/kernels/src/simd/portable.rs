//! [`Simd`] on arrays, for the compiler to vectorise.

use super::{Lanes, Simd};
use crate::{C0, isa::Isa};
use std::{array, cell::Cell};

/// Needs nothing of the processor.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Portable {
    /// Every level is one that this works on.
    #[inline(always)]
    pub(crate) fn of(_: Isa) -> Self {
        Self
    }
}

#[inline(always)]
fn zip<T: Copy, U: Copy, R>(a: [T; C0], b: [U; C0], f: impl Fn(T, U) -> R) -> [R; C0] {
    array::from_fn(|lane| f(a[lane], b[lane]))
}

/// Operations of two vectors, by what each is on each lane.
macro_rules! of_two {
    ($of:ident -> $to:ident: $($name:ident = $of_lanes:expr,)+) => {$(
        #[inline(always)]
        fn $name(self, a: Self::$of, b: Self::$of) -> Self::$to {
            zip(a, b, $of_lanes)
        }
    )+};
}

impl Simd for Portable {
    type F32 = Lanes;
    type F64 = [f64; C0];
    type U32 = [u32; C0];
    type Mask = [bool; C0];

    #[inline(always)]
    fn registers(self) -> usize {
        16
    }

    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Lanes {
        [value; C0]
    }

    #[inline(always)]
    fn load(self, from: &Lanes) -> Lanes {
        *from
    }

    #[inline(always)]
    fn store(self, value: Lanes, to: &Cell<Lanes>) {
        to.set(value);
    }

    of_two! { F32 -> F32:
        add = |a, b| a + b,
        sub = |a, b| a - b,
        mul = |a, b| a * b,
    }

    #[inline(always)]
    fn mul_add(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes {
        self.add(self.mul(a, b), c)
    }

    #[inline(always)]
    fn relu(self, a: Lanes) -> Lanes {
        a.map(|a| if a < 0.0 { 0.0 } else { a })
    }

    of_two! { F32 -> Mask:
        greater = |a, b| a > b,
        at_most = |a, b| a <= b,
    }

    #[inline(always)]
    fn is_nan(self, a: Lanes) -> [bool; C0] {
        a.map(f32::is_nan)
    }

    #[inline(always)]
    fn or(self, a: [bool; C0], b: [bool; C0]) -> [bool; C0] {
        zip(a, b, |a, b| a | b)
    }

    #[inline(always)]
    fn select(self, mask: [bool; C0], a: Lanes, b: Lanes) -> Lanes {
        array::from_fn(|lane| if mask[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    fn widen(self, a: Lanes) -> [f64; C0] {
        a.map(f64::from)
    }

    #[inline(always)]
    fn narrow(self, a: [f64; C0]) -> Lanes {
        a.map(|a| a as f32)
    }

    #[inline(always)]
    fn load_f64(self, from: &[f64; C0]) -> [f64; C0] {
        *from
    }

    #[inline(always)]
    fn array_f64(self, a: [f64; C0]) -> [f64; C0] {
        a
    }

    #[inline(always)]
    fn add_f64(self, a: [f64; C0], b: [f64; C0]) -> [f64; C0] {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn mul_add_f64(self, a: [f64; C0], b: [f64; C0], c: [f64; C0]) -> [f64; C0] {
        self.add_f64(zip(a, b, |a, b| a * b), c)
    }

    #[inline(always)]
    fn splat_u32(self, value: u32) -> [u32; C0] {
        [value; C0]
    }

    #[inline(always)]
    fn load_u32(self, from: &[u32; C0]) -> [u32; C0] {
        *from
    }

    #[inline(always)]
    fn load_u16(self, from: &[u16; C0]) -> [u32; C0] {
        from.map(u32::from)
    }

    #[inline(always)]
    fn store_u32(self, value: [u32; C0], to: &mut [u32; C0]) {
        *to = value;
    }

    #[inline(always)]
    fn store_u16(self, value: [u32; C0], to: &mut [u16; C0]) {
        *to = value.map(|value| value as u16);
    }

    of_two! { U32 -> U32:
        add_u32 = u32::wrapping_add,
        mul_u32 = u32::wrapping_mul,
        xor_u32 = |a, b| a ^ b,
        and_u32 = |a, b| a & b,
        or_u32 = |a, b| a | b,
    }

    #[inline(always)]
    fn bits(self, a: Lanes) -> [u32; C0] {
        a.map(f32::to_bits)
    }

    #[inline(always)]
    fn float(self, a: [u32; C0]) -> Lanes {
        a.map(f32::from_bits)
    }

    #[inline(always)]
    fn shr_u32<const BITS: u32>(self, a: [u32; C0]) -> [u32; C0] {
        a.map(|a| a >> BITS)
    }

    of_two! { U32 -> Mask:
        equal_u32 = |a, b| a == b,
        at_least_u32 = |a, b| a >= b,
    }

    #[inline(always)]
    fn select_u32(self, mask: [bool; C0], a: [u32; C0], b: [u32; C0]) -> [u32; C0] {
        array::from_fn(|lane| if mask[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    fn transpose(self, rows: [Lanes; C0]) -> [Lanes; C0] {
        array::from_fn(|column| array::from_fn(|row| rows[row][column]))
    }
}
