//! Errors of the execution of a graph.

use thiserror::Error;
use zoo_graph::{GraphError, Layout, TensorType};
use zoo_ranks::RanksError;

/// A step that cannot be built or run.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The graph is invalid.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A step was not given one of its inputs.
    #[error("the step needs an input `{name}` ({ty})")]
    MissingInput {
        /// Name in the graph.
        name: String,
        /// The expected type.
        ty: TensorType,
    },
    /// A step was given an input that it does not have.
    #[error("the step has no input `{name}`; it takes {}", known.join(", "))]
    UnknownInput {
        /// The name that was given.
        name: String,
        /// Existing names.
        known: Vec<String>,
    },
    /// An input tensor does not fit the graph.
    #[error("`{name}` should be {expected}, found {found}")]
    Tensor {
        /// Input or variable.
        name: String,
        /// The expected type.
        expected: TensorType,
        /// The given type.
        found: String,
    },
    /// There is no variable of this name.
    #[error("the step has no variable `{0}`")]
    UnknownVariable(String),
    /// There is no node of this name.
    #[error("the step has no node `{name}`{}", hint.as_ref().map(|hint| format!(": did you mean `{hint}`?")).unwrap_or_default())]
    UnknownNode {
        /// The name.
        name: String,
        /// The name that was probably meant.
        hint: Option<String>,
    },
    /// A node whose results are not rounded on the simulated device.
    #[error("`{0}` computes in f32 on this device, where nothing is rounded: a planted fault would have no effect")]
    NotRounded(String),
    /// A planted fault at a node whose result is its operand in another shape.
    #[error("`{name}` computes nothing: it is a view of the result of `{of}`, where the fault can be planted")]
    View {
        /// The node.
        name: String,
        /// The node that computes its operand.
        of: String,
    },
    /// A variable that cannot be initialised.
    #[error("cannot initialise `{name}`: {message}")]
    Initializer {
        /// The variable.
        name: String,
        /// The reason.
        message: String,
    },
    /// The fast kernels do not compute in this type.
    #[error("the fast kernels compute in f32, not in {0}: use the reference kernels (engine.kernels=reference)")]
    FastDType(zoo_graph::DType),
    /// A node failed.
    #[error("{name} ({op}): {source}")]
    Node {
        /// Dotted name of the node.
        name: String,
        /// Its operator.
        op: &'static str,
        /// The error of the kernel.
        source: KernelError,
    },
    /// Another rank cannot be reached.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// candle refused something outside any node.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// Threads cannot be started.
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        /// The requested number.
        threads: usize,
        /// The reason.
        source: rayon::ThreadPoolBuildError,
    },
}

/// The usual type of kernels.
pub(crate) const MAP: &str = "a map of four axes";

/// An operator that cannot be computed.
#[derive(Debug, Error)]
pub enum KernelError {
    /// candle reported an error.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// Another rank cannot be reached.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// A label that is not a class.
    #[error("label {label} of sample {sample} is not below {classes}, the number of classes")]
    Label {
        /// The label.
        label: u32,
        /// Index in the batch.
        sample: usize,
        /// Number of classes.
        classes: usize,
    },
    /// An index that is not a row of a table: a token outside of the vocabulary.
    #[error("index {} at position {} is not below {}, the number of rows", .0.index, .0.place, .0.rows)]
    Row(zoo_kernels::rows::NoRow),
    /// A convolution that the fast kernels do not support.
    #[error(transparent)]
    Convolution(#[from] zoo_kernels::conv::ShapeError),
    /// A pool that the fast kernels do not support.
    #[error(transparent)]
    Pool(#[from] zoo_kernels::window::PoolError),
    /// The kernels do not support this layout.
    #[error("the reference kernels support only row-major tensors, not {0}")]
    Layout(Layout),
    /// The kernels do not support this element type.
    #[error("the reference kernels support only floating-point tensors, not {0}")]
    DType(zoo_graph::DType),
    /// An operand that the kernel of its node does not support.
    #[error("operand {place} is not {expected}")]
    Operand {
        /// Its index.
        place: usize,
        /// The expected operand.
        expected: &'static str,
    },
    /// A result that the kernel of its node does not support.
    #[error("result {place} is not {expected}")]
    Result {
        /// Its index.
        place: usize,
        /// The expected result.
        expected: &'static str,
    },
    /// An operator of a split step, outside of [`crate::lockstep`].
    #[error("needs the values of other ranks")]
    Alone,
    /// A formula with terms that kernels only support in expanded form.
    #[error("a formula was not expanded before its kernel")]
    Unexpanded,
    /// A node with more or fewer operands or results than its shape rule allows.
    #[error("unexpected number of operands or results: {found}")]
    Arity {
        /// Their number.
        found: usize,
    },
}

impl From<zoo_kernels::rows::NoRow> for KernelError {
    fn from(row: zoo_kernels::rows::NoRow) -> Self {
        Self::Row(row)
    }
}
