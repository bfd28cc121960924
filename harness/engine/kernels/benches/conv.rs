//! Times the convolutions of ResNet50: forward, input gradient and filter gradient of each distinct layer.
//!
//! `cargo bench -p zoo-kernels --bench conv -- [--batch N] [--threads T] [--level portable|avx2|avx512|amx]
//! [--operands bf16|fp16] [--direct] [--statistics] [--only TEXT]` prints the best of several repetitions per layer and the total over all layers
//! of the network.

use std::time::Instant;
use zoo_kernels::conv::{
    self, ConvParams, ConvShape, Epilogue, Maps, Statistics, filter_workspace_len, forward_workspace_len,
    input_workspace_len, packed_len,
};
use zoo_kernels::isa::Level;
use zoo_kernels::{AlignedBuf, Blocked, Isa, half::HalfType};

/// Name, times it occurs in the network, input channels, extent of the input, output channels, kernel, stride.
const LAYERS: &[(&str, usize, usize, usize, usize, usize, usize)] = &[
    ("conv1", 1, 3, 224, 64, 7, 2),
    ("layer1.0.conv1", 1, 64, 56, 64, 1, 1),
    ("layer1.conv2", 3, 64, 56, 64, 3, 1),
    ("layer1.conv3", 4, 64, 56, 256, 1, 1),
    ("layer1.1.conv1", 2, 256, 56, 64, 1, 1),
    ("layer2.0.conv1", 1, 256, 56, 128, 1, 1),
    ("layer2.0.conv2", 1, 128, 56, 128, 3, 2),
    ("layer2.0.down", 1, 256, 56, 512, 1, 2),
    ("layer2.conv3", 4, 128, 28, 512, 1, 1),
    ("layer2.1.conv1", 3, 512, 28, 128, 1, 1),
    ("layer2.1.conv2", 3, 128, 28, 128, 3, 1),
    ("layer3.0.conv1", 1, 512, 28, 256, 1, 1),
    ("layer3.0.conv2", 1, 256, 28, 256, 3, 2),
    ("layer3.0.down", 1, 512, 28, 1024, 1, 2),
    ("layer3.conv3", 6, 256, 14, 1024, 1, 1),
    ("layer3.1.conv1", 5, 1024, 14, 256, 1, 1),
    ("layer3.1.conv2", 5, 256, 14, 256, 3, 1),
    ("layer4.0.conv1", 1, 1024, 14, 512, 1, 1),
    ("layer4.0.conv2", 1, 512, 14, 512, 3, 2),
    ("layer4.0.down", 1, 1024, 14, 2048, 1, 2),
    ("layer4.conv3", 3, 512, 7, 2048, 1, 1),
    ("layer4.1.conv1", 2, 2048, 7, 512, 1, 1),
    ("layer4.1.conv2", 2, 512, 7, 512, 3, 1),
];

struct Options {
    batch: usize,
    threads: usize,
    isa: Isa,
    operands: Option<HalfType>,
    only: String,
    repeat: usize,
    statistics: bool,
}

fn options() -> Options {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1));
    let number = |name: &str, default: usize| value(name).and_then(|v| v.parse().ok()).unwrap_or(default);
    let flag = |name: &str| arguments.iter().any(|a| a == name);
    let level = match value("--level").map(String::as_str) {
        Some("portable") => Level::Portable,
        Some("avx2") => Level::Avx2,
        Some("avx512") => Level::Avx512,
        _ => Level::Amx,
    };
    let operands = match value("--operands").map(String::as_str) {
        Some("bf16") => Some(HalfType::Bf16),
        Some("fp16") => Some(HalfType::Fp16),
        _ => None,
    };
    Options {
        operands,
        batch: number("--batch", 8),
        threads: number("--threads", 2),
        isa: if flag("--direct") { Isa::at_most(level).direct() } else { Isa::at_most(level) },
        only: value("--only").cloned().unwrap_or_default(),
        repeat: number("--repeat", 7),
        statistics: flag("--statistics"),
    }
}

/// Best time of several repetitions in milliseconds.
fn best(repeat: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..repeat {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    best
}

fn filled(len: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(len);
    for (i, value) in buffer.iter_mut().enumerate() {
        *value = (i * 7919 % 1024) as f32 / 1024.0 - 0.5;
    }
    buffer
}

fn main() {
    let options = options();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
    match pool {
        Ok(pool) => pool.install(|| bench(&options)),
        Err(error) => eprintln!("{error}"),
    }
}

fn bench(options: &Options) {
    let (isa, operands) = (options.isa, options.operands);
    println!("batch {}, {} threads, {:?}", options.batch, options.threads, isa.level());
    println!(
        "{:<18}{:>3}{:>9}{:>8}{:>9}{:>8}{:>9}{:>8}",
        "layer", "x", "fwd ms", "GF/s", "dx ms", "GF/s", "dw ms", "GF/s"
    );
    let mut totals = [0.0; 3];
    let mut flops = 0.0;
    for &(name, times, c_in, side, c_out, kernel, stride) in LAYERS {
        if !name.contains(&options.only) {
            continue;
        }
        let params = ConvParams {
            stride: [stride; 2],
            pad: [kernel / 2; 4],
            ..ConvParams::new(Blocked::new(options.batch, c_in, side, side), c_out, [kernel; 2])
        };
        let Ok(shape) = ConvShape::new(params) else { continue };
        let planar = filled(shape.n * c_in * side * side);
        let x = filled(shape.input().len());
        let maps = if c_in == 3 { Maps::Planar(&planar) } else { Maps::Blocked(&x) };
        let packed = filled(packed_len(&shape));
        let mut y = filled(shape.output().len());
        let dy = filled(shape.output().len());
        let mut dx = filled(shape.input().len());
        let mut dw = filled(packed_len(&shape));
        let len = |of: fn(Isa, &ConvShape, Option<HalfType>) -> usize| of(isa, &shape, operands);
        let mut tiles = filled(len(forward_workspace_len));
        let mut transposed = filled(len(input_workspace_len));
        let mut partial = filled(len(filter_workspace_len));
        let mut moments = [vec![0.0; c_out], vec![0.0; c_out]];
        let times_ms = [
            best(options.repeat, || {
                let [mean, variance] = &mut moments;
                let statistics = options.statistics.then_some(Statistics { mean, variance });
                let epilogue = Epilogue { statistics, ..Epilogue::default() };
                conv::forward(isa, &shape, operands, maps, &packed, &mut tiles, &mut y, epilogue);
            }),
            if c_in == 3 {
                // The input of the network needs no gradient.
                0.0
            } else {
                best(options.repeat, || {
                    conv::input_gradient(isa, &shape, operands, &dy, &packed, &mut transposed, &mut dx, None);
                })
            },
            best(options.repeat, || conv::filter_gradient(isa, &shape, operands, maps, &dy, &mut partial, &mut dw)),
        ];
        let work = shape.flops() as f64 / 1e6;
        print!("{name:<18}{times:>3}");
        for (total, ms) in totals.iter_mut().zip(times_ms) {
            *total += ms * times as f64;
            if ms > 0.0 {
                flops += work * times as f64;
                print!("{ms:>9.3}{:>8.0}", work / ms);
            } else {
                print!("{:>9}{:>8}", "-", "-");
            }
        }
        println!();
    }
    let total: f64 = totals.iter().sum();
    println!(
        "network: forward {:.1} ms, input gradient {:.1} ms, filter gradient {:.1} ms; {total:.1} ms, {:.0} GFLOP/s",
        totals[0],
        totals[1],
        totals[2],
        flops / total
    );
}
