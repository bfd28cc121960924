//! Times what a training step of ResNet50 does besides convolutions and products of matrices.
//!
//! `cargo bench -p zoo-kernels --bench vector -- [--batch N] [--threads T] [--level portable|avx2|avx512] [--steps S]`
//! walks through the step in its order, with a buffer of its own for every activation, as the training step does. It
//! prints the sum of the best milliseconds of each use of a kernel and GB/s, where every operand counts as read once
//! and every result as written once, whatever the kernel does.

use std::{collections::BTreeMap, time::Instant};
use zoo_kernels::{
    AlignedBuf, Blocked, Isa,
    average_pool::{AveragePool, average_pool, average_pool_gradient},
    batch_norm::{
        Fused, Gradients, Normalised, Parameters, Relu, backward, backward_residual, normalise, normalise_onto,
        statistics,
    },
    bias::bias_gradient_of_rows,
    conv::Statistics,
    dropout::{Dropout, dropout},
    elementwise::accumulate,
    half::{HalfType, Overflow, Range, Rounding, Subnormals},
    isa::Level,
    l2_loss::l2_loss,
    local_response_norm::{LocalResponseNorm, local_response_norm, local_response_norm_gradient},
    max_pool::{MaxPool, max_pool, max_pool_gradient},
    rectifier::{Rectifier, relu, relu_gradient},
    softmax_cross_entropy::{Targets, softmax_cross_entropy},
    transdata::{to_blocked, to_nchw},
    window::Window,
};

/// What stands behind a normalisation.
#[derive(Clone, Copy, PartialEq)]
enum Behind {
    Nothing,
    Relu,
    Residual,
}

struct Layer {
    shape: Blocked,
    behind: Behind,
    x: AlignedBuf,
    y: AlignedBuf,
    mean: Vec<f32>,
    variance: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
}

impl Layer {
    fn new(batch: usize, channels: usize, size: usize, behind: Behind) -> Self {
        let shape = Blocked::new(batch, channels, size, size);
        let values: Vec<f32> = (0..shape.len()).map(|i| (i * 7919 % 1009) as f32 / 500.0 - 1.0).collect();
        let (gamma, beta) = (vec![1.1; channels], vec![0.1; channels]);
        let (mean, variance) = (vec![0.0; channels], vec![1.0; channels]);
        let (x, y) = (AlignedBuf::from_slice(&values), AlignedBuf::zeroed(shape.len()));
        Self { shape, behind, x, y, mean, variance, gamma, beta }
    }

    fn bytes(&self, tensors: usize) -> usize {
        4 * tensors * self.shape.len()
    }
}

/// The normalisations of ResNet50 in their order.
fn layers(batch: usize) -> Vec<Layer> {
    let mut layers = vec![Layer::new(batch, 64, 112, Behind::Relu)];
    let mut entry = 56;
    for (width, blocks, size) in [(64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)] {
        for block in 0..blocks {
            layers.push(Layer::new(batch, width, if block == 0 { entry } else { size }, Behind::Relu));
            layers.push(Layer::new(batch, width, size, Behind::Relu));
            if block == 0 {
                layers.push(Layer::new(batch, 4 * width, size, Behind::Nothing));
            }
            layers.push(Layer::new(batch, 4 * width, size, Behind::Residual));
        }
        entry = size;
    }
    layers
}

/// Of every kind of kernel, the best milliseconds and the bytes of each of its uses in a step.
#[derive(Default)]
struct Times {
    kinds: BTreeMap<&'static str, Vec<(f64, usize)>>,
    /// Uses in the present step.
    seen: BTreeMap<&'static str, usize>,
}

impl Times {
    fn time<R>(&mut self, kind: &'static str, bytes: usize, kernel: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = kernel();
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        let (uses, seen) = (self.kinds.entry(kind).or_default(), self.seen.entry(kind).or_default());
        match uses.get_mut(*seen) {
            Some((best, _)) => *best = best.min(milliseconds),
            None => uses.push((milliseconds, bytes)),
        }
        *seen += 1;
        result
    }

    fn next_step(&mut self) {
        self.seen.clear();
    }

    fn print(&self, title: &str) {
        println!("{title:<34} {:>5} {:>9} {:>9}", "uses", "ms", "GB/s");
        let mut sum = 0.0;
        for (kind, uses) in &self.kinds {
            let (milliseconds, bytes) = uses.iter().fold((0.0, 0), |(m, b), (best, bytes)| (m + best, b + bytes));
            sum += milliseconds;
            println!("  {kind:<32} {:>5} {milliseconds:>9.2} {:>9.1}", uses.len(), bytes as f64 / milliseconds / 1e6);
        }
        println!("  {:<32} {:>5} {sum:>9.2}\n", "sum", "");
    }
}

struct Options {
    batch: usize,
    steps: usize,
    isa: Isa,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1));
    let number = |name: &str, default: usize| value(name).and_then(|v| v.parse().ok()).unwrap_or(default);
    let level = match value("--level").map(String::as_str) {
        Some("portable") => Level::Portable,
        Some("avx2") => Level::Avx2,
        _ => Level::Avx512,
    };
    let options = Options { batch: number("--batch", 8), steps: number("--steps", 7), isa: Isa::at_most(level) };
    let threads = number("--threads", 2);
    println!("batch {}, {threads} threads, {:?}\n", options.batch, options.isa.level());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
    pool.install(|| {
        training_step(&options);
        others(&options);
    });
}

/// ResNet50, with the statistics that the convolutions give for free when they are fused with them.
fn training_step(options: &Options) {
    let Options { batch, steps, isa } = *options;
    let mut layers = layers(batch);
    let largest = layers.iter().map(|l| l.shape.len()).max().unwrap_or(0);
    let (mut dy, mut dx) = (AlignedBuf::from_slice(&vec![0.01; largest]), AlignedBuf::zeroed(largest));
    let (mut dgamma, mut dbeta) = (vec![0.0; 2048], vec![0.0; 2048]);
    let stem = layers[0].shape;
    let window = Window { pad: [1; 4], ..Window::new([3, 3], [2, 2]) };
    let pool = MaxPool::new(stem, window).expect("a possible pool");
    let mut pooled = AlignedBuf::zeroed(pool.output().len());
    let top = layers[layers.len() - 1].shape;
    let mean = AveragePool::adaptive(top, [1, 1]).expect("a possible pool");
    let mut features = AlignedBuf::zeroed(mean.output().len());
    let (logits, labels) = (vec![0.1; batch * 1000], vec![3; batch]);
    let mut dlogits = vec![0.0; logits.len()];
    let image = vec![0.5; batch * 3 * 224 * 224];
    let input = Blocked::new(batch, 3, 224, 224);
    let mut blocked = AlignedBuf::zeroed(input.len());

    let (mut times, mut unfused) = (Times::default(), Times::default());
    for _ in 0..steps {
        times.next_step();
        unfused.next_step();
        let bytes = 4 * (image.len() + blocked.len());
        times.time("transdata of the images", bytes, || to_blocked(isa, input, &image, &mut blocked));
        for i in 0..layers.len() {
            let (before, rest) = layers.split_at_mut(i);
            let layer = &mut rest[0];
            let once = layer.bytes(1);
            let Layer { shape, behind, x, y, mean, variance, gamma, beta } = layer;
            unfused.time("statistics", once, || statistics(isa, *shape, x, Statistics { mean, variance }));
            let parameters = Parameters { mean, variance, gamma, beta, epsilon: 1e-5 };
            match behind {
                Behind::Nothing => times.time("normalise", 2 * once, || {
                    normalise(isa, *shape, Some(x), &parameters, Fused::default(), y);
                }),
                Behind::Relu => times.time("normalise, ReLU", 2 * once, || {
                    normalise(
                        isa,
                        *shape,
                        Some(x),
                        &parameters,
                        Fused { relu: Some(Rectifier::RELU), ..Fused::default() },
                        y,
                    );
                }),
                Behind::Residual => {
                    let residual = before.iter_mut().rev().find(|l| l.behind != Behind::Relu && l.shape == *shape);
                    let residual = residual.expect("a shortcut before");
                    times.time("normalise, add, ReLU", 3 * once, || match residual.behind {
                        Behind::Nothing => normalise_onto(
                            isa,
                            *shape,
                            x,
                            &parameters,
                            Fused { relu: Some(Rectifier::RELU), ..Fused::default() },
                            &mut residual.y,
                        ),
                        _ => normalise(
                            isa,
                            *shape,
                            Some(x),
                            &parameters,
                            Fused { residual: Some(&residual.y), relu: Some(Rectifier::RELU), rounding: None },
                            y,
                        ),
                    });
                }
            }
            if i == 0 {
                let bytes = once + 4 * pooled.len();
                times.time("max pool", bytes, || max_pool(isa, &pool, y, &mut pooled));
            }
        }
        let last = &layers[layers.len() - 1];
        times.time("average pool", last.bytes(1), || average_pool(isa, &mean, &last.y, &mut features));
        let targets = Targets { label: 0.9001, other: 0.0001, ignored: None };
        times.time("softmax cross entropy", 8 * logits.len(), || {
            softmax_cross_entropy(isa, &logits, &labels, targets, &mut dlogits, None).expect("possible labels");
        });
        times.time("bias gradient", 4 * dlogits.len(), || {
            bias_gradient_of_rows(isa, &dlogits, &mut dbeta[..1000]);
        });
        let bytes = last.bytes(1);
        times.time("average pool gradient", bytes, || {
            average_pool_gradient(isa, &mean, &features, &mut dy[..top.len()]);
        });
        for (i, layer) in layers.iter().enumerate().rev() {
            let (len, c) = (layer.shape.len(), layer.shape.c);
            let Layer { shape, behind, x, y, mean, variance, gamma, beta } = layer;
            let parameters = Parameters { mean, variance, gamma, beta, epsilon: 1e-5 };
            let relu = match behind {
                Behind::Nothing => Relu::Absent,
                Behind::Relu => Relu::Recomputed(Rectifier::RELU),
                Behind::Residual => Relu::Output(Rectifier::RELU, y),
            };
            let forward = Normalised { x, parameters, relu, rounding: None };
            let sums = Gradients { gamma: &mut dgamma[..c], beta: &mut dbeta[..c] };
            if i == 0 {
                let bytes = layer.bytes(2) + 4 * pooled.len();
                times.time("max pool gradient", bytes, || max_pool_gradient(isa, &pool, y, &pooled, &mut dy[..len]));
            }
            let (dy, dx) = (&mut dy[..len], &mut dx[..len]);
            match behind {
                Behind::Nothing => times.time("backward", layer.bytes(3), || {
                    backward(isa, *shape, &forward, None, dy, sums);
                }),
                Behind::Relu => times.time("backward, ReLU", layer.bytes(3), || {
                    backward(isa, *shape, &forward, None, dy, sums);
                }),
                Behind::Residual => {
                    times.time("backward, ReLU, add", layer.bytes(5), || {
                        backward_residual(isa, *shape, &forward, dy, dx, sums);
                    });
                    times.time("sum of two gradients", layer.bytes(3), || accumulate(isa, &[dx], dy, None));
                }
            }
        }
    }
    times.print("ResNet50, fused");
    unfused.print("in place of fused ones");
}

/// Kernels that ResNet50 does not need, at sizes of AlexNet and ResNet50.
fn others(options: &Options) {
    let Options { batch, steps, isa } = *options;
    let shape = Blocked::new(batch, 256, 56, 56);
    let x: Vec<f32> = (0..shape.len()).map(|i| (i * 7919 % 1009) as f32 / 500.0 - 1.0).collect();
    let (x, z) = (AlignedBuf::from_slice(&x), AlignedBuf::from_slice(&x));
    let mut y = AlignedBuf::zeroed(shape.len());
    let once = 4 * shape.len();
    let mask = Dropout::new(1, 2, 3, 0.5);
    let norm = LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, k: 2.0 };
    let mut times = Times::default();
    for _ in 0..steps {
        times.next_step();
        times.time("ReLU", 2 * once, || relu(isa, Rectifier::RELU, Some(&x), &mut y));
        times.time("ReLU gradient", 3 * once, || relu_gradient(isa, Rectifier::RELU, &x, Some(&z), &mut y));
        times.time("dropout", 2 * once, || dropout(isa, &mask, Some(&x), &mut y));
        times.time("response norm", 2 * once, || local_response_norm(isa, shape, norm, &x, &mut y));
        times.time("response norm gradient", 3 * once, || {
            local_response_norm_gradient(isa, shape, norm, &x, &z, &mut y);
        });
        times.time("L2 loss", once, || std::hint::black_box(l2_loss(isa, &x)));
        // Of the size of what a task has in its cache, over and over.
        let (task, repeat) = (32 * 1024, y.len() / (32 * 1024));
        let range = Range::Format { overflow: Overflow::Saturate, subnormals: Subnormals::Keep };
        let rounding = Rounding::new(isa, HalfType::Fp16, range);
        times.time("rounding to fp16, one thread", 2 * once, || {
            (0..repeat).for_each(|_| rounding.part(&mut y[..task]));
        });
        times.time("transdata to NCHW", 2 * once, || to_nchw(isa, shape, &x, &mut y));
        times.time("transdata to blocks", 2 * once, || to_blocked(isa, shape, &x, &mut y));
    }
    times.print("256 channels of 56x56");
}
