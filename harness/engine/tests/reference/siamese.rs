//! Operators of siamese trackers: gradients by central differences, values by hand, fast kernels against reference
//! ones; bounds on gradients, averages and skipped steps.

use crate::{
    dense::fast_agrees,
    gradients::{check, check_loss},
    tiny::{OPTIONS, SCALARS, Tiny, apply, apply_loss, assert_close, elements, noise},
    words::expect,
};
use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, Kernels, Options, Step};
use zoo_graph::{DType, Phase, Scope, ValueId, formula::Formula, ops::*};
use zoo_recipe::schema::{SelectCrossEntropy, WeightedL1};

#[test]
fn correlations_at_awkward_shapes() {
    for (x, k) in [([2, 3, 5, 4], [2, 3, 2, 3]), ([1, 2, 3, 3], [1, 2, 3, 3]), ([2, 1, 4, 6], [2, 1, 1, 1])] {
        check(&[&x, &k], &format!("{x:?} {k:?}"), |tiny, operands| tiny.add(DepthwiseCorrelation, operands));
    }
}

#[test]
fn a_correlation_by_hand() {
    let x = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let y = apply(DepthwiseCorrelation, &[(&[1, 1, 2, 3], x), (&[1, 1, 1, 2], vec![1.0, 10.0])]);
    assert_eq!(y[0], [21.0, 32.0, 54.0, 65.0]);
}

fn window(kernel: [usize; 2], stride: [usize; 2], pad: [usize; 4]) -> ExtractPatches {
    ExtractPatches { window: Window { pad, ..Window::new(kernel, stride) } }
}

#[test]
fn patches() {
    for op in [
        window([2, 3], [1, 2], [0; 4]),
        window([3, 3], [2, 2], [1; 4]),
        window([1, 1], [1, 1], [0; 4]),
        window([4, 2], [3, 1], [2, 1, 0, 1]),
    ] {
        check(&[&[2, 3, 5, 6]], &format!("{op:?}"), |tiny, x| tiny.add(op.clone(), x));
    }
    let y = apply(window([2, 2], [1, 1], [0; 4]), &[(&[1, 1, 2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]);
    assert_eq!(y[0], [1.0, 2.0, 4.0, 5.0, 2.0, 3.0, 5.0, 6.0]);
}

#[test]
fn pairs() {
    // Channels 0 and 2 are the two scores of the first anchor; without overflow, of the second one.
    let x = [0.0, 5.0, 3f64.ln(), 5.0, 1000.0, 7.0, -1000.0, 7.0];
    let half = 0.5f64.ln();
    let expected = [0.25f64.ln(), 0.75f64.ln(), half, half, 0.0, -2000.0, half, half];
    expect("  - pair_log_softmax: {}", [4, 1, 1], &x, &[], &expected);
}

/// A loss of noisy predictions against central differences.
#[track_caller]
fn check_term(op: impl Into<Op>, shape: &[usize], targets: &[(&[usize], Vec<f64>)], what: &str) {
    let mut tiny = Tiny::new(DType::F64);
    let x = tiny.noisy(shape);
    let targets: Vec<ValueId> = targets.iter().map(|(dims, values)| tiny.given(dims, values.clone())).collect();
    let loss = tiny.add_all(op, &[vec![x], targets].concat())[0];
    tiny.graph.losses.push(("loss".into(), loss));
    check_loss(tiny, 1, &Inputs::new(), what);
}

/// -1, 0 or 1 without pattern.
fn labels(n: usize, seed: u64) -> Vec<f64> {
    noise(n, seed).into_iter().map(|x| (x * 1.5).round()).collect()
}

fn signs(n: usize, seed: u64) -> Vec<f64> {
    noise(n, seed).into_iter().map(f64::signum).collect()
}

#[test]
fn losses_of_anchors() {
    let mut tiny = Tiny::new(DType::F64);
    let operands = [tiny.noisy(&[2, 3, 2, 2, 2]), tiny.given(&[2, 3, 2, 2, 1], labels(24, 5))];
    tiny.loss(SelectCrossEntropy::formula(), &operands);
    check_loss(tiny, 1, &Inputs::new(), "classes");
    let mut tiny = Tiny::new(DType::F64);
    let operands = [&[2, 4, 3, 2, 2], &[2, 4, 3, 2, 2], &[2, 1, 3, 2, 2]].map(|shape| tiny.noisy(shape));
    tiny.loss(WeightedL1::formula(2), &operands);
    check_loss(tiny, 1, &Inputs::new(), "boxes");
}

#[test]
fn losses_of_anchors_by_hand() {
    let p = vec![-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0];
    let label = vec![1.0, 0.0, -1.0, 0.0];
    let of = |label| {
        let (p, label) = ((&[1, 1, 1, 4, 2][..], p.clone()), (&[1, 1, 1, 4, 1][..], label));
        apply_loss(SelectCrossEntropy::formula(), &[p, label])
    };
    let (loss, gradient) = of(label);
    assert_close(&[loss], &[0.5 * 2.0 + 0.5 * (3.0 + 7.0) / 2.0], 1e-14, "classes");
    assert_eq!(gradient, [0.0, -0.5, -0.25, 0.0, 0.0, 0.0, -0.25, 0.0]);
    assert_eq!(of(vec![-1.0; 4]), (0.0, vec![0.0; 8]), "nothing that counts");
    let shape: &[usize] = &[1, 4, 1, 1, 1];
    let operands = [(shape, vec![1.0, 2.0, 3.0, 4.0]), (shape, vec![0.0; 4]), (&[1; 5], vec![0.5])];
    assert_eq!(apply_loss(WeightedL1::formula(1), &operands), (5.0, vec![0.5; 4]));
}

#[test]
fn masks_at_chosen_positions() {
    let (n, side, size) = (2, 3, 5);
    let windows = (&[n * 4, 1, size, size][..], labels(n * 4 * size * size, 6));
    let mut select = vec![-1.0; n * 4];
    (select[0], select[2], select[6]) = (1.0, 0.0, 1.0);
    let select = (&[n, 1, 2, 2][..], select);
    for align_corners in [true, false] {
        let op = MaskSoftMargin { size, align_corners };
        check_term(op.clone(), &[n, side * side, 2, 2], &[windows.clone(), select.clone()], &format!("{op:?}"));
    }
    let op = MaskSoftMargin { size, align_corners: true };
    check_term(op.clone(), &[n * 4, size * size], &[windows.clone(), select], "rows");
    let nothing = (&[n, 1, 2, 2][..], vec![-1.0; n * 4]);
    let logits = (&[n * 4, size * size][..], noise(n * 4 * size * size, 3));
    let results = apply(op, &[logits, windows, nothing]);
    assert_eq!(results[0], [0.0], "without positions there is no loss");
    assert!(results[1].iter().all(|g| *g == 0.0));
}

#[test]
fn fast_kernels_agree() {
    let conv = || Conv2D::new(Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) }, 1);
    fast_agrees(&[&[2, 5, 7, 9], &[19, 5, 3, 3], &[2, 5, 3, 2]], "correlation", |tiny, x| {
        let search = tiny.add(conv(), &x[..2]);
        let kernel = tiny.add(conv(), &[x[2], x[1]]);
        tiny.add(DepthwiseCorrelation, &[search, kernel])
    });
    for op in [window([3, 2], [2, 1], [0; 4]), window([1, 1], [1, 1], [0; 4])] {
        fast_agrees(&[&[2, 5, 5, 6], &[19, 5, 3, 3]], &format!("{op:?}"), |tiny, x| {
            let map = tiny.add(conv(), x);
            tiny.add(op.clone(), &[map])
        });
    }
    fast_agrees(&[&[2, 5, 2, 3], &[6, 5, 3, 3]], "pairs", |tiny, x| {
        let map = tiny.add(conv(), x);
        let sides = tiny.add(Reshape { shape: [2, 2, 3, 2, 3].into() }, &[map]);
        let pairs = tiny.add(Transpose { permutation: vec![0, 2, 3, 4, 1] }, &[sides]);
        tiny.formula(Formula::define(1, |[x]| [x.log_softmax()]), &[pairs])
    });
}

/// The loss of blocked logits, and its gradient, by fast and by reference kernels.
#[test]
fn masks_of_fast_kernels_agree() {
    let run = |dtype, options: Options| {
        let mut tiny = Tiny::new(dtype);
        let (x, w) = (tiny.noisy(&[2, 5, 2, 2]), tiny.noisy(&[25, 5, 3, 3]));
        let windows = tiny.given(&[8, 1, 9, 9], signs(8 * 81, 4));
        let select = tiny.given(&[2, 1, 2, 2], vec![1.0, 0.0, 1.0, -1.0, 0.0, 1.0, -1.0, -1.0]);
        let map = tiny.add(Conv2D::new(Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) }, 1), &[x, w]);
        let results = tiny.add_all(MaskSoftMargin { size: 9, align_corners: true }, &[map, windows, select]);
        tiny.graph.losses.push(("loss".into(), results[0]));
        results[2..].iter().for_each(|v| tiny.show(*v));
        tiny.differentiate(2);
        let mut step = Step::new(tiny.graph.clone(), options).unwrap();
        for (i, value) in tiny.values.iter().enumerate() {
            step.set_variable(&format!("v{i}"), value).unwrap();
        }
        let result = step.run(&Inputs::new(), SCALARS, &mut ()).unwrap();
        let outputs = result.outputs.iter().map(|(_, tensor)| elements(tensor));
        outputs.chain([vec![result.losses[0].1]]).collect::<Vec<_>>()
    };
    let truth = run(DType::F64, OPTIONS);
    let fast = run(DType::F32, Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None });
    for (found, expected) in fast.iter().zip(&truth) {
        assert_close(found, expected, 1e-6, "masks");
    }
}

#[test]
fn gradients_are_bounded_by_norm_and_by_value() {
    let operands: [(&[usize], Vec<f64>); 2] = [(&[2], vec![3.0, 0.0]), (&[1, 1], vec![-4.0])];
    let results = apply(ClipByGlobalNorm { bound: 1.0 }, &operands);
    assert_close(&results[0], &[5.0], 1e-15, "norm");
    assert_close(&results[1], &[1.0 / (5.0 + 1e-6)], 1e-15, "factor");
    assert_eq!(apply(ClipByGlobalNorm { bound: 10.0 }, &operands)[1], [1.0], "what is within the bound stays");
    assert_eq!(apply(ClipByGlobalNorm { bound: f64::INFINITY }, &operands)[1], [1.0]);
    assert_eq!(apply(ClipByValue { bound: 1.0 }, &[(&[3], vec![-2.0, 0.5, 1.5])])[0], [-1.0, 0.5, 1.0]);
    assert_eq!(apply(Assign::average(0.75), &[(&[1], vec![4.0]), (&[1], vec![8.0])])[0], [5.0]);
}

/// The first update has a decay of 2/11 at most, a later one that of the recipe.
#[test]
fn the_decay_of_an_average_starts_small() {
    let average = |decay: f64| apply(Assign::average_with_warmup(decay, 0), &[(&[1], vec![4.0]), (&[1], vec![8.0])]);
    assert_close(&average(0.75)[0], &[4.0 * 2.0 / 11.0 + 8.0 * 9.0 / 11.0], 1e-15, "warm-up");
    assert_close(&average(0.125)[0], &[7.5], 1e-15, "decay");
}

/// Two steps of `p -= lr * g` with a loss of `x`, of which one is too large.
#[test]
fn a_step_whose_loss_is_too_large_or_no_number_updates_nothing() {
    for kernels in [Kernels::Reference, Kernels::Fast { fusion: true }] {
        let mut tiny = Tiny::new(DType::F32);
        let p = tiny.given(&[1, 1], vec![2.0]);
        let v = tiny.given(&[1, 1], vec![0.0]);
        let x = tiny.graph.add_input("x", zoo_graph::TensorType::plain([1, 1], DType::F32));
        let product = tiny.add(MatMul { transpose_a: false, transpose_b: false }, &[x, p]);
        let loss = tiny.add(Reshape { shape: zoo_graph::Shape::scalar() }, &[product]);
        tiny.graph.losses.push(("loss".into(), loss));
        tiny.differentiate(1);
        let gradient = tiny.graph.gradients[0].1;
        let op = crate::optimizers::momentum();
        let scope = Scope { phase: Phase::Update, origin: None };
        let next = tiny.graph.add_node(&scope, "p/update", op, &[p, v, gradient]).unwrap();
        (tiny.graph.variables[0].next, tiny.graph.variables[1].next) = (Some(next[0]), Some(next[1]));
        tiny.graph.skip_loss_above = Some(100.0);
        let mut step = Step::new(tiny.graph.clone(), Options { kernels, threads: None, level: None }).unwrap();
        for (i, value) in tiny.values.iter().enumerate() {
            step.set_variable(&format!("v{i}"), value).unwrap();
        }
        let mut run = |x: f32| {
            let inputs = Inputs::new().with("x", Tensor::new(&[[x]], &Device::Cpu).unwrap());
            let skipped = step.run(&inputs, SCALARS, &mut ()).unwrap().skipped;
            (skipped, elements(&step.variable("v0").unwrap())[0], elements(&step.variable("v1").unwrap())[0])
        };
        let (skipped, p, v) = run(1.0);
        assert!(!skipped && (p - 1.9).abs() < 1e-6 && (v - 1.0).abs() < 1e-6, "{kernels:?}");
        for x in [1000.0, f32::NAN, f32::INFINITY] {
            assert_eq!(run(x), (true, p, v), "{kernels:?} {x}");
        }
        let (skipped, after, _) = run(1.0);
        assert!(!skipped && (after - (1.9 - 0.19)).abs() < 1e-6, "{kernels:?}");
    }
}
