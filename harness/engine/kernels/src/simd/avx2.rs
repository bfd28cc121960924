//! [`Simd`] with AVX2 and FMA: pairs of registers.

use super::{Lanes, Simd};
use crate::{
    C0,
    isa::{Isa, Level},
};
use std::{arch::x86_64::*, cell::Cell};

/// Proof of AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The proof, if `isa` is one.
    #[inline(always)]
    pub(crate) fn of(isa: Isa) -> Option<Self> {
        (isa.level() >= Level::Avx2).then_some(Self(()))
    }
}

/// The same intrinsics on every register.
macro_rules! each {
    ($self:ident, $registers:tt, |$($a:ident),*| $value:expr) => {
        each!(@ $self, $registers, [$($a),*], $value)
    };
    (@ $self:ident, [$($register:literal),*], $names:tt, $value:expr) => {
        [$(each!(@@ $self, $register, $names, $value)),*]
    };
    (@@ $self:ident, $register:literal, [$($a:ident),*], $value:expr) => {{
        $(let $a = $a[$register];)*
        proven!($self, $value)
    }};
}

/// Operations of two vectors, by what each is on each register.
macro_rules! of_two {
    ($of:ident -> $to:ident: $($name:ident = $intrinsic:path,)+) => {$(
        #[inline(always)]
        fn $name(self, a: Self::$of, b: Self::$of) -> Self::$to {
            each!(self, [0, 1], |a, b| $intrinsic(a, b))
        }
    )+};
}

impl Simd for Avx2 {
    type F32 = [__m256; 2];
    type F64 = [__m256d; 4];
    type U32 = [__m256i; 2];
    type Mask = [__m256; 2];

    #[inline(always)]
    fn registers(self) -> usize {
        16
    }

    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [__m256; 2] {
        [proven!(self, _mm256_set1_ps(value)); 2]
    }

    #[inline(always)]
    fn load(self, from: &Lanes) -> [__m256; 2] {
        // SAFETY: the reference is valid for 2 x 8 f32 and the loads need no alignment; `self` proves the instructions.
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, value: [__m256; 2], to: &Cell<Lanes>) {
        let to = to.as_ptr().cast::<f32>();
        // SAFETY: the cell is valid for writes of 2 x 8 f32 and the stores need no alignment; `self` proves the
        // instructions.
        unsafe {
            _mm256_storeu_ps(to, value[0]);
            _mm256_storeu_ps(to.add(8), value[1]);
        }
    }

    of_two! { F32 -> F32:
        add = _mm256_add_ps,
        sub = _mm256_sub_ps,
        mul = _mm256_mul_ps,
    }

    #[inline(always)]
    fn mul_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        each!(self, [0, 1], |a, b, c| _mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn relu(self, a: [__m256; 2]) -> [__m256; 2] {
        // The instruction returns its second operand if one is NaN.
        each!(self, [0, 1], |a| _mm256_max_ps(_mm256_setzero_ps(), a))
    }

    of_two! { F32 -> Mask:
        greater = _mm256_cmp_ps::<_CMP_GT_OQ>,
        at_most = _mm256_cmp_ps::<_CMP_LE_OQ>,
    }

    #[inline(always)]
    fn is_nan(self, a: [__m256; 2]) -> [__m256; 2] {
        each!(self, [0, 1], |a| _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a))
    }

    #[inline(always)]
    fn or(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        each!(self, [0, 1], |a, b| _mm256_or_ps(a, b))
    }

    #[inline(always)]
    fn select(self, mask: [__m256; 2], a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        each!(self, [0, 1], |mask, a, b| _mm256_blendv_ps(b, a, mask))
    }

    #[inline(always)]
    fn widen(self, a: [__m256; 2]) -> [__m256d; 4] {
        proven!(
            self,
            [
                _mm256_cvtps_pd(_mm256_castps256_ps128(a[0])),
                _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(a[0])),
                _mm256_cvtps_pd(_mm256_castps256_ps128(a[1])),
                _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(a[1])),
            ]
        )
    }

    #[inline(always)]
    fn narrow(self, a: [__m256d; 4]) -> [__m256; 2] {
        proven!(
            self,
            [
                _mm256_set_m128(_mm256_cvtpd_ps(a[1]), _mm256_cvtpd_ps(a[0])),
                _mm256_set_m128(_mm256_cvtpd_ps(a[3]), _mm256_cvtpd_ps(a[2])),
            ]
        )
    }

    #[inline(always)]
    fn load_f64(self, from: &[f64; C0]) -> [__m256d; 4] {
        let from = from.as_ptr();
        // SAFETY: the reference is valid for 4 x 4 f64 and the loads need no alignment; `self` proves the instructions.
        unsafe {
            [
                _mm256_loadu_pd(from),
                _mm256_loadu_pd(from.add(4)),
                _mm256_loadu_pd(from.add(8)),
                _mm256_loadu_pd(from.add(12)),
            ]
        }
    }

    #[inline(always)]
    fn array_f64(self, a: [__m256d; 4]) -> [f64; C0] {
        let mut out = [0.0; C0];
        for (quarter, a) in a.into_iter().enumerate() {
            // SAFETY: `out` is valid for 4 x 4 f64 and the stores need no alignment; `self` proves the instructions.
            unsafe { _mm256_storeu_pd(out.as_mut_ptr().add(4 * quarter), a) };
        }
        out
    }

    #[inline(always)]
    fn add_f64(self, a: [__m256d; 4], b: [__m256d; 4]) -> [__m256d; 4] {
        each!(self, [0, 1, 2, 3], |a, b| _mm256_add_pd(a, b))
    }

    #[inline(always)]
    fn mul_add_f64(self, a: [__m256d; 4], b: [__m256d; 4], c: [__m256d; 4]) -> [__m256d; 4] {
        each!(self, [0, 1, 2, 3], |a, b, c| _mm256_fmadd_pd(a, b, c))
    }

    #[inline(always)]
    fn splat_u32(self, value: u32) -> [__m256i; 2] {
        [proven!(self, _mm256_set1_epi32(value.cast_signed())); 2]
    }

    #[inline(always)]
    fn load_u32(self, from: &[u32; C0]) -> [__m256i; 2] {
        let from = from.as_ptr();
        // SAFETY: the reference is valid for 2 x 8 u32 and the loads need no alignment; `self` proves the instructions.
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast())] }
    }

    #[inline(always)]
    fn load_u16(self, from: &[u16; C0]) -> [__m256i; 2] {
        let from = from.as_ptr();
        // SAFETY: the reference is valid for 2 x 8 u16 and the loads need no alignment; `self` proves the instructions.
        unsafe {
            [
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())),
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast())),
            ]
        }
    }

    #[inline(always)]
    fn store_u32(self, value: [__m256i; 2], to: &mut [u32; C0]) {
        let to = to.as_mut_ptr();
        // SAFETY: the reference is valid for 2 x 8 u32 and the stores need no alignment; `self` proves the instructions.
        unsafe {
            _mm256_storeu_si256(to.cast(), value[0]);
            _mm256_storeu_si256(to.add(8).cast(), value[1]);
        }
    }

    #[inline(always)]
    fn store_u16(self, value: [__m256i; 2], to: &mut [u16; C0]) {
        let packed = proven!(self, {
            let low = _mm256_set1_epi32(0xFFFF);
            let halves = _mm256_packus_epi32(_mm256_and_si256(value[0], low), _mm256_and_si256(value[1], low));
            // The packing works within 128 bits: put the quarters into their order.
            _mm256_permute4x64_epi64::<0b11_01_10_00>(halves)
        });
        // SAFETY: the reference is valid for 16 u16 and the store needs no alignment; `self` proves the instruction.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), packed) }
    }

    of_two! { U32 -> U32:
        add_u32 = _mm256_add_epi32,
        mul_u32 = _mm256_mullo_epi32,
        xor_u32 = _mm256_xor_si256,
        and_u32 = _mm256_and_si256,
        or_u32 = _mm256_or_si256,
    }

    #[inline(always)]
    fn bits(self, a: [__m256; 2]) -> [__m256i; 2] {
        each!(self, [0, 1], |a| _mm256_castps_si256(a))
    }

    #[inline(always)]
    fn float(self, a: [__m256i; 2]) -> [__m256; 2] {
        each!(self, [0, 1], |a| _mm256_castsi256_ps(a))
    }

    #[inline(always)]
    fn shr_u32<const BITS: u32>(self, a: [__m256i; 2]) -> [__m256i; 2] {
        // The variable shift takes the count from a register; the compiler folds the constant into the instruction.
        each!(self, [0, 1], |a| _mm256_srlv_epi32(a, _mm256_set1_epi32(BITS.cast_signed())))
    }

    #[inline(always)]
    fn equal_u32(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256; 2] {
        each!(self, [0, 1], |a, b| _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)))
    }

    #[inline(always)]
    fn at_least_u32(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256; 2] {
        each!(self, [0, 1], |a, b| _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a)))
    }

    #[inline(always)]
    fn select_u32(self, mask: [__m256; 2], a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        each!(self, [0, 1], |mask, a, b| _mm256_blendv_epi8(b, a, _mm256_castps_si256(mask)))
    }

    #[inline(always)]
    fn transpose(self, rows: [[__m256; 2]; C0]) -> [[__m256; 2]; C0] {
        let [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15] = rows;
        let mut out = rows;
        for half in [0, 1] {
            // Register j of a group of four rows: their columns j and j + 4 of this half, four values together.
            let a = self.interleave([r0[half], r1[half], r2[half], r3[half]]);
            let b = self.interleave([r4[half], r5[half], r6[half], r7[half]]);
            let c = self.interleave([r8[half], r9[half], r10[half], r11[half]]);
            let d = self.interleave([r12[half], r13[half], r14[half], r15[half]]);
            for j in 0..4 {
                proven!(self, {
                    out[8 * half + j] =
                        [_mm256_permute2f128_ps::<0x20>(a[j], b[j]), _mm256_permute2f128_ps::<0x20>(c[j], d[j])];
                    out[8 * half + j + 4] =
                        [_mm256_permute2f128_ps::<0x31>(a[j], b[j]), _mm256_permute2f128_ps::<0x31>(c[j], d[j])];
                });
            }
        }
        out
    }
}

impl Avx2 {
    /// Transposes the 4x4 blocks that four rows hold side by side.
    #[inline(always)]
    fn interleave(self, [a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
        proven!(self, {
            let low_ab = _mm256_castps_pd(_mm256_unpacklo_ps(a, b));
            let high_ab = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
            let low_cd = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
            let high_cd = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
            [
                _mm256_castpd_ps(_mm256_unpacklo_pd(low_ab, low_cd)),
                _mm256_castpd_ps(_mm256_unpackhi_pd(low_ab, low_cd)),
                _mm256_castpd_ps(_mm256_unpacklo_pd(high_ab, high_cd)),
                _mm256_castpd_ps(_mm256_unpackhi_pd(high_ab, high_cd)),
            ]
        })
    }
}
