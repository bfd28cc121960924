//! The step: a graph with its persistent variables.

use crate::{
    EngineError, candle_dtype, fast, init, reference,
    run::{Inputs, Observer, Outcome, Scalars, StepResult},
    simulate::{Arithmetic, Findings, Simulation},
};
use candle_core::{Device, Tensor};
use rayon::ThreadPool;
use zoo_graph::{Bytes, Graph, Shape, TensorType, Variable, VariableId, graph::Input, passes::Pipeline, verify};
use zoo_kernels::{Isa, Level};
use zoo_ranks::Ranks;
use zoo_recipe::{Recipe, schema};

/// The kernels that compute a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// Fast kernels in f32, on the graph after the passes of [`Pipeline::fast`]. A step that fails leaves variables
    /// undefined.
    Fast {
        /// Whether operators are fused.
        fusion: bool,
    },
    /// Kernels of [`mod@reference`]: row-major graphs in any floating-point type.
    Reference,
}

/// How to compute a step. Only the kernels and their instructions affect the bits of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernels.
    pub kernels: Kernels,
    /// Number of threads in the step's own pool; `None`: the pool in which the step is run.
    pub threads: Option<usize>,
    /// Vector instructions that fast kernels use; `None`: the best that the processor supports. Each level sums in a
    /// different order, so bits depend on it.
    pub level: Option<Level>,
}

impl Options {
    /// From the `engine` section of the recipe.
    pub fn of(recipe: &Recipe) -> Self {
        let kernels = match recipe.engine.kernels {
            schema::Kernels::Fast => Kernels::Fast { fusion: recipe.engine.fusion },
            schema::Kernels::Reference => Kernels::Reference,
        };
        let level = recipe.engine.instructions.map(|instructions| match instructions {
            schema::Instructions::Portable => Level::Portable,
            schema::Instructions::Avx2 => Level::Avx2,
            schema::Instructions::Avx512 => Level::Avx512,
            schema::Instructions::Amx => Level::Amx,
        });
        Self { kernels, threads: recipe.engine.threads, level }
    }

    /// The instructions that fast kernels use.
    pub fn isa(self) -> Isa {
        self.level.map_or_else(Isa::best, Isa::at_most)
    }

    /// The same options without fusion.
    #[must_use]
    pub fn without_fusion(self) -> Self {
        let kernels = match self.kernels {
            Kernels::Reference => Kernels::Reference,
            Kernels::Fast { .. } => Kernels::Fast { fusion: false },
        };
        Self { kernels, ..self }
    }
}

/// The kernels with their state for a graph: its variables, and prepared data.
enum Executor {
    Reference(reference::Executor),
    Fast(Box<fast::Executor>),
}

/// Rewrites a graph into the form that the kernels compute, with the casts of a simulated device.
pub(crate) fn rewrite(
    graph: &mut Graph,
    kernels: Kernels,
    arithmetic: Option<&Arithmetic>,
) -> Result<Option<Simulation>, EngineError> {
    let simulation = arithmetic.map(|arithmetic| arithmetic.place(graph)).transpose()?;
    if let Kernels::Fast { fusion } = kernels {
        Pipeline::fast(fusion).run(graph, None)?;
    }
    Ok(simulation)
}

impl Executor {
    /// Prepares a graph, and rewrites it for the kernels.
    fn new(graph: &mut Graph, options: Options, arithmetic: Option<&Arithmetic>) -> Result<Self, EngineError> {
        let kernels = options.kernels;
        let simulation = rewrite(graph, kernels, arithmetic)?;
        arithmetic.map_or(Ok(()), |arithmetic| arithmetic.expect_planted(graph))?;
        Ok(match kernels {
            Kernels::Reference => Self::Reference(reference::Executor::new(graph, simulation)?),
            Kernels::Fast { .. } => Self::Fast(Box::new(fast::Executor::new(graph, options.isa(), simulation)?)),
        })
    }

    fn findings(&self) -> Option<&Findings> {
        match self {
            Self::Reference(executor) => executor.findings(),
            Self::Fast(executor) => executor.findings(),
        }
    }

    fn variable(&self, graph: &Graph, id: VariableId) -> Result<Tensor, EngineError> {
        match self {
            Self::Reference(executor) => executor.variable(graph, id),
            Self::Fast(executor) => executor.variable(graph, id),
        }
    }

    fn set_variable(&mut self, graph: &Graph, id: VariableId, tensor: &Tensor) -> Result<(), EngineError> {
        match self {
            Self::Reference(executor) => executor.set_variable(graph, id, tensor),
            Self::Fast(executor) => executor.set_variable(graph, id, tensor),
        }
    }

    fn is_finite(&self, id: VariableId) -> Result<bool, EngineError> {
        match self {
            Self::Reference(executor) => executor.is_finite(id),
            Self::Fast(executor) => Ok(executor.is_finite(id)),
        }
    }

    fn run(
        &mut self,
        graph: &Graph,
        inputs: &[Tensor],
        scalars: Scalars,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, EngineError> {
        match self {
            Self::Reference(executor) => executor.run(graph, inputs, scalars, observer),
            Self::Fast(executor) => executor.run(graph, inputs, scalars, observer),
        }
    }

    fn node_seconds(&self) -> &[f64] {
        match self {
            Self::Reference(executor) => executor.node_seconds(),
            Self::Fast(executor) => executor.node_seconds(),
        }
    }

    fn memory(&self) -> Bytes {
        match self {
            Self::Reference(executor) => executor.memory(),
            Self::Fast(executor) => executor.memory(),
        }
    }
}

/// A graph that can be run, with its variables.
pub struct Step {
    graph: Graph,
    executor: Executor,
    pool: Option<ThreadPool>,
    /// Whether it waits for the steps of other ranks, which may run in the same pool.
    has_others: bool,
}

impl Step {
    /// Prepares a graph. All variables are zero until [`Step::initialize`] or [`Step::set_variable`] is called.
    ///
    /// # Errors
    /// An invalid graph, a graph that the kernels do not support, or failure to start threads.
    pub fn new(graph: Graph, options: Options) -> Result<Self, EngineError> {
        Self::prepare(graph, options, None)
    }

    /// The same with the arithmetic of a device: [`Arithmetic`] determines where values are rounded, and to which
    /// type.
    ///
    /// # Errors
    /// As [`Step::new`]; and operators that the device does not support in the requested type.
    pub fn simulated(graph: Graph, options: Options, arithmetic: &Arithmetic) -> Result<Self, EngineError> {
        Self::prepare(graph, options, Some(arithmetic))
    }

    fn prepare(mut graph: Graph, options: Options, arithmetic: Option<&Arithmetic>) -> Result<Self, EngineError> {
        verify(&graph, None)?;
        let executor = Executor::new(&mut graph, options, arithmetic)?;
        let pool = options
            .threads
            .map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                pool.map_err(|source| EngineError::Threads { threads, source })
            })
            .transpose()?;
        Ok(Self { graph, executor, pool, has_others: false })
    }

    /// Makes this the step of one of several ranks, each with its own part of the batch. The communication nodes come
    /// from `zoo_recipe::across`.
    pub fn join(&mut self, ranks: Ranks) {
        self.has_others = ranks.size() > 1;
        match &mut self.executor {
            Executor::Reference(executor) => executor.join(ranks),
            Executor::Fast(executor) => executor.join(ranks),
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Overflow and underflow in the last step, on a simulated device.
    pub fn findings(&self) -> Option<&Findings> {
        self.executor.findings()
    }

    /// Seconds that each node of [`Step::graph`] took in the last step.
    pub fn node_seconds(&self) -> &[f64] {
        self.executor.node_seconds()
    }

    /// Initialises every variable (see [`init`]).
    ///
    /// # Errors
    /// As [`init::initial`].
    pub fn initialize(&mut self, seed: u64) -> Result<(), EngineError> {
        for id in (0..self.graph.variables.len()).map(VariableId) {
            let initial = init::initial(&self.graph, id, seed)?;
            self.executor.set_variable(&self.graph, id, &initial)?;
        }
        // A training never needs the memory of the drawn values again.
        zoo_kernels::release_memory();
        Ok(())
    }

    /// All variables in the order of the graph, with their current values as row-major tensors.
    ///
    /// # Errors
    /// An error of candle while it moves the elements of a variable in a blocked layout.
    pub fn variables(&self) -> Result<Vec<(&Variable, Tensor)>, EngineError> {
        let value = |(i, variable)| Ok((variable, self.executor.variable(&self.graph, VariableId(i))?));
        self.graph.variables.iter().enumerate().map(value).collect()
    }

    /// Current value of a variable, as a row-major tensor.
    ///
    /// # Errors
    /// There is no variable with this name.
    pub fn variable(&self, name: &str) -> Result<Tensor, EngineError> {
        self.executor.variable(&self.graph, self.find(name)?)
    }

    /// The first variable that contains a NaN or an infinity.
    ///
    /// # Errors
    /// An error of candle while it reads a variable of the reference kernels.
    pub fn not_finite(&self) -> Result<Option<&str>, EngineError> {
        let look = || {
            for (i, variable) in self.graph.variables.iter().enumerate() {
                if !self.executor.is_finite(VariableId(i))? {
                    return Ok(Some(variable.name.as_str()));
                }
            }
            Ok(None)
        };
        self.pool.as_ref().map_or_else(look, |pool| pool.install(look))
    }

    /// Sets a variable to a row-major tensor, independent of its layout in the graph.
    ///
    /// # Errors
    /// There is no variable with this name, or the tensor has another shape or element type.
    pub fn set_variable(&mut self, name: &str, tensor: &Tensor) -> Result<(), EngineError> {
        let id = self.find(name)?;
        let tensor = checked(name, self.graph.ty(self.graph.variable(id).value), tensor)?;
        self.executor.set_variable(&self.graph, id, &tensor)
    }

    /// Runs the step once. If it fails, the variables of reference kernels are unchanged, and those of fast kernels, which
    /// update in place, are undefined.
    ///
    /// # Errors
    /// Inputs that do not fit the graph, or a node that cannot be computed.
    pub fn run(
        &mut self,
        inputs: &Inputs,
        scalars: Scalars,
        observer: &mut dyn Observer,
    ) -> Result<StepResult, EngineError> {
        let inputs = self.arrange(inputs)?;
        let (executor, graph) = (&mut self.executor, &self.graph);
        let mut execute = || executor.run(graph, &inputs, scalars, observer);
        let Outcome { losses, metrics, outputs } = match &self.pool {
            Some(pool) => pool.install(execute)?,
            // Ranks that wait for each other on threads of one pool would leave no threads for those they wait for.
            None if self.has_others => execute()?,
            // On a thread of the pool: a thread outside of it would sleep during each node, and be woken for the
            // next.
            None => rayon::scope(|_| execute())?,
        };
        Ok(StepResult {
            skipped: losses.first().is_some_and(|loss| graph.skips(*loss))
                || self.findings().is_some_and(|findings| findings.skipped),
            losses: graph.losses.iter().map(|(name, _)| name.clone()).zip(losses).collect(),
            metrics: graph.metrics.iter().map(|(name, _)| name.clone()).zip(metrics).collect(),
            outputs: graph.outputs.iter().map(|(name, _)| name.clone()).zip(outputs).collect(),
            peak_memory: self.executor.memory(),
        })
    }

    fn find(&self, name: &str) -> Result<VariableId, EngineError> {
        self.graph.find_variable(name).ok_or_else(|| EngineError::UnknownVariable(name.to_owned()))
    }

    /// The given tensors in the order of the graph's inputs, after checks.
    fn arrange(&self, inputs: &Inputs) -> Result<Vec<Tensor>, EngineError> {
        let known = || self.graph.inputs.iter().map(|i| i.name.clone()).collect();
        if let Some((name, _)) = inputs.0.iter().find(|(name, _)| self.graph.inputs.iter().all(|i| i.name != *name)) {
            return Err(EngineError::UnknownInput { name: name.clone(), known: known() });
        }
        let given = |input: &Input| {
            let ty = self.graph.ty(input.value);
            let missing = || EngineError::MissingInput { name: input.name.clone(), ty: ty.clone() };
            let (name, tensor) = inputs.0.iter().find(|(name, _)| *name == input.name).ok_or_else(missing)?;
            checked(name, ty, tensor)
        };
        self.graph.inputs.iter().map(given).collect()
    }
}

/// An external tensor on the host, contiguous and without history, if it fits its type.
fn checked(name: &str, ty: &TensorType, tensor: &Tensor) -> Result<Tensor, EngineError> {
    if tensor.dims() != &ty.shape[..] || tensor.dtype() != candle_dtype(ty.dtype) {
        let found = format!("{} {}", tensor.dtype().as_str(), Shape::from(tensor.dims()));
        return Err(EngineError::Tensor { name: name.to_owned(), expected: ty.clone(), found });
    }
    Ok(tensor.to_device(&Device::Cpu)?.contiguous()?.detach())
}
