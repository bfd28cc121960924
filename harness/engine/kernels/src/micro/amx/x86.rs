//! The instructions of AMX.

use super::{Left, Parts, Right, Steps, Sums};
use std::arch::asm;
use std::mem::offset_of;

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
    let mut all = Configuration { palette: 1, start_row: 0, reserved: [0; 14], bytes_of_row: [0; 16], rows: [0; 16] };
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
// On to the next part of the left or right operands ("add"), or back to the previous one ("sub").
macro_rules! step {
    ($move:literal, left, $r:tt) => {
        for_tiles!(
            concat!($move, " {a}, [{arguments} + {left_part}]"),
            concat!($move, " {a2}, [{arguments} + {left_part}]"),
            $r
        )
    };
    ($move:literal, right, $c:tt) => {
        for_tiles!(
            concat!($move, " {b}, [{arguments} + {right_part}]"),
            concat!($move, " {b2}, [{arguments} + {right_part}]"),
            $c
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
            step!("add", left, $r),
            load_left!($r),
            multiply_add!($r, $c),
            step!("add", right, $c),
            load_right!($c),
            multiply_add!($r, $c),
            step!("sub", left, $r),
            load_left!($r),
            multiply_add!($r, $c),
        )
    };
    // 2 0, 1 0, 1 1, 0 1, 0 0, 0 2
    (3, $r:tt, $c:tt) => {
        concat!(
            step!("add", left, $r),
            step!("add", left, $r),
            products!(1, $r, $c),
            step!("sub", left, $r),
            load_left!($r),
            multiply_add!($r, $c),
            step!("add", right, $c),
            load_right!($c),
            multiply_add!($r, $c),
            step!("sub", left, $r),
            load_left!($r),
            multiply_add!($r, $c),
            step!("sub", right, $c),
            load_right!($c),
            multiply_add!($r, $c),
            step!("add", right, $c),
            step!("add", right, $c),
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
