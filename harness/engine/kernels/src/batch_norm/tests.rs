//! Against the formulas in f64.

use super::*;
use crate::{
    Isa,
    conv::Statistics,
    half::{HalfType, Overflow, Range, Rounding, Subnormals},
    rectifier::Rectifier,
    testing::{blocked, expect_blocked, expect_close, filled, position, same_bits_on_any_threads},
};

const EPSILON: f64 = 1e-5;

/// A layer, its data in NCHW as f64, and what the formulas make of it.
struct Case {
    shape: Blocked,
    x: Vec<f32>,
    residual: Vec<f32>,
    dy: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
    exact: Exact,
}

struct Exact {
    mean: Vec<f64>,
    variance: Vec<f64>,
    /// With residual and ReLU as asked for.
    y: Vec<f64>,
    passed: Vec<f64>,
    dgamma: Vec<f64>,
    dbeta: Vec<f64>,
    dx: Vec<f64>,
    stored_dx: Vec<f64>,
}

/// Sums over images and pixels of `value(element)`, per channel.
fn per_channel(shape: Blocked, value: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; shape.c];
    for i in 0..shape.n * shape.c * shape.pixels() {
        sums[i / shape.pixels() % shape.c] += value(i);
    }
    sums
}

fn case(shape: Blocked, with_residual: bool, relu: Option<Rectifier>) -> Case {
    let ceiling = relu.map(|rectifier| f64::from(rectifier.ceiling)).filter(|ceiling| !ceiling.is_nan());
    let ceiling = ceiling.unwrap_or(f64::INFINITY);
    let (x, exact_x) = blocked(shape, 1);
    let (residual, exact_residual) = blocked(shape, 2);
    let (dy, exact_dy) = blocked(shape, 3);
    let (gamma, beta) = (filled(shape.c, 4), filled(shape.c, 5));
    let count = (shape.n * shape.pixels()) as f64;
    let channel = |i: usize| i / shape.pixels() % shape.c;

    let mean: Vec<_> = per_channel(shape, |i| exact_x[i] / count);
    let variance = per_channel(shape, |i| (exact_x[i] - mean[channel(i)]).powi(2) / count);
    let deviation: Vec<_> = variance.iter().map(|v| (v + EPSILON).sqrt()).collect();
    let hat: Vec<_> = (0..exact_x.len()).map(|i| (exact_x[i] - mean[channel(i)]) / deviation[channel(i)]).collect();
    let y: Vec<f64> = (0..exact_x.len())
        .map(|i| {
            let sum = if with_residual { exact_residual[i] } else { 0.0 };
            let y = hat[i] * f64::from(gamma[channel(i)]) + f64::from(beta[channel(i)]) + sum;
            if relu.is_some() { y.clamp(0.0, ceiling) } else { y }
        })
        .collect();
    let passed: Vec<_> = (0..y.len())
        .map(|i| if relu.is_some() && (y[i] <= 0.0 || y[i] >= ceiling) { 0.0 } else { exact_dy[i] })
        .collect();
    let dgamma = per_channel(shape, |i| passed[i] * hat[i]);
    let dbeta = per_channel(shape, |i| passed[i]);
    let scale = |c: usize| f64::from(gamma[c]) / deviation[c];
    let dx = (0..y.len())
        .map(|i| {
            let c = channel(i);
            scale(c) * (passed[i] - dbeta[c] / count - hat[i] * dgamma[c] / count)
        })
        .collect();
    let stored_dx = (0..y.len()).map(|i| scale(channel(i)) * passed[i]).collect();
    let exact = Exact { mean, variance, y, passed, dgamma, dbeta, dx, stored_dx };
    Case { shape, x, residual, dy, gamma, beta, exact }
}

/// None; one without a ceiling; one with a ceiling that values reach.
const RELUS: [Option<Rectifier>; 3] = [None, Some(Rectifier::RELU), Some(Rectifier { ceiling: 0.3 })];

/// Odd extents; channels below, at and above a block; a plane of one pixel.
fn shapes() -> [Blocked; 5] {
    [(2, 3, 5, 7), (3, 16, 1, 1), (1, 33, 9, 3), (4, 31, 2, 2), (2, 40, 11, 13)]
        .map(|(n, c, h, w)| Blocked::new(n, c, h, w))
}

#[test]
fn forward_follows_the_formula() {
    for isa in Isa::available() {
        for shape in shapes() {
            for (with_residual, relu) in
                [false, true].into_iter().flat_map(|residual| RELUS.map(|relu| (residual, relu)))
            {
                let case = case(shape, with_residual, relu);
                let Case { x, residual, gamma, beta, exact, .. } = &case;
                let (mut mean, mut variance) = (vec![0.0; shape.c], vec![0.0; shape.c]);
                statistics(isa, shape, x, Statistics { mean: &mut mean, variance: &mut variance });
                expect_close("mean", &mean, &exact.mean, 1e-7);
                expect_close("variance", &variance, &exact.variance, 1e-7);

                let parameters = Parameters { mean: &mean, variance: &variance, gamma, beta, epsilon: EPSILON };
                let fused = Fused { residual: with_residual.then_some(residual), relu, rounding: None };
                let mut y = vec![f32::NAN; shape.len()];
                normalise(isa, shape, Some(x), &parameters, fused, &mut y);
                expect_blocked("y", shape, &y, &exact.y, 1e-6);

                let mut in_place = x.clone();
                normalise(isa, shape, None, &parameters, fused, &mut in_place);
                assert_eq!(in_place, y);

                if with_residual {
                    let mut onto = residual.clone();
                    normalise_onto(isa, shape, x, &parameters, fused, &mut onto);
                    assert_eq!(onto, y);
                }
            }
        }
    }
}

/// Everything that the backward functions give for a case: gradients of scale, shift, input, and residual.
fn gradients(isa: Isa, case: &Case, relu: Relu<'_>, rounding: Option<&Rounding>) -> Vec<Vec<f32>> {
    let Case { shape, x, dy, gamma, beta, .. } = case;
    let shape = *shape;
    let (mut mean, mut variance) = (vec![0.0; shape.c], vec![0.0; shape.c]);
    statistics(isa, shape, x, Statistics { mean: &mut mean, variance: &mut variance });
    let parameters = Parameters { mean: &mean, variance: &variance, gamma, beta, epsilon: EPSILON };
    let forward = Normalised { x, parameters, relu, rounding };

    /// Runs one of the functions; its sums, then what it did to the two tensors.
    fn run(dy: &[f32], c: usize, backward: impl FnOnce(&mut [f32], &mut [f32], Gradients<'_>)) -> [Vec<f32>; 4] {
        let (mut dgamma, mut dbeta) = (vec![f32::NAN; c], vec![f32::NAN; c]);
        let (mut dy, mut dx) = (dy.to_vec(), vec![f32::NAN; dy.len()]);
        backward(&mut dy, &mut dx, Gradients { gamma: &mut dgamma, beta: &mut dbeta });
        [dgamma, dbeta, dy, dx]
    }
    let [dgamma, dbeta, _, dx] = run(dy, shape.c, |dy, dx, sums| {
        let Gradients { gamma, beta } = sums;
        gradient_sums(isa, shape, &forward, dy, Gradients { gamma, beta });
        input_gradient(isa, shape, &forward, Some(dy), &Gradients { gamma, beta }, dx);
    });
    let [.., split_in_place, _] = run(dy, shape.c, |dy, _, sums| {
        let Gradients { gamma, beta } = sums;
        gradient_sums(isa, shape, &forward, dy, Gradients { gamma, beta });
        input_gradient(isa, shape, &forward, None, &Gradients { gamma, beta }, dy);
    });
    assert_eq!(split_in_place, dx);
    let whole = run(dy, shape.c, |dy, dx, sums| backward(isa, shape, &forward, Some(dy), dx, sums));
    assert_eq!((&whole[0], &whole[1], &whole[3]), (&dgamma, &dbeta, &dx));
    let in_place = run(dy, shape.c, |dy, _, sums| backward(isa, shape, &forward, None, dy, sums));
    assert_eq!((&in_place[0], &in_place[1], &in_place[2]), (&dgamma, &dbeta, &dx));
    let residual = run(dy, shape.c, |dy, dx, sums| backward_residual(isa, shape, &forward, dy, dx, sums));
    assert_eq!((&residual[0], &residual[1], &residual[3]), (&dgamma, &dbeta, &dx));
    let [.., passed, _] = residual;
    vec![dgamma, dbeta, dx, passed]
}

#[test]
fn gradients_follow_the_formula() {
    for isa in Isa::available() {
        for shape in shapes() {
            for (with_residual, relu) in
                [false, true].into_iter().flat_map(|residual| RELUS.map(|relu| (residual, relu)))
            {
                let case = case(shape, with_residual, relu);
                let exact = &case.exact;
                let mut y = vec![0.0; shape.len()];
                for (i, value) in exact.y.iter().enumerate() {
                    y[position(shape, i)] = *value as f32;
                }
                let mut gates = vec![relu.map_or(Relu::Absent, |relu| Relu::Output(relu, &y))];
                gates.extend(relu.filter(|_| !with_residual).map(Relu::Recomputed));
                for gate in gates {
                    let found = gradients(isa, &case, gate, None);
                    expect_close("dgamma", &found[0], &exact.dgamma, 1e-6);
                    expect_close("dbeta", &found[1], &exact.dbeta, 1e-6);
                    expect_blocked("dx", shape, &found[2], &exact.dx, 2e-6);
                    expect_blocked("what passes", shape, &found[3], &exact.passed, 0.0);
                }
                let mean: Vec<_> = exact.mean.iter().map(|v| *v as f32).collect();
                let variance: Vec<_> = exact.variance.iter().map(|v| *v as f32).collect();
                let (gamma, beta) = (&case.gamma, &case.beta);
                let parameters = Parameters { mean: &mean, variance: &variance, gamma, beta, epsilon: EPSILON };
                let mut dx = vec![f32::NAN; shape.len()];
                if relu.is_some() {
                    continue;
                }
                stored_input_gradient(isa, shape, &parameters, Some(&case.dy), &mut dx);
                expect_blocked("dx of stored statistics", shape, &dx, &exact.stored_dx, 1e-6);
                let mut in_place = case.dy.clone();
                stored_input_gradient(isa, shape, &parameters, None, &mut in_place);
                assert_eq!(in_place, dx);
            }
        }
    }
}

#[test]
fn a_large_mean_does_not_hurt_the_variance() {
    let shape = Blocked::new(2, 1, 50, 50);
    let (mut x, exact_x) = blocked(shape, 6);
    for (i, value) in exact_x.iter().enumerate() {
        x[position(shape, i)] = (*value as f32) + 3000.0;
    }
    let values: Vec<f64> = (0..exact_x.len()).map(|i| f64::from(x[position(shape, i)])).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
    for isa in Isa::available() {
        let (mut found_mean, mut found_variance) = ([0.0], [0.0]);
        statistics(isa, shape, &x, Statistics { mean: &mut found_mean, variance: &mut found_variance });
        expect_close("mean", &found_mean, &[mean], 1e-7);
        expect_close("variance", &found_variance, &[variance], 1e-6);
    }
}

#[test]
fn nan_stays_visible() {
    let shape = Blocked::new(1, 2, 2, 2);
    let (mut x, _) = blocked(shape, 7);
    x[shape.index(0, 1, 1, 0)] = f32::NAN;
    for isa in Isa::available() {
        let (mut mean, mut variance) = ([0.0; 2], [0.0; 2]);
        statistics(isa, shape, &x, Statistics { mean: &mut mean, variance: &mut variance });
        assert!(mean[0].is_finite() && variance[0].is_finite());
        assert!(mean[1].is_nan() && variance[1].is_nan());
        let parameters =
            Parameters { mean: &[0.0; 2], variance: &[1.0; 2], gamma: &[1.0; 2], beta: &[0.0; 2], epsilon: EPSILON };
        let mut y = vec![0.0; shape.len()];
        normalise(isa, shape, Some(&x), &parameters, Fused { relu: Some(Rectifier::RELU), ..Fused::default() }, &mut y);
        assert!(y[shape.index(0, 1, 1, 0)].is_nan());
    }
}

#[test]
fn infinity_has_no_variance() {
    let shape = Blocked::new(2, 3, 2, 2);
    let (mut x, _) = blocked(shape, 7);
    x[shape.index(0, 1, 1, 0)] = f32::INFINITY;
    x[shape.index(1, 2, 0, 0)] = f32::NEG_INFINITY;
    for isa in Isa::available() {
        let (mut mean, mut variance) = ([0.0; 3], [0.0; 3]);
        statistics(isa, shape, &x, Statistics { mean: &mut mean, variance: &mut variance });
        assert!(mean[0].is_finite() && variance[0].is_finite());
        assert_eq!(mean[1..], [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(variance[1..].iter().all(|variance| variance.is_nan()));
    }
}

/// The values 1, 2, 3, 4: mean 5/2, variance 5/4, unbiased 5/3.
#[test]
fn running_statistics_use_the_unbiased_variance() {
    let (mut mean, mut variance) = ([0.0], [1.0]);
    update_running(0.1, 4, (&[2.5], &[1.25]), (&mut mean, &mut variance));
    expect_close("running mean", &mean, &[0.25], 1e-7);
    expect_close("running variance", &variance, &[0.9 + 0.1 * 5.0 / 3.0], 1e-7);
}

#[test]
fn threads_do_not_matter() {
    for shape in [Blocked::new(3, 37, 19, 21), Blocked::new(8, 20, 40, 40)] {
        let case = case(shape, true, Some(Rectifier::RELU));
        same_bits_on_any_threads(|isa| {
            let (mut mean, mut variance) = (vec![0.0; shape.c], vec![0.0; shape.c]);
            let mut y = vec![0.0; shape.len()];
            let fused = Fused { residual: Some(&case.residual), relu: Some(Rectifier::RELU), rounding: None };
            statistics(isa, shape, &case.x, Statistics { mean: &mut mean, variance: &mut variance });
            let Case { gamma, beta, .. } = &case;
            let parameters = Parameters { mean: &mean, variance: &variance, gamma, beta, epsilon: EPSILON };
            normalise(isa, shape, Some(&case.x), &parameters, fused, &mut y);
            let mut all = gradients(isa, &case, Relu::Output(Rectifier::RELU, &y), None);
            all.extend([mean, variance, y]);
            all
        });
    }
}

#[test]
fn results_that_tasks_round_are_those_that_are_rounded_afterwards() {
    let keep = Range::Format { overflow: Overflow::Infinite, subnormals: Subnormals::Keep };
    for shape in [Blocked::new(3, 37, 9, 7), Blocked::new(2, 16, 40, 40)] {
        let case = case(shape, true, Some(Rectifier::RELU));
        let Case { x, residual, gamma, beta, .. } = &case;
        for isa in Isa::available() {
            let fp16 = || Rounding::new(isa, HalfType::Fp16, keep);
            let normalised = |rounding: Option<&Rounding>| {
                let fused = Fused { residual: Some(residual), relu: Some(Rectifier::RELU), rounding };
                let (mut mean, mut variance) = (vec![0.0; shape.c], vec![0.0; shape.c]);
                let mut y = vec![f32::NAN; shape.len()];
                statistics(isa, shape, x, Statistics { mean: &mut mean, variance: &mut variance });
                let parameters = Parameters { mean: &mean, variance: &variance, gamma, beta, epsilon: EPSILON };
                normalise(isa, shape, Some(x), &parameters, fused, &mut y);
                let (mut onto, mut in_place) = (residual.clone(), x.clone());
                normalise_onto(isa, shape, x, &parameters, fused, &mut onto);
                normalise(isa, shape, None, &parameters, fused, &mut in_place);
                assert_eq!((&onto, &in_place), (&y, &y));
                y
            };
            let (in_tasks, after) = (fp16(), fp16());
            let mut y = normalised(None);
            after.whole(&mut y);
            assert_eq!(normalised(Some(&in_tasks)), y);
            assert_eq!(in_tasks.tally().nonzero, 3 * after.tally().nonzero);

            // Of the gradients, that of the input is rounded.
            let mut expected = gradients(isa, &case, Relu::Output(Rectifier::RELU, &y), None);
            fp16().whole(&mut expected[2]);
            assert_eq!(gradients(isa, &case, Relu::Output(Rectifier::RELU, &y), Some(&fp16())), expected);
        }
    }
}
