//! Gradients against central differences in f64, through whole small graphs.

use crate::{
    forward::{convolutions, max_pools},
    tiny::{SCALARS, Tiny, assert_close, elements},
};
use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, Step};
use zoo_graph::{DType, ValueId, ops::*};

/// Half the distance between the two points of a difference.
const H: f64 = 1e-5;

/// Compares the gradient of the loss by each of the first `trained` variables with central differences at up to 40 of
/// its elements.
#[track_caller]
pub fn check_loss(mut tiny: Tiny, trained: usize, inputs: &Inputs, what: &str) {
    tiny.differentiate(trained);
    assert_eq!(tiny.graph.gradients.len(), trained, "{what}: number of gradients");
    let result = tiny.run_with(inputs);
    let shown = tiny.graph.outputs.len() - trained;
    let mut step = tiny.step();
    for (v, value) in tiny.values.iter().enumerate().take(trained) {
        let gradient = elements(&result.outputs[shown + v].1);
        let point = elements(value);
        let stride = point.len().div_ceil(40);
        let at: Vec<usize> = (0..point.len()).step_by(stride).collect();
        let difference = |i: &usize| {
            let mut loss_at = |x: f64| {
                let mut moved = point.clone();
                moved[*i] = x;
                loss(&mut step, v, moved, value.dims(), inputs)
            };
            (loss_at(point[*i] + H) - loss_at(point[*i] - H)) / (2.0 * H)
        };
        let expected: Vec<f64> = at.iter().map(difference).collect();
        let found: Vec<f64> = at.iter().map(|i| gradient[*i]).collect();
        assert!(found.iter().any(|g| *g != 0.0), "{what}: the gradient of variable {v} is zero");
        assert_close(&found, &expected, 2e-9, &format!("{what}: gradient of variable {v}"));
        step.set_variable(&format!("v{v}"), value).unwrap();
    }
}

fn loss(step: &mut Step, variable: usize, elements: Vec<f64>, dims: &[usize], inputs: &Inputs) -> f64 {
    let tensor = Tensor::from_vec(elements, dims, &Device::Cpu).unwrap();
    step.set_variable(&format!("v{variable}"), &tensor).unwrap();
    step.run(inputs, SCALARS, &mut ()).unwrap().losses[0].1
}

/// Checks all gradients of a graph of noisy operands of these shapes, its output weighted by noise.
#[track_caller]
pub fn check(shapes: &[&[usize]], what: &str, build: impl FnOnce(&mut Tiny, &[ValueId]) -> ValueId) {
    let mut tiny = Tiny::new(DType::F64);
    let operands: Vec<ValueId> = shapes.iter().map(|dims| tiny.noisy(dims)).collect();
    let y = build(&mut tiny, &operands);
    tiny.probe(y);
    check_loss(tiny, shapes.len(), &Inputs::new(), what);
}

#[test]
fn convolutions_at_awkward_shapes() {
    for (input, o, op) in convolutions() {
        let filter = [o, input[1] / op.groups, op.window.kernel[0], op.window.kernel[1]];
        let what = format!("{input:?} {op:?}");
        check(&[&input, &filter, &[o]], &what, |tiny, operands| tiny.add(op, operands));
    }
}

#[test]
fn max_pools_without_ties() {
    for (input, window) in max_pools() {
        check(&[&input], &format!("{input:?} {window:?}"), |tiny, x| tiny.add(MaxPool { window }, x));
    }
}

#[test]
fn average_pools() {
    let window = |kernel, stride, pad, ceil| Window { pad, ceil, ..Window::new(kernel, stride) };
    for window in [
        window([2; 2], [2; 2], [0; 4], false),
        window([3; 2], [2; 2], [1; 4], false),
        window([3; 2], [2; 2], [1; 4], true),
        window([3, 2], [1, 3], [1, 0, 0, 1], true),
    ] {
        for count_include_pad in [true, false] {
            let op = AvgPool { window, count_include_pad };
            check(&[&[2, 2, 7, 8]], &format!("{op:?}"), |tiny, x| tiny.add(op.clone(), x));
        }
    }
}

#[test]
fn adaptive_pools() {
    for ([h, w], out) in [([7, 7], [3, 3]), ([5, 6], [1, 1]), ([2, 5], [3, 2]), ([6, 6], [6, 6])] {
        check(&[&[2, 2, h, w]], &format!("{h}x{w} to {out:?}"), |tiny, x| tiny.add(AdaptiveAvgPool { out }, x));
    }
}

#[test]
fn local_response_normalisation() {
    for size in [1, 4, 5, 9] {
        let op = Lrn { size, alpha: 0.7, beta: 0.75, k: 1.5 };
        check(&[&[2, 6, 3, 2]], &format!("size {size}"), |tiny, x| tiny.add(op, x));
    }
}

#[test]
fn training_normalisation() {
    for dims in [&[4, 3, 5, 3][..], &[6, 3][..], &[2, 3, 1, 1][..], &[1, 2, 3, 4][..]] {
        let c = [dims[1]];
        check(&[dims, &c, &c], &format!("{dims:?}"), |tiny, operands| {
            let statistics = tiny.add_all(BnTrainingReduce, &operands[..1]);
            let op = BnTrainingUpdate { eps: 0.1, residual: false, relu: None, ranks: Vec::new() };
            tiny.add(op, &[operands[0], statistics[0], statistics[1], operands[1], operands[2]])
        });
    }
}

#[test]
fn inference_normalisation() {
    for dims in [&[2, 3, 2, 2][..], &[4, 3][..]] {
        let mut tiny = Tiny::new(DType::F64);
        let [x, gamma, beta] = [dims, &[3][..], &[3][..]].map(|dims| tiny.noisy(dims));
        let mean = tiny.noisy(&[3]);
        let var = tiny.given(&[3], vec![0.5, 1.0, 2.0]);
        let y = tiny.add(BnInfer { eps: 1e-2 }, &[x, gamma, beta, mean, var]);
        tiny.probe(y);
        check_loss(tiny, 3, &Inputs::new(), &format!("{dims:?}"));
    }
}

#[test]
fn moves_of_elements() {
    check(&[&[2, 3, 2], &[2, 1, 2], &[2, 2, 2]], "concat", |tiny, parts| tiny.add(Concat { axis: 1 }, parts));
    check(&[&[4, 5]], "slice", |tiny, x| tiny.add(Slice { start: vec![1, 2], size: vec![2, 3] }, x));
    check(&[&[2, 3]], "pad", |tiny, x| tiny.add(Pad { before: vec![1, 0], after: vec![2, 1] }, x));
    for (axis, reverse) in [(0, false), (1, true), (2, false)] {
        let op = Cumsum { axis, reverse };
        check(&[&[2, 3, 4]], &format!("{op:?}"), |tiny, x| tiny.add(op.clone(), x));
    }
    check(&[&[2, 3]], "reshape", |tiny, x| tiny.add(Reshape { shape: [3, 2].into() }, x));
}

#[test]
fn sums_and_multiples() {
    check(&[&[2, 3], &[2, 3], &[2, 3]], "add", |tiny, x| tiny.add(Add, x));
    check(&[&[2, 3]], "twice itself", |tiny, x| tiny.add(Add, &[x[0], x[0]]));
    check(&[&[2, 3]], "scale", |tiny, x| tiny.add(Scale { factor: -1.5 }, x));
    check(&[&[5]], "relu", |tiny, x| tiny.add(Relu { rectifier: Rectifier::Relu }, x));
    check(&[&[5]], "relu6", |tiny, x| {
        let x = tiny.add(Scale { factor: 20.0 }, x);
        tiny.add(Relu { rectifier: Rectifier::Relu6 }, &[x])
    });
    check(&[&[2, 3, 4]], "transpose", |tiny, x| tiny.add(Transpose { permutation: vec![2, 0, 1] }, x));
    check(&[&[4, 3]], "cast", |tiny, x| tiny.add(Cast { to: DType::F64 }, x));
}

#[test]
fn dropout_uses_the_same_mask_both_ways() {
    check(&[&[5, 7]], "dropout", |tiny, x| tiny.add(Dropout { rate: 0.4, stream: 2 }, x));
}

#[test]
fn matrix_products() {
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let a: &[usize] = if transpose_a { &[4, 3] } else { &[3, 4] };
        let b: &[usize] = if transpose_b { &[5, 4] } else { &[4, 5] };
        let op = MatMul { transpose_a, transpose_b };
        check(&[a, b, &[5]], &format!("{op:?}"), |tiny, operands| tiny.add(op.clone(), operands));
    }
}

#[test]
fn losses() {
    for over in [SmoothingOver::AllClasses, SmoothingOver::OtherClasses] {
        let mut tiny = Tiny::new(DType::F64);
        let logits = tiny.noisy(&[3, 5]);
        let weights = tiny.noisy(&[2, 2]);
        let labels = tiny.labels(3);
        let entropy = tiny.add_all(SoftmaxCrossEntropy { smoothing: 0.1, over, ignored: None }, &[logits, labels])[0];
        let decay = tiny.add(L2Loss, &[weights]);
        let total = tiny.add(WeightedSum { weights: vec![1.5, 0.25] }, &[entropy, decay]);
        tiny.graph.losses.push(("loss".into(), total));
        let label = Tensor::new(&[4u32, 0, 2], &Device::Cpu).unwrap();
        check_loss(tiny, 2, &Inputs::new().with("label", label), &format!("{over:?}"));
    }
}

/// A residual block: its input has two consumers, and so has the output of its first convolution.
#[test]
fn gradients_of_several_consumers_are_summed() {
    let conv = Conv2D::new(Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) }, 1);
    check(&[&[2, 3, 4, 5], &[3, 3, 3, 3], &[3, 3, 3, 3]], "residual", |tiny, operands| {
        let &[x, w1, w2] = operands else { unreachable!() };
        let a = tiny.add(conv.clone(), &[x, w1]);
        let b = tiny.add(Lrn { size: 3, alpha: 0.5, beta: 0.75, k: 1.0 }, &[a]);
        let c = tiny.add(conv.clone(), &[b, w2]);
        let sum = tiny.add(Add, &[c, x, a]);
        tiny.add(Relu { rectifier: Rectifier::Relu }, &[sum])
    });
}

/// Strided convolution, normalisation, ReLU, overlapping pool and dense layer in a row.
#[test]
fn a_small_network() {
    let mut tiny = Tiny::new(DType::F64);
    let shapes: [&[usize]; 5] = [&[4, 2, 3, 3], &[4], &[4], &[3, 36], &[3]];
    let [w, gamma, beta, dense, bias] = shapes.map(|dims| tiny.noisy(dims));
    let x = tiny.noisy(&[3, 2, 12, 13]);
    let labels = tiny.labels(3);
    let window = Window { pad: [1; 4], ..Window::new([3; 2], [2; 2]) };
    let conv = tiny.add(Conv2D::new(window, 1), &[x, w]);
    let statistics = tiny.add_all(BnTrainingReduce, &[conv]);
    let op = BnTrainingUpdate { eps: 1e-3, residual: false, relu: None, ranks: Vec::new() };
    let norm = tiny.add(op, &[conv, statistics[0], statistics[1], gamma, beta]);
    let relu = tiny.add(Relu { rectifier: Rectifier::Relu }, &[norm]);
    let pool = tiny.add(MaxPool { window: Window { pad: [0, 1, 1, 0], ..window } }, &[relu]);
    let flat = tiny.add(Reshape { shape: [3, 36].into() }, &[pool]);
    let logits = tiny.add(MatMul { transpose_a: false, transpose_b: true }, &[flat, dense, bias]);
    let op = SoftmaxCrossEntropy { smoothing: 0.1, over: SmoothingOver::AllClasses, ignored: None };
    let loss = tiny.add_all(op, &[logits, labels])[0];
    tiny.graph.losses.push(("loss".into(), loss));
    let label = Tensor::new(&[0u32, 2, 1], &Device::Cpu).unwrap();
    let inputs = Inputs::new().with("label", label);
    check_loss(tiny, 5, &inputs, "network");
}

#[test]
fn nobody_computes_a_gradient_that_nobody_needs() {
    let mut tiny = Tiny::new(DType::F64);
    let w1 = tiny.noisy(&[2, 2, 3, 3]);
    let w2 = tiny.noisy(&[2, 2, 3, 3]);
    let x = tiny.noisy(&[1, 2, 6, 6]);
    let conv = || Conv2D::new(Window::new([3; 2], [1; 2]), 1);
    let y = tiny.add(conv(), &[x, w1]);
    let y = tiny.add(conv(), &[y, w2]);
    tiny.probe(y);
    tiny.differentiate(2);
    let count = |name| tiny.graph.nodes.iter().filter(|node| node.op.name() == name).count();
    assert_eq!((count("Conv2DBackpropFilter"), count("Conv2DBackpropInput")), (2, 1));
}
