//! All errors of commands, and their exit codes.

use crate::{Exit, excerpt::excerpt};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use thiserror::Error;
use zoo_datasets::DataError;
use zoo_engine::{EngineError, KernelError};
use zoo_golden::GoldenError;
use zoo_graph::{Bytes, GraphError};
use zoo_import::ImportError;
use zoo_measured::MeasuredError;
use zoo_npu::NpuError;
use zoo_onnx::OnnxError;
use zoo_ranks::RanksError;
use zoo_recipe::Diagnostics;
use zoo_tasks::InputError;
use zoo_train::{CheckpointError, ListenError, RunsError, TrainError};

/// Errors of commands.
#[derive(Debug, Error)]
pub enum Failure {
    /// Invalid use of the command line.
    #[error("{0}")]
    Usage(String),
    /// Mistakes in a recipe, or in another YAML file.
    #[error(transparent)]
    Recipe(#[from] Diagnostics),
    /// No graph can be built from the recipe.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Errors of data or preprocessing.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Data are missing or unreadable.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A golden is missing or unreadable, or cannot be compared with the recipe.
    #[error(transparent)]
    Golden(#[from] GoldenError),
    /// A golden that a recipe names was not found.
    #[error(
        "recipe `{recipe}` names the golden {}, which is in none of: {}{}", manifest.display(),
        searched.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "),
        manifest.strip_prefix("golden").map_or_else(|_| String::new(), |rest| format!(
            "\nThe path is relative to the folder `golden`. Write golden: {{manifest: {}}}", rest.display()
        ))
    )]
    GoldenNotFound {
        /// The recipe.
        recipe: String,
        /// Its path in the recipe.
        manifest: PathBuf,
        /// Folders that were searched.
        searched: Vec<PathBuf>,
    },
    /// A training whose golden was not found.
    #[error("{0}\nTo train without the golden check, use --no-check")]
    Unproven(Box<Failure>),
    /// Built-in files that cannot be unpacked anywhere.
    #[error("the built-in {what} cannot be unpacked: {}: {source}: set XDG_CACHE_HOME or HOME", path.display())]
    NotUnpacked {
        /// What they are.
        what: &'static str,
        /// The last folder that was tried.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Errors of training or evaluation.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Processes that were started together but cannot work together.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// Runs that cannot be judged, compared or reported.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// Weights that cannot be read or written.
    #[error(transparent)]
    Weights(#[from] CheckpointError),
    /// A network that cannot be written as an ONNX model.
    #[error("{}{}", .0, line(.0))]
    Onnx(#[from] OnnxError),
    /// A network for which no recipe can be written.
    #[error("{}: {source}", path.display())]
    Import {
        /// The trace.
        path: PathBuf,
        /// The reason.
        source: ImportError,
    },
    /// Errors of predictions; mistakes in files of devices and studies are [`Failure::Recipe`].
    #[error(transparent)]
    Npu(NpuError),
    /// Files of profilers that cannot be read.
    #[error(transparent)]
    Measured(#[from] MeasuredError),
    /// A file that does not exist or cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file of results that cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The command needs more memory than allowed.
    #[error("{what} needs {needed}, but {} is {}: {instead}", limit.1, limit.0)]
    Memory {
        /// What needs the memory.
        what: String,
        /// Its peak memory.
        needed: Bytes,
        /// The limit, and its source.
        limit: (Bytes, &'static str),
        /// An alternative that fits.
        instead: String,
    },
    /// The results could not be written.
    #[error("cannot write the results: {0}")]
    Output(#[from] std::io::Error),
}

impl From<NpuError> for Failure {
    fn from(error: NpuError) -> Self {
        if let NpuError::File(mistakes) = error { Self::Recipe(mistakes) } else { Self::Npu(error) }
    }
}

impl Failure {
    /// What else can be done, for the reader of the message.
    pub fn hint(&self) -> Option<&'static str> {
        let (Self::Data(error)
        | Self::Input(InputError::Data(error))
        | Self::Train(TrainError::Data(error) | TrainError::Input(InputError::Data(error)))) = self
        else {
            return None;
        };
        error.can_be_left_out().then_some("--set data.on_error=skip leaves such entries out and counts them")
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Recipe(_) | Self::Memory { .. } => Exit::Invalid,
            Self::Graph(error) => graph(error),
            Self::Input(InputError::Recipe { .. }) => Exit::Invalid,
            Self::Input(InputError::Data(error)) | Self::Data(error) => data(error),
            Self::Golden(error) => golden(error),
            Self::GoldenNotFound { .. } => Exit::Missing,
            Self::Unproven(failure) => failure.exit(),
            Self::Weights(error) => checkpoint(error),
            Self::Onnx(OnnxError::Variable(_)) => Exit::Internal,
            Self::Onnx(OnnxError::Operator { .. } | OnnxError::TooLarge(_)) => Exit::Invalid,
            Self::Import { source: ImportError::Malformed(_), .. } => Exit::Missing,
            Self::Import { source: ImportError::Temporary { source }, .. } => unwritable(source),
            Self::Import {
                source: ImportError::Refused(_) | ImportError::Invalid(_) | ImportError::Differs(_),
                ..
            } => Exit::Invalid,
            Self::Train(error) => train(error),
            Self::Runs(RunsError::Unfit(_)) => Exit::Invalid,
            Self::Runs(RunsError::Malformed { .. }) => Exit::Missing,
            Self::Runs(RunsError::Page(_)) => Exit::Internal,
            Self::Engine(error) => engine(error),
            Self::Ranks(RanksError::Mpi(_)) => Exit::Invalid,
            Self::Ranks(RanksError::Gone | RanksError::Apart(_)) => Exit::Internal,
            Self::Npu(error) => npu(error),
            Self::Measured(_) | Self::Unreadable { .. } => Exit::Missing,
            Self::Output(_) => Exit::Refused,
            Self::Unwritable { source, .. } | Self::NotUnpacked { source, .. } => unwritable(source),
        }
    }
}

/// An invalid path is the user's mistake; any other error is the operating system's.
fn unwritable(source: &io::Error) -> Exit {
    match source.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::InvalidFilename => Exit::Invalid,
        _ => Exit::Refused,
    }
}

/// The recipe line of an operator that ONNX does not support.
fn line(error: &OnnxError) -> String {
    match error {
        OnnxError::Operator { origin: Some(origin), .. } => {
            format!("\n{} ({})", excerpt(&origin.span.to_string(), &[]), origin.path)
        }
        OnnxError::Operator { origin: None, .. } | OnnxError::Variable(_) | OnnxError::TooLarge(_) => String::new(),
    }
}

fn graph(error: &GraphError) -> Exit {
    match error {
        GraphError::Shape { .. } | GraphError::Model { .. } => Exit::Invalid,
        GraphError::Invariant { .. } => Exit::Internal,
    }
}

fn data(error: &DataError) -> Exit {
    match error {
        DataError::Config(_) => Exit::Invalid,
        DataError::Io { .. }
        | DataError::Decode { .. }
        | DataError::Absent { .. }
        | DataError::Unavailable { .. }
        | DataError::Unusable { .. }
        | DataError::Malformed { .. }
        | DataError::Ambiguous { .. }
        | DataError::NothingReadable { .. } => Exit::Missing,
    }
}

fn golden(error: &GoldenError) -> Exit {
    match error {
        GoldenError::Unreadable { .. } | GoldenError::Malformed { .. } | GoldenError::Absent { .. } => Exit::Missing,
        GoldenError::Recipe(_)
        | GoldenError::Foreign { .. }
        | GoldenError::NotFinite { .. }
        | GoldenError::NoTruth { .. }
        | GoldenError::NoRoom { .. } => Exit::Invalid,
        GoldenError::Graph(error) => graph(error),
        GoldenError::Engine(error) => engine(error),
        GoldenError::Unwritable { source, .. } => unwritable(source),
    }
}

fn train(error: &TrainError) -> Exit {
    match error {
        TrainError::Graph(error) => graph(error),
        TrainError::Engine(error) => engine(error),
        TrainError::Data(error) | TrainError::Input(InputError::Data(error)) => data(error),
        TrainError::Checkpoint(error) => checkpoint(error),
        TrainError::Listen(ListenError { source, .. }) => unwritable(source),
        TrainError::NothingEvaluated | TrainError::Unreadable { .. } => Exit::Missing,
        TrainError::Input(InputError::Recipe { .. })
        | TrainError::Mismatch(_)
        | TrainError::Prompt(_)
        | TrainError::RecipeChanged { .. }
        | TrainError::DataChanged { .. }
        | TrainError::Variables(_)
        | TrainError::Misfit(_)
        | TrainError::Share { .. }
        | TrainError::RunFolder { .. } => Exit::Invalid,
        // The training ran and diverged: its target is missed.
        TrainError::LossNotFinite { .. } | TrainError::NoLabels { .. } | TrainError::VariableNotFinite { .. } => {
            Exit::Missed
        }
        TrainError::Ranks(_) | TrainError::Candle(_) => Exit::Internal,
    }
}

fn checkpoint(error: &CheckpointError) -> Exit {
    match error {
        CheckpointError::Unwritable { source, .. } => unwritable(source),
        CheckpointError::Unusable { .. }
        | CheckpointError::Io { .. }
        | CheckpointError::Foreign { .. }
        | CheckpointError::Damaged { .. }
        | CheckpointError::NoneUsable { .. } => Exit::Missing,
    }
}

fn npu(error: &NpuError) -> Exit {
    match error {
        NpuError::UnknownDevice { .. }
        | NpuError::File(_)
        | NpuError::NoXla { .. }
        | NpuError::NoFusedAttention { .. }
        | NpuError::NoBf16 { .. }
        | NpuError::Accumulate { .. }
        | NpuError::InferenceOnly { .. }
        | NpuError::MissingOperators { .. }
        | NpuError::Devices { .. }
        | NpuError::Memory { .. } => Exit::Invalid,
        NpuError::Uncalibrated { .. } => Exit::Missing,
        NpuError::Graph(error) => graph(error),
        NpuError::Page(_) => Exit::Internal,
    }
}

fn engine(error: &EngineError) -> Exit {
    match error {
        EngineError::Graph(error) => graph(error),
        EngineError::UnknownNode { .. } | EngineError::NotRounded(_) | EngineError::View { .. } => Exit::Invalid,
        EngineError::Node { source, .. } => match source {
            // Labels come from goldens and data sets.
            KernelError::Label { .. } => Exit::Missing,
            KernelError::Candle(_)
            | KernelError::Ranks(_)
            | KernelError::Row(_)
            | KernelError::Convolution(_)
            | KernelError::Pool(_)
            | KernelError::Layout(_)
            | KernelError::DType(_)
            | KernelError::Operand { .. }
            | KernelError::Result { .. }
            | KernelError::Unexpanded
            | KernelError::Alone
            | KernelError::Arity { .. } => Exit::Internal,
        },
        EngineError::MissingInput { .. }
        | EngineError::UnknownInput { .. }
        | EngineError::Tensor { .. }
        | EngineError::UnknownVariable(_)
        | EngineError::Initializer { .. }
        | EngineError::FastDType(_)
        | EngineError::Ranks(_)
        | EngineError::Candle(_)
        | EngineError::Threads { .. } => Exit::Internal,
    }
}
