//! Updates against hand-worked steps.

use crate::tiny::{OPTIONS, apply, assert_close};
use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, Scalars, Step};
use zoo_graph::{DType, Graph, Phase, Scope, TensorType, VariableRole, ops::*};
use zoo_recipe::schema::Init;

#[test]
fn momentum_by_hand() {
    // d = 0.5 + 0.1 * 1 = 0.6, v' = 0.9 * 0.2 + 0.6 = 0.78; the rate of the tests is 0.1, halved here.
    let operands: [(&[usize], Vec<f64>); 3] = [(&[1], vec![1.0]), (&[1], vec![0.2]), (&[1], vec![0.5])];
    let op = |nesterov| ApplyMomentum { momentum: 0.9, nesterov, weight_decay: 0.1, lr_scale: 0.5 };
    let plain = apply(op(false), &operands);
    assert_close(&plain.concat(), &[1.0 - 0.05 * 0.78, 0.78], 1e-15, "plain");
    // Looking ahead: 0.6 + 0.9 * 0.78 = 1.302.
    let nesterov = apply(op(true), &operands);
    assert_close(&nesterov.concat(), &[1.0 - 0.05 * 1.302, 0.78], 1e-15, "Nesterov");
}

#[test]
fn running_statistics_by_hand() {
    // Of 5 values with biased variance 4: unbiased 5.
    let op = BnRunningUpdate { momentum: 0.1, count: 5 };
    let operands: [(&[usize], Vec<f64>); 4] =
        [(&[1], vec![1.0]), (&[1], vec![2.0]), (&[1], vec![3.0]), (&[1], vec![4.0])];
    assert_close(&apply(op, &operands).concat(), &[1.2, 2.3], 1e-15, "running statistics");
}

/// A step that moves the parameter `p` by its gradient, the constant 0.5.
fn stepping(op: ApplyAdam) -> Step {
    let mut graph = Graph::default();
    let scope = Scope { phase: Phase::Update, origin: None };
    let ty = TensorType::plain([1], DType::F64);
    let mut variable = |name: &str| {
        let id = graph.add_variable(name, VariableRole::Weight, ty.clone(), Init::Constant(0.0), None);
        (id, graph.variable(id).value)
    };
    let [p, m, v] = ["p", "m", "v"].map(&mut variable);
    let g = graph.add(&scope, "g", Fill { value: 0.5, ty }, &[]).unwrap();
    let after = graph.add_node(&scope, "adam", op, &[p.1, m.1, v.1, g]).unwrap();
    for ((id, _), next) in [p, m, v].into_iter().zip(after) {
        graph.variables[id.0].next = Some(next);
    }
    let mut step = Step::new(graph, OPTIONS).unwrap();
    step.set_variable("p", &Tensor::new(&[1.0], &Device::Cpu).unwrap()).unwrap();
    step
}

fn value(step: &Step, name: &str) -> f64 {
    step.variable(name).unwrap().to_vec1::<f64>().unwrap()[0]
}

/// Without decay a constant gradient moves the parameter by `lr * g / (|g| + eps)` in every step, whatever the betas: the
/// bias corrections cancel the moments' start from zero exactly.
#[test]
fn adam_corrects_the_bias_of_both_moments() {
    let mut step = stepping(ApplyAdam { beta1: 0.9, beta2: 0.999, eps: 1e-3, weight_decay: 0.0, lr_scale: 1.0 });
    for t in 1..=5u32 {
        let scalars = Scalars { learning_rate: 0.01, step: u64::from(t) - 1, seed: 0, ..Scalars::default() };
        step.run(&Inputs::new(), scalars, &mut ()).unwrap();
        let moved = f64::from(t) * 0.01 * 0.5 / (0.5 + 1e-3);
        assert_close(&[value(&step, "p")], &[1.0 - moved], 1e-14, &format!("step {t}"));
        let remains = |beta: f64| beta.powi(t as i32);
        assert_close(&[value(&step, "m")], &[0.5 * (1.0 - remains(0.9))], 1e-15, "first moment");
        assert_close(&[value(&step, "v")], &[0.25 * (1.0 - remains(0.999))], 1e-15, "second moment");
    }
}

#[test]
fn adam_by_hand_with_decay() {
    // d = 0.5 + 0.1 * 1 = 0.6; m = 0.5 * 0.6 = 0.3; v = 0.25 * 0.36 = 0.09; corrected 0.6 and 0.36, root 0.6.
    let mut step = stepping(ApplyAdam { beta1: 0.5, beta2: 0.75, eps: 0.4, weight_decay: 0.1, lr_scale: 2.0 });
    let scalars = Scalars { learning_rate: 0.01, step: 0, seed: 0, ..Scalars::default() };
    step.run(&Inputs::new(), scalars, &mut ()).unwrap();
    let found = ["p", "m", "v"].map(|name| value(&step, name));
    assert_close(&found, &[1.0 - 0.02 * 0.6 / (0.6 + 0.4), 0.3, 0.09], 1e-15, "one step");
}
