//! Measures the peak arithmetic performance of the machine.

use std::hint::black_box;
use std::time::Instant;

/// Accumulators of one thread: enough independent chains of multiply-adds to hide their latency (4 cycles, 2 per cycle)
/// in registers of any width.
const LANES: usize = 16 * 12;
/// Multiply-adds of each accumulator in one timing, about a tenth of a second.
const ROUNDS: usize = 1 << 23;
/// Timings, of which the best counts: a thread that has to wait shows no peak.
const TRIES: usize = 3;

/// GFLOP per second of f32 multiply-adds in registers, on the given number of threads.
pub(super) fn gflops(threads: usize) -> f64 {
    let best = (0..TRIES)
        .map(|_| {
            let begun = Instant::now();
            std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| black_box(multiply_add())))));
            begun.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    (2 * LANES * ROUNDS * threads) as f64 / best / 1e9
}

/// Runs the multiply-adds; the result only prevents their elimination by the compiler.
fn multiply_add() -> f32 {
    let (factor, term) = (black_box(0.999_f32), black_box(1e-3_f32));
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut sums = [1.0f32; LANES];
            for _ in 0..ROUNDS {
                for sum in &mut sums {
                    *sum = sum.mul_add(factor, term);
                }
            }
            sums.iter().sum()
        },
    )
}
