//! Products on AMX tiles: `sums += left * right` with operands of bf16 and sums in f32.
//!
//! A tile has 16 rows of 64 bytes. An instruction multiplies a tile of 16 rows of 32 numbers by one of 32 rows of 16,
//! whose rows lie in pairs, and adds the products, which are exact in f32, to 16 x 16 sums. It rounds to nearest, and
//! takes subnormal operands and results for zero (Intel, "Intel Architecture Instruction Set Extensions Programming
//! Reference", TDPBF16PS). A kernel keeps up to 2 x 2 tiles of sums in registers.
//!
//! Operands may consist of parts that add up to them ([`crate::parts`]); the products of the parts are summed.

use crate::isa::{Isa, Level, Tiles};
use crate::parts::Parts;
use std::marker::PhantomData;

/// Terms that an instruction multiplies and adds.
pub(crate) const DEPTH: usize = 32;

/// Rows and columns of a tile of sums.
pub(crate) const SIDE: usize = 16;

/// Elements of a tile of sums, and words of a tile of pairs.
pub(crate) const TILE: usize = SIDE * SIDE;

/// Tiles of sums along rows and along columns that a kernel computes together, at most.
pub(crate) const MAX_TILES: usize = 2;

/// Whether the processor has AMX with bf16, and the system lets this process use its registers.
pub(crate) fn tiles() -> Tiles {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
    {
        static TILES: std::sync::OnceLock<Tiles> = std::sync::OnceLock::new();
        *TILES.get_or_init(x86::request)
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri))))]
    Tiles::Missing
}

/// Proof that this process may use AMX.
#[derive(Clone, Copy)]
pub(crate) struct Amx(());

impl Amx {
    /// The proof, if `isa` is one.
    pub(crate) fn of(isa: Isa) -> Option<Self> {
        (isa.level() == Level::Amx).then_some(Self(()))
    }

    /// Configures the tiles of this thread until the value is dropped.
    pub(crate) fn configure(self) -> Configured {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `self` proves that the process may use tiles.
        unsafe {
            x86::configure();
        }
        Configured(PhantomData)
    }
}

/// Proof that the tiles of this thread are configured, all to 16 rows of 64 bytes. Work that is handed to other threads
/// in the meantime, or that this thread takes over from them, has to configure its own.
pub(crate) struct Configured(PhantomData<*const ()>);

impl Drop for Configured {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there are tiles, since they were configured.
        unsafe {
            x86::release();
        }
    }
}

/// Rows of bf16.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) data: &'a [u16],
    /// Distance of neighbouring rows.
    pub(crate) row_pitch: usize,
    /// Distance of the tiles of rows.
    pub(crate) tile_pitch: usize,
    /// Distance of the parts of a number.
    pub(crate) part_pitch: usize,
}

/// Tiles of 16 x 16 words. A word of row r has the terms 2r, in its lower half, and 2r + 1 of a column.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) data: &'a [u32],
    /// Distance of the tiles of columns.
    pub(crate) tile_pitch: usize,
    /// Distance of the parts of a number.
    pub(crate) part_pitch: usize,
}

/// Where the terms are: for each 32 of them, the position of their first row in the left matrix, and that of their tile
/// in the right one.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    /// As distances in bytes.
    list: Vec<[usize; 2]>,
    /// The largest positions.
    reach: [usize; 2],
}

impl Steps {
    /// From positions in elements.
    pub(crate) fn new(positions: impl IntoIterator<Item = [usize; 2]>) -> Self {
        let mut reach = [0; 2];
        let bytes = positions.into_iter().map(|[left, right]| {
            reach = [reach[0].max(left), reach[1].max(right)];
            [left * size_of::<u16>(), right * size_of::<u32>()]
        });
        Self { list: bytes.collect(), reach }
    }

    /// Whether there are no terms.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Tiles of sums.
pub(crate) struct Sums<'a> {
    /// From the first element of the first tile on.
    pub(crate) data: &'a mut [f32],
    /// Tiles along rows and along columns.
    pub(crate) tiles: [usize; 2],
    /// Distances of neighbouring tiles along rows and along columns.
    pub(crate) tile_pitches: [usize; 2],
    /// Distance of the rows of a tile.
    pub(crate) row_pitch: usize,
    /// Whether the products are added to what is there, else they replace it.
    pub(crate) accumulate: bool,
}

impl Configured {
    /// Multiplies.
    ///
    /// # Panics
    /// If there are more than 2 x 2 tiles, none, or no terms, or a slice is too short: a defect of the caller.
    pub(crate) fn multiply(&self, parts: Parts, left: Left<'_>, right: Right<'_>, steps: &Steps, sums: Sums<'_>) {
        let [rows, columns] = sums.tiles;
        assert!((1..=MAX_TILES).contains(&rows) && (1..=MAX_TILES).contains(&columns) && !steps.list.is_empty());
        let further = parts.count() - 1;
        let left_tile = (rows - 1) * left.tile_pitch + further * left.part_pitch + (SIDE - 1) * left.row_pitch;
        assert!(steps.reach[0] + left_tile + DEPTH <= left.data.len(), "left matrix too short");
        let right_tile = (columns - 1) * right.tile_pitch + further * right.part_pitch;
        assert!(steps.reach[1] + right_tile + TILE <= right.data.len(), "right matrix too short");
        let last_tile = (rows - 1) * sums.tile_pitches[0] + (columns - 1) * sums.tile_pitches[1];
        assert!(last_tile + (SIDE - 1) * sums.row_pitch + SIDE <= sums.data.len(), "sums too short");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the tiles of this thread are configured. What the kernel reads and writes lies before the ends
        // asserted above.
        unsafe {
            x86::multiply(parts, left, right, steps, sums);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Left, Parts, Right, Steps, Sums};
    use std::arch::asm;
    use std::mem::offset_of;

    /// Asks the processor for AMX with bf16, and Linux for the permission to use it.
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    pub(super) fn request() -> super::Tiles {
        use super::Tiles;
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

    /// The configuration of all tiles (Intel, as above, LDTILECFG).
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        bytes_of_row: [u16; 16],
        rows: [u8; 16],
    }

    /// # Safety
    /// The process may use tiles.
    pub(super) unsafe fn configure() {
        const TILES: usize = 8;
        let mut all =
            Configuration { palette: 1, start_row: 0, reserved: [0; 14], bytes_of_row: [0; 16], rows: [0; 16] };
        all.bytes_of_row[..TILES].fill(64);
        all.rows[..TILES].fill(16);
        // SAFETY: it reads the 64 bytes of the configuration. The compiler uses no tiles.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const all, options(nostack, readonly, preserves_flags)) }
    }

    /// # Safety
    /// The process may use tiles.
    pub(super) unsafe fn release() {
        // SAFETY: it forgets what the tiles hold.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) }
    }

    /// What a kernel reads from memory, for want of registers: addresses, and distances in bytes.
    #[repr(C)]
    struct Arguments {
        left: *const u16,
        right: *const u32,
        left_tile: usize,
        right_tile: usize,
        left_part: usize,
        right_part: usize,
        sums: [[*mut f32; 2]; 2],
    }

    /// Bytes of a cache line, the distance of rows in tiles of pairs.
    const LINE: usize = 64;

    // Tiles: 0 to 3 hold the sums, by rows; 4 and 5 the left operands, 6 and 7 the right ones. The instructions for one
    // and for two tiles of rows and columns:
    macro_rules! for_tiles {
        ($one:expr, $second:expr, 1) => {
            concat!($one, "\n")
        };
        ($one:expr, $second:expr, 2) => {
            concat!($one, "\n", $second, "\n")
        };
    }
    macro_rules! for_sums {
        ([$a:expr, $b:expr, $c:expr, $d:expr], 1, 1) => {
            concat!($a, "\n")
        };
        ([$a:expr, $b:expr, $c:expr, $d:expr], 1, 2) => {
            concat!($a, "\n", $b, "\n")
        };
        ([$a:expr, $b:expr, $c:expr, $d:expr], 2, 1) => {
            concat!($a, "\n", $c, "\n")
        };
        ([$a:expr, $b:expr, $c:expr, $d:expr], 2, 2) => {
            concat!($a, "\n", $b, "\n", $c, "\n", $d, "\n")
        };
    }
    macro_rules! multiply_add {
        ($r:tt, $c:tt) => {
            for_sums!(
                [
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7"
                ],
                $r,
                $c
            )
        };
    }
    macro_rules! load_left {
        ($r:tt) => {
            for_tiles!("tileloadd tmm4, [{a} + {pitch}*1]", "tileloadd tmm5, [{a2} + {pitch}*1]", $r)
        };
    }
    macro_rules! load_right {
        ($c:tt) => {
            for_tiles!("tileloadd tmm6, [{b} + {line}*1]", "tileloadd tmm7, [{b2} + {line}*1]", $c)
        };
    }
    // The next and the previous part of the left and of the right operands.
    macro_rules! left {
        ($move:literal, $r:tt) => {
            concat!(
                $move,
                " {a}, [{arguments} + {left_part}]\n",
                for_tiles!("", concat!($move, " {a2}, [{arguments} + {left_part}]"), $r),
            )
        };
    }
    macro_rules! right {
        ($move:literal, $c:tt) => {
            concat!(
                $move,
                " {b}, [{arguments} + {right_part}]\n",
                for_tiles!("", concat!($move, " {b2}, [{arguments} + {right_part}]"), $c),
            )
        };
    }
    // The products of all parts that matter: a walk from pair to pair that loads one operand at a time.
    macro_rules! products {
        // 0 0
        (1, $r:tt, $c:tt) => {
            concat!(load_right!($c), load_left!($r), multiply_add!($r, $c))
        };
        // 0 0, 1 0, 1 1, 0 1
        (2, $r:tt, $c:tt) => {
            concat!(
                products!(1, $r, $c),
                left!("add", $r),
                load_left!($r),
                multiply_add!($r, $c),
                right!("add", $c),
                load_right!($c),
                multiply_add!($r, $c),
                left!("sub", $r),
                load_left!($r),
                multiply_add!($r, $c),
            )
        };
        // 2 0, 1 0, 1 1, 0 1, 0 0, 0 2
        (3, $r:tt, $c:tt) => {
            concat!(
                left!("add", $r),
                left!("add", $r),
                products!(1, $r, $c),
                left!("sub", $r),
                load_left!($r),
                multiply_add!($r, $c),
                right!("add", $c),
                load_right!($c),
                multiply_add!($r, $c),
                left!("sub", $r),
                load_left!($r),
                multiply_add!($r, $c),
                right!("sub", $c),
                load_right!($c),
                multiply_add!($r, $c),
                right!("add", $c),
                right!("add", $c),
                load_right!($c),
                multiply_add!($r, $c),
            )
        };
    }
    macro_rules! kernel {
        ($arguments:ident, $steps:ident, $pitches:ident, $accumulate:ident, $p:tt, $r:tt, $c:tt) => {
            asm!(
                "test {accumulate}, {accumulate}",
                "jnz 3f",
                for_sums!(["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"], $r, $c),
                "jmp 2f",
                "3:",
                for_sums!(
                    [
                        "mov {a}, [{arguments} + {sums}]\ntileloadd tmm0, [{a} + {sums_pitch}*1]",
                        "mov {a}, [{arguments} + {sums} + 8]\ntileloadd tmm1, [{a} + {sums_pitch}*1]",
                        "mov {a}, [{arguments} + {sums} + 16]\ntileloadd tmm2, [{a} + {sums_pitch}*1]",
                        "mov {a}, [{arguments} + {sums} + 24]\ntileloadd tmm3, [{a} + {sums_pitch}*1]"
                    ],
                    $r,
                    $c
                ),
                "2:",
                "mov {a}, [{step}]",
                "mov {b}, [{step} + 8]",
                "add {a}, [{arguments} + {left}]",
                "add {b}, [{arguments} + {right}]",
                for_tiles!("", "mov {a2}, {a}\nadd {a2}, [{arguments} + {left_tile}]", $r),
                for_tiles!("", "mov {b2}, {b}\nadd {b2}, [{arguments} + {right_tile}]", $c),
                products!($p, $r, $c),
                "add {step}, 16",
                "cmp {step}, {end}",
                "jne 2b",
                for_sums!(
                    [
                        "mov {a}, [{arguments} + {sums}]\ntilestored [{a} + {sums_pitch}*1], tmm0",
                        "mov {a}, [{arguments} + {sums} + 8]\ntilestored [{a} + {sums_pitch}*1], tmm1",
                        "mov {a}, [{arguments} + {sums} + 16]\ntilestored [{a} + {sums_pitch}*1], tmm2",
                        "mov {a}, [{arguments} + {sums} + 24]\ntilestored [{a} + {sums_pitch}*1], tmm3"
                    ],
                    $r,
                    $c
                ),
                "/* {left_tile} {right_tile} {left_part} {right_part} {a2} {b2} */",
                accumulate = in(reg) usize::from($accumulate),
                arguments = in(reg) &raw const $arguments,
                step = inout(reg) $steps.start => _,
                end = in(reg) $steps.end,
                pitch = in(reg) $pitches[0],
                sums_pitch = in(reg) $pitches[1],
                line = in(reg) LINE,
                a = out(reg) _,
                a2 = out(reg) _,
                b = out(reg) _,
                b2 = out(reg) _,
                left = const offset_of!(Arguments, left),
                right = const offset_of!(Arguments, right),
                left_tile = const offset_of!(Arguments, left_tile),
                right_tile = const offset_of!(Arguments, right_tile),
                left_part = const offset_of!(Arguments, left_part),
                right_part = const offset_of!(Arguments, right_part),
                sums = const offset_of!(Arguments, sums),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            )
        };
    }

    /// # Safety
    /// The tiles of this thread are configured; all that the steps, tiles and parts reach lies within the matrices and
    /// the sums. There are terms.
    pub(super) unsafe fn multiply(parts: Parts, left: Left<'_>, right: Right<'_>, steps: &Steps, sums: Sums<'_>) {
        let ([rows, columns], accumulate) = (sums.tiles, sums.accumulate);
        let first = sums.data.as_mut_ptr();
        let tile =
            |row: usize, column: usize| first.wrapping_add(row * sums.tile_pitches[0] + column * sums.tile_pitches[1]);
        let arguments = Arguments {
            left: left.data.as_ptr(),
            right: right.data.as_ptr(),
            left_tile: left.tile_pitch * size_of::<u16>(),
            right_tile: right.tile_pitch * size_of::<u32>(),
            left_part: left.part_pitch * size_of::<u16>(),
            right_part: right.part_pitch * size_of::<u32>(),
            sums: [[tile(0, 0), tile(0, 1)], [tile(1, 0), tile(1, 1)]],
        };
        let pitches = [left.row_pitch * size_of::<u16>(), sums.row_pitch * size_of::<f32>()];
        let steps = steps.list.as_ptr_range();
        // SAFETY: the contract of this function.
        unsafe {
            match (parts, rows, columns) {
                (Parts::One, 1, 1) => kernel!(arguments, steps, pitches, accumulate, 1, 1, 1),
                (Parts::One, 1, _) => kernel!(arguments, steps, pitches, accumulate, 1, 1, 2),
                (Parts::One, _, 1) => kernel!(arguments, steps, pitches, accumulate, 1, 2, 1),
                (Parts::One, ..) => kernel!(arguments, steps, pitches, accumulate, 1, 2, 2),
                (Parts::Three, 1, 1) => kernel!(arguments, steps, pitches, accumulate, 3, 1, 1),
                (Parts::Three, 1, _) => kernel!(arguments, steps, pitches, accumulate, 3, 1, 2),
                (Parts::Three, _, 1) => kernel!(arguments, steps, pitches, accumulate, 3, 2, 1),
                (Parts::Three, ..) => kernel!(arguments, steps, pitches, accumulate, 3, 2, 2),
                (Parts::Two, 1, 1) => kernel!(arguments, steps, pitches, accumulate, 2, 1, 1),
                (Parts::Two, 1, _) => kernel!(arguments, steps, pitches, accumulate, 2, 1, 2),
                (Parts::Two, _, 1) => kernel!(arguments, steps, pitches, accumulate, 2, 2, 1),
                (Parts::Two, ..) => kernel!(arguments, steps, pitches, accumulate, 2, 2, 2),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::{for_parts, store_parts};
    use crate::simd::vectorised;
    use crate::testing::filled;

    vectorised! {
        fn divide [const P: usize,] [P] (simd, value: f32, to: &mut [u16]) -> () {
            store_parts::<S, P>(simd, simd.splat(value), to, 0, SIDE);
        }
    }

    /// Sums of products of small integers are exact: every tile, part and pitch has to be where it belongs.
    #[test]
    fn products_of_small_integers_are_exact() {
        let isa = Isa::best();
        let Some(amx) = Amx::of(isa) else { return };
        let terms = 3 * DEPTH;
        for parts in [Parts::One, Parts::Two, Parts::Three] {
            let half = |value: f32, part: usize| {
                let mut halves = [0; 3 * SIDE];
                for_parts!(parts, divide(isa, value, &mut halves));
                halves[part * SIDE]
            };
            for (rows, columns) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
                let whole = |len, salt| -> Vec<f32> { filled(len, salt).iter().map(|v| (v * 200.0).round()).collect() };
                let limit = if parts == Parts::One { 2 } else { 1 };
                let small =
                    |values: Vec<f32>| -> Vec<f32> { values.iter().map(|v| (v / limit as f32).round()).collect() };
                let a = small(whole(rows * SIDE * terms, 1));
                let b = small(whole(terms * columns * SIDE, 2));
                let (mut left, mut right) = (Vec::new(), Vec::new());
                for part in 0..parts.count() {
                    left.extend(a.iter().map(|v| half(*v, part)));
                }
                for column in 0..columns {
                    for part in 0..parts.count() {
                        for pair in 0..terms / 2 {
                            for lane in 0..SIDE {
                                let [low, high] = [2 * pair, 2 * pair + 1]
                                    .map(|term| half(b[term * columns * SIDE + column * SIDE + lane], part));
                                right.push(u32::from(low) | u32::from(high) << 16);
                            }
                        }
                    }
                }
                let left =
                    Left { data: &left, row_pitch: terms, tile_pitch: SIDE * terms, part_pitch: rows * SIDE * terms };
                let right =
                    Right { data: &right, tile_pitch: parts.count() * terms / 2 * SIDE, part_pitch: terms / 2 * SIDE };
                let steps = Steps::new([0, 1, 2].map(|step| [step * DEPTH, step * TILE]));
                // Rows of 40 elements, tiles of rows below each other, those of columns side by side.
                let mut sums = vec![1.0; rows * SIDE * 40];
                for accumulate in [false, true] {
                    let tile_pitches = [SIDE * 40, SIDE];
                    let sums =
                        Sums { data: &mut sums, tiles: [rows, columns], tile_pitches, row_pitch: 40, accumulate };
                    amx.configure().multiply(parts, left, right, &steps, sums);
                }
                for (at, sum) in sums.iter().enumerate() {
                    let (row, column) = (at / 40, at % 40);
                    let term = |t: usize| f64::from(a[row * terms + t]) * f64::from(b[t * columns * SIDE + column]);
                    let expected = if column < columns * SIDE { 2.0 * (0..terms).map(term).sum::<f64>() } else { 1.0 };
                    assert_eq!(f64::from(*sum), expected, "{parts:?}, {rows} x {columns} tiles [{row}, {column}]");
                }
            }
        }
    }
}
