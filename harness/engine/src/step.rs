//! The step: a graph with the variables that outlive it.

use crate::{
    EngineError, candle_dtype, init,
    layout::{self, stored_dims},
    reference,
};
use candle_core::{Device, Tensor};
use rayon::ThreadPool;
use zoo_graph::{Bytes, Graph, TensorType, ValueId, Variable, VariableId, verify::verify};

/// Which kernels compute a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// Those of [`reference`]: row-major graphs in any floating-point type.
    Reference,
}

/// How a step is computed. None of it changes a bit of the results, except the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which kernels.
    pub kernels: Kernels,
    /// Threads of the step's own pool; `None`: the pool that the step is run in.
    pub threads: Option<usize>,
}

/// What changes from step to step beside the inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalars {
    /// Learning rate, before an operator's own factor.
    pub learning_rate: f64,
    /// Number of steps done before this one.
    pub step: u64,
    /// Seed of the run, for dropout.
    pub seed: u64,
}

/// Tensors given with a step, by the names of the graph's inputs.
#[derive(Clone, Debug, Default)]
pub struct Inputs(Vec<(String, Tensor)>);

impl Inputs {
    /// No tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// These, and one more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, tensor: Tensor) -> Self {
        self.0.push((name.into(), tensor));
        self
    }
}

impl FromIterator<(String, Tensor)> for Inputs {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Self {
        Self(tensors.into_iter().collect())
    }
}

/// Sees values of a step as soon as they exist. Nothing is kept longer for it, and no bit changes by it.
pub trait Observer: Send {
    /// Whether it wants to see this value.
    fn wants(&self, value: ValueId) -> bool;

    /// Shows a value that it wants, as a row-major tensor: an input, a variable before the step, or what a node computed.
    fn observe(&mut self, value: ValueId, tensor: &Tensor);
}

/// Looks at nothing.
impl Observer for () {
    fn wants(&self, _value: ValueId) -> bool {
        false
    }

    fn observe(&mut self, _value: ValueId, _tensor: &Tensor) {}
}

/// What a step gives.
#[derive(Clone, Debug)]
pub struct StepResult {
    /// Loss components by name, the total (`loss`) first.
    pub losses: Vec<(String, f64)>,
    /// The network's outputs by name, as row-major tensors.
    pub outputs: Vec<(String, Tensor)>,
    /// Largest sum of the tensors that lived at one time, variables and inputs included; kernels' scratch is not.
    pub peak_memory: Bytes,
}

/// What an execution starts from.
pub(crate) struct Given<'a> {
    /// By index of the graph's inputs.
    pub inputs: &'a [Tensor],
    /// By [`VariableId`].
    pub variables: &'a [Tensor],
    /// Learning rate, step, seed.
    pub scalars: Scalars,
}

/// What an execution leaves.
pub(crate) struct Executed {
    /// By [`ValueId`]; at least the graph's results.
    pub values: Vec<Option<Tensor>>,
    /// See [`StepResult::peak_memory`].
    pub peak_memory: Bytes,
}

/// The kernels with what they prepared for a graph.
enum Executor {
    Reference(reference::Executor),
}

impl Executor {
    fn run(&self, graph: &Graph, given: &Given<'_>, observer: &mut dyn Observer) -> Result<Executed, EngineError> {
        match self {
            Self::Reference(executor) => executor.run(graph, given, observer),
        }
    }
}

/// A graph that can be run, with its variables.
pub struct Step {
    graph: Graph,
    executor: Executor,
    pool: Option<ThreadPool>,
    variables: Vec<Tensor>,
}

impl Step {
    /// Prepares a graph. All variables are zero until [`Step::initialize`] or [`Step::set_variable`] says otherwise.
    ///
    /// # Errors
    /// A graph that breaks its own rules or that the kernels cannot compute, or a system that gives no threads.
    pub fn new(graph: Graph, options: Options) -> Result<Self, EngineError> {
        verify(&graph, None)?;
        let executor = match options.kernels {
            Kernels::Reference => Executor::Reference(reference::Executor::new(&graph)?),
        };
        let pool = options
            .threads
            .map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                pool.map_err(|source| EngineError::Threads { threads, source })
            })
            .transpose()?;
        let zeros = |v: &Variable| {
            let ty = graph.ty(v.value);
            Tensor::zeros(stored_dims(ty), candle_dtype(ty.dtype), &Device::Cpu)
        };
        let variables = graph.variables.iter().map(zeros).collect::<Result<_, _>>()?;
        Ok(Self { graph, executor, pool, variables })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Sets every variable to what its initialiser says (see [`init`]).
    ///
    /// # Errors
    /// As [`init::initial`].
    pub fn initialize(&mut self, seed: u64) -> Result<(), EngineError> {
        for (i, tensor) in self.variables.iter_mut().enumerate() {
            let ty = self.graph.ty(self.graph.variables[i].value);
            *tensor = layout::to_stored(&init::initial(&self.graph, VariableId(i), seed)?, ty)?;
        }
        Ok(())
    }

    /// All variables in the order of the graph, with their present values as row-major tensors.
    ///
    /// # Errors
    /// candle's, in moving the elements of a variable in a blocked layout.
    pub fn variables(&self) -> Result<Vec<(&Variable, Tensor)>, EngineError> {
        let plain = |(variable, stored)| Ok((variable, self.plain(variable, stored)?));
        self.graph.variables.iter().zip(&self.variables).map(plain).collect()
    }

    /// Present value of a variable, as a row-major tensor.
    ///
    /// # Errors
    /// No variable of this name.
    pub fn variable(&self, name: &str) -> Result<Tensor, EngineError> {
        let id = self.find(name)?;
        self.plain(self.graph.variable(id), &self.variables[id.0])
    }

    fn plain(&self, variable: &Variable, stored: &Tensor) -> Result<Tensor, EngineError> {
        Ok(layout::to_plain(stored, self.graph.ty(variable.value))?)
    }

    /// Gives a variable another value, which comes as a row-major tensor whatever its layout in the graph.
    ///
    /// # Errors
    /// No variable of this name, or a tensor of another shape or element type.
    pub fn set_variable(&mut self, name: &str, tensor: Tensor) -> Result<(), EngineError> {
        let id = self.find(name)?;
        let ty = self.graph.ty(self.graph.variable(id).value);
        self.variables[id.0] = checked(name, ty, &tensor)?;
        Ok(())
    }

    /// Runs the step once. Variables change only if all of it succeeds.
    ///
    /// # Errors
    /// Inputs that do not fit the graph's, or a node that cannot be computed.
    pub fn run(
        &mut self,
        inputs: &Inputs,
        scalars: Scalars,
        observer: &mut dyn Observer,
    ) -> Result<StepResult, EngineError> {
        let inputs = self.arrange(inputs)?;
        let given = Given { inputs: &inputs, variables: &self.variables, scalars };
        let mut execute = || self.executor.run(&self.graph, &given, observer);
        let Executed { values, peak_memory } = match &self.pool {
            Some(pool) => pool.install(execute)?,
            None => execute()?,
        };
        let result = |id: ValueId| {
            let value = values.get(id.0).and_then(Option::as_ref);
            value.ok_or_else(|| candle_core::Error::Msg(format!("value {} was not kept", id.0)))
        };
        let named =
            |(name, id): &(String, ValueId)| Ok((name.clone(), layout::to_plain(result(*id)?, self.graph.ty(*id))?));
        let outputs = self.graph.outputs.iter().map(named).collect::<Result<_, EngineError>>()?;
        let scalar = |(name, id): &(String, ValueId)| Ok((name.clone(), to_f64(result(*id)?)?));
        let losses = self.graph.losses.iter().map(scalar).collect::<Result<_, EngineError>>()?;
        let next = self.graph.variables.iter().zip(&self.variables).map(|(variable, now)| match variable.next {
            Some(id) => result(id).cloned(),
            None => Ok(now.clone()),
        });
        self.variables = next.collect::<Result<_, _>>()?;
        Ok(StepResult { losses, outputs, peak_memory })
    }

    fn find(&self, name: &str) -> Result<VariableId, EngineError> {
        self.graph.find_variable(name).ok_or_else(|| EngineError::UnknownVariable(name.to_owned()))
    }

    /// The tensors given, in the order of the graph's inputs, each checked.
    fn arrange(&self, inputs: &Inputs) -> Result<Vec<Tensor>, EngineError> {
        let known = || self.graph.inputs.iter().map(|i| i.name.clone()).collect();
        if let Some((name, _)) = inputs.0.iter().find(|(name, _)| self.graph.inputs.iter().all(|i| i.name != *name)) {
            return Err(EngineError::UnknownInput { name: name.clone(), known: known() });
        }
        let given = |input: &zoo_graph::graph::Input| {
            let ty = self.graph.ty(input.value);
            let missing = || EngineError::MissingInput { name: input.name.clone(), ty: ty.clone() };
            let (name, tensor) = inputs.0.iter().find(|(name, _)| *name == input.name).ok_or_else(missing)?;
            checked(name, ty, tensor)
        };
        self.graph.inputs.iter().map(given).collect()
    }
}

/// A tensor from outside, as the graph stores it and without history, if it fits its type.
fn checked(name: &str, ty: &TensorType, tensor: &Tensor) -> Result<Tensor, EngineError> {
    if tensor.dims() != &ty.shape[..] || tensor.dtype() != candle_dtype(ty.dtype) {
        let found = format!("{} {}", tensor.dtype().as_str(), zoo_graph::Shape::from(tensor.dims()));
        return Err(EngineError::Tensor { name: name.to_owned(), expected: ty.clone(), found });
    }
    Ok(layout::to_stored(&tensor.to_device(&Device::Cpu)?.contiguous()?.detach(), ty)?)
}

/// A scalar tensor's value.
fn to_f64(scalar: &Tensor) -> Result<f64, candle_core::Error> {
    scalar.to_dtype(candle_core::DType::F64)?.to_scalar()
}
