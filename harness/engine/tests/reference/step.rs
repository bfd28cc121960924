//! The step as a whole: inputs, variables, observers, memory.

use crate::tiny::{OPTIONS, SCALARS, Tiny, elements};
use candle_core::{Device, Tensor};
use zoo_engine::{EngineError, Inputs, Observer, Step};
use zoo_graph::{Bytes, DType, Graph, Phase, Scope, TensorType, ValueId, VariableRole, ops::*};
use zoo_recipe::schema::{Init, NormalInit};

/// Cross entropy of `w` (noise, 2 samples of 3 classes) trained by momentum `v`.
fn training() -> Step {
    let mut graph = Graph::default();
    let scope = |phase| Scope { phase, origin: None };
    let ty = TensorType::plain([2, 3], DType::F64);
    let normal = Init::Normal(NormalInit { std: 1.0 });
    let w = graph.add_variable("w", VariableRole::Weight, ty.clone(), normal, None);
    let slot = VariableRole::Slot { parameter: w, slot: "momentum" };
    let v = graph.add_variable("w/momentum", slot, ty, Init::Constant(0.0), None);
    let label = graph.add_input("label", TensorType::plain([2], DType::U32));
    let (logits, momentum) = (graph.variable(w).value, graph.variable(v).value);
    let op = SoftmaxCrossEntropy { smoothing: 0.0, over: SmoothingOver::AllClasses, ignored: None };
    let loss = graph.add_node(&scope(Phase::Loss), "loss", op, &[logits, label]).unwrap()[0];
    graph.losses.push(("loss".into(), loss));
    zoo_graph::differentiate(&mut graph, &[w]).unwrap();
    let gradient = graph.gradients[0].1;
    let op = crate::optimizers::momentum();
    let after = graph.add_node(&scope(Phase::Update), "w/update", op, &[logits, momentum, gradient]).unwrap();
    graph.variables[w.0].next = Some(after[0]);
    graph.variables[v.0].next = Some(after[1]);
    graph.outputs.push(("logits".into(), logits));
    let mut step = Step::new(graph, OPTIONS).unwrap();
    step.initialize(1).unwrap();
    step
}

fn labels(labels: &[u32]) -> Inputs {
    Inputs::new().with("label", Tensor::new(labels, &Device::Cpu).unwrap())
}

fn variables(step: &Step) -> Vec<Vec<f64>> {
    step.variables().unwrap().iter().map(|(_, tensor)| elements(tensor)).collect()
}

#[test]
fn training_reduces_the_loss_and_moves_the_variables() {
    let mut step = training();
    let start = variables(&step);
    assert!(start[0].iter().all(|w| *w != 0.0) && start[1] == [0.0; 6]);
    let mut losses = Vec::new();
    for number in 0..20 {
        let result = step.run(&labels(&[0, 2]), zoo_engine::Scalars { step: number, ..SCALARS }, &mut ()).unwrap();
        assert_eq!(result.losses[0].0, "loss");
        assert_eq!(result.outputs[0].0, "logits");
        if number == 0 {
            assert_eq!(elements(&result.outputs[0].1), start[0], "outputs are of before the update");
        }
        losses.push(result.losses[0].1);
    }
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
    assert_ne!(variables(&step), start);
}

#[test]
fn a_step_that_fails_changes_nothing() {
    let mut step = training();
    step.run(&labels(&[0, 2]), SCALARS, &mut ()).unwrap();
    let before = variables(&step);
    assert!(matches!(step.run(&labels(&[0, 3]), SCALARS, &mut ()), Err(EngineError::Node { .. })));
    assert_eq!(variables(&step), before);
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let mut step = training();
    let mut message = |inputs: &Inputs| step.run(inputs, SCALARS, &mut ()).unwrap_err().to_string();
    assert_eq!(message(&Inputs::new()), "the step needs an input `label` (u32 2)");
    assert_eq!(message(&labels(&[0, 1, 2])), "`label` should be u32 2, found u32 3");
    let float = Inputs::new().with("label", Tensor::new(&[0.0, 1.0], &Device::Cpu).unwrap());
    assert_eq!(message(&float), "`label` should be u32 2, found f64 2");
    let surplus = labels(&[0, 1]).with("image", Tensor::new(&[0.0], &Device::Cpu).unwrap());
    assert_eq!(message(&surplus), "the step has no input `image`; it takes label");
}

#[test]
fn variables_that_do_not_fit_are_named() {
    let mut step = training();
    let wrong = Tensor::new(&[0.0f64], &Device::Cpu).unwrap();
    assert!(matches!(step.set_variable("w", &wrong), Err(EngineError::Tensor { .. })));
    assert!(matches!(step.set_variable("x", &wrong), Err(EngineError::UnknownVariable(name)) if name == "x"));
    assert!(matches!(step.variable("x"), Err(EngineError::UnknownVariable(_))));
}

#[test]
fn variables_may_be_set_from_views() {
    let mut step = training();
    let columns = Tensor::arange(0.0, 6.0, &Device::Cpu).unwrap().reshape((3, 2)).unwrap().t().unwrap();
    step.set_variable("w", &columns).unwrap();
    assert_eq!(variables(&step)[0], [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    step.run(&labels(&[0, 1]), SCALARS, &mut ()).unwrap();
}

/// Keeps everything it may see.
struct All(Vec<(ValueId, Vec<f64>)>);

impl Observer for All {
    fn wants(&self, _value: ValueId) -> bool {
        true
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        self.0.push((value, elements(tensor)));
    }
}

#[test]
fn observers_see_everything_once_and_change_nothing() {
    let [mut watched, mut alone] = [training(), training()];
    let mut all = All(Vec::new());
    let seen = watched.run(&labels(&[0, 2]), SCALARS, &mut all).unwrap();
    let unseen = alone.run(&labels(&[0, 2]), SCALARS, &mut ()).unwrap();
    assert_eq!((seen.losses, seen.peak_memory), (unseen.losses, unseen.peak_memory));
    assert_eq!(variables(&watched), variables(&alone));
    let mut ids: Vec<usize> = all.0.iter().map(|(id, _)| id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..watched.graph().values.len()).collect::<Vec<_>>());
    let gradient = watched.graph().gradients[0].1;
    let (_, gradient) = all.0.iter().find(|(id, _)| *id == gradient).unwrap();
    assert!((gradient.iter().sum::<f64>()).abs() < 1e-15, "the gradient of a softmax sums to zero");
}

#[test]
fn values_are_freed_at_their_last_use() {
    let mut tiny = Tiny::new(DType::F64);
    let mut x = tiny.noisy(&[1000]);
    for _ in 0..10 {
        x = tiny.add(Relu { rectifier: Rectifier::Relu }, &[x]);
    }
    tiny.show(x);
    // The variable, and the two that a node reads and writes.
    assert_eq!(tiny.run().peak_memory, Bytes(3 * 8000));
}

#[test]
fn initial_values_are_those_of_the_seed() {
    let [mut a, mut b] = [training(), training()];
    assert_eq!(variables(&a), variables(&b));
    a.initialize(2).unwrap();
    assert_ne!(variables(&a), variables(&b));
    b.initialize(2).unwrap();
    assert_eq!(variables(&a), variables(&b));
}
