//! The peak arithmetic performance of the machine, with which that of kernels is compared.

use std::hint::black_box;
use std::time::Instant;

use crate::{Isa, Level, Loops};

/// Accumulators of one thread: enough independent chains of multiply-adds to hide their latency (4 cycles, 2 per cycle),
/// and few enough for the 16 registers of AVX2.
const REGISTERS: usize = 12;
/// Multiply-adds of each accumulator in one timing, about a tenth of a second.
const ROUNDS: usize = 1 << 23;
/// Timings, of which the best counts: a thread that has to wait shows no peak.
const TRIES: usize = 3;

/// GFLOP per second of f32 multiply-adds in registers, on the given number of threads.
#[must_use]
pub fn gflops(isa: Isa, threads: usize) -> f64 {
    match isa.level() {
        Level::Portable => in_registers::<{ 4 * REGISTERS }>(isa, threads),
        Level::Avx2 => in_registers::<{ 8 * REGISTERS }>(isa, threads),
        Level::Avx512 | Level::Amx => in_registers::<{ 16 * REGISTERS }>(isa, threads),
    }
}

fn in_registers<const LANES: usize>(isa: Isa, threads: usize) -> f64 {
    let best = (0..TRIES)
        .map(|_| {
            let begun = Instant::now();
            std::thread::scope(|scope| {
                (0..threads).for_each(|_| drop(scope.spawn(|| black_box(isa.run(MultiplyAdds::<LANES>::hidden())))));
            });
            begun.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    (2 * LANES * ROUNDS * threads) as f64 / best / 1e9
}

/// The multiply-adds; their result only prevents their elimination by the compiler.
struct MultiplyAdds<const LANES: usize> {
    factor: f32,
    term: f32,
}

impl<const LANES: usize> MultiplyAdds<LANES> {
    /// Operands that the compiler does not know.
    fn hidden() -> Self {
        Self { factor: black_box(0.999), term: black_box(1e-3) }
    }
}

impl<const LANES: usize> Loops for MultiplyAdds<LANES> {
    type Output = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        let mut sums = [1.0f32; LANES];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = sum.mul_add(self.factor, self.term);
            }
        }
        sums.iter().sum()
    }
}
