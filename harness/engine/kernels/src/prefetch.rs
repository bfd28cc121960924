//! Memory that is asked for before it is needed, where the processor can be asked.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T1, _mm_prefetch};

/// Elements of a cache line.
const LINE: usize = 16;

/// Asks for `values` to be brought as near as the second-level cache: those of the next block, while one is computed.
pub(crate) fn soon(values: &[f32]) {
    for line in values.chunks(LINE) {
        // SAFETY: a hint, which reads nothing that the program sees, for an address within a slice; of SSE, which every
        // x86-64 processor has.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = line;
    }
}

/// Asks for the line at `to`, which is going to be written.
#[inline(always)]
pub(crate) fn to_write(to: *mut f32) {
    // SAFETY: as above; an address that cannot be read raises no fault either.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        _mm_prefetch::<_MM_HINT_ET0>(to.cast_const().cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = to;
}
