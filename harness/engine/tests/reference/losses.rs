//! Losses that are formulas, as an author writes them, against terms that have an operator and against hand-worked
//! values.

use crate::tiny::{OPTIONS, SCALARS, Tiny, assert_close, elements, noise};
use candle_core::{Device, Tensor};
use std::fs;
use zoo_engine::{Inputs, Kernels, Options, Step};
use zoo_graph::ops::{SmoothingOver, SoftmaxCrossEntropy};
use zoo_graph::{DType, TensorType};
use zoo_recipe::{BuildOptions, Library, LoadOptions, build};

/// Loss of three samples of eight numbers, and the weights of a dense layer of ten classes after a step of gradient
/// descent.
fn step(loss: &str, dtype: DType, kernels: Kernels) -> (f64, Vec<f64>) {
    step_of([3, 0, 2], "{}", loss, dtype, kernels)
}

/// The same for these classes, with this `preprocess` section.
fn step_of(label: [u32; 3], preprocess: &str, loss: &str, dtype: DType, kernels: Kernels) -> (f64, Vec<f64>) {
    let text = format!(
        "name: r\nmodel:\n  inputs: {{image: [2, 2, 2]}}\n  classes: 10\n  body: [flatten, linear: {{name: fc, out: $classes}}]\n\
         data: {{source: {{characters: {{}}}}}}\npreprocess: {preprocess}\nloss: {loss}\noptimizer: sgd\n\
         schedule: {{constant: {{base_lr: 0.1}}}}\ntrain: {{batch: 32, epochs: 1}}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.yaml"), text).unwrap();
    let library = Library::new([folder.path()]);
    let recipe = library.load("r", &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}")).recipe;
    let model = recipe.resolve().unwrap();
    let options = BuildOptions { dtype, ..BuildOptions::train(3) };
    let graph = build(&recipe, &model, &options).unwrap_or_else(|error| panic!("{error}"));
    let given: Vec<String> = graph.inputs.iter().map(|input| input.name.clone()).collect();
    let mut step = Step::new(graph, Options { kernels, ..OPTIONS }).unwrap();
    let candle = zoo_engine::candle_dtype(dtype);
    let tensor = |salt: u64, dims: &[usize]| {
        let values = noise(dims.iter().product(), salt);
        Tensor::from_slice(&values, dims, &Device::Cpu).unwrap().to_dtype(candle).unwrap()
    };
    step.set_variable("fc.weight", &tensor(1, &[10, 8])).unwrap();
    step.set_variable("fc.bias", &tensor(2, &[10])).unwrap();
    let mut inputs = Inputs::new();
    for name in given {
        inputs = match name.as_str() {
            "image" => inputs.with(name, tensor(3, &[3, 2, 2, 2])),
            "label" => inputs.with(name, Tensor::new(&label, &Device::Cpu).unwrap()),
            "mixed_label" => inputs.with(name, Tensor::new(&OTHERS, &Device::Cpu).unwrap()),
            "label_share" => inputs.with(name, Tensor::new(&[0.3; 3], &Device::Cpu).unwrap().to_dtype(candle).unwrap()),
            _ => inputs.with(name, tensor(4, &[3, 10])),
        };
    }
    let result = step.run(&inputs, SCALARS, &mut ()).unwrap();
    (result.losses[0].1, elements(&step.variable("fc.weight").unwrap()))
}

/// Two samples of four anchors: logits `[4, K]`, of one layer that leaves them as they are.
fn anchors(loss: &str, logits: &[f64], label: &[f64], target: &[f64]) -> f64 {
    let k = logits.len() / 8;
    let text = format!(
        "name: r\nmodel:\n  inputs: {{image: [{k}, 2, 2]}}\n  classes: 10\n  outputs: {{all: all}}\n  \
         body: [tokens: {{size: {k}}}, linear: {{name: fc, out: {k}}}, tap: all]\ndata: {{source: {{characters: {{}}}}}}\n\
         loss: {loss}\noptimizer: sgd\nschedule: {{constant: {{base_lr: 0.1}}}}\ntrain: {{batch: 32, epochs: 1}}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.yaml"), text).unwrap();
    let library = Library::new([folder.path()]);
    let recipe = library.load("r", &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}")).recipe;
    let options = BuildOptions { dtype: DType::F64, ..BuildOptions::train(2) };
    let graph = build(&recipe, &recipe.resolve().unwrap(), &options).unwrap_or_else(|error| panic!("{error}"));
    let given: Vec<String> = graph.inputs.iter().map(|input| input.name.clone()).collect();
    let mut step = Step::new(graph, Options { kernels: Kernels::Reference, ..OPTIONS }).unwrap();
    step.set_variable("fc.weight", &Tensor::eye(k, candle_core::DType::F64, &Device::Cpu).unwrap()).unwrap();
    let tensor = |values: &[f64], dims: &[usize]| Tensor::from_slice(values, dims, &Device::Cpu).unwrap();
    // Tokens are the pixels of all channels.
    let image =
        tensor(logits, &[2, 4, k]).transpose(1, 2).unwrap().contiguous().unwrap().reshape((2, k, 2, 2)).unwrap();
    let inputs = given.into_iter().map(|name| {
        let value = match name.as_str() {
            "image" => image.clone(),
            "label" => tensor(label, &[2, 4]),
            _ => tensor(target, &[2, 4, k]),
        };
        (name, value)
    });
    step.run(&inputs.collect(), SCALARS, &mut ()).unwrap().losses[0].1
}

/// The second sample has no anchor with a class, and its third does not count.
const ANCHORS: [f64; 8] = [1.0, -1.0, 0.0, -2.0, -1.0, -1.0, -2.0, -1.0];

#[test]
fn focal_loss_by_hand() {
    let logits = noise(24, 6);
    for (alpha, gamma) in [(0.25, 2.0), (0.4, 1.5), (0.5, 0.0)] {
        let of = |n: usize, class: usize| {
            let p = 1.0 / (1.0 + (-logits[3 * n + class]).exp());
            let (p, alpha) = if ANCHORS[n] == class as f64 { (p, alpha) } else { (1.0 - p, 1.0 - alpha) };
            if ANCHORS[n] == -2.0 { 0.0 } else { -alpha * f64::powf(1.0 - p, gamma) * p.ln() }
        };
        let sample = |n: usize| (4 * n..4 * n + 4).flat_map(|n| (0..3).map(move |c| (n, c))).map(|(n, c)| of(n, c));
        let by_hand = (sample(0).sum::<f64>() / 2.0 + sample(1).sum::<f64>()) / 2.0;
        let loss = format!("{{sigmoid_focal: {{prediction: all, label: label, alpha: {alpha}, gamma: {gamma}}}}}");
        assert_close(&[anchors(&loss, &logits, &ANCHORS, &[])], &[by_hand], 1e-13, &format!("gamma {gamma}"));
    }
}

#[test]
fn smooth_l1_by_hand() {
    let (boxes, target) = (noise(24, 7), noise(24, 8));
    for beta in [0.0, 0.3] {
        let of = |n: usize| {
            let d = (boxes[n] - target[n]).abs();
            let smooth = if d < beta { d * d / (2.0 * beta) } else { d - beta / 2.0 };
            if ANCHORS[n / 3] >= 0.0 { smooth } else { 0.0 }
        };
        let by_hand = ((0..12).map(of).sum::<f64>() / 2.0 + (12..24).map(of).sum::<f64>()) / 2.0;
        let loss = format!("{{smooth_l1: {{prediction: all, target: box, label: label, beta: {beta}}}}}");
        assert_close(&[anchors(&loss, &boxes, &ANCHORS, &target)], &[by_hand], 1e-13, &format!("beta {beta}"));
    }
}

#[test]
fn means_over_all_elements_by_hand() {
    let (x, target) = (noise(24, 7), noise(24, 8));
    let p: Vec<f64> = x.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
    let entropy = |p: f64, t: f64| -t * p.ln() - (1.0 - t) * (1.0 - p).ln();
    type Of<'o> = &'o dyn Fn(f64, f64) -> f64;
    let cases: [(&str, &[f64], Of<'_>); 4] = [
        ("mse: {prediction: all}", &x, &|x, t| (x - t).powi(2)),
        ("mae: {prediction: all, target: wanted}", &x, &|x, t| (x - t).abs()),
        ("bce: {prediction: all}", &x, &|x, t| entropy(1.0 / (1.0 + (-x).exp()), t)),
        ("bce: {prediction: all, of: probabilities}", &p, &entropy),
    ];
    for (loss, given, of) in cases {
        let by_hand = given.iter().zip(&target).map(|(x, t)| of(*x, *t)).sum::<f64>() / 24.0;
        assert_close(&[anchors(&format!("{{{loss}}}"), given, &ANCHORS, &target)], &[by_hand], 1e-13, loss);
    }
}

#[test]
fn the_logarithm_of_the_true_class_is_the_formula() {
    let formula = "{formulas: {nll: {formula: \"-row_sum(select(row_index == label, logits, 0))\"}}}";
    for (dtype, kernels, tolerance) in [(DType::F64, Kernels::Reference, 1e-15), (DType::F32, FAST, 1e-6)] {
        let (term, weights) = step("{nll: {}}", dtype, kernels);
        let (written, others) = step(formula, dtype, kernels);
        assert_close(&[term], &[written], tolerance, "loss");
        assert_close(&weights, &others, tolerance, "weights");
    }
}

/// max(0, margin + |a - p| - |a - n|), in which the anchor is also what is like it.
#[test]
fn triplets_by_hand() {
    let x = noise(24, 7);
    let loss = "{triplet: {anchor: all, positive: all, negative: all, margin: 0.25}}";
    assert_close(&[anchors(loss, &x, &ANCHORS, &[])], &[0.25], 1e-13, "triplet");
}

/// Boxes that overlap, that are apart, of which one is inside the other, and that are the same.
#[test]
fn giou_by_hand() {
    let boxes = [
        [0.0, 0.0, 2.0, 2.0],
        [0.0, 0.0, 1.0, 1.0],
        [1.0, 1.0, 3.0, 2.0],
        [5.0, 5.0, 6.0, 6.0],
        [0.0, 0.0, 1.0, 1.0],
        [0.0, 0.0, 4.0, 4.0],
        [9.0, 9.0, 9.5, 9.5],
        [1.0, 2.0, 3.0, 5.0],
    ];
    let target = [
        [1.0, 1.0, 3.0, 3.0],
        [0.0, 0.0, 1.0, 1.0],
        [4.0, 0.0, 6.0, 1.0],
        [5.0, 5.0, 6.0, 6.0],
        [0.0, 0.0, 1.0, 1.0],
        [1.0, 1.0, 2.0, 3.0],
        [0.0, 0.0, 1.0, 1.0],
        [1.0, 2.0, 3.0, 5.0],
    ];
    // I = 1, U = 7, C = 9; I = 0, U = 4, C = 10; I = 2, U = 16, C = 16; the same box.
    let of = |[i, u, c]: [f64; 3]| 1.0 - (i / (u + 1e-7) - (c - u) / (c + 1e-7));
    let label = [0.0, -1.0, 2.0, -2.0, -1.0, 1.0, -1.0, 0.0];
    let first = (of([1.0, 7.0, 9.0]) + of([0.0, 4.0, 10.0])) / 2.0;
    let second = (of([2.0, 16.0, 16.0]) + of([6.0, 6.0, 6.0])) / 2.0;
    let loss = "{giou: {prediction: all, target: box, label: label}}";
    let found = anchors(loss, boxes.as_flattened(), &label, target.as_flattened());
    assert_close(&[found], &[(first + second) / 2.0], 1e-13, "giou");
}

/// Two samples of three classes on 2x2 pixels, some of which are ignored.
#[test]
fn dice_over_classes_by_hand() {
    dice_over_classes([0, 2, 1, 255, 1, 1, 0, 1], 255);
    dice_over_classes([0, 2, 1, 2, 1, 1, 0, 1], 0);
}

fn dice_over_classes(label: [u32; 8], ignored: u32) {
    let logits = noise(24, 9);
    let text = "name: r\nmodel:\n  inputs: {image: [3, 2, 2]}\n  classes: 3\n  \
                body: [conv: {name: c, out: 3, kernel: 1}]\ndata: {source: {shapes: {}}}\n\
                loss: {softmax_dice: {ignore: IGNORED}}\noptimizer: sgd\nschedule: {constant: {base_lr: 0.1}}\n\
                train: {batch: 2, epochs: 1}\n";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.yaml"), text.replace("IGNORED", &ignored.to_string())).unwrap();
    let recipe = Library::new([folder.path()]).load("r", &LoadOptions::default()).unwrap().recipe;
    let options = BuildOptions { dtype: DType::F64, ..BuildOptions::train(2) };
    let graph = build(&recipe, &recipe.resolve().unwrap(), &options).unwrap();
    let mut step = Step::new(graph, Options { kernels: Kernels::Reference, ..OPTIONS }).unwrap();
    let kernel = Tensor::eye(3, candle_core::DType::F64, &Device::Cpu).unwrap().reshape((3, 3, 1, 1)).unwrap();
    step.set_variable("c.weight", &kernel).unwrap();
    let image = Tensor::from_slice(&logits, &[2, 3, 2, 2], &Device::Cpu).unwrap();
    let label_map = Tensor::from_slice(&label, &[2, 2, 2], &Device::Cpu).unwrap();
    let inputs = Inputs::new().with("image", image).with("label", label_map);
    let loss = step.run(&inputs, SCALARS, &mut ()).unwrap().losses[0].1;
    let mut by_hand = 0.0;
    for sample in 0..2 {
        let logit = |class: usize, pixel: usize| logits[12 * sample + 4 * class + pixel].exp();
        let p = |class: usize, pixel: usize| logit(class, pixel) / (0..3).map(|c| logit(c, pixel)).sum::<f64>();
        for class in 0..3 {
            let pixels = || (0..4).filter(|pixel| label[4 * sample + pixel] != ignored);
            let own = || pixels().filter(|pixel| label[4 * sample + pixel] == class as u32);
            let inside: f64 = own().map(|pixel| p(class, pixel)).sum();
            let both = pixels().map(|pixel| p(class, pixel)).sum::<f64>() + own().count() as f64;
            by_hand += (1.0 - (2.0 * inside + 1e-5) / (both + 1e-5)) / 6.0;
        }
    }
    assert_close(&[loss], &[by_hand], 1e-13, "dice");
}

/// Classes of the images that are mixed in.
const OTHERS: [u32; 3] = [7, 3, 2];

/// Cross entropy and gradient are linear in the label.
#[test]
fn the_loss_of_mixed_images_weighs_both_classes() {
    let loss = "{softmax_cross_entropy: {label_smoothing: 0.1, weight: 2}}";
    let of = |label, dtype, kernels| step_of(label, "{}", loss, dtype, kernels);
    let (own, own_weights) = of([3, 0, 2], DType::F64, Kernels::Reference);
    let (other, other_weights) = of(OTHERS, DType::F64, Kernels::Reference);
    let by_hand: Vec<f64> =
        own_weights.iter().zip(&other_weights).map(|(own, other)| 0.3 * own + 0.7 * other).collect();
    for (dtype, kernels, tolerance) in [(DType::F64, Kernels::Reference, 1e-14), (DType::F32, FAST, 1e-6)] {
        let (mixed, weights) = step_of([3, 0, 2], "{mix: {mixup: 0.2}}", loss, dtype, kernels);
        assert_close(&[mixed], &[0.3 * own + 0.7 * other], tolerance, "loss");
        assert_close(&weights, &by_hand, tolerance, "weights");
    }
}

const FAST: Kernels = Kernels::Fast { fusion: true };

/// The cross entropy of large logits has the digits of their differences.
#[test]
fn the_cross_entropy_of_large_logits() {
    let op = SoftmaxCrossEntropy { smoothing: 0.1, over: SmoothingOver::AllClasses, ignored: None };
    let of = |dtype: DType, kernels: Kernels, by: f64| {
        let mut tiny = Tiny::new(dtype);
        let logits = tiny.given(&[2, 3], [0.0, -30.0, -0.5, 0.0, 1.0, -2.0].map(|x| x + by).to_vec());
        let labels = tiny.labels(2);
        let loss = tiny.add_all(op.clone(), &[logits, labels])[0];
        tiny.graph.losses.push(("loss".into(), loss));
        let mut step = Step::new(tiny.graph.clone(), Options { kernels, ..OPTIONS }).unwrap();
        step.set_variable("v0", &tiny.values[0]).unwrap();
        let labels = Tensor::new(&[0u32, 1], &Device::Cpu).unwrap();
        step.run(&Inputs::new().with("label", labels), SCALARS, &mut ()).unwrap().losses[0].1
    };
    for (dtype, kernels, large) in [(DType::F64, Kernels::Reference, 1e13), (DType::F32, FAST, 4096.0)] {
        assert_eq!(of(dtype, kernels, large), of(dtype, kernels, 0.0));
    }
}

#[test]
fn cross_entropy_written_as_a_formula_is_cross_entropy() {
    let formula = |reduction: &str| {
        format!(
            "{{formulas: {{ce: {{formula: \"-row_sum(select(row_index == label, log_softmax(logits), 0))\", \
             reduction: {reduction}}}}}}}"
        )
    };
    let (loss, weights) = step("{softmax_cross_entropy: {}}", DType::F64, Kernels::Reference);
    for reduction in ["mean", "batch_mean"] {
        let (own_loss, own_weights) = step(&formula(reduction), DType::F64, Kernels::Reference);
        assert_close(&[own_loss], &[loss], 1e-14, "loss");
        assert_close(&own_weights, &weights, 1e-14, "weights");
        let (own_loss, own_weights) = step(&formula(reduction), DType::F32, FAST);
        assert_close(&[own_loss], &[loss], 1e-6, "loss, fast");
        assert_close(&own_weights, &weights, 1e-6, "weights, fast");
    }
    let (sum, _) = step(&formula("sum"), DType::F64, Kernels::Reference);
    assert_close(&[sum], &[3.0 * loss], 1e-13, "sum");
}

/// The formula adds the two rows that the cross entropy averages, and nothing for the third one.
#[test]
fn a_formula_reads_the_number_of_an_ignored_label() {
    let entropy = "softmax_cross_entropy: {ignore: 255}";
    let formula = "formulas: {sum: {formula: \"-row_sum(select(row_index == label, log_softmax(logits), 0))\", \
                   reduction: sum}, others: {formula: \"0 * logits + select(label == 255, 0.1, 0)\", reduction: sum}}";
    let of = |loss: &str| step_of([3, 255, 2], "{}", loss, DType::F64, Kernels::Reference).0;
    let (alone, both) = (of(&format!("{{{entropy}}}")), of(&format!("{{{entropy}, {formula}}}")));
    assert_close(&[both], &[3.0 * alone + 1.0], 1e-13, "loss");
}

/// Two windows of three tokens out of four, as logits `[2, 3, 4]`.
#[test]
fn the_loss_of_tokens_is_their_mean() {
    let tokens = |op: &SoftmaxCrossEntropy, logits: &[usize], labels: &[usize]| {
        let mut tiny = Tiny::new(DType::F64);
        let x = tiny.given(logits, noise(24, 5));
        let ty = TensorType::plain(labels, DType::U32);
        let label = tiny.graph.add_input("label", ty);
        tiny.add_all(op.clone(), &[x, label]).into_iter().for_each(|result| tiny.show(result));
        let label = Tensor::from_vec(vec![3u32, 0, 2, 1, 1, 0], labels, &Device::Cpu).unwrap();
        let found = tiny.run_with(&Inputs::new().with("label", label)).outputs;
        (elements(&found[0].1)[0], elements(&found[1].1), found[1].1.dims().to_vec())
    };
    let op = SoftmaxCrossEntropy { smoothing: 0.1, over: SmoothingOver::AllClasses, ignored: None };
    let (loss, gradient, dims) = tokens(&op, &[2, 3, 4], &[2, 3]);
    let (of_rows, gradient_of_rows, _) = tokens(&op, &[6, 4], &[6]);
    assert_eq!((loss, gradient, dims), (of_rows, gradient_of_rows, vec![2, 3, 4]));
    let plain = SoftmaxCrossEntropy { smoothing: 0.0, ..op };
    let rows: Vec<f64> = noise(24, 5);
    let by_hand = rows
        .chunks(4)
        .zip([3, 0, 2, 1, 1, 0])
        .map(|(row, label): (&[f64], usize)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[label]);
    assert_close(&[tokens(&plain, &[2, 3, 4], &[2, 3]).0], &[by_hand.sum::<f64>() / 6.0], 1e-14, "by hand");
}

#[test]
fn terms_add_up_with_their_weights() {
    let huber = "select(abs(logits - t) < 1, 0.5 * (logits - t)^2, abs(logits - t) - 0.5)";
    let huber = |weight: f64, name: &str| format!("{name}: {{formula: \"{huber}\", weight: {weight}}}");
    let (one, _) = step(&format!("{{formulas: {{{}}}}}", huber(1.0, "a")), DType::F64, Kernels::Reference);
    let both = format!("{{formulas: {{{}, {}}}}}", huber(1.0, "a"), huber(0.5, "b"));
    let (both, _) = step(&both, DType::F64, Kernels::Reference);
    assert!(one > 0.0);
    assert_close(&[both], &[1.5 * one], 1e-14, "total");
}
