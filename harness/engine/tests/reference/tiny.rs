//! Graphs of a few nodes.

use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, Kernels, Options, Scalars, Step, StepResult};
use zoo_graph::{
    DType, Graph, Op, Phase, Scope, TensorType, ValueId, VariableId, VariableRole, differentiate,
    formula::Formula,
    ops::{Map, MatMul, Reshape},
};
use zoo_recipe::schema::Init;

/// The reference kernels in the caller's pool.
pub const OPTIONS: Options = Options { kernels: Kernels::Reference, threads: None, level: None };

/// What the tests' steps run with.
pub const SCALARS: Scalars = Scalars { learning_rate: 0.1, step: 0, seed: 5, skipped: 0, loss_scale: 1.0, part: 0 };

/// Numbers in [-1, 1) without pattern, a function of `seed` and their index.
pub fn noise(n: usize, seed: u64) -> Vec<f64> {
    let draw = |i: u64| {
        let mut z = (seed << 32).wrapping_add(i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z >> 11) as f64 * 2f64.powi(-52) - 1.0
    };
    (0..n as u64).map(draw).collect()
}

/// A graph whose operands are variables.
pub struct Tiny {
    pub graph: Graph,
    pub values: Vec<Tensor>,
    dtype: DType,
}

impl Tiny {
    pub fn new(dtype: DType) -> Self {
        Self { graph: Graph::default(), values: Vec::new(), dtype }
    }

    fn scope(phase: Phase) -> Scope {
        Scope { phase, origin: None }
    }

    /// A variable with these elements.
    pub fn given(&mut self, dims: &[usize], elements: Vec<f64>) -> ValueId {
        let ty = TensorType::plain(dims, self.dtype);
        let name = format!("v{}", self.values.len());
        let id = self.graph.add_variable(name, VariableRole::Weight, ty, Init::Constant(0.0), None);
        let tensor = Tensor::from_vec(elements, dims, &Device::Cpu).unwrap();
        self.values.push(tensor.to_dtype(zoo_engine::candle_dtype(self.dtype)).unwrap());
        self.graph.variable(id).value
    }

    /// A variable of noise.
    pub fn noisy(&mut self, dims: &[usize]) -> ValueId {
        let seed = self.values.len() as u64 + 1;
        self.given(dims, noise(dims.iter().product(), seed))
    }

    /// Class indices: an input.
    pub fn labels(&mut self, n: usize) -> ValueId {
        self.graph.add_input("label", TensorType::plain([n], DType::U32))
    }

    pub fn add(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> ValueId {
        self.add_all(op, operands)[0]
    }

    pub fn add_all(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Vec<ValueId> {
        let name = format!("n{}", self.graph.nodes.len());
        self.graph.add_node(&Self::scope(Phase::Forward), name, op, operands).unwrap()
    }

    /// A formula over operands that broadcast.
    pub fn formula(&mut self, formula: Formula, operands: &[ValueId]) -> ValueId {
        let types: Vec<_> = operands.iter().map(|v| self.graph.ty(*v)).collect();
        let map = Map::over(formula, &types).unwrap();
        self.add(map, operands)
    }

    /// A formula with one number as result, which becomes the loss.
    pub fn loss(&mut self, formula: Formula, operands: &[ValueId]) {
        let value = self.formula(formula, operands);
        let loss = self.add(Reshape { shape: zoo_graph::Shape::scalar() }, &[value]);
        self.graph.losses.push(("loss".into(), loss));
    }

    /// Makes a value visible.
    pub fn show(&mut self, value: ValueId) {
        self.graph.outputs.push((format!("o{}", self.graph.outputs.len()), value));
    }

    /// The loss `sum(weight * y)` with noise as weights.
    pub fn probe(&mut self, y: ValueId) {
        let n = self.graph.ty(y).shape.numel();
        let weights = self.given(&[n, 1], noise(n, 99));
        let row = self.add(Reshape { shape: [1, n].into() }, &[y]);
        let product = self.add(MatMul { transpose_a: false, transpose_b: false }, &[row, weights]);
        let loss = self.add(Reshape { shape: zoo_graph::Shape::scalar() }, &[product]);
        self.graph.losses.push(("loss".into(), loss));
    }

    /// Adds the gradients of the loss by the first `trained` variables, and shows them.
    pub fn differentiate(&mut self, trained: usize) {
        let trained: Vec<VariableId> = (0..trained).map(VariableId).collect();
        differentiate(&mut self.graph, &trained).unwrap();
        for (_, gradient) in self.graph.gradients.clone() {
            self.show(gradient);
        }
    }

    /// The step with the variables set.
    pub fn step(&self) -> Step {
        let mut step = Step::new(self.graph.clone(), OPTIONS).unwrap();
        for (i, value) in self.values.iter().enumerate() {
            step.set_variable(&format!("v{i}"), value).unwrap();
        }
        step
    }

    pub fn run(&self) -> StepResult {
        self.run_with(&Inputs::new())
    }

    pub fn run_with(&self, inputs: &Inputs) -> StepResult {
        self.step().run(inputs, SCALARS, &mut ()).unwrap()
    }
}

/// Results of one operator on operands of noise or given ones.
pub fn apply(op: impl Into<Op>, operands: &[(&[usize], Vec<f64>)]) -> Vec<Vec<f64>> {
    let mut tiny = Tiny::new(DType::F64);
    let ids: Vec<ValueId> = operands.iter().map(|(dims, elements)| tiny.given(dims, elements.clone())).collect();
    for result in tiny.add_all(op, &ids) {
        tiny.show(result);
    }
    tiny.run().outputs.iter().map(|(_, tensor)| elements(tensor)).collect()
}

/// A loss of one formula, and the gradient of its first operand.
pub fn apply_loss(formula: Formula, operands: &[(&[usize], Vec<f64>)]) -> (f64, Vec<f64>) {
    let mut tiny = Tiny::new(DType::F64);
    let ids: Vec<ValueId> = operands.iter().map(|(dims, elements)| tiny.given(dims, elements.clone())).collect();
    tiny.loss(formula, &ids);
    tiny.differentiate(1);
    let result = tiny.run();
    (result.losses[0].1, elements(&result.outputs[0].1))
}

/// A tensor's elements in row-major order.
pub fn elements(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(candle_core::DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Requires equal lengths, and elements that differ by `tolerance` times the largest magnitude (at least 1) at most.
#[track_caller]
pub fn assert_close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: number of elements");
    let scale = expected.iter().fold(1.0, |m: f64, e| m.max(e.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        assert!(error <= tolerance, "{what}: element {i} is {found}, expected {expected} ({error:e})");
    }
}
