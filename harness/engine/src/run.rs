//! One run of a step: what it is given, what it shows on the way, and what it gives.

use candle_core::Tensor;
use zoo_graph::{Bytes, NodeId, ValueId};

/// Values that change from step to step, apart from the inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalars {
    /// Number of earlier steps whose update was skipped; Adam does not count them.
    pub skipped: u64,
    /// Factor on the loss, if the graph scales it.
    pub loss_scale: f64,
    /// Learning rate, without the factors of groups.
    pub learning_rate: f64,
    /// Number of steps before this one.
    pub step: u64,
    /// Seed of the run, for dropout.
    pub seed: u64,
    /// Which part of the batch this is, if several ranks share it; for dropout.
    pub part: u64,
}

impl Default for Scalars {
    fn default() -> Self {
        Self { learning_rate: 0.0, step: 0, seed: 0, skipped: 0, loss_scale: 1.0, part: 0 }
    }
}

/// Input tensors of a step, by their names in the graph.
#[derive(Clone, Debug, Default)]
pub struct Inputs(pub(crate) Vec<(String, Tensor)>);

impl Inputs {
    /// No tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, tensor: Tensor) -> Self {
        self.0.push((name.into(), tensor));
        self
    }

    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }
}

impl FromIterator<(String, Tensor)> for Inputs {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Self {
        Self(tensors.into_iter().collect())
    }
}

/// Sees values of a step as soon as they exist. Observing keeps no value longer and changes no bit.
pub trait Observer: Send {
    /// Whether it wants to see this value.
    fn wants(&self, value: ValueId) -> bool;

    /// Receives a requested value as a row-major tensor: an input, a variable before the step, or the result of a node.
    fn observe(&mut self, value: ValueId, tensor: &Tensor);

    /// A replacement of a value for all its readers: a row-major tensor of the same shape and element type. Called
    /// for each requested value after it was shown, but only by reference kernels.
    fn instead(&mut self, _value: ValueId) -> Option<Tensor> {
        None
    }

    /// Whether it wants the operands and results of a node.
    fn follows(&self, _node: NodeId) -> bool {
        false
    }

    /// Receives the operands and results of a followed node, as row-major tensors. Nodes of a skipped update are not
    /// shown.
    fn follow(&mut self, _node: NodeId, _operands: &[Tensor], _results: &[Tensor]) {}

    /// Whether it wants the rounded results of a node on a simulated device.
    fn sees_rounding(&self, _node: NodeId) -> bool {
        false
    }

    /// Receives a result before and after rounding to the narrower type of the device, as row-major tensors, before the
    /// node is shown to [`Observer::follow`].
    fn rounded(&mut self, _node: NodeId, _result: usize, _computed: &Tensor, _held: &Tensor) {}
}

/// Observes nothing.
impl Observer for () {
    fn wants(&self, _value: ValueId) -> bool {
        false
    }

    fn observe(&mut self, _value: ValueId, _tensor: &Tensor) {}
}

/// The results of a step.
#[derive(Clone, Debug)]
pub struct StepResult {
    /// Loss components by name, the total (`loss`) first.
    pub losses: Vec<(String, f64)>,
    /// Other values that the step reports, by name.
    pub metrics: Vec<(String, f64)>,
    /// Whether only running statistics were updated, because the loss was NaN or too large, or there was an overflow
    /// on the simulated device.
    pub skipped: bool,
    /// The network's outputs by name, as row-major tensors.
    pub outputs: Vec<(String, Tensor)>,
    /// Peak memory of live tensors, with variables and inputs, but without the kernels' workspace.
    pub peak_memory: Bytes,
}

/// The results of an executor, apart from variables.
pub(crate) struct Outcome {
    /// By index of the graph's losses.
    pub losses: Vec<f64>,
    /// By index of the graph's metrics.
    pub metrics: Vec<f64>,
    /// By index of the graph's outputs, row-major.
    pub outputs: Vec<Tensor>,
}
