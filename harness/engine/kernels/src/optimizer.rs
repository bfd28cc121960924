//! Optimizer updates: one pass over parameter, gradient and state.
//!
//! Operations and their order are those of PyTorch's CPU kernels, so that f32 results differ from its by rounding of
//! single operations at most. Scalars are f64 as in PyTorch's Python code, rounded to f32 where they meet a tensor.

use crate::{
    Isa,
    planes::{TASK_LEN, expect_len},
    simd::vectorised,
};
use rayon::prelude::*;

/// Stochastic gradient descent with momentum: `torch.optim.SGD` with dampening 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// Learning rate.
    pub rate: f64,
    /// What remains of the old momentum.
    pub momentum: f64,
    /// Decay that is added to the gradient.
    pub weight_decay: f64,
    /// Look ahead by one momentum.
    pub nesterov: bool,
}

/// `d = g + weight_decay * p`, `v = momentum * v + d`, then `p -= rate * v`, or with `nesterov`
/// `p -= rate * (d + momentum * v)`. A `v` of zero starts as PyTorch's first step does.
///
/// # Panics
/// If the lengths differ.
pub fn apply_momentum(isa: Isa, rule: &Momentum, parameter: &mut [f32], velocity: &mut [f32], gradient: &[f32]) {
    expect_len("the velocity", velocity.len(), parameter.len());
    expect_len("the gradient", gradient.len(), parameter.len());
    parameter
        .par_chunks_mut(TASK_LEN)
        .zip(velocity.par_chunks_mut(TASK_LEN).zip(gradient.par_chunks(TASK_LEN)))
        .for_each(|(p, (v, g))| momentum_chunk(isa, rule, p, v, g));
}

/// `average = decay * average + (1 - decay) * parameter`.
///
/// # Panics
/// If the lengths differ.
pub fn apply_average(isa: Isa, decay: f64, average: &mut [f32], parameter: &[f32]) {
    expect_len("the parameter", parameter.len(), average.len());
    let chunks = average.par_chunks_mut(TASK_LEN).zip(parameter.par_chunks(TASK_LEN));
    chunks.for_each(|(average, p)| average_chunk(isa, decay as f32, (1.0 - decay) as f32, average, p));
}

vectorised! {
    fn average_chunk(_simd, keep: f32, take: f32, average: &mut [f32], parameter: &[f32]) -> () {
        for (average, p) in average.iter_mut().zip(parameter) {
            *average = keep * *average + take * p;
        }
    }
}

/// Brings each element into `[-bound, bound]`; NaN stays NaN.
pub fn clip(isa: Isa, bound: f32, gradient: &mut [f32]) {
    gradient.par_chunks_mut(TASK_LEN).for_each(|g| clip_chunk(isa, bound, g));
}

vectorised! {
    fn clip_chunk(_simd, bound: f32, gradient: &mut [f32]) -> () {
        for g in gradient {
            *g = if *g > bound { bound } else if *g < -bound { -bound } else { *g };
        }
    }
}

/// Adaptive moments: `torch.optim.Adam` with decay as L2, not amsgrad.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate.
    pub rate: f64,
    /// What remains of the first moment.
    pub beta1: f64,
    /// What remains of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decay that is added to the gradient.
    pub weight_decay: f64,
    /// Number of this step, from 1.
    pub step: u64,
}

/// `d = g + weight_decay * p`, `m += (1 - beta1) * (d - m)`, `v = beta2 * v + (1 - beta2) * d^2`,
/// `p -= rate / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)`.
///
/// # Panics
/// If the lengths differ.
pub fn apply_adam(
    isa: Isa,
    rule: &Adam,
    parameter: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    gradient: &[f32],
) {
    expect_len("the first moment", first.len(), parameter.len());
    expect_len("the second moment", second.len(), parameter.len());
    expect_len("the gradient", gradient.len(), parameter.len());
    parameter
        .par_chunks_mut(TASK_LEN)
        .zip(first.par_chunks_mut(TASK_LEN).zip(second.par_chunks_mut(TASK_LEN)))
        .zip(gradient.par_chunks(TASK_LEN))
        .for_each(|((p, (m, v)), g)| adam_chunk(isa, rule, p, m, v, g));
}

vectorised! {
    fn momentum_chunk(simd, rule: &Momentum, p: &mut [f32], v: &mut [f32], g: &[f32]) -> () {
        let (momentum, decay, step) = (rule.momentum as f32, rule.weight_decay as f32, -rule.rate as f32);
        let nesterov = rule.nesterov;
        for (p, (v, g)) in p.iter_mut().zip(v.iter_mut().zip(g)) {
            let d = simd.fma(*p, decay, *g);
            *v = momentum * *v + d;
            let direction = if nesterov { simd.fma(*v, momentum, d) } else { *v };
            *p = simd.fma(direction, step, *p);
        }
    }
}

vectorised! {
    fn adam_chunk(simd, rule: &Adam, p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) -> () {
        let steps = rule.step as f64;
        let correction = [1.0 - libm::pow(rule.beta1, steps), 1.0 - libm::pow(rule.beta2, steps)];
        let decay = rule.weight_decay as f32;
        let (fresh1, beta2, fresh2) = ((1.0 - rule.beta1) as f32, rule.beta2 as f32, (1.0 - rule.beta2) as f32);
        let (step, root, epsilon) =
            ((-rule.rate / correction[0]) as f32, correction[1].sqrt() as f32, rule.epsilon as f32);
        for ((p, g), (m, v)) in p.iter_mut().zip(g).zip(m.iter_mut().zip(v.iter_mut())) {
            let d = simd.fma(*p, decay, *g);
            *m = simd.fma(fresh1, d - *m, *m);
            *v = simd.fma(fresh2 * d, d, *v * beta2);
            let denominator = v.sqrt() / root + epsilon;
            *p += step * *m / denominator;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{expect_close, filled, same_bits_on_any_threads};

    const LEN: usize = 2 * TASK_LEN + 37;

    fn exact(values: &[f32]) -> Vec<f64> {
        values.iter().map(|v| f64::from(*v)).collect()
    }

    #[test]
    fn momentum_follows_the_rule_for_three_steps() {
        for (nesterov, weight_decay) in [(false, 0.0), (false, 0.02), (true, 0.02)] {
            let rule = Momentum { rate: 0.1, momentum: 0.9, weight_decay, nesterov };
            for isa in Isa::available() {
                let (mut p, mut v) = (filled(LEN, 1), vec![0.0; LEN]);
                let (mut exact_p, mut exact_v) = (exact(&p), vec![0.0; LEN]);
                for step in 0..3 {
                    let g = filled(LEN, 2 + step);
                    apply_momentum(isa, &rule, &mut p, &mut v, &g);
                    for i in 0..LEN {
                        let d = f64::from(g[i]) + weight_decay * exact_p[i];
                        exact_v[i] = 0.9 * exact_v[i] + d;
                        exact_p[i] -= 0.1 * if nesterov { d + 0.9 * exact_v[i] } else { exact_v[i] };
                    }
                }
                expect_close("p", &p, &exact_p, 3e-7);
                expect_close("v", &v, &exact_v, 3e-7);
            }
        }
    }

    #[test]
    fn adam_follows_the_rule_for_three_steps() {
        for weight_decay in [0.0, 0.02] {
            for isa in Isa::available() {
                let (mut p, mut m, mut v) = (filled(LEN, 1), vec![0.0; LEN], vec![0.0; LEN]);
                let (mut exact_p, mut exact_m, mut exact_v) = (exact(&p), vec![0.0; LEN], vec![0.0; LEN]);
                for step in 1..=3 {
                    let g = filled(LEN, 1 + step);
                    let rule = Adam { rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay, step };
                    apply_adam(isa, &rule, &mut p, &mut m, &mut v, &g);
                    let correction = [1.0 - 0.9f64.powi(step as i32), 1.0 - 0.999f64.powi(step as i32)];
                    for i in 0..LEN {
                        let d = f64::from(g[i]) + weight_decay * exact_p[i];
                        exact_m[i] = 0.9 * exact_m[i] + 0.1 * d;
                        exact_v[i] = 0.999 * exact_v[i] + 0.001 * d * d;
                        let denominator = (exact_v[i] / correction[1]).sqrt() + 1e-8;
                        exact_p[i] -= 0.1 * exact_m[i] / correction[0] / denominator;
                    }
                }
                expect_close("p", &p, &exact_p, 3e-7);
                expect_close("m", &m, &exact_m, 3e-7);
                expect_close("v", &v, &exact_v, 3e-7);
            }
        }
    }

    /// p = 1, g = 0.5, decay 0.1: d = 0.6, v = 0.6; plain p = 1 - 0.06, with Nesterov 1 - 0.1 * (0.6 + 0.54).
    #[test]
    fn a_step_by_hand() {
        let rule = Momentum { rate: 0.1, momentum: 0.9, weight_decay: 0.1, nesterov: false };
        for isa in Isa::available() {
            for (nesterov, expected) in [(false, 0.94), (true, 0.886)] {
                let (mut p, mut v) = ([1.0], [0.0]);
                apply_momentum(isa, &Momentum { nesterov, ..rule }, &mut p, &mut v, &[0.5]);
                expect_close("p", &p, &[expected], 1e-7);
                expect_close("v", &v, &[0.6], 1e-7);
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let g = filled(LEN, 5);
        same_bits_on_any_threads(|isa| {
            let (mut p, mut v, mut m, mut s) = (filled(LEN, 1), filled(LEN, 2), filled(LEN, 3), vec![0.1; LEN]);
            let rule = Momentum { rate: 0.1, momentum: 0.9, weight_decay: 1e-4, nesterov: true };
            apply_momentum(isa, &rule, &mut p, &mut v, &g);
            let rule = Adam { rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, step: 4 };
            apply_adam(isa, &rule, &mut p, &mut m, &mut s, &g);
            vec![p, v, m, s]
        });
    }

    #[test]
    fn averages_and_bounds() {
        for isa in Isa::available() {
            let (mut average, parameter) = (vec![1.0, -2.0], [2.0, 2.0]);
            apply_average(isa, 0.75, &mut average, &parameter);
            assert_eq!(average, [1.25, -1.0]);
            let mut gradient = vec![0.5, -3.0, 3.0, f32::NAN];
            clip(isa, 1.0, &mut gradient);
            assert_eq!(gradient[..3], [0.5, -1.0, 1.0]);
            assert!(gradient[3].is_nan());
        }
    }
}
