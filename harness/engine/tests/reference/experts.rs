//! Mixtures of experts: choices, rows by expert, products of groups; by hand, by central differences, and the fast
//! kernels against the reference ones.

use crate::{
    dense::fast_agrees,
    gradients::check,
    tiny::{Tiny, apply, noise},
    words,
};
use zoo_graph::{ValueId, formula::Formula, ops::*};

#[test]
fn the_largest_elements_of_each_row() {
    let chosen = |count, x: &[f64]| apply(TopK { count }, &[(&[2, 3], x.to_vec())]).remove(0);
    assert_eq!(chosen(1, &[1.0, 3.0, 2.0, -1.0, -2.0, -1.0]), [0.0, 1.0, 0.0, 1.0, 0.0, 0.0], "the first of equals");
    assert_eq!(chosen(2, &[1.0, 3.0, 2.0, -1.0, -2.0, -1.0]), [0.0, 1.0, 1.0, 1.0, 0.0, 1.0]);
    assert_eq!(chosen(1, &[1.0, f64::NAN, 2.0, f64::NEG_INFINITY, 0.0, -0.0]), [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
}

/// Token 0 uses experts 1 and 2, token 1 uses experts 0 and 1, token 2 uses expert 1 alone.
const ROUTING: [f64; 9] = [0.0, 0.5, 0.25, 2.0, 4.0, 0.0, 0.0, 1.0, 0.0];

#[test]
fn rows_by_expert_and_back() {
    let routing = (&[3, 3][..], ROUTING.to_vec());
    let x = (&[3, 2][..], vec![1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    let rows = apply(Dispatch { top: 2 }, &[x, routing.clone()]).remove(0);
    // Expert 0: token 1. Expert 1: tokens 0, 1 and 2. Expert 2: token 0. No sixth choice.
    assert_eq!(rows, [2.0, 20.0, 1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 1.0, 10.0, 0.0, 0.0]);
    let rows = (&[6, 2][..], vec![1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0, 5.0, 50.0, 6.0, 60.0]);
    let y = apply(Combine { top: 2, weighted: false }, &[rows.clone(), routing.clone()]).remove(0);
    assert_eq!(y, [7.0, 70.0, 4.0, 40.0, 4.0, 40.0]);
    let y = apply(Combine { top: 2, weighted: true }, &[rows.clone(), routing.clone()]).remove(0);
    assert_eq!(y, [2.25, 22.5, 14.0, 140.0, 4.0, 40.0]);
    let dy = (&[3, 2][..], vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let [dx, dw] = apply(CombineGrad, &[rows, routing, dy]).try_into().unwrap();
    assert_eq!(dx, [0.0, 2.0, 0.5, 0.0, 0.0, 4.0, 1.0, 1.0, 0.25, 0.0, 0.0, 0.0]);
    assert_eq!(dw, [0.0, 2.0, 5.0, 10.0, 30.0, 0.0, 0.0, 44.0, 0.0]);
}

#[test]
fn products_of_groups_by_hand() {
    let routing = (&[3, 3][..], ROUTING.to_vec());
    let rows = (&[6, 1][..], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let matrices = (&[3, 2, 1][..], vec![1.0, 2.0, 10.0, 20.0, 100.0, 200.0]);
    let y = apply(GroupedMatMul { top: 2, transpose: true }, &[rows.clone(), matrices, routing.clone()]).remove(0);
    assert_eq!(y, [1.0, 2.0, 20.0, 40.0, 30.0, 60.0, 40.0, 80.0, 500.0, 1000.0, 0.0, 0.0]);
    let dy = (&[6, 2][..], vec![1.0, 2.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 3.0, 4.0, 9.0, 9.0]);
    let dw = apply(GroupedMatMulWeights { top: 2, transpose: true }, &[rows, dy, routing]).remove(0);
    assert_eq!(dw, [1.0, 2.0, 6.0, 7.0, 15.0, 20.0]);
}

/// Weights on the two largest of some scores; the expert in the middle is never chosen.
fn routed(tiny: &mut Tiny, weights: ValueId, [tokens, experts]: [usize; 2]) -> ValueId {
    let scores = (0..tokens * experts).map(|at| match at % experts {
        expert if expert == experts / 2 => -1.0,
        expert => ((at / experts * 7 + expert * 5) % 11) as f64,
    });
    let scores = tiny.given(&[tokens, experts], scores.collect());
    let chosen = tiny.add(TopK { count: 2 }, &[scores]);
    tiny.formula(Formula::define(0, |[weight, chosen]| [weight * chosen]), &[weights, chosen])
}

/// Two layers of experts.
fn experts(tiny: &mut Tiny, x: &[ValueId], shape: [usize; 2], transpose: bool) -> ValueId {
    let routing = routed(tiny, x[1], shape);
    let rows = tiny.add(Dispatch { top: 2 }, &[x[0], routing]);
    let inner = tiny.add(GroupedMatMul { top: 2, transpose: true }, &[rows, x[2], routing]);
    let outer = tiny.add(GroupedMatMul { top: 2, transpose }, &[inner, x[3], routing]);
    tiny.add(Combine { top: 2, weighted: true }, &[outer, routing])
}

#[test]
fn gradients_of_experts() {
    for transpose in [true, false] {
        let last: &[usize] = if transpose { &[5, 3, 4] } else { &[5, 4, 3] };
        check(&[&[6, 3], &[6, 5], &[5, 4, 3], last], &format!("transpose {transpose}"), |tiny, x| {
            experts(tiny, x, [6, 5], transpose)
        });
    }
}

#[test]
fn the_fast_kernels_agree() {
    // Fewer and more rows than a tile, widths that are no multiples of a vector.
    for ([tokens, experts_], [width, hidden]) in [([7, 4], [5, 3]), ([150, 3], [40, 70]), ([64, 8], [32, 48])] {
        let shapes: [&[usize]; 4] =
            [&[tokens, width], &[tokens, experts_], &[experts_, hidden, width], &[experts_, width, hidden]];
        fast_agrees(&shapes, &format!("{tokens} tokens, {experts_} experts"), |tiny, x| {
            experts(tiny, x, [tokens, experts_], true)
        });
    }
}

/// Channels of a token.
const WIDTH: usize = 2;
/// Tokens of both samples.
const TOKENS: usize = 6;
const EXPERTS: usize = 3;
/// Channels inside an expert.
const HIDDEN: usize = 2;

/// Experts as an author writes them, on two images of three pixels.
fn layer(settings: &str) -> String {
    format!(
        "    - tokens\n    - tap: x\n    - linear: {{name: gate, out: 3, bias: false}}\n    - tap: scores\n    - from: x\n    \
         - experts: {{name: moe, scores: scores, top: 2, hidden: 2, {settings}}}"
    )
}

fn parameters() -> [(&'static str, Vec<f64>); 3] {
    [("gate.weight", EXPERTS * WIDTH), ("moe.gate_up_proj", EXPERTS * 2 * HIDDEN * WIDTH), ("moe.down_proj", 12)]
        .map(|(name, count)| (name, noise(count, count as u64)))
}

/// The layer token by token: `weight` of a score among those of a token, `bias` of the choice, `most` tokens of an
/// expert.
fn by_token(
    x: &[f64],
    weight: impl Fn(f64, &[f64]) -> f64,
    normalise: bool,
    scale: f64,
    bias: &[f64],
    most: usize,
) -> Vec<f64> {
    let [(_, gate), (_, gate_up), (_, down)] = parameters();
    let mut used = [0; EXPERTS];
    let mut all = Vec::new();
    for token in 0..TOKENS {
        // Images are [C, 1, 3].
        let x: Vec<f64> = (0..WIDTH).map(|channel| x[(token / 3 * WIDTH + channel) * 3 + token % 3]).collect();
        let dot = |row: &[f64], x: &[f64]| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
        let scores: Vec<f64> = gate.chunks(WIDTH).map(|row| dot(row, &x)).collect();
        let weights: Vec<f64> = scores.iter().map(|score| weight(*score, &scores)).collect();
        let mut order: Vec<usize> = (0..EXPERTS).collect();
        order.sort_by(|a, b| (weights[*b] + bias[*b]).total_cmp(&(weights[*a] + bias[*a])));
        let chosen = &order[..2];
        let sum: f64 = if normalise { chosen.iter().map(|expert| weights[*expert]).sum() } else { 1.0 };
        let mut y = [0.0; WIDTH];
        for expert in chosen {
            used[*expert] += 1;
            if used[*expert] > most {
                continue;
            }
            let both: Vec<f64> = gate_up[expert * 8..][..8].chunks(WIDTH).map(|row| dot(row, &x)).collect();
            let hidden = [0, 1].map(|n| both[n].max(0.0) * both[HIDDEN + n]);
            for (y, row) in y.iter_mut().zip(down[expert * 4..][..4].chunks(HIDDEN)) {
                *y += dot(row, &hidden) * weights[*expert] / sum * scale;
            }
        }
        all.extend(y);
    }
    all
}

#[test]
fn experts_as_they_are_written() {
    let x = noise(WIDTH * TOKENS, 3);
    let softmax = |score: f64, all: &[f64]| score.exp() / all.iter().map(|score| score.exp()).sum::<f64>();
    let sigmoid = |score: f64, _: &[f64]| 1.0 / (1.0 + (-score).exp());
    let expect = |settings: &str, more: &[(&'static str, Vec<f64>)], expected: Vec<f64>| {
        let given = [&parameters()[..], more].concat();
        words::expect(&layer(settings), [WIDTH, 1, 3], &x, &given, &expected);
    };
    let none = [0.0; EXPERTS];
    expect("activation: relu", &[], by_token(&x, softmax, true, 1.0, &none, TOKENS));
    let settings = "activation: relu, normalize: false, scale: 1.5, weights: sigmoid";
    expect(settings, &[], by_token(&x, sigmoid, false, 1.5, &none, TOKENS));
    // Half of the even share of 2 * 6 choices among 3 experts.
    expect("activation: relu, capacity: 0.5", &[], by_token(&x, softmax, true, 1.0, &none, 2));
    let bias = [0.3, -0.4, 0.1];
    let settings = "activation: relu, weights: sigmoid, bias: moe.bias";
    expect(settings, &[("moe.bias", bias.to_vec())], by_token(&x, sigmoid, true, 1.0, &bias, TOKENS));
}

/// A step that diverges ends with NaN, which is then explained, and not with an error of a kernel.
#[test]
fn scores_that_are_no_numbers_give_none() {
    let mut given = parameters().to_vec();
    given[0].1[0] = f64::NAN;
    for result in words::run(&layer("activation: relu"), [WIDTH, 1, 3], &noise(WIDTH * TOKENS, 3), &given) {
        assert!(result.iter().all(|y| y.is_nan()), "{result:?}");
    }
}
