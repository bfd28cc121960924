//! The system call that permits the tiles of AMX.

use super::Tiles;

/// Asks the processor for AMX with bf16, and Linux for the permission to use it.
pub(super) fn request() -> Tiles {
    /// `arch_prctl`, its request for the permission to use a feature with a large state, and the number of the
    /// tiles (Linux, Documentation/arch/x86/xstate.rst).
    const ARCH_PRCTL: libc::c_long = 158;
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // CPUID.(EAX=7, ECX=0):EDX has AMX-BF16 in bit 22 and AMX-TILE in bit 24.
    let features = std::arch::x86_64::__cpuid_count(7, 0).edx;
    if std::arch::x86_64::__cpuid(0).eax < 7 || (features >> 22) & (features >> 24) & 1 == 0 {
        return Tiles::Missing;
    }
    // SAFETY: the call takes two integers, and changes nothing but what this process may use.
    let answer = unsafe { libc::syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    if answer == 0 { Tiles::Permitted } else { Tiles::Refused }
}
