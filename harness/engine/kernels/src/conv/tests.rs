//! Convolutions of every kind against sums in f64, on every instruction set and several numbers of threads.

use super::*;
use crate::blocked::Blocked;
use crate::half::{HalfType, Overflow, Range, Rounding, Subnormals, Tally};
use crate::isa::{Isa, Level};
use crate::testing::{affordable, filled, position, scattered};

/// Input extent, then output channels, kernel, stride, padding, dilation, groups.
type Case = (Blocked, usize, [usize; 2], [usize; 2], [usize; 4], [usize; 2], usize);

const fn image(n: usize, c: usize, h: usize, w: usize) -> Blocked {
    Blocked::new(n, c, h, w)
}

const CASES: &[Case] = &[
    // 1x1: flat runs, gathering with stride, padding.
    (image(2, 16, 7, 7), 32, [1, 1], [1, 1], [0; 4], [1, 1], 1),
    (image(1, 40, 5, 6), 20, [1, 1], [1, 1], [0; 4], [1, 1], 1),
    (image(2, 35, 12, 13), 17, [1, 1], [2, 2], [0; 4], [1, 1], 1),
    (image(1, 5, 4, 3), 3, [1, 1], [1, 1], [1, 0, 2, 1], [1, 1], 1),
    // 3x3: plain, strided, dilated, asymmetric, valid, wide rows, one pixel.
    (image(3, 33, 14, 14), 34, [3, 3], [1, 1], [1; 4], [1, 1], 1),
    (image(2, 16, 12, 13), 48, [3, 3], [2, 2], [1; 4], [1, 1], 1),
    (image(1, 20, 11, 9), 18, [3, 3], [1, 1], [2; 4], [2, 2], 1),
    (image(1, 6, 10, 8), 7, [3, 3], [2, 1], [1, 0, 0, 2], [2, 1], 1),
    (image(1, 64, 9, 40), 50, [3, 3], [1, 1], [0; 4], [1, 1], 1),
    (image(2, 24, 3, 3), 40, [3, 3], [1, 1], [0; 4], [1, 1], 1),
    (image(1, 17, 1, 1), 19, [3, 3], [3, 3], [1; 4], [1, 1], 1),
    // Larger kernels; windows that miss rows and columns altogether.
    (image(2, 18, 15, 15), 16, [5, 5], [1, 1], [2; 4], [1, 1], 1),
    (image(1, 3, 33, 31), 20, [7, 7], [2, 2], [3; 4], [1, 1], 1),
    (image(2, 3, 39, 43), 33, [11, 11], [4, 4], [2; 4], [1, 1], 1),
    (image(1, 3, 12, 11), 64, [3, 3], [1, 1], [1; 4], [1, 1], 1),
    (image(2, 1, 9, 10), 6, [5, 5], [1, 1], [0; 4], [1, 1], 1),
    (image(1, 4, 9, 10), 18, [3, 3], [2, 2], [1; 4], [2, 2], 1),
    (image(1, 2, 9, 10), 5, [2, 4], [3, 2], [0, 1, 2, 0], [1, 1], 1),
    (image(1, 19, 17, 20), 16, [2, 2], [5, 4], [0; 4], [1, 1], 1),
    (image(1, 8, 4, 4), 9, [3, 2], [1, 1], [5, 4, 3, 6], [1, 1], 1),
    // Small maps of many images: tiles across images; padding that some outputs see nothing but, rows that no tap
    // reaches.
    (image(32, 33, 2, 2), 50, [3, 3], [1, 1], [1; 4], [1, 1], 1),
    (image(19, 16, 4, 4), 64, [3, 3], [1, 1], [1; 4], [1, 1], 1),
    (image(40, 20, 4, 4), 17, [3, 3], [2, 2], [1; 4], [1, 1], 1),
    (image(17, 48, 4, 4), 33, [1, 1], [2, 2], [0; 4], [1, 1], 1),
    (image(16, 40, 2, 2), 30, [1, 1], [1, 1], [0; 4], [1, 1], 1),
    (image(18, 18, 3, 2), 16, [3, 2], [1, 1], [4, 0, 0, 3], [1, 1], 1),
    (image(33, 64, 7, 8), 64, [3, 3], [1, 1], [1; 4], [1, 1], 2),
    (image(20, 30, 2, 3), 42, [3, 3], [1, 1], [1; 4], [1, 1], 3),
    (image(16, 16, 5, 5), 16, [3, 3], [3, 2], [0, 1, 2, 0], [1, 1], 1),
    (image(16, 3, 2, 2), 5, [1, 1], [1, 1], [0; 4], [1, 1], 1),
    (image(16, 1, 2, 2), 2, [3, 3], [1, 1], [1; 4], [1, 1], 1),
    // f32 that tiles multiply, too: enough channels and pixels to pay for the division of numbers.
    (image(2, 128, 8, 8), 128, [1, 1], [1, 1], [0; 4], [1, 1], 1),
    (image(2, 34, 11, 12), 70, [3, 3], [1, 1], [1; 4], [1, 1], 1),
    (image(3, 33, 19, 20), 66, [3, 3], [2, 2], [1; 4], [1, 1], 1),
    (image(1, 36, 17, 18), 72, [3, 2], [1, 1], [2, 2, 0, 1], [2, 1], 1),
    // Squares of Winograd's algorithm: cut off at the right and below, padded unevenly, more channels than a sum has,
    // several images and a part of one in a task.
    (image(2, 40, 13, 19), 35, [3, 3], [1, 1], [2, 0, 1, 2], [1, 1], 1),
    (image(70, 17, 2, 2), 18, [3, 3], [1, 1], [1; 4], [1, 1], 1),
    (image(4, 600, 8, 8), 18, [3, 3], [1, 1], [1; 4], [1, 1], 1),
    (image(1, 34, 31, 22), 50, [3, 3], [1, 1], [0, 2, 0, 1], [1, 1], 1),
    // Every output reads padding alone: no pixel of the input has a gradient.
    (image(5, 4, 2, 4), 4, [1, 5], [3, 1], [1; 4], [1, 1], 1),
    (image(2, 16, 2, 4), 16, [1, 5], [3, 1], [1; 4], [1, 1], 16),
    // Groups: aligned to blocks, across blocks, many in a block, depthwise.
    (image(2, 64, 6, 7), 32, [3, 3], [1, 1], [1; 4], [1, 1], 2),
    (image(1, 48, 6, 7), 60, [3, 3], [2, 2], [1; 4], [1, 1], 2),
    // Groups of three blocks, in tasks that more threads cut within a group.
    (image(8, 96, 28, 28), 96, [3, 3], [1, 1], [1; 4], [1, 1], 2),
    (image(2, 96, 56, 56), 96, [3, 3], [1, 1], [1; 4], [1, 1], 2),
    (image(1, 30, 5, 5), 21, [1, 1], [1, 1], [0; 4], [1, 1], 3),
    (image(1, 32, 8, 8), 32, [3, 3], [1, 1], [1; 4], [1, 1], 8),
    (image(2, 10, 8, 9), 20, [3, 3], [1, 1], [1; 4], [1, 1], 10),
    (image(2, 37, 12, 13), 37, [3, 3], [1, 1], [1; 4], [1, 1], 37),
    (image(1, 16, 12, 13), 16, [3, 3], [2, 2], [1; 4], [1, 1], 16),
    (image(1, 40, 9, 29), 40, [5, 5], [1, 1], [0; 4], [1, 1], 40),
    (image(1, 3, 9, 9), 3, [3, 3], [1, 1], [1; 4], [1, 1], 3),
];

fn shape((input, c_out, kernel, stride, pad, dilation, groups): Case) -> ConvShape {
    let params = ConvParams { stride, pad, dilation, groups, ..ConvParams::new(input, c_out, kernel) };
    ConvShape::new(params).unwrap()
}

/// The shapes of [`CASES`].
fn shapes() -> impl Iterator<Item = ConvShape> {
    let per_image =
        |shape: &ConvShape| shape.output().pixels() * shape.c_out * shape.taps() * shape.c_in / shape.groups;
    CASES.iter().map(|&case| shape(case)).filter(move |shape| affordable(shape.output().n * per_image(shape)))
}

/// The sums that define the three products, in f64 and NCHW/OIHW, each with the sum of the magnitudes of its terms.
struct Reference {
    y: Vec<[f64; 2]>,
    dx: Vec<[f64; 2]>,
    dw: Vec<[f64; 2]>,
}

/// Values in NCHW/OIHW.
struct Data {
    x: Vec<f32>,
    w: Vec<f32>,
    dy: Vec<f32>,
    bias: Vec<f32>,
}

impl Data {
    fn new(shape: &ConvShape) -> Self {
        let (input, output) = (shape.input(), shape.output());
        Self {
            x: filled(input.n * input.c * input.pixels(), 1),
            w: filled(shape.weight_len(), 2),
            dy: filled(output.n * output.c * output.pixels(), 3),
            bias: filled(shape.c_out, 4),
        }
    }

    /// With values of the format that tiles multiply.
    fn rounded(shape: &ConvShape, operands: Option<HalfType>) -> Self {
        let mut data = Self::new(shape);
        if let Some(ty) = operands {
            let rounding = Rounding::new(Isa::portable(), ty, Range::Unbounded);
            [&mut data.x, &mut data.w, &mut data.dy].into_iter().for_each(|values| rounding.whole(values));
        }
        data
    }

    fn reference(&self, shape: &ConvShape) -> Reference {
        let (input, output) = (shape.input(), shape.output());
        let mut reference = Reference {
            y: (0..self.dy.len())
                .map(|i| f64::from(self.bias[i / output.pixels() % output.c]))
                .map(|b| [b, b.abs()])
                .collect(),
            dx: vec![[0.0; 2]; self.x.len()],
            dw: vec![[0.0; 2]; self.w.len()],
        };
        let per_group = [shape.c_in / shape.groups, shape.c_out / shape.groups];
        let mut term = |y: usize, x: usize, w: usize| {
            for (sum, product) in [
                (&mut reference.y[y], [self.x[x], self.w[w]]),
                (&mut reference.dx[x], [self.dy[y], self.w[w]]),
                (&mut reference.dw[w], [self.dy[y], self.x[x]]),
            ] {
                let product = f64::from(product[0]) * f64::from(product[1]);
                sum[0] += product;
                sum[1] += product.abs();
            }
        };
        for y in 0..output.n * output.c * output.pixels() {
            let (n, o) = (y / output.pixels() / output.c, y / output.pixels() % output.c);
            let (i, j) = (y / output.w % output.h, y % output.w);
            for k in 0..per_group[0] * shape.taps() {
                let (c, a, b) = (k / shape.taps(), k / shape.kw % shape.kh, k % shape.kw);
                let row = i * shape.stride[0] + a * shape.dilation[0];
                let column = j * shape.stride[1] + b * shape.dilation[1];
                let channel = o / per_group[1] * per_group[0] + c;
                if let (Some(row), Some(column)) = (row.checked_sub(shape.pad[0]), column.checked_sub(shape.pad[2]))
                    && row < input.h
                    && column < input.w
                {
                    let x = ((n * input.c + channel) * input.h + row) * input.w + column;
                    term(y, x, o * per_group[0] * shape.taps() + k);
                }
            }
        }
        reference
    }
}

/// Requires `|found - sum| <= 4 eps * (sum of the terms' magnitudes)`. A sum of n terms in random order errs by about
/// sqrt(n) eps of that at most a few times; a lost or doubled term by far more.
#[track_caller]
fn expect(name: &str, found: &[f32], expected: &[[f64; 2]]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (i, (&f, [sum, magnitude])) in found.iter().zip(expected).enumerate() {
        let bound = 4.0 * f64::from(f32::EPSILON) * magnitude;
        assert!((f64::from(f) - sum).abs() <= bound, "{name}[{i}]: {f} instead of {sum}, bound {bound:e}");
    }
}

/// NCHW values of a blocked tensor, whose tail lanes have to be zero.
#[track_caller]
fn gathered(name: &str, extent: Blocked, blocked: &[f32]) -> Vec<f32> {
    let len = extent.n * extent.c * extent.pixels();
    let mut rest = blocked.to_vec();
    let out = (0..len).map(|i| std::mem::take(&mut rest[position(extent, i)])).collect();
    assert!(rest.iter().all(|&v| v == 0.0), "{name}: a lane beyond the last channel is not zero");
    out
}

/// Stale values that a kernel has to overwrite.
fn stale(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

struct Results {
    y: Vec<f32>,
    y_planar: Vec<f32>,
    dx: Vec<f32>,
    dw: Vec<f32>,
    dw_planar: Vec<f32>,
}

/// Formats of operands, and the instruction sets for which they make a difference.
fn formats() -> impl Iterator<Item = (Option<HalfType>, Vec<Isa>)> {
    let tiles = || Isa::available().into_iter().filter(|isa| isa.level() == Level::Amx).collect();
    let halves = [HalfType::Bf16, HalfType::Fp16].map(|ty| (Some(ty), tiles()));
    [(None, Isa::available())].into_iter().chain(halves)
}

fn run_all(isa: Isa, shape: &ConvShape, operands: Option<HalfType>, data: &Data) -> Results {
    let mut packed = stale(packed_len(shape));
    pack_weights(isa, shape, &data.w, &mut packed);
    let x = scattered(shape.input(), &data.x);
    let dy = scattered(shape.output(), &data.dy);
    let forward = |maps: Maps<'_>| {
        let mut y = stale(dy.len());
        let epilogue = Epilogue { bias: Some(&data.bias), ..Epilogue::default() };
        let mut workspace = stale(forward_workspace_len(isa, shape, operands));
        super::forward(isa, shape, operands, maps, &packed, &mut workspace, &mut y, epilogue);
        y
    };
    let filter = |maps: Maps<'_>| {
        let mut dw = stale(packed.len());
        let mut workspace = stale(filter_workspace_len(isa, shape, operands));
        filter_gradient(isa, shape, operands, maps, &dy, &mut workspace, &mut dw);
        dw
    };
    let mut dx = stale(x.len());
    let mut workspace = stale(input_workspace_len(isa, shape, operands));
    input_gradient(isa, shape, operands, &dy, &packed, &mut workspace, &mut dx, None);
    let planar = shape.c_in <= Maps::MAX_PLANAR;
    let in_planes = if planar { Maps::Planar(&data.x) } else { Maps::Blocked(&x) };
    Results {
        y: forward(Maps::Blocked(&x)),
        y_planar: forward(in_planes),
        dx,
        dw: filter(Maps::Blocked(&x)),
        dw_planar: filter(in_planes),
    }
}

#[test]
fn tiles_multiply_f32_in_some_cases() {
    let tiles = Isa::available().into_iter().filter(|isa| isa.level() == Level::Amx);
    for isa in tiles {
        let on_tiles = CASES.iter().filter(|case| tiles::way(isa, &shape(**case), None).is_some()).count();
        assert!(on_tiles >= 4, "only {on_tiles} cases test the tiles");
    }
}

#[test]
fn winograd_s_algorithm_computes_some_cases() {
    for isa in Isa::available() {
        let computed = CASES.iter().filter(|case| uses_winograd(isa, &shape(**case), None)).count();
        assert!(computed >= 4 || isa.level() == Level::Amx, "only {computed} cases at {:?}", isa.level());
        assert!(CASES.iter().all(|case| !uses_winograd(isa.direct(), &shape(*case), None)));
    }
}

#[test]
fn all_kinds_of_convolution_match_sums_in_f64() {
    for (shape, (operands, isas)) in shapes().flat_map(|shape| formats().map(move |format| (shape, format))) {
        if isas.is_empty() {
            continue;
        }
        let data = Data::rounded(&shape, operands);
        let reference = data.reference(&shape);
        for isa in isas {
            let name = |what: &str| format!("{what} of {shape:?} on {:?}, {operands:?}", isa.level());
            let results = run_all(isa, &shape, operands, &data);
            for y in [&results.y, &results.y_planar] {
                expect(&name("y"), &gathered(&name("y"), shape.output(), y), &reference.y);
            }
            expect(&name("dx"), &gathered(&name("dx"), shape.input(), &results.dx), &reference.dx);
            for dw in [&results.dw, &results.dw_planar] {
                let mut oihw = stale(shape.weight_len());
                unpack_weights(isa, &shape, dw, &mut oihw);
                expect(&name("dw"), &oihw, &reference.dw);
                let mut packed = stale(dw.len());
                pack_weights(Isa::best(), &shape, &oihw, &mut packed);
                assert!(packed == *dw, "{}: a weight that does not exist has a gradient", name("dw"));
            }
        }
    }
}

/// Mean and variance of every output channel.
fn statistics(
    isa: Isa,
    shape: &ConvShape,
    operands: Option<HalfType>,
    data: &Data,
    bias: Option<&[f32]>,
) -> [Vec<f32>; 2] {
    let mut packed = stale(packed_len(shape));
    pack_weights(isa, shape, &data.w, &mut packed);
    let x = scattered(shape.input(), &data.x);
    let mut workspace = stale(forward_workspace_len(isa, shape, operands));
    let [mut mean, mut variance] = [stale(shape.c_out), stale(shape.c_out)];
    let statistics = Some(Statistics { mean: &mut mean, variance: &mut variance });
    let epilogue = Epilogue { bias, statistics, ..Epilogue::default() };
    let mut y = stale(shape.output().len());
    super::forward(isa, shape, operands, Maps::Blocked(&x), &packed, &mut workspace, &mut y, epilogue);
    [mean, variance]
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    for (shape, (operands, isas)) in shapes().flat_map(|shape| formats().map(move |format| (shape, format))) {
        let data = Data::rounded(&shape, operands);
        for isa in isas {
            let [one, others @ ..] = [1, 2, 3, 4].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let Results { y, y_planar, dx, dw, dw_planar } = run_all(isa, &shape, operands, &data);
                    // A bias decides how small maps are computed.
                    let [mean, variance] = statistics(isa, &shape, operands, &data, Some(&data.bias));
                    let [plain_mean, plain_variance] = statistics(isa, &shape, operands, &data, None);
                    [y, y_planar, dx, dw, dw_planar, mean, variance, plain_mean, plain_variance]
                        .map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
                })
            });
            for (threads, other) in (2..).zip(others) {
                assert!(one == other, "{threads} threads differ from one: {shape:?} on {:?}", isa.level());
            }
        }
    }
}

/// Larger than the tests above, so that all kinds of cuts into tasks occur.
#[test]
#[cfg_attr(miri, ignore = "large on purpose")]
fn cuts_into_rows_images_and_blocks_agree_with_the_portable_kernels_and_f64() {
    for case in [
        (image(2, 64, 60, 57), 40, [3, 3], [1, 1], [1; 4], [1, 1], 1),
        (image(1, 3, 230, 120), 24, [7, 7], [2, 2], [3; 4], [1, 1], 1),
        (image(9, 96, 7, 7), 144, [3, 3], [1, 1], [1; 4], [1, 1], 1),
        (image(3, 130, 28, 28), 64, [1, 1], [2, 2], [0; 4], [1, 1], 1),
    ] {
        let shape = shape(case);
        for operands in [None, Some(HalfType::Bf16), Some(HalfType::Fp16)] {
            let data = Data::rounded(&shape, operands);
            let reference = data.reference(&shape);
            let results = run_all(Isa::best(), &shape, operands, &data);
            expect("y", &gathered("y", shape.output(), &results.y), &reference.y);
            expect("y", &gathered("y", shape.output(), &results.y_planar), &reference.y);
            expect("dx", &gathered("dx", shape.input(), &results.dx), &reference.dx);
            let mut dw = stale(shape.weight_len());
            unpack_weights(Isa::best(), &shape, &results.dw, &mut dw);
            expect("dw", &dw, &reference.dw);
            unpack_weights(Isa::best(), &shape, &results.dw_planar, &mut dw);
            expect("dw", &dw, &reference.dw);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "large")]
fn the_epilogue_takes_moments_before_relu_and_survives_a_large_mean() {
    for case in [CASES[0], CASES[4], CASES[5], CASES[24], CASES[32]] {
        let shape = shape(case);
        let mut data = Data::new(&shape);
        // A mean of 1000 with a deviation of about 1: E[y^2] - E[y]^2 in f32 would have no correct digit.
        data.bias.fill(1000.0);
        data.w.iter_mut().for_each(|w| *w *= 0.125);
        let rounding = Rounding::new(Isa::portable(), HalfType::Bf16, Range::Unbounded);
        [&mut data.x, &mut data.w].into_iter().for_each(|values| rounding.whole(values));
        let reference = data.reference(&shape);
        let output = shape.output();
        let mut packed = stale(packed_len(&shape));
        pack_weights(Isa::best(), &shape, &data.w, &mut packed);
        let x = scattered(shape.input(), &data.x);
        let ways = || formats().flat_map(|(operands, isas)| isas.into_iter().map(move |isa| (operands, isa)));
        for (operands, isa) in ways() {
            let mut workspace = stale(forward_workspace_len(isa, &shape, operands));
            let [mut mean, mut variance] = [stale(output.c), stale(output.c)];
            let mut y = stale(output.len());
            let statistics = Some(Statistics { mean: &mut mean, variance: &mut variance });
            let epilogue = Epilogue { bias: Some(&data.bias), statistics, relu: true, rounding: None };
            super::forward(isa, &shape, operands, Maps::Blocked(&x), &packed, &mut workspace, &mut y, epilogue);
            let y = gathered("y", output, &y);
            for channel in 0..output.c {
                let of_channel = |i: &usize| i / output.pixels() % output.c == channel;
                let values: Vec<f64> = (0..y.len()).filter(of_channel).map(|i| reference.y[i][0]).collect();
                let count = values.len() as f64;
                let expected = values.iter().sum::<f64>() / count;
                let spread = values.iter().map(|v| (v - expected).powi(2)).sum::<f64>() / count;
                assert!((f64::from(mean[channel]) - expected).abs() < 1e-7 * 1000.0);
                // Rounding of y itself: 1000 * 2^-24 of a deviation of about one.
                let relative = (f64::from(variance[channel]) - spread).abs() / spread;
                assert!(relative < 1e-4, "variance {} instead of {spread}", variance[channel]);
            }
        }
        data.bias.fill(0.0);
        let reference = data.reference(&shape);
        for (operands, isa) in ways() {
            let mut workspace = stale(forward_workspace_len(isa, &shape, operands));
            let mut y = stale(output.len());
            let epilogue = Epilogue { relu: true, ..Epilogue::default() };
            super::forward(isa, &shape, operands, Maps::Blocked(&x), &packed, &mut workspace, &mut y, epilogue);
            let expected: Vec<_> = reference.y.iter().map(|&[sum, magnitude]| [sum.max(0.0), magnitude]).collect();
            expect("relu", &gathered("relu", output, &y), &expected);
        }
    }
}

/// What a device with fp16 that flushes holds, rounded by the kernel's tasks or afterwards; and what was counted.
fn held(isa: Isa, len: usize, in_tasks: bool, kernel: impl Fn(&mut [f32], Option<&Rounding>)) -> (Vec<f32>, Tally) {
    let flush = Range::Format { overflow: Overflow::Saturate, subnormals: Subnormals::Flush };
    let rounding = Rounding::new(isa, HalfType::Fp16, flush);
    let mut values = stale(len);
    kernel(&mut values, Some(&rounding).filter(|_| in_tasks));
    if !in_tasks {
        rounding.whole(&mut values);
    }
    (values, rounding.tally())
}

#[test]
fn results_that_tasks_round_are_those_that_are_rounded_afterwards() {
    for (shape, (operands, isas)) in shapes().flat_map(|shape| formats().map(move |format| (shape, format))) {
        let mut data = Data::rounded(&shape, operands);
        // Results around fp16's smallest normal number: some vanish.
        data.w.iter_mut().for_each(|w| *w *= 2f32.powi(-13));
        data.bias.fill(1e-5);
        let mut packed = stale(packed_len(&shape));
        pack_weights(Isa::best(), &shape, &data.w, &mut packed);
        let (x, dy) = (scattered(shape.input(), &data.x), scattered(shape.output(), &data.dy));
        for isa in isas {
            for bias in [None, Some(&data.bias[..])] {
                let forward = |y: &mut [f32], rounding: Option<&Rounding>| {
                    let epilogue = Epilogue { bias, relu: true, rounding, statistics: None };
                    let mut workspace = stale(forward_workspace_len(isa, &shape, operands));
                    super::forward(isa, &shape, operands, Maps::Blocked(&x), &packed, &mut workspace, y, epilogue);
                };
                assert_eq!(held(isa, dy.len(), true, forward), held(isa, dy.len(), false, forward), "{shape:?}");
            }
            let backward = |dx: &mut [f32], rounding: Option<&Rounding>| {
                let mut workspace = stale(input_workspace_len(isa, &shape, operands));
                input_gradient(isa, &shape, operands, &dy, &packed, &mut workspace, dx, rounding);
            };
            let in_tasks = held(isa, x.len(), true, backward);
            assert_eq!(in_tasks, held(isa, x.len(), false, backward), "{shape:?}");
            let tally = in_tasks.1;
            let reached = super::input_gradient::phases(&shape).iter().any(|grid| !grid.taps.is_empty());
            let some_vanish = tally.flushed > 0 && tally.flushed < tally.nonzero;
            assert!(if reached { some_vanish } else { tally.nonzero == 0 }, "{shape:?}: {tally:?}");
        }
    }
}
