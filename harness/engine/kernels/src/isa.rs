//! The instruction set a kernel may use, detected at run time.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
mod tiles;

/// Levels of vector instructions that kernels are written for, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// What the compiler's target guarantees; vectorised by the compiler.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 as above, and the tiles of AMX for products.
    Amx,
}

/// Why a process computes products on AMX tiles, or on vectors instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tiles {
    /// On tiles.
    Permitted,
    /// The processor, or the target of the compiler, has no AMX with bf16.
    Missing,
    /// The system does not let the process use it (Linux, `arch_prctl(ARCH_REQ_XCOMP_PERM)`).
    Refused,
}

/// Whether this process may use AMX tiles.
#[must_use]
pub fn tiles() -> Tiles {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
    {
        static TILES: std::sync::OnceLock<Tiles> = std::sync::OnceLock::new();
        *TILES.get_or_init(tiles::request)
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri))))]
    Tiles::Missing
}

/// Proof that this processor has the instructions of a [`Level`].
///
/// A value can only be had from the detecting constructors, so a safe function that holds one may call
/// code compiled for that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa {
    level: Level,
    /// Whether products are only sums of products of their operands: see [`Isa::direct`].
    direct: bool,
}

impl Isa {
    /// The strongest level of this processor.
    #[must_use]
    pub fn best() -> Self {
        Self::at_most(Level::Amx)
    }

    /// The level that every processor has.
    #[must_use]
    pub const fn portable() -> Self {
        Self::of(Level::Portable)
    }

    /// The strongest level of this processor that is not above `limit`.
    #[must_use]
    pub fn at_most(limit: Level) -> Self {
        Self::of(limit.min(detect()))
    }

    const fn of(level: Level) -> Self {
        Self { level, direct: false }
    }

    /// The same without AMX tiles and without Winograd's algorithm. Both compute with sums and differences of operands,
    /// so an infinity among these makes a NaN of results that it does not belong to.
    #[must_use]
    pub fn direct(self) -> Self {
        Self { level: self.level.min(Level::Avx512), direct: true }
    }

    /// Whether it is an [`Isa::direct`].
    #[must_use]
    pub const fn is_direct(self) -> bool {
        self.direct
    }

    /// All levels of this processor, weakest first: what a test has to run through.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let best = detect();
        let all = [Level::Portable, Level::Avx2, Level::Avx512, Level::Amx];
        all.into_iter().filter(|&level| level <= best).map(Self::of).collect()
    }

    /// The level this value is the proof of.
    #[must_use]
    pub const fn level(self) -> Level {
        self.level
    }

    /// Runs loops compiled for this level, so that the compiler vectorises them with these instructions.
    ///
    /// Work that the loops hand to other threads is not covered; call `run` inside the parallel loop.
    #[inline]
    pub fn run<L: Loops>(self, loops: L) -> L::Output {
        match self.level {
            Level::Portable => loops.run(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this level exists only where the processor was found to have these instructions.
            Level::Avx2 => unsafe { run_avx2(loops) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 | Level::Amx => unsafe { run_avx512(loops) },
            #[cfg(not(target_arch = "x86_64"))]
            Level::Avx2 | Level::Avx512 | Level::Amx => loops.run(),
        }
    }
}

/// Loops for [`Isa::run`].
///
/// The compiler uses a level's instructions only in what it inlines: mark [`Loops::run`] of a type, and each function
/// that its loops call, `#[inline(always)]`. A closure is `Loops` too. It is inlined while it is a few lines long.
pub trait Loops {
    /// What the loops compute.
    type Output;

    /// Runs the loops.
    fn run(self) -> Self::Output;
}

impl<R, F: FnOnce() -> R> Loops for F {
    type Output = R;

    #[inline(always)]
    fn run(self) -> R {
        self()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<L: Loops>(loops: L) -> L::Output {
    loops.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<L: Loops>(loops: L) -> L::Output {
    loops.run()
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) if tiles() == Tiles::Permitted => Level::Amx,
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Portable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_start_with_portable() {
        let all = Isa::available();
        assert_eq!(all[0], Isa::portable());
        assert!(all.is_sorted());
        assert_eq!(*all.last().unwrap(), Isa::best());
        assert_eq!(Isa::at_most(Level::Portable), Isa::portable());
    }

    #[test]
    fn run_gives_the_closure_s_result_on_every_level() {
        let data: Vec<f32> = (0..100).map(|i| i as f32).collect();
        for isa in Isa::available() {
            assert_eq!(isa.run(|| data.iter().map(|v| v * 2.0).sum::<f32>()), 9900.0);
        }
    }
}
