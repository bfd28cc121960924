//! Operators of networks that answer per pixel: gradients by central differences, values by hand, and the fast kernels
//! against the reference ones.

use crate::{
    gradients::{check, check_loss},
    tiny::{OPTIONS, SCALARS, Tiny, apply, apply_loss, assert_close, elements, noise},
};
use candle_core::Tensor;
use proptest::prelude::*;
use zoo_engine::{
    Inputs, Kernels, Options, Step,
    bounds::{self, Machine, Ran},
};
use zoo_graph::{DType, Op, ValueId, formula::Formula, ops::*};
use zoo_recipe::schema::{Dice, MaskedL1};

/// The transposed convolution of filters `[c_in, c_out, kernel, kernel]`.
fn transposed(
    input: [usize; 4],
    out: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
) -> (Conv2DBackpropInput, [usize; 4]) {
    let [n, c, h, w] = input;
    let conv = Conv2D::new(Window { pad: [pad; 4], ..Window::new([kernel; 2], [stride; 2]) }, 1);
    let size = |len: usize| (len - 1) * stride + kernel - 2 * pad;
    (Conv2DBackpropInput { conv, input: [n, out, size(h), size(w)].into() }, [c, out, kernel, kernel])
}

#[test]
fn transposed_convolutions_at_awkward_shapes() {
    for (input, out, kernel, stride, pad) in
        [([2, 3, 2, 3], 2, 2, 2, 0), ([1, 2, 1, 1], 3, 5, 5, 0), ([2, 1, 3, 4], 1, 3, 2, 1), ([1, 2, 4, 3], 2, 3, 1, 2)]
    {
        let (op, filter) = transposed(input, out, kernel, stride, pad);
        check(&[&input, &filter], &format!("{op:?}"), |tiny, operands| tiny.add(op, operands));
    }
}

#[test]
fn a_transposed_convolution_by_hand() {
    // Each input pixel paints its value times the 2x2 filter.
    let (op, filter) = transposed([1, 1, 1, 2], 1, 2, 2, 0);
    let y = apply(op, &[(&[1, 1, 1, 2], vec![1.0, 10.0]), (&filter, vec![1.0, 2.0, 3.0, 4.0])]);
    assert_eq!(y[0], [1.0, 2.0, 10.0, 20.0, 3.0, 4.0, 30.0, 40.0]);
}

const ALL: [Interpolation; 3] = [
    Interpolation::Nearest,
    Interpolation::Bilinear { align_corners: false },
    Interpolation::Bilinear { align_corners: true },
];

#[test]
fn resizing() {
    for interpolation in ALL {
        for ([h, w], out) in [([2, 3], [4, 6]), ([3, 2], [7, 5]), ([4, 5], [2, 3]), ([1, 1], [3, 2]), ([3, 3], [1, 3])]
        {
            let op = Resize { out, interpolation };
            check(&[&[2, 2, h, w]], &format!("{h}x{w} {op:?}"), |tiny, x| tiny.add(op.clone(), x));
        }
    }
}

#[test]
fn resizing_by_hand() {
    let x: (&[usize], Vec<f64>) = (&[1, 1, 1, 2], vec![1.0, 3.0]);
    let resized = |interpolation| apply(Resize { out: [1, 4], interpolation }, std::slice::from_ref(&x)).remove(0);
    assert_eq!(resized(ALL[0]), [1.0, 1.0, 3.0, 3.0]);
    assert_eq!(resized(ALL[1]), [1.0, 1.5, 2.5, 3.0]);
    assert_close(&resized(ALL[2]), &[1.0, 5.0 / 3.0, 7.0 / 3.0, 3.0], 1e-15, "aligned");
}

#[test]
fn infinity_reaches_the_pixels_that_read_it() {
    let infinity = f64::INFINITY;
    let x: (&[usize], Vec<f64>) = (&[1, 1, 1, 2], vec![infinity, 1.0]);
    let resized = |interpolation| apply(Resize { out: [1, 4], interpolation }, std::slice::from_ref(&x)).remove(0);
    assert_eq!(resized(ALL[0]), [infinity, infinity, 1.0, 1.0]);
    for bilinear in &ALL[1..] {
        assert_eq!(resized(*bilinear), [infinity, infinity, infinity, 1.0], "{bilinear:?}");
    }
    let dy: (&[usize], Vec<f64>) = (&[1, 1, 1, 4], vec![2.0, 1.0, 1.0, infinity]);
    for interpolation in ALL {
        let op = ResizeGrad { resize: Resize { out: [1, 4], interpolation }, input: [1, 1, 1, 2].into() };
        let dx = apply(op, std::slice::from_ref(&dy)).remove(0);
        assert!(dx[0].is_finite() && dx[1] == infinity, "{interpolation:?}: {dx:?}");
    }
}

#[test]
fn the_bound_of_resizing_holds_between_pixels_far_apart() {
    let mut tiny = Tiny::new(DType::F32);
    let (pixels, one) = (tiny.given(&[1, 1, 2, 2], vec![1e8, 1.0, -3e7, 2.0]), tiny.given(&[1; 4], vec![1.0]));
    // Brings the map into blocks.
    let map = tiny.add(Conv2D::new(Window::new([1; 2], [1; 2]), 1), &[pixels, one]);
    let y = tiny.add(Resize { out: [5, 4097], interpolation: ALL[2] }, &[map]);
    tiny.show(y);
    let options = Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None };
    let mut step = Step::new(tiny.graph.clone(), options).unwrap();
    step.set_variable("v0", &tiny.values[0]).unwrap();
    step.set_variable("v1", &tiny.values[1]).unwrap();
    let y = step.run(&Inputs::new(), SCALARS, &mut ()).unwrap().outputs.remove(0).1;
    let node = step.graph().nodes.iter().find(|node| matches!(node.op, Op::Resize(_))).unwrap();
    let ran = Ran { node, operands: &tiny.values[..1], results: &[y], scalars: SCALARS, half: false };
    let farthest = bounds::judge(Machine::of(options), &ran).unwrap();
    assert!(farthest.ratio > 0.0 && farthest.ratio <= 1.0, "{farthest:?}");
    let cut = ran.results[0].narrow(3, 0, 4096).unwrap().contiguous().unwrap();
    let error =
        |results: &[Tensor]| bounds::judge(Machine::of(options), &Ran { results, ..ran }).unwrap_err().to_string();
    assert!(error(&[cut]).contains("result 0 is not as long as that of the operator"));
    assert!(error(&[]).contains("unexpected number of operands or results: 0"));
}

#[test]
fn sigmoids_biases_and_differences() {
    check(&[&[2, 7]], "sigmoid", |tiny, x| tiny.formula(sigmoid(), x));
    check(&[&[2, 3, 2, 2], &[3]], "bias", |tiny, x| tiny.add(BiasAdd, x));
    check(&[&[2, 3], &[2, 3]], "difference", |tiny, x| tiny.add(WeightedSum { weights: vec![1.0, -1.0] }, x));
    let shape = [3].into();
    let y = apply(Map::with_space(sigmoid(), shape), &[(&[3], vec![0.0, 800.0, -800.0])]);
    assert_eq!(y[0], [0.5, 1.0, 0.0]);
}

fn sigmoid() -> Formula {
    Formula::define(0, |[x]| [x.sigmoid()])
}

/// Checks a loss of a prediction `sigmoid(noise)` against central differences.
#[track_caller]
fn check_term(add: impl FnOnce(&mut Tiny, &[ValueId]), shape: &[usize], targets: &[(&[usize], Vec<f64>)], what: &str) {
    let mut tiny = Tiny::new(DType::F64);
    let x = tiny.noisy(shape);
    let targets: Vec<ValueId> = targets.iter().map(|(dims, values)| tiny.given(dims, values.clone())).collect();
    let p = tiny.formula(sigmoid(), &[x]);
    add(&mut tiny, &[vec![p], targets].concat());
    check_loss(tiny, 1, &Inputs::new(), what);
}

/// Zeros and ones without pattern.
fn binary(n: usize, seed: u64, bound: f64) -> Vec<f64> {
    noise(n, seed).into_iter().map(|x| f64::from(x > bound)).collect()
}

fn bce(hard_negatives: HardNegatives, scope: MiningScope) -> BalancedBce {
    BalancedBce { negative_ratio: 3.0, eps: 1e-6, hard_negatives, scope }
}

#[test]
fn losses_of_maps() {
    let (map, mask): ([usize; 4], [usize; 3]) = ([2, 1, 5, 7], [2, 5, 7]);
    let (gt, on) = (binary(70, 3, 0.7), binary(70, 4, -0.7));
    for hard_negatives in [HardNegatives::TopK, HardNegatives::RankMask] {
        for scope in [MiningScope::Batch, MiningScope::Image] {
            let op = bce(hard_negatives, scope);
            let add = |tiny: &mut Tiny, operands: &[ValueId]| {
                let loss = tiny.add_all(op.clone(), operands)[0];
                tiny.graph.losses.push(("loss".into(), loss));
            };
            check_term(add, &map, &[(&map, gt.clone()), (&mask, on.clone())], &format!("{op:?}"));
        }
    }
    let dice = |tiny: &mut Tiny, operands: &[ValueId]| tiny.loss(Dice::formula(1e-6), operands);
    check_term(dice, &map, &[(&map, gt), (&map, on.clone())], "dice");
    let distance = |tiny: &mut Tiny, operands: &[ValueId]| tiny.loss(MaskedL1::formula(), operands);
    check_term(distance, &mask, &[(&mask, noise(70, 6)), (&mask, on)], "masked distance");
}

#[test]
fn losses_of_maps_by_hand() {
    let map: &[usize] = &[1, 1, 1, 6];
    let mask: &[usize] = &[1, 1, 6];
    // One positive, so the three hardest of the four negatives that the mask leaves: 0.9, 0.8, 0.5.
    let p = vec![0.5, 0.9, 0.1, 0.8, 0.5, 0.99];
    let gt = vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let on = vec![1.0, 1.0, 1.0, 1.0, 1.0, 0.0];
    let results =
        apply(bce(HardNegatives::TopK, MiningScope::Batch), &[(map, p.clone()), (map, gt.clone()), (mask, on.clone())]);
    let expected = -(0.5f64.ln() + 0.1f64.ln() + 0.2f64.ln() + 0.5f64.ln()) / (4.0 + 1e-6);
    assert_close(&results[0], &[expected], 1e-14, "cross entropy");
    assert_eq!([results[2][0], results[3][0]], [1.0, 3.0]);
    assert_close(&results[4], &[-(0.5f64.ln())], 1e-14, "least loss that counts");
    assert_eq!([results[1][2], results[1][5]], [0.0, 0.0], "what does not count has no gradient");
    // Of a probability near 0, as in PyTorch's `binary_cross_entropy`: -log(1 - p) = p + p^2/2.
    let near = [
        (map, vec![1.0, 1e-9, 1e-9, 1e-9, 0.5, 0.5]),
        (map, gt.clone()),
        (mask, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0].into()),
    ];
    let results = apply(bce(HardNegatives::TopK, MiningScope::Batch), &near);
    assert_close(&[results[0][0] * 1e9], &[3.0 * (1.0 + 5e-10) / (4.0 + 1e-6)], 1e-15, "cross entropy near 0");
    let (dice, _) = apply_loss(Dice::formula(0.0), &[(map, p.clone()), (map, gt), (map, on.clone())]);
    assert_close(&[dice], &[1.0 - 2.0 * 0.5 / (2.8 + 1.0)], 1e-14, "dice");
    let (distance, _) = apply_loss(MaskedL1::formula(), &[(mask, p), (mask, vec![0.0; 6]), (mask, on)]);
    assert_close(&[distance], &[2.8 / 5.0], 1e-14, "distance");
}

#[test]
fn empty_masks_and_images_without_text() {
    let (map, mask): (&[usize], &[usize]) = (&[2, 1, 2, 2], &[2, 2, 2]);
    let p = || (map, vec![0.3; 8]);
    let zeros = |dims| (dims, vec![0.0; 8]);
    let ones = |dims| (dims, vec![1.0; 8]);
    for hard_negatives in [HardNegatives::TopK, HardNegatives::RankMask] {
        let op = bce(hard_negatives, MiningScope::Batch);
        for mask in [zeros(mask), ones(mask)] {
            let results = apply(op.clone(), &[p(), zeros(map), mask]);
            assert_eq!(results[0], [0.0], "without positives no negative counts");
            assert_eq!(results[1], [0.0; 8]);
        }
    }
    let nothing = [(mask, vec![0.3; 8]), ones(mask), zeros(mask)];
    assert_eq!(apply_loss(MaskedL1::formula(), &nothing), (0.0, vec![0.0; 8]));
    assert_eq!(apply_loss(Dice::formula(1e-6), &[p(), zeros(map), ones(map)]).0, 1.0);
}

proptest! {
    /// Both forms of the selection agree to the bit, with ties and at every ratio.
    #[test]
    fn dynamic_and_static_top_k_are_the_same(
        levels in prop::collection::vec(1u8..20, 24),
        gt in prop::collection::vec(any::<bool>(), 24),
        on in prop::collection::vec(any::<bool>(), 24),
        ratio in 0.0f64..4.0,
        image in any::<bool>(),
    ) {
        let (map, mask): (&[usize], &[usize]) = (&[2, 1, 3, 4], &[2, 3, 4]);
        let numbers = |bits: &[bool]| bits.iter().map(|b| f64::from(*b)).collect::<Vec<_>>();
        let p: Vec<f64> = levels.iter().map(|l| f64::from(*l) / 20.0).collect();
        let scope = if image { MiningScope::Image } else { MiningScope::Batch };
        let [a, b] = [HardNegatives::TopK, HardNegatives::RankMask].map(|hard_negatives| {
            let op = BalancedBce { negative_ratio: ratio, ..bce(hard_negatives, scope) };
            apply(op, &[(map, p.clone()), (map, numbers(&gt)), (mask, numbers(&on))])
        });
        prop_assert_eq!(a, b);
    }
}

/// Runs a graph of noisy operands in f32 with the fast kernels and in f64 with the reference ones; outputs and
/// gradients agree.
#[track_caller]
pub fn fast_agrees(shapes: &[&[usize]], what: &str, build: impl Fn(&mut Tiny, &[ValueId]) -> ValueId) {
    let run = |dtype, options: Options| {
        let mut tiny = Tiny::new(dtype);
        let operands: Vec<ValueId> = shapes.iter().map(|dims| tiny.noisy(dims)).collect();
        let y = build(&mut tiny, &operands);
        tiny.show(y);
        tiny.probe(y);
        tiny.differentiate(shapes.len());
        let mut step = Step::new(tiny.graph.clone(), options).unwrap();
        for (i, value) in tiny.values.iter().enumerate() {
            step.set_variable(&format!("v{i}"), value).unwrap();
        }
        let result = step.run(&Inputs::new(), SCALARS, &mut ()).unwrap();
        result.outputs.iter().map(|(_, tensor)| elements(tensor)).collect::<Vec<_>>()
    };
    let truth = run(DType::F64, OPTIONS);
    let fast = run(DType::F32, Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None });
    for (i, (found, expected)) in fast.iter().zip(&truth).enumerate() {
        assert_close(found, expected, 2e-6, &format!("{what}: output {i}"));
    }
}

#[test]
fn fast_kernels_agree() {
    // Brings the map into blocks.
    let conv = || Conv2D::new(Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) }, 1);
    for interpolation in ALL {
        let op = Resize { out: [9, 7], interpolation };
        fast_agrees(&[&[2, 5, 4, 5], &[19, 5, 3, 3]], &format!("{op:?}"), |tiny, x| {
            let map = tiny.add(conv(), x);
            tiny.add(op.clone(), &[map])
        });
    }
    // More taps than 2^16.
    let window = Window::new([257; 2], [1; 2]);
    fast_agrees(&[&[1, 2, 258, 257], &[3, 2, 3, 3]], "a large mean", |tiny, x| {
        let map = tiny.add(conv(), x);
        tiny.add(AvgPool { window, count_include_pad: true }, &[map])
    });
    fast_agrees(&[&[1, 2, 257, 258], &[3, 2, 3, 3]], "a large maximum", |tiny, x| {
        let map = tiny.add(conv(), x);
        tiny.add(MaxPool { window }, &[map])
    });
    let (op, filter) = transposed([2, 19, 3, 4], 1, 2, 2, 0);
    fast_agrees(&[&[2, 5, 3, 4], &[19, 5, 3, 3], &filter, &[1]], "transposed convolution", |tiny, x| {
        let map = tiny.add(conv(), &x[..2]);
        let map = tiny.add(op.clone(), &[map, x[2]]);
        let map = tiny.add(BiasAdd, &[map, x[3]]);
        tiny.formula(sigmoid(), &[map])
    });
    fast_agrees(&[&[2, 5, 3, 4], &[19, 5, 3, 3]], "sums of a wide map", |tiny, x| {
        let map = tiny.add(conv(), x);
        tiny.add(Cumsum { axis: 1, reverse: false }, &[map])
    });
    fast_agrees(&[&[2, 5, 3, 4], &[19, 5, 3, 3], &[19]], "bias of a wide map", |tiny, x| {
        let map = tiny.add(conv(), &x[..2]);
        tiny.add(BiasAdd, &[map, x[2]])
    });
}
