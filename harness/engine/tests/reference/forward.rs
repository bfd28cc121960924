//! What operators compute, against hand-worked cases and naive loops.

use crate::{
    naive,
    tiny::{SCALARS, Tiny, apply, assert_close, elements, noise},
};
use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, KernelError};
use zoo_graph::{DType, ops::*};

fn window(kernel: [usize; 2], stride: [usize; 2], pad: [usize; 4]) -> Window {
    Window { pad, ..Window::new(kernel, stride) }
}

/// Convolutions at awkward shapes: input, output channels, operator.
pub fn convolutions() -> Vec<([usize; 4], usize, Conv2D)> {
    let conv = Conv2D::new;
    let plain = |k, s, p| window([k; 2], [s; 2], [p; 4]);
    vec![
        ([2, 3, 5, 7], 4, conv(plain(1, 1, 0), 1)),
        ([2, 3, 5, 7], 4, conv(plain(1, 2, 0), 1)),
        ([2, 3, 5, 7], 4, conv(plain(1, 1, 1), 1)),
        ([2, 3, 12, 13], 4, conv(plain(3, 2, 1), 1)),
        ([1, 2, 12, 13], 3, conv(plain(3, 2, 0), 1)),
        ([2, 2, 9, 8], 3, conv(plain(7, 2, 3), 1)),
        ([1, 2, 15, 14], 2, conv(plain(11, 4, 2), 1)),
        ([2, 4, 7, 6], 6, conv(Window { dilation: [2, 2], ..plain(3, 1, 2) }, 2)),
        ([1, 2, 9, 11], 2, conv(Window { dilation: [2, 3], ..window([3, 2], [2, 3], [2, 0, 1, 3]) }, 1)),
        ([2, 5, 6, 6], 5, conv(plain(3, 1, 1), 5)),
        ([2, 3, 6, 7], 6, conv(plain(3, 2, 1), 3)),
        ([2, 2, 5, 5], 3, conv(window([5, 3], [1, 2], [1, 0, 2, 1]), 1)),
        ([1, 2, 2, 2], 3, conv(plain(5, 1, 2), 1)),
        ([1, 2, 1, 1], 3, conv(plain(3, 2, 3), 1)),
        ([3, 1, 4, 4], 2, conv(plain(4, 4, 0), 1)),
    ]
}

#[test]
fn convolution_is_its_definition() {
    for (input, o, op) in convolutions() {
        let filter = [o, input[1] / op.groups, op.window.kernel[0], op.window.kernel[1]];
        let (x, w) = (noise(input.iter().product(), 1), noise(filter.iter().product(), 2));
        let bias = noise(o, 3);
        let mut expected = naive::conv(&op, input, &x, o, &w);
        let operands = [(&input[..], x), (&filter[..], w)];
        assert_close(&apply(op.clone(), &operands)[0], &expected, 1e-14, &format!("{input:?} {op:?}"));
        let plane = expected.len() / (input[0] * o);
        expected.iter_mut().enumerate().for_each(|(i, y)| *y += bias[i / plane % o]);
        let [x, w] = operands;
        let found = apply(op.clone(), &[x, w, (&[o], bias)]);
        assert_close(&found[0], &expected, 1e-14, &format!("{input:?} {op:?} with bias"));
    }
}

#[test]
fn a_convolution_larger_than_the_matrix_limit_is_split_into_runs_of_images() {
    // 64 channels x 9 taps x 96 x 96 pixels: three images at a time, five in all.
    let op = Conv2D::new(window([3; 2], [1; 2], [1; 4]), 1);
    let image = [1, 64, 96, 96];
    let w = noise(64 * 9, 2);
    let all = noise(5 * 64 * 96 * 96, 1);
    let whole = apply(op.clone(), &[(&[5, 64, 96, 96], all.clone()), (&[1, 64, 3, 3], w.clone())]);
    for (i, x) in all.chunks(64 * 96 * 96).enumerate() {
        let one = apply(op.clone(), &[(&image, x.to_vec()), (&[1, 64, 3, 3], w.clone())]);
        assert_close(&whole[0][i * 96 * 96..][..96 * 96], &one[0], 1e-13, &format!("image {i}"));
    }
    let dy = noise(5 * 96 * 96, 4);
    let grad = Conv2DBackpropFilter { conv: op.clone(), filter: [1, 64, 3, 3].into() };
    let whole = apply(grad.clone(), &[(&[5, 64, 96, 96], all.clone()), (&[5, 1, 96, 96], dy.clone())]);
    let mut sum = vec![0.0; 64 * 9];
    for (x, dy) in all.chunks(64 * 96 * 96).zip(dy.chunks(96 * 96)) {
        let one = apply(grad.clone(), &[(&image, x.to_vec()), (&[1, 1, 96, 96], dy.to_vec())]);
        sum.iter_mut().zip(&one[0]).for_each(|(sum, g)| *sum += g);
    }
    assert_close(&whole[0], &sum, 1e-13, "filter gradient");
}

/// Maximum pools at awkward shapes.
pub fn max_pools() -> Vec<([usize; 4], Window)> {
    vec![
        ([2, 3, 7, 9], window([3; 2], [2; 2], [1; 4])),
        ([1, 2, 12, 13], window([3; 2], [2; 2], [0; 4])),
        ([1, 2, 12, 13], Window { ceil: true, ..window([3; 2], [2; 2], [0; 4]) }),
        ([1, 2, 6, 5], Window { ceil: true, ..window([2; 2], [2; 2], [1; 4]) }),
        ([2, 1, 8, 7], window([3, 2], [1, 2], [0, 1, 1, 0])),
        ([1, 1, 9, 9], Window { dilation: [2, 3], ..window([3, 2], [1; 2], [1; 4]) }),
        ([1, 2, 4, 4], window([2; 2], [3; 2], [0; 4])),
    ]
}

#[test]
fn max_pool_is_its_definition() {
    for (input, window) in max_pools() {
        let x = noise(input.iter().product(), 1);
        let expected = naive::max_pool(&window, input, &x);
        assert_close(&apply(MaxPool { window }, &[(&input, x)])[0], &expected, 0.0, &format!("{input:?} {window:?}"));
    }
}

#[test]
fn max_pool_gives_ties_to_the_first_and_padding_never_wins() {
    let window = window([3; 2], [2; 2], [1; 4]);
    let x = vec![-1.0; 9];
    let y = apply(MaxPool { window }, &[(&[1, 1, 3, 3], x.clone())]).remove(0);
    assert_eq!(y, [-1.0; 4]);
    let dy = vec![1.0, 2.0, 3.0, 4.0];
    let operands = [(&[1, 1, 3, 3][..], x), (&[1, 1, 2, 2][..], y), (&[1, 1, 2, 2][..], dy)];
    let dx = apply(MaxPoolGrad { window }, &operands).remove(0);
    assert_eq!(dx, [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn average_pools_divide_as_pytorch_does() {
    let x: Vec<f64> = (1..=9).map(f64::from).collect();
    let window = Window { pad: [1; 4], ..Window::new([2; 2], [2; 2]) };
    let pool = |count_include_pad| AvgPool { window, count_include_pad };
    // Windows: {1}, {2, 3}, {4, 7}, {5, 6, 8, 9}.
    let included = apply(pool(true), &[(&[1, 1, 3, 3], x.clone())]).remove(0);
    assert_eq!(included, [0.25, 1.25, 2.75, 7.0]);
    let excluded = apply(pool(false), &[(&[1, 1, 3, 3], x.clone())]).remove(0);
    assert_eq!(excluded, [1.0, 2.5, 5.5, 7.0]);
    // Rounded up, the last windows hang over the edge: {1, 2, 4, 5}, {3, 6}, {7, 8}, {9}, without padding to count.
    let ceil = Window { ceil: true, ..Window::new([2; 2], [2; 2]) };
    let overhanging = apply(AvgPool { window: ceil, count_include_pad: true }, &[(&[1, 1, 3, 3], x)]).remove(0);
    assert_eq!(overhanging, [3.0, 4.5, 7.5, 9.0]);
}

#[test]
fn adaptive_pool_by_hand() {
    let x: Vec<f64> = (0..7).map(f64::from).collect();
    let rows = apply(AdaptiveAvgPool { out: [3, 1] }, &[(&[1, 1, 7, 1], x.clone())]).remove(0);
    assert_eq!(rows, [1.0, 3.0, 5.0]);
    let stretched = apply(AdaptiveAvgPool { out: [1, 3] }, &[(&[1, 1, 1, 2], vec![1.0, 3.0])]).remove(0);
    assert_eq!(stretched, [1.0, 2.0, 3.0]);
    let all = apply(AdaptiveAvgPool { out: [1, 1] }, &[(&[1, 1, 7, 1], x)]).remove(0);
    assert_eq!(all, [3.0]);
}

#[test]
fn lrn_is_pytorchs() {
    for size in [1, 2, 4, 5, 9] {
        let op = Lrn { size, alpha: 0.7, beta: 0.75, k: 1.5 };
        let x = noise(2 * 6 * 3 * 2, 1);
        let expected = naive::lrn(&op, [2, 6, 3, 2], &x);
        assert_close(&apply(op, &[(&[2, 6, 3, 2], x)])[0], &expected, 1e-15, &format!("size {size}"));
    }
    // One channel: 2 / (1 + 3 / 1 * 4)^0.5.
    let op = Lrn { size: 1, alpha: 3.0, beta: 0.5, k: 1.0 };
    assert_close(&apply(op, &[(&[1, 1, 1, 1], vec![2.0])])[0], &[2.0 / 13f64.sqrt()], 1e-15, "by hand");
}

#[test]
fn relu_stops_at_zero_and_lets_nan_through() {
    let x = vec![-2.0, -0.0, 0.0, 3.0, f64::NAN];
    let y = apply(Relu { rectifier: Rectifier::Relu }, &[(&[5], x)]).remove(0);
    assert_eq!(y[..4], [0.0, 0.0, 0.0, 3.0]);
    assert!(y[4].is_nan(), "a NaN must not be hidden");
    let dx = apply(ReluGrad { rectifier: Rectifier::Relu }, &[(&[5], vec![1.0; 5]), (&[5], y)]).remove(0);
    assert_eq!(dx, [0.0, 0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn max_pool_lets_nan_through() {
    let window = Window::new([2; 2], [2; 2]);
    for at in 0..4 {
        let mut x = vec![1.0, 2.0, 3.0, 4.0];
        x[at] = f64::NAN;
        assert!(apply(MaxPool { window }, &[(&[1, 1, 2, 2], x)])[0][0].is_nan());
    }
}

/// Normalisation by the statistics of the operand itself: the result, mean and variance.
fn normalised(
    op: BnTrainingUpdate,
    dims: [usize; 4],
    x: &[f64],
    [gamma, beta]: [&[f64]; 2],
    residual: Option<&[f64]>,
) -> [Vec<f64>; 3] {
    let mut tiny = Tiny::new(DType::F64);
    let x = tiny.given(&dims, x.to_vec());
    let [gamma, beta] = [gamma, beta].map(|v| tiny.given(&[v.len()], v.to_vec()));
    let residual = residual.map(|r| tiny.given(&dims, r.to_vec()));
    let statistics = tiny.add_all(BnTrainingReduce, &[x]);
    let mut operands = vec![x, statistics[0], statistics[1], gamma, beta];
    operands.extend(residual);
    let y = tiny.add(op, &operands);
    for value in [y, statistics[0], statistics[1]] {
        tiny.show(value);
    }
    let results = tiny.run().outputs;
    [0, 1, 2].map(|i| elements(&results[i].1))
}

#[test]
fn statistics_and_normalisation_by_hand() {
    // Channel 0 holds 1, 3, 5, 7 (mean 4, variance 5), channel 1 holds 2, 2, 2, 6 (mean 3, variance 3).
    let x = vec![1.0, 3.0, 2.0, 2.0, 5.0, 7.0, 2.0, 6.0];
    let (gamma, beta) = (vec![2.0, -1.0], vec![0.5, 1.0]);
    // With eps 4 and 6 the deviations of channel 0 and 1 are 3: 2 z + 0.5 and -z + 1.
    let expected = [-1.5, 0.5 - 2.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0, 0.5 + 2.0 / 3.0, 2.5, 4.0 / 3.0, 0.0];
    for (channel, eps) in [(0, 4.0), (1, 6.0)] {
        let op = BnTrainingUpdate { eps, residual: false, relu: None, ranks: Vec::new() };
        let [y, mean, var] = normalised(op, [2, 2, 1, 2], &x, [&gamma, &beta], None);
        assert_eq!((&mean[..], &var[..]), (&[4.0, 3.0][..], &[5.0, 3.0][..]));
        let of_channel = |y: &[f64]| [0, 1, 4, 5].map(|i| y[i + 2 * channel]);
        assert_close(&of_channel(&y), &of_channel(&expected), 1e-15, &format!("channel {channel}"));
        let per_channel = [gamma.clone(), beta.clone(), mean, var].map(|v| (&[2][..], v));
        let operands = [&[(&[2, 2, 1, 2][..], x.clone())][..], &per_channel].concat();
        assert_eq!(apply(BnInfer { eps }, &operands)[0], y, "stored statistics of the same values give the same");
    }
}

#[test]
fn fused_normalisation_is_the_sum_of_its_parts() {
    let dims = [3, 4, 5, 2];
    let (x, residual, gamma, beta) = (noise(120, 1), noise(120, 7), noise(4, 3), noise(4, 4));
    let op = |residual, relu| BnTrainingUpdate { eps: 1e-5, residual, relu, ranks: Vec::new() };
    let [plain, mean, var] = normalised(op(false, None), dims, &x, [&gamma, &beta], None);
    let [rectified, ..] = normalised(op(false, Some(Rectifier::Relu)), dims, &x, [&gamma, &beta], None);
    assert_eq!(rectified, plain.iter().map(|y| y.max(0.0)).collect::<Vec<_>>());
    let [fused, ..] = normalised(op(true, Some(Rectifier::Relu)), dims, &x, [&gamma, &beta], Some(&residual));
    let expected: Vec<f64> = plain.iter().zip(&residual).map(|(y, r)| (y + r).max(0.0)).collect();
    assert_close(&fused, &expected, 1e-15, "residual");

    let x = (&dims[..], x);
    let [mean, var, gamma, beta] = [mean, var, gamma, beta].map(|v| (&[4][..], v));
    let dy = noise(120, 8);
    let recomputed = GradRelu::Recomputed(Rectifier::Relu);
    for (relu, output) in
        [(GradRelu::Absent, None), (recomputed, Some(&rectified)), (GradRelu::Output(Rectifier::Relu), Some(&fused))]
    {
        let through = |(dy, y): (&f64, &f64)| if *y > 0.0 { *dy } else { 0.0 };
        let passed = output.map_or(dy.clone(), |y| dy.iter().zip(y).map(through).collect::<Vec<f64>>());
        let part = (&dims[..], passed.clone());
        let update = BnTrainingUpdateGrad { eps: 1e-5 };
        let sums = apply(update, &[part.clone(), x.clone(), mean.clone(), var.clone()]);
        let [dgamma, dbeta] = [(&[4][..], sums[0].clone()), (&[4][..], sums[1].clone())];
        let statistics = [x.clone(), mean.clone(), var.clone(), gamma.clone()];
        let reduce = [&[part][..], &statistics, &[dgamma, dbeta]].concat();
        let dx = apply(BnTrainingReduceGrad { eps: 1e-5 }, &reduce).remove(0);
        let mut expected = vec![dx, sums[0].clone(), sums[1].clone()];
        let mut whole = [&[(&dims[..], dy.clone())][..], &statistics].concat();
        match relu {
            GradRelu::Absent => {}
            GradRelu::Recomputed(_) => whole.push(beta.clone()),
            GradRelu::Output(_) => {
                whole.push((&dims, fused.clone()));
                expected.push(passed);
            }
        }
        assert_eq!(apply(BnTrainingGrad { eps: 1e-5, relu }, &whole), expected, "{relu:?}");
    }
}

#[test]
fn fused_convolutions_are_the_sum_of_their_parts() {
    let operands: [(&[usize], Vec<f64>); 3] =
        [(&[2, 3, 5, 4], noise(120, 1)), (&[4, 3, 3, 3], noise(108, 2)), (&[4], noise(4, 3))];
    let op = Conv2D::new(window([3; 2], [1; 2], [1; 4]), 1);
    let plain = apply(op.clone(), &operands).remove(0);
    let rectified = apply(Conv2D { relu: true, ..op.clone() }, &operands).remove(0);
    assert_eq!(rectified, plain.iter().map(|y| y.max(0.0)).collect::<Vec<_>>());
    let statistics = apply(BnTrainingReduce, &[(&[2, 4, 5, 4], plain.clone())]);
    let fused = apply(Conv2D { statistics: true, ..op }, &operands);
    assert_eq!(fused, [&[plain][..], &statistics].concat());
}

#[test]
fn moves_of_elements_by_hand() {
    let x: Vec<f64> = (0..6).map(f64::from).collect();
    let slice = apply(Slice { start: vec![0, 1], size: vec![2, 2] }, &[(&[2, 3], x.clone())]).remove(0);
    assert_eq!(slice, [1.0, 2.0, 4.0, 5.0]);
    let padded = apply(Pad { before: vec![1, 0], after: vec![0, 2] }, &[(&[2, 3], x.clone())]).remove(0);
    assert_eq!(padded, [0., 0., 0., 0., 0., 0., 1., 2., 0., 0., 3., 4., 5., 0., 0.]);
    let parts: [(&[usize], Vec<f64>); 2] = [(&[2, 3], x.clone()), (&[2, 1], vec![8.0, 9.0])];
    assert_eq!(apply(Concat { axis: 1 }, &parts)[0], [0., 1., 2., 8., 3., 4., 5., 9.]);
    assert_eq!(apply(Reshape { shape: [3, 2].into() }, &[(&[2, 3], x.clone())])[0], x);
}

#[test]
fn sums_by_hand() {
    let pair: [(&[usize], Vec<f64>); 3] = [(&[2], vec![1.0, 2.0]), (&[2], vec![3.0, 5.0]), (&[2], vec![7.0, -8.0])];
    assert_eq!(apply(Add, &pair)[0], [11.0, -1.0]);
    assert_eq!(apply(Scale { factor: -0.5 }, &pair[..1])[0], [-0.5, -1.0]);
    assert_eq!(apply(ScaleBy, &[pair[1].clone(), (&[], vec![2.0])])[0], [6.0, 10.0]);
    assert_eq!(apply(L2Loss, &pair[1..2])[0], [17.0]);
    let scalars: [(&[usize], Vec<f64>); 2] = [(&[], vec![3.0]), (&[], vec![4.0])];
    assert_eq!(apply(WeightedSum { weights: vec![2.0, -0.5] }, &scalars)[0], [4.0]);
    let x: Vec<f64> = (1..=8).map(f64::from).collect();
    assert_eq!(apply(BiasAddGrad, &[(&[2, 2, 1, 2], x.clone())])[0], [14.0, 22.0]);
    assert_eq!(apply(BiasAddGrad, &[(&[4, 2], x.clone())])[0], [16.0, 20.0]);
    let sums = |axis, reverse| apply(Cumsum { axis, reverse }, &[(&[2, 2, 2], x.clone())]).remove(0);
    assert_eq!(sums(0, false), [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(sums(1, false), [1.0, 2.0, 4.0, 6.0, 5.0, 6.0, 12.0, 14.0]);
    assert_eq!(sums(2, true), [3.0, 2.0, 7.0, 4.0, 11.0, 6.0, 15.0, 8.0]);
    let ty = zoo_graph::TensorType::plain([2, 2], DType::F64);
    assert_eq!(apply(Fill { value: 1.5, ty }, &[])[0], [1.5; 4]);
}

#[test]
fn l2_loss_sums_more_than_one_task_right() {
    let x = vec![1.0; 100_001];
    assert_eq!(apply(L2Loss, &[(&[100_001], x)])[0], [50_000.5]);
}

#[test]
fn matrix_products_in_all_four_forms() {
    // [[1, 2, 3], [4, 5, 6]] * [[1, 0], [2, -1], [0, 3]] + [10, 20]
    let expected = [15.0, 27.0, 24.0, 33.0];
    let (a, b) = (vec![1., 2., 3., 4., 5., 6.], vec![1., 0., 2., -1., 0., 3.]);
    let (a_t, b_t) = (vec![1., 4., 2., 5., 3., 6.], vec![1., 2., 0., 0., -1., 3.]);
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let a: (&[usize], Vec<f64>) = if transpose_a { (&[3, 2], a_t.clone()) } else { (&[2, 3], a.clone()) };
        let b: (&[usize], Vec<f64>) = if transpose_b { (&[2, 3], b_t.clone()) } else { (&[3, 2], b.clone()) };
        let op = MatMul { transpose_a, transpose_b };
        assert_eq!(apply(op, &[a, b, (&[2], vec![10.0, 20.0])])[0], expected, "{transpose_a} {transpose_b}");
    }
}

fn cross_entropy(over: SmoothingOver, smoothing: f64, logits: Vec<f64>, labels: Vec<u32>) -> [Vec<f64>; 2] {
    let mut tiny = Tiny::new(DType::F64);
    let n = labels.len();
    let x = tiny.given(&[n, logits.len() / n], logits);
    let label = tiny.labels(n);
    for result in tiny.add_all(SoftmaxCrossEntropy { smoothing, over, ignored: None }, &[x, label]) {
        tiny.show(result);
    }
    let label = Tensor::from_vec(labels, n, &Device::Cpu).unwrap();
    let results = tiny.run_with(&Inputs::new().with("label", label)).outputs;
    [elements(&results[0].1), elements(&results[1].1)]
}

#[test]
fn cross_entropy_by_hand() {
    // Probabilities 1/2, 1/4, 1/4 and 1/6, 2/6, 3/6.
    let logits = vec![2f64.ln(), 0.0, 0.0, 100.0, 100.0 + 2f64.ln(), 100.0 + 3f64.ln()];
    let (half, quarter) = (2f64.ln(), 4f64.ln());
    let sixths = [6f64.ln(), 3f64.ln(), 2f64.ln()];
    let [loss, gradient] = cross_entropy(SmoothingOver::AllClasses, 0.0, logits.clone(), vec![0, 2]);
    assert_close(&loss, &[(half + half) / 2.0], 1e-14, "plain");
    let expected = [-0.25, 0.125, 0.125, 1.0 / 12.0, 1.0 / 6.0, -0.25];
    assert_close(&gradient, &expected, 1e-14, "gradient");
    // s = 0.3 over three classes: 0.8, 0.1, 0.1; over the two others: 0.7, 0.15, 0.15.
    for (over, on, off) in [(SmoothingOver::AllClasses, 0.8, 0.1), (SmoothingOver::OtherClasses, 0.7, 0.15)] {
        let [loss, gradient] = cross_entropy(over, 0.3, logits.clone(), vec![0, 2]);
        let first = on * half + 2.0 * off * quarter;
        let second = on * sixths[2] + off * (sixths[0] + sixths[1]);
        assert_close(&loss, &[(first + second) / 2.0], 1e-14, &format!("{over:?}"));
        let expected = [0.5 - on, 0.25 - off, 0.25 - off, 1.0 / 6.0 - off, 1.0 / 3.0 - off, 0.5 - on].map(|g| g / 2.0);
        assert_close(&gradient, &expected, 1e-14, &format!("{over:?} gradient"));
    }
}

#[test]
fn cross_entropy_survives_large_logits() {
    let [loss, gradient] = cross_entropy(SmoothingOver::AllClasses, 0.0, vec![1e4, -1e4], vec![1]);
    assert_eq!((loss, gradient), (vec![2e4], vec![1.0, -1.0]));
}

#[test]
fn a_class_without_target_may_be_excluded() {
    let logits = vec![3f64.ln(), 0.0, f64::NEG_INFINITY];
    let [loss, gradient] = cross_entropy(SmoothingOver::AllClasses, 0.0, logits.clone(), vec![0]);
    assert_close(&loss, &[4f64.ln() - 3f64.ln()], 1e-14, "loss");
    assert_close(&gradient, &[-0.25, 0.25, 0.0], 1e-14, "gradient");
    let [loss, _] = cross_entropy(SmoothingOver::AllClasses, 0.3, logits.clone(), vec![0]);
    assert_eq!(loss, [f64::INFINITY], "every class has a target");
    assert_eq!(cross_entropy(SmoothingOver::AllClasses, 0.0, logits, vec![2])[0], [f64::INFINITY]);
}

#[test]
fn a_label_beyond_the_classes_is_named() {
    let mut tiny = Tiny::new(DType::F64);
    let x = tiny.noisy(&[2, 3]);
    let label = tiny.labels(2);
    let loss = tiny
        .add_all(SoftmaxCrossEntropy { smoothing: 0.0, over: SmoothingOver::AllClasses, ignored: None }, &[x, label])
        [0];
    tiny.show(loss);
    let inputs = Inputs::new().with("label", Tensor::new(&[2u32, 3], &Device::Cpu).unwrap());
    let error = tiny.step().run(&inputs, SCALARS, &mut ()).unwrap_err();
    let zoo_engine::EngineError::Node { source, .. } = error else { panic!("{error}") };
    assert!(matches!(source, KernelError::Label { label: 3, sample: 1, classes: 3 }), "{source}");
}

#[test]
fn dropout_scales_what_it_keeps_and_follows_the_mask() {
    let op = Dropout { rate: 0.25, stream: 3 };
    let x = noise(40_000, 1);
    let y = apply(op.clone(), &[(&[40_000], x.clone())]).remove(0);
    let keep = |i: usize| zoo_kernels::dropout::keep(SCALARS.seed, SCALARS.step, 3, i as u64, 0.25);
    let expected: Vec<f64> = x.iter().enumerate().map(|(i, x)| if keep(i) { x / 0.75 } else { 0.0 }).collect();
    assert_eq!(y, expected);
    let kept = y.iter().filter(|y| **y != 0.0).count() as f64 / 4e4;
    assert!((kept - 0.75).abs() < 4.0 * (0.75f64 * 0.25 / 4e4).sqrt(), "{kept} kept");
    let other = apply(Dropout { stream: 4, ..op.clone() }, &[(&[40_000], x)]).remove(0);
    assert_ne!(y, other);
    // PyTorch multiplies by the mask.
    let infinite = apply(op, &[(&[1000], vec![f64::INFINITY; 1000])]).remove(0);
    assert!(infinite.iter().enumerate().all(|(i, y)| if keep(i) { *y == f64::INFINITY } else { y.is_nan() }));
}

#[test]
fn a_layer_in_f32_is_that_in_f64_rounded() {
    let result = |dtype| {
        let mut tiny = Tiny::new(dtype);
        let (x, w) = (tiny.noisy(&[2, 4, 6, 6]), tiny.noisy(&[3, 4, 3, 3]));
        let y = tiny.add(Conv2D::new(window([3; 2], [2; 2], [1; 4]), 1), &[x, w]);
        let y = tiny.add(Relu { rectifier: Rectifier::Relu }, &[y]);
        let y = tiny.add(MaxPool { window: Window::new([2; 2], [1; 2]) }, &[y]);
        tiny.show(y);
        elements(&tiny.run().outputs[0].1)
    };
    let exact = result(DType::F64);
    assert_close(&result(DType::F32), &exact, 1e-6, "f32");
}
