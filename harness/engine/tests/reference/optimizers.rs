//! Updates against hand-worked steps and other implementations.

use crate::tiny::{OPTIONS, apply, assert_close};
use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, Kernels, Options, Scalars, Step};
use zoo_graph::{DType, Graph, Phase, Scope, TensorType, VariableRole, ops::*};
use zoo_recipe::schema::{Adagrad, Adam, AdamW, Init, Lamb, Lars, Lion, Optimizer, RmsForm, RmsProp, Sgd};

/// Momentum 0.9 without decay.
pub fn momentum() -> Assign {
    sgd(false).operator(Group { weight_decay: 0.0, lr_scale: 1.0 })
}

fn sgd(nesterov: bool) -> Optimizer {
    Optimizer::Sgd(Sgd { momentum: 0.9, nesterov, ..Sgd::default() })
}

#[test]
fn momentum_by_hand() {
    // d = 0.5 + 0.1 * 1 = 0.6, v' = 0.9 * 0.2 + 0.6 = 0.78; the rate of the tests is 0.1, halved here.
    let operands: [(&[usize], Vec<f64>); 3] = [(&[1], vec![1.0]), (&[1], vec![0.2]), (&[1], vec![0.5])];
    let op = |nesterov| sgd(nesterov).operator(Group { weight_decay: 0.1, lr_scale: 0.5 });
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

/// A step that moves the parameter `p`, which has the shape of the input `g`, by that gradient.
fn stepping(optimizer: &Optimizer, group: Group, shape: &[usize], (dtype, options): (DType, Options)) -> Step {
    let mut graph = Graph::default();
    let scope = Scope { phase: Phase::Update, origin: None };
    let ty = TensorType::plain(shape, dtype);
    let mut variable = |name: &str, start| {
        let id = graph.add_variable(name, VariableRole::Weight, ty.clone(), Init::Constant(start), None);
        (id, graph.variable(id).value)
    };
    let mut all = vec![variable("p", 0.0)];
    all.extend(optimizer.slots().iter().map(|slot| variable(slot.name, slot.start)));
    let mut operands: Vec<_> = all.iter().map(|(_, value)| *value).collect();
    operands.push(graph.add_input("g", ty));
    let after = graph.add_node(&scope, "p/update", optimizer.operator(group), &operands).unwrap();
    for ((id, _), next) in all.into_iter().zip(after) {
        graph.variables[id.0].next = Some(next);
    }
    let mut step = Step::new(graph, options).unwrap();
    step.initialize(0).unwrap();
    step
}

/// Runs one step.
fn advance(step: &mut Step, number: u64, learning_rate: f64, gradient: &Tensor) {
    let scalars = Scalars { learning_rate, step: number, seed: 0, ..Scalars::default() };
    step.run(&Inputs::new().with("g", gradient.clone()), scalars, &mut ()).unwrap();
}

fn value(step: &Step, name: &str) -> Vec<f64> {
    step.variable(name).unwrap().to_dtype(candle_core::DType::F64).unwrap().to_vec1().unwrap()
}

const TRUTH: (DType, Options) = (DType::F64, OPTIONS);
const FAST: (DType, Options) =
    (DType::F32, Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None });

/// Without decay a constant gradient moves the parameter by `lr * g / (|g| + eps)` in every step, whatever the betas:
/// the bias corrections cancel the moments' start from zero exactly.
#[test]
fn adam_corrects_the_bias_of_both_moments() {
    let adam = Optimizer::Adam(Adam { eps: 1e-3, ..Adam::default() });
    let mut step = stepping(&adam, Group { weight_decay: 0.0, lr_scale: 1.0 }, &[1], TRUTH);
    step.set_variable("p", &Tensor::new(&[1.0], &Device::Cpu).unwrap()).unwrap();
    let gradient = Tensor::new(&[0.5], &Device::Cpu).unwrap();
    for t in 1..=5u32 {
        advance(&mut step, u64::from(t) - 1, 0.01, &gradient);
        let moved = f64::from(t) * 0.01 * 0.5 / (0.5 + 1e-3);
        assert_close(&value(&step, "p"), &[1.0 - moved], 1e-14, &format!("step {t}"));
        let remains = |beta: f64| beta.powi(t as i32);
        assert_close(&value(&step, "exp_avg"), &[0.5 * (1.0 - remains(0.9))], 1e-15, "first moment");
        assert_close(&value(&step, "exp_avg_sq"), &[0.25 * (1.0 - remains(0.999))], 1e-15, "second moment");
    }
}

/// Three steps of four elements. The results of SGD, Adam, AdamW, RMSprop and Adagrad are those of torch.optim in f64
/// (PyTorch 2.15), the others those of a loop in Python over their papers' algorithms.
#[test]
fn optimizers_agree_with_others() {
    let start = [1.0, -0.5, 0.25, 2.0];
    let gradients = [[0.5, -1.0, 0.125, 0.0], [-0.25, -0.5, 2.0, 0.25], [1.5, 0.75, -0.5, -0.125]];
    let rates = [0.1, 0.05, 0.2];
    let rms = RmsProp { alpha: 0.9, eps: 1e-3, ..RmsProp::default() };
    let cases: [(Optimizer, [f64; 4]); 10] = [
        (sgd(true), [0.21237254599999988, -0.24577258049999998, -0.13702373849999996, 1.784929182]),
        (
            Optimizer::Adam(Adam { beta1: 0.8, beta2: 0.95, eps: 1e-3, ..Adam::default() }),
            [0.7292274804937651, -0.31356720930722054, 0.026595718315467087, 1.6947003180801288],
        ),
        (
            Optimizer::AdamW(AdamW { beta1: 0.8, beta2: 0.95, eps: 1e-3, ..AdamW::default() }),
            [0.7169416736968612, -0.3094783844236607, 0.02382483148913124, 1.8552151625720241],
        ),
        (
            Optimizer::RmsProp(rms.clone()),
            [0.1393002528409233, -0.47146507085771244, -0.04967974701551825, 1.503193461871075],
        ),
        (
            Optimizer::RmsProp(RmsProp { momentum: 0.5, centered: true, ..rms.clone() }),
            [-0.06848206005630825, -0.04620850578634993, -0.6471171043760398, 0.9269998288284532],
        ),
        (
            Optimizer::RmsProp(RmsProp { momentum: 0.5, form: RmsForm::Tensorflow, ..rms }),
            [0.5882627950304502, -0.4272263906524558, 0.17690413059642998, 1.9104323707670925],
        ),
        (
            Optimizer::Adagrad(Adagrad {
                lr_decay: 0.5,
                initial_accumulator_value: 0.125,
                eps: 1e-3,
                ..Adagrad::default()
            }),
            [0.8301728178976817, -0.4406325299799863, 0.2011214772834236, 1.9151688193826226],
        ),
        (Optimizer::Lion(Lion::default()), [0.716839, -0.5361645, 0.29482725000000004, 2.081698]),
        (
            Optimizer::Lars(Lars { trust: 0.02, ..Lars::default() }),
            [0.9873377699261047, -0.4925357776469775, 0.24700555814880862, 1.996962122925296],
        ),
        (
            Optimizer::Lamb(Lamb { beta1: 0.8, beta2: 0.95, eps: 1e-3, ..Lamb::default() }),
            [0.5042571570439891, -0.22489589542000105, -0.1097837248571595, 1.746685550133832],
        ),
    ];
    for (optimizer, expected) in cases {
        for (arithmetic, dtype, tolerance) in
            [(TRUTH, candle_core::DType::F64, 1e-14), (FAST, candle_core::DType::F32, 2e-6)]
        {
            let mut step = stepping(&optimizer, Group { weight_decay: 0.1, lr_scale: 1.0 }, &[4], arithmetic);
            let tensor = |values: &[f64]| Tensor::new(values, &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
            step.set_variable("p", &tensor(&start)).unwrap();
            for (number, (gradient, rate)) in gradients.iter().zip(rates).enumerate() {
                advance(&mut step, number as u64, rate, &tensor(gradient));
            }
            assert_close(&value(&step, "p"), &expected, tolerance, &format!("{} in {dtype:?}", optimizer.tag()));
        }
    }
}

/// Tensors without decay take the plain step: momentum's, and Adam's.
#[test]
fn layer_wise_rates_spare_what_does_not_decay() {
    let step_of = |optimizer: Optimizer| {
        let mut step = stepping(&optimizer, Group { weight_decay: 0.0, lr_scale: 1.0 }, &[2], TRUTH);
        step.set_variable("p", &Tensor::new(&[3.0, 4.0], &Device::Cpu).unwrap()).unwrap();
        advance(&mut step, 0, 0.1, &Tensor::new(&[0.5, -0.25], &Device::Cpu).unwrap());
        value(&step, "p")
    };
    assert_close(&step_of(Optimizer::Lars(Lars::default())), &[2.95, 4.025], 1e-15, "LARS");
    let lamb = Optimizer::Lamb(Lamb { eps: 1e-12, ..Lamb::default() });
    assert_close(&step_of(lamb), &[2.9, 4.1], 1e-11, "LAMB");
}

/// A tensor longer than a block, in two forms of folds: norms over all of it, the same bits for any number of threads.
#[test]
fn norms_of_long_tensors() {
    let len = 40_000u32;
    let start: Vec<f64> = (0..len).map(|i| (f64::from(i) * 0.7).sin()).collect();
    let gradient: Vec<f64> = (0..len).map(|i| (f64::from(i) * 0.3).cos() * 1e-2).collect();
    let run = |optimizer: &Optimizer, (dtype, options): (DType, Options)| {
        let element = if dtype == DType::F64 { candle_core::DType::F64 } else { candle_core::DType::F32 };
        let mut step =
            stepping(optimizer, Group { weight_decay: 1e-2, lr_scale: 1.0 }, &[len as usize], (dtype, options));
        let tensor = |values: &[f64]| Tensor::new(values, &Device::Cpu).unwrap().to_dtype(element).unwrap();
        step.set_variable("p", &tensor(&start)).unwrap();
        for number in 0..2 {
            advance(&mut step, number, 0.1, &tensor(&gradient));
        }
        value(&step, "p")
    };
    for optimizer in [Optimizer::Lars(Lars::default()), Optimizer::Lamb(Lamb::default())] {
        let truth = run(&optimizer, TRUTH);
        let fast = |threads| run(&optimizer, (FAST.0, Options { threads, ..FAST.1 }));
        let one = fast(Some(1));
        assert_close(&one, &truth, 1e-5, optimizer.tag());
        assert_eq!(one, fast(Some(3)), "{} on three threads", optimizer.tag());
    }
}

#[test]
fn adam_by_hand_with_decay() {
    // d = 0.5 + 0.1 * 1 = 0.6; m = 0.5 * 0.6 = 0.3; v = 0.25 * 0.36 = 0.09; corrected 0.6 and 0.36, root 0.6.
    let adam = Optimizer::Adam(Adam { beta1: 0.5, beta2: 0.75, eps: 0.4, ..Adam::default() });
    let mut step = stepping(&adam, Group { weight_decay: 0.1, lr_scale: 2.0 }, &[1], TRUTH);
    step.set_variable("p", &Tensor::new(&[1.0], &Device::Cpu).unwrap()).unwrap();
    advance(&mut step, 0, 0.01, &Tensor::new(&[0.5], &Device::Cpu).unwrap());
    let found = ["p", "exp_avg", "exp_avg_sq"].map(|name| value(&step, name)).concat();
    assert_close(&found, &[1.0 - 0.02 * 0.6 / (0.6 + 0.4), 0.3, 0.09], 1e-15, "one step");
}
