//! Attention by cosines with a bias from a small network (Swin Transformer V2), worked out by plain loops.

use crate::tiny::noise;
use crate::words::expect;

const HEADS: usize = 2;
const WIDTH: usize = 3;
const TOKENS: usize = 6;
const HIDDEN: usize = 5;

/// Heights and widths of offsets on the scale of the network, for a window of 2x3 pixels.
fn offset(query: usize, key: usize) -> [f64; 2] {
    let seen = |offset: f64, largest: f64| {
        let v = offset / largest * 8.0;
        // The table is in f32.
        f64::from((((v.abs() + 1.0).log2() as f32) / 3.0) * v.signum() as f32)
    };
    let place = |token: usize| [token / 3, token % 3].map(|place| place as f64);
    let ([y, x], [down, across]) = (place(query), place(key));
    [seen(y - down, 1.0), seen(x - across, 2.0)]
}

#[test]
fn cosine_attention_by_hand() {
    let (e, out) = (4, 3 * HEADS * WIDTH);
    let x = noise(2 * e * TOKENS, 3);
    let (w, b) = (noise(out * e, 4), noise(out, 5));
    let (first, first_bias, second) = (noise(HIDDEN * 2, 6), noise(HIDDEN, 7), noise(HEADS * HIDDEN, 8));
    // The second one is above ln 3, its bound.
    let scale = [0.4, 2.0];
    let factor = [0.4f64.exp(), 3.0];
    let bias = |head: usize, query: usize, key: usize| {
        let [down, across] = offset(query, key);
        let hidden = |i: usize| (first[2 * i] * down + first[2 * i + 1] * across + first_bias[i]).max(0.0);
        let y: f64 = (0..HIDDEN).map(|i| second[head * HIDDEN + i] * hidden(i)).sum();
        16.0 / (1.0 + (-y).exp())
    };
    // Keys, the second third, have no bias.
    let row = |n: usize, token: usize, part: usize, head: usize| -> Vec<f64> {
        let number = |d: usize| {
            let o = (part * HEADS + head) * WIDTH + d;
            let sum: f64 = (0..e).map(|i| w[o * e + i] * x[(n * e + i) * TOKENS + token]).sum();
            sum + if part == 1 { 0.0 } else { b[o] }
        };
        (0..WIDTH).map(number).collect()
    };
    let cosine = |q: &[f64], k: &[f64]| {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        dot(q, k) / (dot(q, q) * dot(k, k)).sqrt()
    };
    let mut expected = Vec::new();
    for n in 0..2 {
        for query in 0..TOKENS {
            for (head, factor) in factor.iter().enumerate() {
                let q = row(n, query, 0, head);
                let weight = |key: usize| (factor * cosine(&q, &row(n, key, 1, head)) + bias(head, query, key)).exp();
                let total: f64 = (0..TOKENS).map(weight).sum();
                let value = |d: usize| (0..TOKENS).map(|key| weight(key) / total * row(n, key, 2, head)[d]).sum();
                expected.extend((0..WIDTH).map(value).collect::<Vec<f64>>());
            }
        }
    }
    let body = format!(
        "    - tokens\n    - linear: {{name: qkv, out: {out}, bias_of: [true, false, true]}}\n\
        \x20   - continuous_position_bias: {{name: cpb, size: [2, 3], heads: {HEADS}, hidden: {HIDDEN}, tap: bias}}\n\
        \x20   - logit_scale: {{name: s, heads: {HEADS}, most: 3, tap: factor}}\n\
        \x20   - dot_product_attention: {{heads: {HEADS}, bias: bias, cosine: factor}}"
    );
    let parameters = [
        ("qkv.weight", w.clone()),
        ("qkv.bias", b.clone()),
        ("cpb.0.weight", first.clone()),
        ("cpb.0.bias", first_bias.clone()),
        ("cpb.2.weight", second.clone()),
        ("s", scale.to_vec()),
    ];
    expect(&body, [e, 1, TOKENS], &x, &parameters, &expected);
}
