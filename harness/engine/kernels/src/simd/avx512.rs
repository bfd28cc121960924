//! [`Simd`] with AVX-512.

use super::{Lanes, Simd};
use crate::{
    C0,
    isa::{Isa, Level},
};
use std::{arch::x86_64::*, cell::Cell};

/// Proof of AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The proof, if `isa` is one.
    #[inline(always)]
    pub(crate) fn of(isa: Isa) -> Option<Self> {
        (isa.level() >= Level::Avx512).then_some(Self(()))
    }
}

/// Operations of two vectors, by what each is on the register.
macro_rules! of_two {
    ($of:ident -> $to:ident: $($name:ident = $intrinsic:path,)+) => {$(
        #[inline(always)]
        fn $name(self, a: Self::$of, b: Self::$of) -> Self::$to {
            proven!(self, $intrinsic(a, b))
        }
    )+};
}

impl Simd for Avx512 {
    type F32 = __m512;
    type F64 = [__m512d; 2];
    type U32 = __m512i;
    type Mask = __mmask16;

    #[inline(always)]
    fn registers(self) -> usize {
        32
    }

    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        proven!(self, _mm512_set1_ps(value))
    }

    #[inline(always)]
    fn load(self, from: &Lanes) -> __m512 {
        // SAFETY: the reference is valid for 16 f32 and the load needs no alignment; `self` proves the instruction.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, value: __m512, to: &Cell<Lanes>) {
        // SAFETY: the cell is valid for writes of 16 f32 and the store needs no alignment; `self` proves the
        // instruction.
        unsafe { _mm512_storeu_ps(to.as_ptr().cast(), value) }
    }

    of_two! { F32 -> F32:
        add = _mm512_add_ps,
        sub = _mm512_sub_ps,
        mul = _mm512_mul_ps,
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        proven!(self, _mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn relu(self, a: __m512) -> __m512 {
        // The instruction returns its second operand if one is NaN.
        proven!(self, _mm512_max_ps(_mm512_setzero_ps(), a))
    }

    of_two! { F32 -> Mask:
        greater = _mm512_cmp_ps_mask::<_CMP_GT_OQ>,
        at_most = _mm512_cmp_ps_mask::<_CMP_LE_OQ>,
    }

    #[inline(always)]
    fn is_nan(self, a: __m512) -> __mmask16 {
        proven!(self, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a))
    }

    #[inline(always)]
    fn or(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }

    #[inline(always)]
    fn select(self, mask: __mmask16, a: __m512, b: __m512) -> __m512 {
        proven!(self, _mm512_mask_blend_ps(mask, b, a))
    }

    #[inline(always)]
    fn widen(self, a: __m512) -> [__m512d; 2] {
        proven!(self, [_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(a)),])
    }

    #[inline(always)]
    fn narrow(self, a: [__m512d; 2]) -> __m512 {
        proven!(self, _mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm512_cvtpd_ps(a[0])), _mm512_cvtpd_ps(a[1])))
    }

    #[inline(always)]
    fn load_f64(self, from: &[f64; C0]) -> [__m512d; 2] {
        // SAFETY: the reference is valid for 2 x 8 f64 and the loads need no alignment; `self` proves the instructions.
        unsafe { [_mm512_loadu_pd(from.as_ptr()), _mm512_loadu_pd(from.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn array_f64(self, a: [__m512d; 2]) -> [f64; C0] {
        let mut out = [0.0; C0];
        // SAFETY: `out` is valid for 2 x 8 f64 and the stores need no alignment; `self` proves the instructions.
        unsafe {
            _mm512_storeu_pd(out.as_mut_ptr(), a[0]);
            _mm512_storeu_pd(out.as_mut_ptr().add(8), a[1]);
        }
        out
    }

    #[inline(always)]
    fn add_f64(self, a: [__m512d; 2], b: [__m512d; 2]) -> [__m512d; 2] {
        proven!(self, [_mm512_add_pd(a[0], b[0]), _mm512_add_pd(a[1], b[1])])
    }

    #[inline(always)]
    fn mul_add_f64(self, a: [__m512d; 2], b: [__m512d; 2], c: [__m512d; 2]) -> [__m512d; 2] {
        proven!(self, [_mm512_fmadd_pd(a[0], b[0], c[0]), _mm512_fmadd_pd(a[1], b[1], c[1])])
    }

    #[inline(always)]
    fn splat_u32(self, value: u32) -> __m512i {
        proven!(self, _mm512_set1_epi32(value.cast_signed()))
    }

    #[inline(always)]
    fn load_u32(self, from: &[u32; C0]) -> __m512i {
        // SAFETY: the reference is valid for 16 u32 and the load needs no alignment; `self` proves the instruction.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_u16(self, from: &[u16; C0]) -> __m512i {
        // SAFETY: the reference is valid for 16 u16 and the load needs no alignment; `self` proves the instructions.
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn store_u32(self, value: __m512i, to: &mut [u32; C0]) {
        // SAFETY: the reference is valid for 16 u32 and the store needs no alignment; `self` proves the instruction.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn store_u16(self, value: __m512i, to: &mut [u16; C0]) {
        // SAFETY: the reference is valid for 16 u16 and the store needs no alignment; `self` proves the instructions.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(value)) }
    }

    of_two! { U32 -> U32:
        add_u32 = _mm512_add_epi32,
        mul_u32 = _mm512_mullo_epi32,
        xor_u32 = _mm512_xor_si512,
        and_u32 = _mm512_and_si512,
        or_u32 = _mm512_or_si512,
    }

    #[inline(always)]
    fn bits(self, a: __m512) -> __m512i {
        proven!(self, _mm512_castps_si512(a))
    }

    #[inline(always)]
    fn float(self, a: __m512i) -> __m512 {
        proven!(self, _mm512_castsi512_ps(a))
    }

    #[inline(always)]
    fn shr_u32<const BITS: u32>(self, a: __m512i) -> __m512i {
        proven!(self, _mm512_srli_epi32::<BITS>(a))
    }

    of_two! { U32 -> Mask:
        equal_u32 = _mm512_cmpeq_epi32_mask,
        at_least_u32 = _mm512_cmpge_epu32_mask,
    }

    #[inline(always)]
    fn select_u32(self, mask: __mmask16, a: __m512i, b: __m512i) -> __m512i {
        proven!(self, _mm512_mask_blend_epi32(mask, b, a))
    }

    #[inline(always)]
    fn transpose(self, rows: [__m512; C0]) -> [__m512; C0] {
        let [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15] = rows;
        // Register j of a group of four rows: their columns j, j + 4, j + 8, j + 12, each four values together.
        let [a0, a1, a2, a3] = self.interleave([r0, r1, r2, r3]);
        let [b0, b1, b2, b3] = self.interleave([r4, r5, r6, r7]);
        let [c0, c1, c2, c3] = self.interleave([r8, r9, r10, r11]);
        let [d0, d1, d2, d3] = self.interleave([r12, r13, r14, r15]);
        let [k0, k4, k8, k12] = self.exchange([a0, b0, c0, d0]);
        let [k1, k5, k9, k13] = self.exchange([a1, b1, c1, d1]);
        let [k2, k6, k10, k14] = self.exchange([a2, b2, c2, d2]);
        let [k3, k7, k11, k15] = self.exchange([a3, b3, c3, d3]);
        [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15]
    }
}

impl Avx512 {
    /// Transposes the 4x4 blocks that four rows hold side by side.
    #[inline(always)]
    fn interleave(self, [a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
        proven!(self, {
            let low_ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
            let high_ab = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
            let low_cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
            let high_cd = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
            [
                _mm512_castpd_ps(_mm512_unpacklo_pd(low_ab, low_cd)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(low_ab, low_cd)),
                _mm512_castpd_ps(_mm512_unpacklo_pd(high_ab, high_cd)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(high_ab, high_cd)),
            ]
        })
    }

    /// Transposes four registers of four 128-bit pieces each.
    #[inline(always)]
    fn exchange(self, [a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
        proven!(self, {
            let even_ab = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
            let odd_ab = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
            let even_cd = _mm512_shuffle_f32x4::<0b10_00_10_00>(c, d);
            let odd_cd = _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d);
            [
                _mm512_shuffle_f32x4::<0b10_00_10_00>(even_ab, even_cd),
                _mm512_shuffle_f32x4::<0b10_00_10_00>(odd_ab, odd_cd),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(even_ab, even_cd),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(odd_ab, odd_cd),
            ]
        })
    }
}
