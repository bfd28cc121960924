//! Gradients against candle's autograd, where that one is right.

use crate::{
    forward::convolutions,
    tiny::{Tiny, assert_close, elements, noise},
};
use candle_core::{Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use zoo_engine::{Inputs, Scalars};
use zoo_graph::{DType, ValueId, ops::*};
use zoo_recipe::schema;

/// Compares loss and gradients of a graph with those of the same in candle; the output is weighted by noise.
#[track_caller]
fn compare(
    shapes: &[&[usize]],
    what: &str,
    build: impl FnOnce(&mut Tiny, &[ValueId]) -> ValueId,
    candle: impl FnOnce(&[Tensor]) -> candle_core::Result<Tensor>,
) {
    let mut tiny = Tiny::new(DType::F64);
    let operands: Vec<ValueId> = shapes.iter().map(|dims| tiny.noisy(dims)).collect();
    let vars: Vec<Var> = tiny.values.iter().map(|v| Var::from_tensor(v).unwrap()).collect();
    let y = build(&mut tiny, &operands);
    tiny.probe(y);
    tiny.differentiate(shapes.len());
    let result = tiny.run();

    let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let y = candle(&tensors).unwrap().flatten_all().unwrap();
    let weights = Tensor::from_vec(noise(y.elem_count(), 99), y.elem_count(), &Device::Cpu).unwrap();
    let loss = (y * weights).unwrap().sum_all().unwrap();
    assert_close(&[result.losses[0].1], &elements(&loss), 1e-12, &format!("{what}: loss"));
    let gradients = loss.backward().unwrap();
    for (i, (var, (_, found))) in vars.iter().zip(&result.outputs).enumerate() {
        let expected = gradients.get(var).unwrap();
        assert_close(&elements(found), &elements(expected), 1e-12, &format!("{what}: gradient {i}"));
    }
}

/// candle's convolution knows one stride, padding and dilation for both axes, and its backward square maps only.
#[test]
fn convolutions_agree() {
    let mut compared = 0;
    for (input, o, op) in convolutions() {
        let Window { kernel, stride, pad, dilation, .. } = op.window;
        let uniform = stride[0] == stride[1] && dilation[0] == dilation[1] && pad.iter().all(|p| *p == pad[0]);
        if !uniform || input[2] != input[3] || op.groups > 1 {
            continue;
        }
        compared += 1;
        let filter = [o, input[1], kernel[0], kernel[1]];
        let conv = op.clone();
        compare(
            &[&input, &filter],
            &format!("{input:?} {op:?}"),
            |tiny, operands| tiny.add(op, operands),
            |v| v[0].conv2d(&v[1], pad[0], stride[0], dilation[0], conv.groups),
        );
    }
    assert!(compared >= 2, "{compared} cases compared");
}

#[test]
fn matrix_products_agree() {
    compare(
        &[&[4, 3], &[5, 4], &[5]],
        "matmul",
        |tiny, operands| tiny.add(MatMul { transpose_a: true, transpose_b: true }, operands),
        |v| v[0].t()?.matmul(&v[1].t()?)?.broadcast_add(&v[2]),
    );
}

#[test]
fn training_normalisation_agrees() {
    compare(
        &[&[4, 3, 2, 5], &[3], &[3]],
        "batch norm",
        |tiny, v| {
            let statistics = tiny.add_all(BnTrainingReduce, &v[..1]);
            let op = BnTrainingUpdate { eps: 1e-5, residual: false, relu: None, ranks: Vec::new() };
            tiny.add(op, &[v[0], statistics[0], statistics[1], v[1], v[2]])
        },
        |v| {
            let per_channel = |t: &Tensor| t.reshape((1, 3, 1, 1));
            let mean = v[0].mean_keepdim((0, 2, 3))?;
            let centred = v[0].broadcast_sub(&mean)?;
            let deviation = (centred.sqr()?.mean_keepdim((0, 2, 3))? + 1e-5)?.sqrt()?;
            let normalised = centred.broadcast_div(&deviation)?;
            normalised.broadcast_mul(&per_channel(&v[1])?)?.broadcast_add(&per_channel(&v[2])?)
        },
    );
}

#[test]
fn moves_of_elements_agree() {
    compare(
        &[&[2, 3, 4], &[2, 2, 4]],
        "concat, slice, pad",
        |tiny, v| {
            let joined = tiny.add(Concat { axis: 1 }, v);
            let cut = tiny.add(Slice { start: vec![0, 1, 1], size: vec![2, 3, 2] }, &[joined]);
            tiny.add(Pad { before: vec![0, 0, 1], after: vec![1, 0, 0] }, &[cut])
        },
        |v| {
            let cut = Tensor::cat(v, 1)?.narrow(1, 1, 3)?.narrow(2, 1, 2)?;
            cut.pad_with_zeros(2, 1, 0)?.pad_with_zeros(0, 0, 1)
        },
    );
}

#[test]
fn cross_entropy_agrees() {
    let mut tiny = Tiny::new(DType::F64);
    let logits = tiny.noisy(&[4, 5]);
    let labels = tiny.labels(4);
    let op = SoftmaxCrossEntropy { smoothing: 0.0, over: SmoothingOver::AllClasses, ignored: None };
    let loss = tiny.add_all(op, &[logits, labels])[0];
    tiny.graph.losses.push(("loss".into(), loss));
    tiny.differentiate(1);
    let label = Tensor::new(&[4u32, 0, 2, 2], &Device::Cpu).unwrap();
    let result = tiny.run_with(&Inputs::new().with("label", label.clone()));

    let var = Var::from_tensor(&tiny.values[0]).unwrap();
    let expected = candle_nn::loss::cross_entropy(&var, &label).unwrap();
    assert_close(&[result.losses[0].1], &elements(&expected), 1e-14, "loss");
    let gradients = expected.backward().unwrap();
    assert_close(&elements(&result.outputs[0].1), &elements(gradients.get(&var).unwrap()), 1e-14, "gradient");
}

/// candle's AdamW without decay is Adam. The loss is half the parameter's square, its gradient the parameter.
#[test]
fn adam_agrees() {
    let mut tiny = Tiny::new(DType::F64);
    let p = tiny.noisy(&[3, 4]);
    let slots = [(); 2].map(|()| tiny.given(&[3, 4], vec![0.0; 12]));
    let loss = tiny.add(L2Loss, &[p]);
    tiny.graph.losses.push(("loss".into(), loss));
    tiny.differentiate(1);
    let gradient = tiny.graph.gradients[0].1;
    let adam = schema::Adam { beta1: 0.8, beta2: 0.95, eps: 1e-2, ..schema::Adam::default() };
    let adam = schema::Optimizer::Adam(adam).operator(Group { weight_decay: 0.0, lr_scale: 1.0 });
    let after = tiny.add_all(adam, &[p, slots[0], slots[1], gradient]);
    for (i, next) in after.into_iter().enumerate() {
        tiny.graph.variables[i].next = Some(next);
    }
    let mut step = tiny.step();

    let var = Var::from_tensor(&tiny.values[0]).unwrap();
    let params = ParamsAdamW { lr: 0.1, beta1: 0.8, beta2: 0.95, eps: 1e-2, weight_decay: 0.0 };
    let mut optimizer = AdamW::new(vec![var.clone()], params).unwrap();
    for number in 0..4 {
        step.run(&Inputs::new(), Scalars { learning_rate: 0.1, step: number, seed: 0, ..Scalars::default() }, &mut ())
            .unwrap();
        let loss = (var.sqr().unwrap().sum_all().unwrap() * 0.5).unwrap();
        optimizer.backward_step(&loss).unwrap();
        assert_close(&elements(&step.variable("v0").unwrap()), &elements(&var), 1e-14, &format!("step {number}"));
    }
}
