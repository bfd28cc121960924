//! The arithmetic of a device.

use crate::tiny::{SCALARS, Tiny, assert_close, elements, noise};
use candle_core::{Device, Tensor};
use half::f16;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use zoo_engine::simulate::{Overflow, Range, Subnormals};
use zoo_engine::{Arithmetic, EngineError, Inputs, Kernels, Observer, Options, Scalars, Step};
use zoo_graph::ops::{
    BnTrainingReduce, BnTrainingUpdate, Conv2D, MatMul, MaxPool, Rectifier, Relu, Reshape, Scale, SmoothingOver,
    SoftmaxCrossEntropy, Window,
};
use zoo_graph::{
    DType, ValueId,
    passes::{PrecisionMode, PrecisionPolicy, ScaleLoss},
};

const IEEE: Range = Range::Format { overflow: Overflow::Infinite, subnormals: Subnormals::Keep };
const SATURATE: Range = Range::Format { overflow: Overflow::Saturate, subnormals: Subnormals::Keep };

fn arithmetic(range: Range) -> Arithmetic {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let white = ["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul"];
    Arithmetic {
        policy: PrecisionPolicy {
            mode: PrecisionMode::Mixed,
            reduced: DType::F16,
            white: set(&white),
            black: set(&["SoftmaxCrossEntropyWithLogits"]),
            reduced_only: set(&[]),
            keep: set(&[]),
        },
        range,
        scales_loss: Some(ScaleLoss::default()),
        skips_overflow: true,
        planted: BTreeMap::new(),
    }
}

/// Convolution, normalisation, ReLU, overlapping pool, dense layer, loss times `factor`, momentum.
fn network(factor: f64) -> Tiny {
    let mut tiny = Tiny::new(DType::F32);
    let filters = tiny.noisy(&[20, 3, 3, 3]);
    let (gamma, beta) = (tiny.noisy(&[20]), tiny.noisy(&[20]));
    let dense = tiny.noisy(&[10, 20 * 4]);
    let x = tiny.noisy(&[4, 3, 9, 9]);
    let labels = tiny.labels(4);
    let y = tiny.add(Conv2D::new(Window { pad: [1; 4], ..Window::new([3, 3], [2, 2]) }, 1), &[x, filters]);
    let sums = tiny.add_all(BnTrainingReduce, &[y]);
    let normal = tiny.add_all(
        BnTrainingUpdate { eps: 1e-5, residual: false, relu: None, ranks: Vec::new() },
        &[y, sums[0], sums[1], gamma, beta],
    );
    let active = tiny.add(Relu { rectifier: Rectifier::Relu }, &[normal[0]]);
    let pool = tiny.add(MaxPool { window: Window::new([3, 3], [2, 2]) }, &[active]);
    let flat = tiny.add(Reshape { shape: [4, 80].into() }, &[pool]);
    let logits = tiny.add(MatMul { transpose_a: false, transpose_b: true }, &[flat, dense]);
    let op = SoftmaxCrossEntropy { smoothing: 0.1, over: SmoothingOver::AllClasses, ignored: None };
    let entropy = tiny.add_all(op, &[logits, labels])[0];
    let loss = tiny.add(Scale { factor }, &[entropy]);
    tiny.graph.losses.push(("loss".into(), loss));
    tiny.differentiate(4);
    tiny
}

/// Keeps every value.
#[derive(Default)]
struct Everything(HashMap<ValueId, Vec<f64>>);

impl Observer for Everything {
    fn wants(&self, _: ValueId) -> bool {
        true
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        self.0.insert(value, elements(tensor));
    }
}

struct Ran {
    step: Step,
    values: Everything,
    gradients: Vec<Vec<f64>>,
}

fn run(tiny: &Tiny, kernels: Kernels, arithmetic: Option<&Arithmetic>, loss_scale: f64) -> Ran {
    let options = Options { kernels, threads: None, level: None };
    let mut step = match arithmetic {
        Some(arithmetic) => Step::simulated(tiny.graph.clone(), options, arithmetic).unwrap(),
        None => Step::new(tiny.graph.clone(), options).unwrap(),
    };
    for (i, value) in tiny.values.iter().enumerate() {
        step.set_variable(&format!("v{i}"), value).unwrap();
    }
    let labels = Tensor::new(&[0u32, 2, 9, 4], &Device::Cpu).unwrap();
    let inputs = tiny.graph.inputs.iter().map(|input| (input.name.clone(), labels.clone())).collect::<Inputs>();
    let mut values = Everything::default();
    let result = step.run(&inputs, Scalars { loss_scale, ..SCALARS }, &mut values).unwrap();
    let gradients = result.outputs.iter().map(|(_, tensor)| elements(tensor)).collect();
    Ran { step, values, gradients }
}

const KERNELS: [Kernels; 3] = [Kernels::Reference, Kernels::Fast { fusion: false }, Kernels::Fast { fusion: true }];

#[test]
fn values_of_half_type_are_halves_whatever_computes_them() {
    let tiny = network(1.0);
    for kernels in KERNELS {
        let Ran { step, values, .. } = run(&tiny, kernels, Some(&arithmetic(IEEE)), 1024.0);
        let halves = step.graph().values.iter().enumerate().filter(|(_, v)| v.ty.dtype == DType::F16);
        let mut seen = 0;
        for (v, _) in halves {
            let Some(elements) = values.0.get(&ValueId(v)) else { continue };
            seen += 1;
            assert!(elements.iter().all(|x| f16::from_f64(*x).to_f64() == *x), "{kernels:?}: value {v}");
        }
        assert!(seen >= 10, "{kernels:?}: {seen} values");
    }
}

#[test]
fn gradients_differ_from_f32_by_what_halves_cost() {
    let tiny = network(1.0);
    let truth = run(&tiny, Kernels::Reference, None, 1.0).gradients;
    for kernels in KERNELS {
        let found = run(&tiny, kernels, Some(&arithmetic(IEEE)), 1024.0).gradients;
        for (place, (found, truth)) in found.iter().zip(&truth).enumerate() {
            assert_close(found, truth, 5e-3, &format!("{kernels:?}, gradient {place}"));
            assert_ne!(found, truth, "gradient {place} was never rounded");
        }
    }
}

#[test]
fn the_matrix_unit_is_exact_but_for_the_rounding_of_its_result() {
    let (m, k, n) = (7, 300, 11);
    let halves = |count, seed| noise(count, seed).into_iter().map(|x| f16::from_f64(x).to_f64()).collect::<Vec<_>>();
    let (a, b) = (halves(m * k, 1), halves(k * n, 2));
    let mut tiny = Tiny::new(DType::F32);
    let (x, y) = (tiny.given(&[m, k], a.clone()), tiny.given(&[k, n], b.clone()));
    let product = tiny.add(MatMul { transpose_a: false, transpose_b: false }, &[x, y]);
    tiny.show(product);
    for kernels in KERNELS {
        let found = &run(&tiny, kernels, Some(&arithmetic(IEEE)), 1.0).gradients[0];
        let mut off = 0;
        for i in 0..m {
            for j in 0..n {
                let exact: f64 = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
                let (found, wanted) = (f16::from_f64(found[i * n + j]), f16::from_f64(exact));
                let apart = (i32::from(found.to_bits()) - i32::from(wanted.to_bits())).abs();
                assert!(apart <= 1, "{kernels:?}: {found} instead of {wanted}");
                off += apart;
            }
        }
        assert!(off <= 1, "{kernels:?}: {off} of {} are the other neighbour", m * n);
    }
}

#[test]
fn a_loss_scale_saves_gradients_that_would_vanish() {
    let tiny = network(1e-7);
    let truth = run(&tiny, Kernels::Reference, None, 1.0).gradients;
    let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
    let lost = |scale: f64| {
        let found = run(&tiny, Kernels::Fast { fusion: true }, Some(&arithmetic(IEEE)), scale).gradients;
        let apart: Vec<f64> = found[0].iter().zip(&truth[0]).map(|(f, t)| f - t).collect();
        norm(&apart) / norm(&truth[0])
    };
    let (without, with) = (lost(1.0), lost(2f64.powi(20)));
    assert!(without > 0.5 && with < 5e-3, "{without} of the gradient is lost without, {with} with a loss scale");
}

#[test]
fn without_overflow_the_range_costs_nothing() {
    let tiny = network(1.0);
    let bounded = run(&tiny, Kernels::Fast { fusion: false }, Some(&arithmetic(IEEE)), 4096.0);
    let free = run(&tiny, Kernels::Fast { fusion: false }, Some(&arithmetic(Range::Unbounded)), 4096.0);
    assert!(!bounded.step.findings().unwrap().overflow);
    assert_close(&bounded.gradients[3], &free.gradients[3], 1e-6, "dense layer");
}

#[test]
fn a_saturating_device_hides_an_overflow_and_the_flag_shows_it() {
    let tiny = network(1.0);
    for kernels in KERNELS {
        let ran = run(&tiny, kernels, Some(&arithmetic(SATURATE)), 2f64.powi(24));
        assert!(ran.gradients.iter().flatten().all(|x| x.is_finite()), "{kernels:?}");
        let findings = ran.step.findings().unwrap();
        assert!(findings.overflow && findings.skipped, "{kernels:?}");
        let first = findings.tallies.iter().position(|tally| tally.overflowed > 0).unwrap();
        assert!(first < ran.step.graph().nodes.len());
    }
}

#[test]
fn a_planted_overflow_is_seen_where_it_was_planted() {
    let tiny = network(1.0);
    let clean = run(&tiny, Kernels::Fast { fusion: false }, Some(&arithmetic(SATURATE)), 1024.0);
    assert!(!clean.step.findings().unwrap().overflow);
    let graph = clean.step.graph();
    let victims = graph.nodes.iter().filter(|node| node.outputs.iter().any(|v| graph.ty(*v).dtype == DType::F16));
    let victims: Vec<(String, bool)> = victims.map(|node| (node.name.clone(), node.op.rules().is_view())).collect();
    assert!(victims.iter().any(|(name, _)| name.contains("grad")), "{victims:?}");
    for (victim, is_view) in victims {
        let planted = BTreeMap::from([(victim.clone(), 40)]);
        let faulty = Arithmetic { planted, ..arithmetic(SATURATE) };
        if is_view {
            let options = Options { kernels: Kernels::Fast { fusion: false }, threads: None, level: None };
            let refused = Step::simulated(tiny.graph.clone(), options, &faulty).map(|_| ());
            assert!(matches!(refused, Err(EngineError::View { .. })), "{victim}: {refused:?}");
            continue;
        }
        let ran = run(&tiny, Kernels::Fast { fusion: false }, Some(&faulty), 1024.0);
        let tallies = &ran.step.findings().unwrap().tallies;
        let first = tallies.iter().position(|tally| tally.overflowed > 0).unwrap();
        assert_eq!(ran.step.graph().nodes[first].name, victim);
    }
}
