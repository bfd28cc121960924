//! Layers that are formulas, as an author writes them, against what their papers say, worked out by plain loops.

use crate::tiny::{OPTIONS, SCALARS, assert_close, elements, noise};
use candle_core::{Device, Tensor};
use std::fs;
use zoo_engine::{Inputs, Kernels, Options, Step};
use zoo_recipe::{BuildOptions, Library, LoadOptions, build};

/// What a body makes of `x`, an image `[C, H, W]` of two samples, with parameters as given; by the reference kernels in
/// f64 and by the fast ones.
pub fn run(body: &str, shape: [usize; 3], x: &[f64], parameters: &[(&str, Vec<f64>)]) -> [Vec<f64>; 2] {
    let [c, h, w] = shape;
    let text = format!(
        "name: r\nmodel:\n  inputs: {{image: [{c}, {h}, {w}]}}\n  classes: 10\n  body:\n{body}\n\
         data: {{source: {{characters: {{}}}}}}\nloss: {{softmax_cross_entropy: {{}}}}\noptimizer: sgd\n\
         schedule: {{constant: {{base_lr: 0.1}}}}\ntrain: {{batch: 32, epochs: 1}}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.yaml"), text).unwrap();
    let recipe =
        Library::new([folder.path()]).load("r", &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}")).recipe;
    let model = recipe.resolve().unwrap();
    let run = |dtype, kernels| {
        let options = BuildOptions { dtype, ..BuildOptions::eval(2) };
        let graph = build(&recipe, &model, &options).unwrap_or_else(|error| panic!("{error}"));
        let mut step = Step::new(graph, Options { kernels, ..OPTIONS }).unwrap();
        let candle = zoo_engine::candle_dtype(dtype);
        let tensor = |values: &[f64], dims: &[usize]| {
            Tensor::from_slice(values, dims, &Device::Cpu).unwrap().to_dtype(candle).unwrap()
        };
        for (name, values) in parameters {
            let variable = step.graph().find_variable(name).unwrap_or_else(|| panic!("no {name}"));
            let shape = step.graph().ty(step.graph().variable(variable).value).shape.clone();
            step.set_variable(name, &tensor(values, &shape)).unwrap();
        }
        let inputs = Inputs::new().with("image", tensor(x, &[2, c, h, w]));
        elements(&step.run(&inputs, SCALARS, &mut ()).unwrap().outputs[0].1)
    };
    [run(zoo_graph::DType::F64, Kernels::Reference), run(zoo_graph::DType::F32, Kernels::Fast { fusion: true })]
}

#[track_caller]
pub fn expect(body: &str, shape: [usize; 3], x: &[f64], parameters: &[(&str, Vec<f64>)], expected: &[f64]) {
    let [exact, fast] = run(body, shape, x, parameters);
    assert_close(&exact, expected, 1e-12, &format!("{body}, f64"));
    assert_close(&fast, expected, 2e-6, &format!("{body}, fast"));
}

/// A layer as written, and what it computes of each element.
type Activation = (&'static str, fn(f64) -> f64);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// By Simpson's rule: the share of a normal distribution that is below x.
fn normal(x: f64) -> f64 {
    let steps = 2000;
    let width = x / f64::from(steps);
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let weight = |n: i32| {
        if n == 0 || n == steps {
            1.0
        } else if n % 2 == 1 {
            4.0
        } else {
            2.0
        }
    };
    0.5 + (0..=steps).map(|n| weight(n) * density(width * f64::from(n))).sum::<f64>() * width / 3.0
}

#[test]
fn activations() {
    let x: Vec<f64> = noise(2 * 20 * 3 * 2, 4).into_iter().map(|x| 6.0 * x).collect();
    let cases: [Activation; 12] = [
        ("silu", |x| x * sigmoid(x)),
        ("hard_sigmoid", |x| (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        ("hard_swish", |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        ("mish", |x| x * (1.0 + x.exp()).ln().tanh()),
        ("tanh", f64::tanh),
        ("leaky_relu", |x| if x > 0.0 { x } else { 0.01 * x }),
        ("leaky_relu: {slope: 0.2}", |x| if x > 0.0 { x } else { 0.2 * x }),
        ("elu", |x| if x > 0.0 { x } else { x.exp_m1() }),
        ("elu: {alpha: 0.5}", |x| if x > 0.0 { x } else { 0.5 * x.exp_m1() }),
        ("gelu", |x| x * normal(x)),
        ("gelu: {approximate: tanh}", |x| {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }),
        ("map: \"x * sigmoid(1.702 * x)\"", |x| x * sigmoid(1.702 * x)),
    ];
    for (word, f) in cases {
        let expected: Vec<f64> = x.iter().map(|x| f(*x)).collect();
        expect(&format!("    - {word}"), [20, 3, 2], &x, &[], &expected);
    }
}

/// Mean and biased variance.
fn moments(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64)
}

#[test]
fn normalisations() {
    let [c, h, w] = [6, 3, 4];
    let x = noise(2 * c * h * w, 9);
    let normalised = |rows: usize, eps: f64| -> Vec<f64> {
        let of_row = |row: &[f64]| {
            let (mean, var) = moments(row);
            row.iter().map(move |x| (x - mean) / (var + eps).sqrt()).collect::<Vec<_>>()
        };
        x.chunks(rows).flat_map(of_row).collect()
    };
    let (weight, bias) = (noise(c, 1), noise(c, 2));
    let (wide_weight, wide_bias) = (noise(w, 3), noise(w, 4));
    let affine = |values: Vec<f64>, inner: usize, weight: &[f64], bias: &[f64]| -> Vec<f64> {
        let at = |i: usize| i / inner % weight.len();
        values.iter().enumerate().map(|(i, x)| x * weight[at(i)] + bias[at(i)]).collect()
    };
    let named = |weight: &[f64], bias: &[f64]| [("n.weight", weight.to_vec()), ("n.bias", bias.to_vec())];
    let shape = [c, h, w];
    let expected = affine(normalised(w, 1e-6), 1, &wide_weight, &wide_bias);
    expect("    - layer_norm: {name: n, eps: 1e-6}", shape, &x, &named(&wide_weight, &wide_bias), &expected);
    let expected = affine(normalised(w, 1e-5), 1, &wide_weight, &vec![0.0; wide_bias.len()]);
    let body = "    - layer_norm: {name: n, bias: false}";
    expect(body, shape, &x, &[("n.weight", wide_weight.clone())], &expected);
    let expected = affine(normalised(c / 3 * h * w, 1e-5), h * w, &weight, &bias);
    expect("    - group_norm: {name: n, groups: 3}", shape, &x, &named(&weight, &bias), &expected);
    expect("    - instance_norm", shape, &x, &[], &normalised(h * w, 1e-5));
    let square = x.chunks(w).flat_map(|row| {
        let root = (row.iter().map(|x| x * x).sum::<f64>() / w as f64 + 1e-6).sqrt();
        row.iter().zip(&wide_weight).map(move |(x, weight)| x / root * weight)
    });
    let square: Vec<f64> = square.collect();
    expect("    - rms_norm: {name: n}", shape, &x, &[("n.weight", wide_weight.clone())], &square);
    let softmax = x.chunks(w).flat_map(|row| {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(move |x| x.exp() / sum)
    });
    expect("    - softmax", shape, &x, &[], &softmax.collect::<Vec<_>>());
    // Over the channels of each pixel.
    let mut expected = vec![0.0; x.len()];
    for place in (0..2).flat_map(|n| (0..h * w).map(move |p| n * c * h * w + p)) {
        let pixel: Vec<f64> = (0..c).map(|channel| x[place + channel * h * w]).collect();
        let (mean, var) = moments(&pixel);
        for (channel, x) in pixel.iter().enumerate() {
            expected[place + channel * h * w] = (x - mean) / (var + 1e-5).sqrt() * weight[channel] + bias[channel];
        }
    }
    let body = "    - layer_norm: {name: n, channels_first: true}";
    expect(body, shape, &x, &named(&weight, &bias), &expected);
}

#[test]
fn moves_and_products() {
    let [c, h, w] = [8, 2, 3];
    let x = noise(2 * c * h * w, 5);
    let at = |n: usize, channel: usize, i: usize, j: usize| x[((n * c + channel) * h + i) * w + j];
    let all = |extents: [usize; 4]| {
        let [n, c, h, w] = extents;
        (0..n * c * h * w).map(move |p| (p / (c * h * w), p / (h * w) % c, p / w % h, p % w))
    };
    let shape = [c, h, w];
    let shuffled: Vec<f64> = all([2, c, h, w]).map(|(n, k, i, j)| at(n, k % 2 * (c / 2) + k / 2, i, j)).collect();
    expect("    - channel_shuffle: {groups: 2}", shape, &x, &[], &shuffled);
    let pixels: Vec<f64> =
        all([2, c / 4, 2 * h, 2 * w]).map(|(n, k, i, j)| at(n, k * 4 + i % 2 * 2 + j % 2, i / 2, j / 2)).collect();
    expect("    - pixel_shuffle: {by: 2}", shape, &x, &[], &pixels);
    let permuted: Vec<f64> = all([2, h, w, c]).map(|(n, i, j, k)| at(n, k, i, j)).collect();
    expect("    - permute: {order: [1, 2, 0]}", shape, &x, &[], &permuted);
    let sliced: Vec<f64> = all([2, 3, h, w]).map(|(n, k, i, j)| at(n, k + 2, i, j)).collect();
    expect("    - slice: {from: 2, size: 3}", shape, &x, &[], &sliced);
    expect("    - reshape: {to: [4, 12]}", shape, &x, &[], &x);
    // A gate of one number per channel, and a formula over two values.
    let mean = |n: usize, k: usize| all([1, 1, h, w]).map(|(_, _, i, j)| at(n, k, i, j)).sum::<f64>() / (h * w) as f64;
    let gated: Vec<f64> = all([2, c, h, w]).map(|(n, k, i, j)| at(n, k, i, j) * sigmoid(mean(n, k))).collect();
    let gate = "    - tap: whole\n    - global_avg_pool\n    - sigmoid\n    - mul: whole";
    expect(gate, shape, &x, &[], &gated);
    let formula = "    - tap: whole\n    - global_avg_pool\n    - map: \"whole * sigmoid(x)\"";
    expect(formula, shape, &x, &[], &gated);
}
