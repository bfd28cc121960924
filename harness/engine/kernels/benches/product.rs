//! Times the matrix products of a small transformer: 12 sequences of 64 tokens, width 128, 4 heads.
//!
//! `cargo bench -p zoo-kernels --bench product -- [THREADS]` prints the best of many repetitions per product, and the
//! total over a step of four blocks.

use std::time::Instant;
use zoo_kernels::matmul::{Extents, Places, products};
use zoo_kernels::{AlignedBuf, Isa};

const TOKENS: usize = 768;

/// Name, number of matrices, their extents m, n and k, and whether A and B are transposed.
const PRODUCTS: &[(&str, usize, [usize; 3], [bool; 2])] = &[
    ("c_attn", 1, [TOKENS, 384, 128], [false, true]),
    ("c_attn/dx", 1, [TOKENS, 128, 384], [false, false]),
    ("c_attn/dw", 1, [384, 128, TOKENS], [true, false]),
    ("attn.c_proj", 1, [TOKENS, 128, 128], [false, true]),
    ("attn.c_proj/dx", 1, [TOKENS, 128, 128], [false, false]),
    ("attn.c_proj/dw", 1, [128, 128, TOKENS], [true, false]),
    ("c_fc", 1, [TOKENS, 512, 128], [false, true]),
    ("c_fc/dx", 1, [TOKENS, 128, 512], [false, false]),
    ("c_fc/dw", 1, [512, 128, TOKENS], [true, false]),
    ("mlp.c_proj", 1, [TOKENS, 128, 512], [false, true]),
    ("mlp.c_proj/dx", 1, [TOKENS, 512, 128], [false, false]),
    ("mlp.c_proj/dw", 1, [128, 512, TOKENS], [true, false]),
    ("scores", 48, [64, 64, 32], [false, true]),
    ("values", 48, [64, 32, 64], [false, false]),
    ("scores/dx", 48, [64, 32, 64], [false, false]),
    ("scores/dw", 48, [64, 32, 64], [true, false]),
    ("values/dx", 48, [64, 64, 32], [false, true]),
    ("values/dw", 48, [64, 32, 64], [true, false]),
];

fn filled(len: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(len);
    for (i, value) in buffer.iter_mut().enumerate() {
        *value = (i * 7919 % 1024) as f32 / 1024.0 - 0.5;
    }
    buffer
}

/// Best time of a product in seconds.
fn best(count: usize, [m, n, k]: [usize; 3], [transpose_a, transpose_b]: [bool; 2]) -> f64 {
    const ROUNDS: usize = 60;
    const CALLS: usize = 4;
    let extents = Extents { m, n, k, transpose_a, transpose_b };
    let places: Vec<[usize; 2]> = (0..count).map(|i| [i, i]).collect();
    let (a, b, mut result) = (filled(count * m * k), filled(count * n * k), filled(count * m * n));
    let isa = Isa::best();
    let mut workspace = filled(extents.workspace_len(isa, None, Places(&places)));
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            products(isa, extents, None, Places(&places), &a, &b, None, &mut workspace, &mut result);
        }
        best = best.min(start.elapsed().as_secs_f64() / CALLS as f64);
    }
    best
}

fn bench() {
    let mut total = 0.0;
    for &(name, count, extents, transposed) in PRODUCTS {
        let seconds = best(count, extents, transposed);
        total += 4.0 * seconds;
        let flops = 2.0 * (count * extents.iter().product::<usize>()) as f64;
        println!("{name:<16}{:>9.1} us{:>7.0} GFLOP/s", seconds * 1e6, flops / seconds / 1e9);
    }
    println!("four blocks: {:.2} ms", total * 1e3);
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|threads| threads.parse().ok()).unwrap_or(2);
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(bench),
        Err(error) => eprintln!("{error}"),
    }
}
