//! Formulas: their gradients against central differences, and the fast kernels against the reference in every layout.

use crate::{
    gradients::{check, check_loss},
    tiny::{OPTIONS, SCALARS, Tiny, apply, assert_close, elements},
};
use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, Kernels, Options, Step};
use zoo_graph::{
    DType, Layout, Op, Shape, TensorType, ValueId,
    formula::{Formula, parse},
    ops::{Conv2D, Map, Reshape, Scale, Window},
    passes::Pipeline,
};

/// (what, formula, shapes of the operands): broadcasts of every kind, rows of one and several axes.
fn cases() -> Vec<(&'static str, Formula, Vec<Vec<usize>>)> {
    vec![
        ("silu", parse("x * sigmoid(x)", &["x"], 1).unwrap(), vec![vec![2, 20, 3, 5]]),
        ("gate", Formula::define(0, |[x, s]| [x * s]), vec![vec![2, 20, 3, 5], vec![2, 20, 1, 1]]),
        ("scale", Formula::define(0, |[x, s]| [x * s + 1.0]), vec![vec![2, 20, 3, 5], vec![1, 20, 1, 1]]),
        ("place", Formula::define(0, |[x, s]| [x * s]), vec![vec![2, 20, 3, 5], vec![2, 1, 3, 5]]),
        ("channels", Formula::define(0, |[x, s]| [x * s]), vec![vec![2, 20, 3, 5], vec![20, 1, 1]]),
        ("row of products", Formula::define(1, |[t, x]| [(x * t).row_sum()]), vec![vec![5, 1], vec![5, 7]]),
        (
            "places",
            Formula::define(0, |[x]| [x * (x.coordinate(0) + 3.0 * x.coordinate(2) - x.coordinate(3))]),
            vec![vec![2, 20, 3, 5]],
        ),
        ("trailing", Formula::define(0, |[x, s]| [x * s]), vec![vec![4, 6], vec![6]]),
        ("number", Formula::define(0, |[x, s]| [x / s.exp()]), vec![vec![2, 20, 3, 5], vec![]]),
        ("softmax", Formula::define(1, |[x]| [x.softmax()]), vec![vec![3, 4, 7]]),
        ("log softmax", Formula::define(2, |[x]| [x.log_softmax()]), vec![vec![3, 4, 7]]),
        ("largest", Formula::define(1, |[x, w]| [w * x.row_max()]), vec![vec![5, 7], vec![7]]),
        ("sum of largest", Formula::define(1, |[x]| [x * x.row_max().row_sum()]), vec![vec![5, 7]]),
        ("mean of largest", Formula::define(1, |[x]| [x.row_max().row_mean()]), vec![vec![5, 7]]),
        ("largest of sums", Formula::define(1, |[x]| [x * x.row_sum().row_max()]), vec![vec![5, 7]]),
        ("log sum of means", Formula::define(1, |[x]| [x.row_mean().row_log_sum_exp().exp()]), vec![vec![5, 7]]),
        (
            "layer norm",
            Formula::define(1, |[x, weight, bias]| {
                let centred = x - x.row_mean();
                [centred * (centred.square().row_mean() + 1e-2).rsqrt() * weight + bias]
            }),
            vec![vec![3, 4, 9], vec![9], vec![9]],
        ),
        (
            "group norm",
            Formula::define(2, |[x, weight]| {
                let centred = x - x.row_mean();
                [centred / (centred.square().row_mean() + 1e-2).sqrt() * weight]
            }),
            vec![vec![2, 3, 4, 5], vec![3, 4, 1]],
        ),
        (
            "select",
            Formula::define(0, |[a, b]| [a.greater(b).select(a.tanh(), b.square() * 0.5).max(a.min(b)).abs()]),
            vec![vec![2, 20, 3, 5], vec![2, 20, 3, 5]],
        ),
    ]
}

#[test]
fn gradients_are_differences() {
    for (what, formula, shapes) in cases() {
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        check(&shapes, what, |tiny, operands| tiny.formula(formula, operands));
    }
}

#[test]
fn folds_and_sums_by_hand() {
    let x = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.5];
    let of = |formula: Formula| {
        let map = Map::with_space(formula, Shape::from([2, 3]));
        apply(map, &[(&[2, 3], x.clone())]).remove(0)
    };
    assert_eq!(of(Formula::define(1, |[x]| [x.row_sum()])), [6.0, 15.5]);
    assert_eq!(of(Formula::define(1, |[x]| [x - x.row_max()])), [-2.0, -1.0, 0.0, -2.5, -1.5, 0.0]);
    assert_eq!(of(Formula::define(0, |[x]| [x * 2.0]).summed(vec![0])), [10.0, 14.0, 19.0]);
    assert_eq!(of(Formula::define(0, |[x]| [x + x.coordinate(1)]).summed(vec![0, 1])), [27.5]);
    let softmax = of(Formula::define(2, |[x]| [x.softmax()]));
    assert_close(&[softmax.iter().sum()], &[1.0], 1e-15, "softmax over two axes");
}

/// As PyTorch: where a value is a small difference of large numbers, it has all of its digits.
#[test]
fn nothing_cancels() {
    let apply_to = |formula: Formula, x: &[f64]| {
        let map = Map::with_space(formula, Shape::from([x.len()]));
        apply(map, &[(&[x.len()], x.to_vec())]).remove(0)
    };
    let powers = apply_to(Formula::define(0, |[x]| [x.expm1()]), &[1e-12, -1e-6, -40.0, 1.0]);
    let expected = [1.000_000_000_000_5e-12, -9.999_995_000_001_667e-7, -1.0, 1.718_281_828_459_045];
    for (found, expected) in powers.iter().zip(expected) {
        assert_close(&[found / expected], &[1.0], 1e-15, "e^x - 1");
    }
    // log_softmax([1e8, 1e8 - 1, 1e8 - 30]) = [0, -1, -30] - log(1 + e^-1 + e^-30).
    let logarithms = apply_to(Formula::define(1, |[x]| [x.log_softmax()]), &[1e8, 1e8 - 1.0, 1e8 - 30.0]);
    let sum = (-1.0f64).exp() + (-30.0f64).exp();
    assert_close(&logarithms, &[-sum.ln_1p(), -1.0 - sum.ln_1p(), -30.0 - sum.ln_1p()], 1e-15, "log softmax");
    // As torch.nn.functional.elu and its gradient.
    let elu = Formula::define(0, |[x]| [x.greater(0.0).select(x, x.min(0.0).expm1() * 0.5)]);
    let slopes = elu.gradient(&[0], &[0]).formula;
    let x = [1e-12, -1e-12, -1e-6, -3.0];
    let expected = [1e-12, -4.999_999_999_997_5e-13, -4.999_997_500_000_834e-7, -0.475_106_465_816_068];
    for (found, expected) in apply_to(elu, &x).iter().zip(expected) {
        assert_close(&[found / expected], &[1.0], 1e-15, "elu");
    }
    let map = Map::with_space(slopes, Shape::from([4]));
    let slopes = apply(map, &[(&[4], x.to_vec()), (&[4], vec![1.0; 4])]).remove(0);
    let expected = [1.0, 0.499_999_999_999_5, 0.499_999_500_000_25, 0.024_893_534_183_931_972];
    assert_close(&slopes, &expected, 1e-15, "gradient of elu");
    // The sum of equal numbers, less that sum: a plain sum of 0.1 drifts by 1.6e-13.
    let many = apply_to(Formula::define(1, |[x]| [x.row_sum()]), &[0.1; 1000]);
    assert_eq!(many, [100.0]);
    assert_eq!(apply_to(Formula::define(1, |[x]| [x.row_sum()]), &[f64::INFINITY, 1.0, 2.0]), [f64::INFINITY]);
}

/// Cross entropy of rows of logits against class indices.
#[test]
fn a_loss_over_class_indices() {
    let mut tiny = Tiny::new(DType::F64);
    let logits = tiny.noisy(&[4, 6]);
    let labels = tiny.graph.add_input("label", TensorType::plain([4, 1], DType::U32));
    let formula = Formula::define(1, |[x, label]| {
        let own = x.coordinate(1).equal(label).select(x, 0.0).row_sum();
        [(x.row_log_sum_exp() - own) / 4.0]
    });
    let mean = tiny.formula(formula.summed(vec![0]), &[logits, labels]);
    let loss = tiny.add(Reshape { shape: Shape::scalar() }, &[mean]);
    tiny.graph.losses.push(("loss".into(), loss));
    let labels = [5u32, 0, 3, 3];
    let inputs = Inputs::new().with("label", Tensor::from_slice(&labels, (4, 1), &Device::Cpu).unwrap());
    let found = tiny.run_with(&inputs).losses[0].1;
    let rows = elements(&tiny.values[0]);
    let rows = rows
        .chunks(6)
        .zip(labels)
        .map(|(row, label)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[label as usize]);
    assert_close(&[found], &[rows.sum::<f64>() / 4.0], 1e-15, "loss");
    check_loss(tiny, 1, &inputs, "cross entropy");
}

/// The fast kernels in the layout of their neighbours, in place where the plan says so, against the reference in f64.
#[test]
fn fast_kernels_agree_with_the_reference() {
    for (what, formula, shapes) in cases() {
        let build = |dtype: DType, blocked: bool| {
            let mut tiny = Tiny::new(dtype);
            let operands: Vec<ValueId> = shapes.iter().map(|dims| tiny.noisy(dims)).collect();
            let mut inputs = operands.clone();
            // A convolution gives blocks, anything else what it is given; neither is needed afterwards.
            inputs[0] = match shapes[0][..] {
                [_, c, _, _] if blocked => {
                    let filter = tiny.noisy(&[c, c, 1, 1]);
                    tiny.add(Conv2D::new(Window::new([1, 1], [1, 1]), 1), &[inputs[0], filter])
                }
                _ => tiny.add(Scale { factor: 1.5 }, &inputs[..1]),
            };
            let y = tiny.formula(formula.clone(), &inputs);
            tiny.probe(y);
            tiny.differentiate(shapes.len());
            tiny
        };
        for blocked in [false, true] {
            let expected = build(DType::F64, blocked).run();
            let tiny = build(DType::F32, blocked);
            let kernels = Kernels::Fast { fusion: true };
            let mut step = Step::new(tiny.graph.clone(), Options { kernels, ..OPTIONS }).unwrap();
            for (n, value) in tiny.values.iter().enumerate() {
                step.set_variable(&format!("v{n}"), value).unwrap();
            }
            let found = step.run(&Inputs::new(), SCALARS, &mut ()).unwrap();
            for ((name, found), (_, expected)) in found.outputs.iter().zip(&expected.outputs) {
                let found = elements(&found.to_dtype(candle_core::DType::F64).unwrap());
                assert_close(&found, &elements(expected), 3e-6, &format!("{what}: {name}, blocked: {blocked}"));
            }
        }
    }
}

/// A formula between blocked neighbours needs no conversion.
#[test]
fn blocks_stay_blocks() {
    let mut tiny = Tiny::new(DType::F32);
    let (x, filter) = (tiny.noisy(&[2, 20, 6, 6]), tiny.noisy(&[24, 20, 3, 3]));
    let conv = || Conv2D::new(Window::new([3, 3], [1, 1]), 1);
    let y = tiny.add(conv(), &[x, filter]);
    let y = tiny.formula(parse("y * sigmoid(y)", &["y"], 1).unwrap(), &[y]);
    let filter = tiny.noisy(&[4, 24, 3, 3]);
    let y = tiny.add(conv(), &[y, filter]);
    tiny.probe(y);
    tiny.differentiate(3);
    Pipeline::fast(true).run(&mut tiny.graph, None).unwrap();
    for node in tiny.graph.nodes.iter().filter(|node| matches!(node.op, Op::Map(_))) {
        assert!(node.inputs.iter().all(|v| tiny.graph.ty(*v).layout == Layout::Nc1hwc0), "{}", node.name);
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let mut tiny = Tiny::new(DType::F64);
    let (a, b) = (tiny.noisy(&[2, 3]), tiny.noisy(&[2, 4]));
    let formula = Formula::define(0, |[a, b]| [a + b]);
    let error = Map::over(formula, &[tiny.graph.ty(a), tiny.graph.ty(b)]).unwrap_err();
    assert!(error.to_string().contains("1 along an axis"), "{error}");
    let rows = Map::over(Formula::define(3, |[a]| [a.row_sum()]), &[tiny.graph.ty(a)]);
    assert!(rows.unwrap_err().to_string().contains("more axes than"));
}
