//! The same bits for any number of threads.

use crate::tiny::{SCALARS, Tiny, elements};
use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, Options, Step};
use zoo_graph::{DType, ops::*};

/// Every kind of kernel, at sizes that are cut into many tasks.
fn network() -> Tiny {
    let mut tiny = Tiny::new(DType::F32);
    let shapes: [&[usize]; 6] = [&[24, 8, 3, 3], &[24], &[24], &[24, 6, 3, 3], &[10, 24 * 36], &[10]];
    let [w, gamma, beta, grouped, dense, bias] = shapes.map(|dims| tiny.noisy(dims));
    let x = tiny.noisy(&[5, 8, 48, 47]);
    let labels = tiny.labels(5);
    let window = Window { pad: [1; 4], ..Window::new([3; 2], [2; 2]) };
    let conv = tiny.add(Conv2D::new(Window { stride: [1; 2], ..window }, 1), &[x, w]);
    let statistics = tiny.add_all(BnTrainingReduce, &[conv]);
    let op = BnTrainingUpdate { eps: 1e-3, residual: false, relu: None, ranks: Vec::new() };
    let norm = tiny.add(op, &[conv, statistics[0], statistics[1], gamma, beta]);
    let relu = tiny.add(Relu { rectifier: Rectifier::Relu }, &[norm]);
    let pool = tiny.add(MaxPool { window }, &[relu]);
    let lrn = tiny.add(Lrn { size: 5, alpha: 1.0, beta: 0.75, k: 1.0 }, &[pool]);
    let conv = tiny.add(Conv2D::new(Window { stride: [1; 2], ..window }, 4), &[lrn, grouped]);
    let sum = tiny.add(Add, &[conv, pool]);
    let drop = tiny.add(Dropout { rate: 0.3, stream: 1 }, &[sum]);
    let pool = tiny.add(AdaptiveAvgPool { out: [6, 6] }, &[drop]);
    let flat = tiny.add(Reshape { shape: [5, 24 * 36].into() }, &[pool]);
    let logits = tiny.add(MatMul { transpose_a: false, transpose_b: true }, &[flat, dense, bias]);
    let op = SoftmaxCrossEntropy { smoothing: 0.1, over: SmoothingOver::AllClasses, ignored: None };
    let entropy = tiny.add_all(op, &[logits, labels])[0];
    let decay = tiny.add(L2Loss, &[dense]);
    let loss = tiny.add(WeightedSum { weights: vec![1.0, 1e-4] }, &[entropy, decay]);
    tiny.graph.losses.push(("loss".into(), loss));
    tiny.differentiate(6);
    tiny
}

#[test]
fn results_do_not_depend_on_threads() {
    let tiny = network();
    let inputs = Inputs::new().with("label", Tensor::new(&[0u32, 2, 1, 9, 4], &Device::Cpu).unwrap());
    let bits = |threads| {
        let mut step =
            Step::new(tiny.graph.clone(), Options { threads: Some(threads), ..crate::tiny::OPTIONS }).unwrap();
        for (i, value) in tiny.values.iter().enumerate() {
            step.set_variable(&format!("v{i}"), value).unwrap();
        }
        let result = step.run(&inputs, SCALARS, &mut ()).unwrap();
        let outputs = result.outputs.iter().flat_map(|(_, tensor)| elements(tensor));
        outputs.chain([result.losses[0].1]).map(f64::to_bits).collect::<Vec<_>>()
    };
    let one = bits(1);
    for threads in [2, 3, 5] {
        assert!(one == bits(threads), "{threads} threads differ from one");
    }
}
