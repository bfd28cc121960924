//! Vectors of 16 f32, one channel block, on every instruction set.
//!
//! A [`Simd`] value is a proof, like [`Isa`], that its instructions exist, and gives the operations on them. Kernels
//! are written once, generic over it, with [`vectorised!`], which compiles them for every level. Loops over flat
//! slices need no vector type: inside [`vectorised!`] the compiler vectorises them by itself.

/// Intrinsics on registers, given the proof of their instructions.
#[cfg(target_arch = "x86_64")]
macro_rules! proven {
    ($self:ident, $value:expr) => {{
        let Self(()) = $self;
        // SAFETY: these intrinsics touch no memory, and the value proves that their instructions exist.
        unsafe { $value }
    }};
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;

pub(crate) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use {avx2::Avx2, avx512::Avx512};

use crate::C0;
use std::cell::Cell;

/// The values of one channel block at one pixel.
pub(crate) type Lanes = [f32; C0];

/// Operations on vectors of 16 lanes.
pub(crate) trait Simd: Copy {
    /// 16 f32.
    type F32: Copy;
    /// 16 f64.
    type F64: Copy;
    /// 16 u32.
    type U32: Copy;
    /// 16 truth values.
    type Mask: Copy;

    /// Registers of vectors.
    fn registers(self) -> usize;

    /// `a * b + c`, rounded once where the level has such an instruction.
    fn fma(self, a: f32, b: f32, c: f32) -> f32;

    fn splat(self, value: f32) -> Self::F32;
    fn load(self, from: &Lanes) -> Self::F32;
    fn store(self, value: Self::F32, to: &Cell<Lanes>);
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once where the level has such an instruction.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `if a < 0 { 0 } else { a }`: NaN stays NaN.
    fn relu(self, a: Self::F32) -> Self::F32;

    fn greater(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `a <= b`, false if one is NaN.
    fn at_most(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    fn is_nan(self, a: Self::F32) -> Self::Mask;
    fn or(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// `if mask { a } else { b }`.
    fn select(self, mask: Self::Mask, a: Self::F32, b: Self::F32) -> Self::F32;

    fn widen(self, a: Self::F32) -> Self::F64;
    fn narrow(self, a: Self::F64) -> Self::F32;
    fn load_f64(self, from: &[f64; C0]) -> Self::F64;
    fn array_f64(self, a: Self::F64) -> [f64; C0];
    fn add_f64(self, a: Self::F64, b: Self::F64) -> Self::F64;
    /// `a * b + c`. Exact but for one rounding if a and b were widened.
    fn mul_add_f64(self, a: Self::F64, b: Self::F64, c: Self::F64) -> Self::F64;

    fn splat_u32(self, value: u32) -> Self::U32;
    fn load_u32(self, from: &[u32; C0]) -> Self::U32;
    fn load_u16(self, from: &[u16; C0]) -> Self::U32;
    fn store_u32(self, value: Self::U32, to: &mut [u32; C0]);
    /// The low halves.
    fn store_u16(self, value: Self::U32, to: &mut [u16; C0]);
    /// Wrapping.
    fn add_u32(self, a: Self::U32, b: Self::U32) -> Self::U32;
    /// Wrapping.
    fn mul_u32(self, a: Self::U32, b: Self::U32) -> Self::U32;
    fn xor_u32(self, a: Self::U32, b: Self::U32) -> Self::U32;
    fn and_u32(self, a: Self::U32, b: Self::U32) -> Self::U32;
    fn or_u32(self, a: Self::U32, b: Self::U32) -> Self::U32;
    /// As `f32::to_bits`.
    fn bits(self, a: Self::F32) -> Self::U32;
    /// As `f32::from_bits`.
    fn float(self, a: Self::U32) -> Self::F32;
    fn shr_u32<const BITS: u32>(self, a: Self::U32) -> Self::U32;
    fn equal_u32(self, a: Self::U32, b: Self::U32) -> Self::Mask;
    fn at_least_u32(self, a: Self::U32, b: Self::U32) -> Self::Mask;
    /// `if mask { a } else { b }`.
    fn select_u32(self, mask: Self::Mask, a: Self::U32, b: Self::U32) -> Self::U32;

    /// Rows to columns.
    fn transpose(self, rows: [Self::F32; C0]) -> [Self::F32; C0];
}

/// Pixels that a kernel reads, be it from a slice or from one that it also overwrites.
pub(crate) trait Pixels: Copy {
    fn load<S: Simd>(self, simd: S, pixel: usize) -> S::F32;
    fn count(self) -> usize;
}

impl Pixels for &[Lanes] {
    #[inline(always)]
    fn load<S: Simd>(self, simd: S, pixel: usize) -> S::F32 {
        simd.load(&self[pixel])
    }

    #[inline(always)]
    fn count(self) -> usize {
        self.len()
    }
}

impl Pixels for &[Cell<Lanes>] {
    #[inline(always)]
    fn load<S: Simd>(self, simd: S, pixel: usize) -> S::F32 {
        simd.load(&self[pixel].get())
    }

    #[inline(always)]
    fn count(self) -> usize {
        self.len()
    }
}

/// The whole pixels of `values`.
#[inline(always)]
pub(crate) fn pixels(values: &[f32]) -> &[Lanes] {
    values.as_chunks().0
}

/// The whole pixels of `values`, to be written, and perhaps read through the same reference.
#[inline(always)]
pub(crate) fn pixels_mut(values: &mut [f32]) -> &[Cell<Lanes>] {
    Cell::from_mut(values.as_chunks_mut().0).as_slice_of_cells()
}

/// Defines `fn name(isa, arguments...)`, compiled once for every level of [`Isa`](crate::Isa) and chosen at run time.
///
/// `fn name [GENERICS,] [NAMES] (simd, argument: Type, ...) -> Type { body }`: in the body `simd` is the
/// [`Simd`] of the level and `S` its type. What the body calls has to be `#[inline(always)]`.
macro_rules! vectorised {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $([$($generics:tt)*] [$($generic:ident),*])?
        ($simd:ident $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "one more than the function as written")]
        $vis fn $name$(<$($generics)*>)?(isa: $crate::isa::Isa $(, $arg: $ty)*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<$($($generics)*)? S: $crate::simd::Simd>($simd: S $(, $arg: $ty)*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2$(<$($generics)*>)?(simd: $crate::simd::Avx2 $(, $arg: $ty)*) $(-> $ret)? {
                body::<$($($generic,)*)? $crate::simd::Avx2>(simd $(, $arg)*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512$(<$($generics)*>)?(simd: $crate::simd::Avx512 $(, $arg: $ty)*) $(-> $ret)? {
                body::<$($($generic,)*)? $crate::simd::Avx512>(simd $(, $arg)*)
            }

            #[cfg(target_arch = "x86_64")]
            if let Some(simd) = $crate::simd::Avx512::of(isa) {
                // SAFETY: `simd` proves that the processor has what the function is compiled for.
                return unsafe { avx512$(::<$($generic),*>)?(simd $(, $arg)*) };
            } else if let Some(simd) = $crate::simd::Avx2::of(isa) {
                // SAFETY: as above.
                return unsafe { avx2$(::<$($generic),*>)?(simd $(, $arg)*) };
            }
            body::<$($($generic,)*)? $crate::simd::Portable>($crate::simd::Portable::of(isa) $(, $arg)*)
        }
    };
}
pub(crate) use vectorised;
