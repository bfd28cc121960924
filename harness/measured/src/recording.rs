//! What all formats tell: steps, kernels and the gaps between them.

use crate::{Collective, Name, Names, Nanos, StepTimes};
use std::path::PathBuf;

/// A measured training.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The file, or the folder with several.
    pub path: PathBuf,
    /// Its kind.
    pub format: Format,
    /// The texts of its kernels.
    pub names: Names,
    /// Its steps, in order. Never empty.
    pub steps: Vec<Step>,
    /// Kernels of these steps, by start.
    pub kernels: Vec<Kernel>,
    /// Times of the steps in which no kernel ran.
    pub gaps: Vec<Gap>,
    /// What Ascend's profiler says of each step, if the folder has it.
    pub step_times: Vec<StepTimes>,
    /// What Ascend's profiler says of each collective, if the folder has it.
    pub collectives: Vec<Collective>,
    /// The largest memory that the file has, in bytes.
    pub peak_memory: Option<u64>,
    /// What the file lacks, as sentences.
    pub absent: Vec<String>,
}

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `kernel_details.csv` of torch_npu or MindSpore.
    KernelDetails,
    /// `op_summary_*.csv` of msprof.
    OpSummary,
    /// `trace_view.json` of torch_npu or MindSpore.
    TraceView,
    /// A Chrome trace of PyTorch.
    PyTorch,
}

impl Format {
    /// How it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::KernelDetails => "kernel_details.csv",
            Self::OpSummary => "op_summary.csv",
            Self::TraceView => "trace_view.json",
            Self::PyTorch => "PyTorch's trace",
        }
    }
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How the profiler calls it.
    pub label: String,
    /// Its start.
    pub start: Nanos,
    /// Its end.
    pub end: Nanos,
}

/// Parts of a step, where they are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The network.
    Forward,
    /// From outputs to the loss.
    Loss,
    /// Gradients.
    Backward,
    /// The optimizer.
    Update,
}

/// What ran a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// The matrix units.
    Cube,
    /// The Vector units.
    Vector,
    /// Both.
    Mixed,
    /// A device of which no units are told apart.
    Device,
    /// The scalar processors of an NPU, which run operators that its cores lack.
    AiCpu,
    /// The processor of the host.
    Host,
    /// Links between devices.
    Link,
    /// Transfers and fills.
    Copy,
    /// The generator of random masks of an NPU.
    Random,
}

/// A kernel, or an operator of a trace without a device.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: Name,
    /// Its operator: the type of a kernel, the outermost operator of PyTorch.
    pub operator: Name,
    /// What ran it.
    pub unit: Unit,
    /// Index of its step.
    pub step: u32,
    /// Its start.
    pub start: Nanos,
    /// From its start to its end.
    pub duration: Nanos,
    /// The part of its time in which nothing before it in rank ran: what the step spends on it.
    pub own: Nanos,
    /// The module in whose call it ran, or that its gradient belongs to; empty for the network itself, and what begins
    /// with `@` for parts that belong to none ([`crate::LOSS`]).
    pub module: Option<Name>,
    /// The part of the step.
    pub part: Option<Part>,
    /// Shapes of its operands: axes by `,`, operands by `;`.
    pub inputs: Option<Name>,
    /// Element types of its operands, by `;`.
    pub types: Option<Name>,
    /// Layouts of its operands, by `;`.
    pub formats: Option<Name>,
    /// Shapes of its results.
    pub outputs: Option<Name>,
    /// Cores that it used.
    pub cores: Option<u32>,
}

impl Kernel {
    /// Its end.
    pub fn end(&self) -> Nanos {
        self.start.saturating_add(self.duration)
    }
}

/// Why nothing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GapKind {
    /// Between two kernels, shorter than a launch may take.
    Launch,
    /// The host was busy with something else than launching.
    Host,
    /// The host waited for samples.
    Input,
    /// The host compiled operators or the network again.
    Compile,
    /// The host had waited for the device, and then had nothing queued.
    Synchronisation,
    /// The file does not say.
    Idle,
}

impl GapKind {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Host => "host",
            Self::Input => "input",
            Self::Compile => "compilation",
            Self::Synchronisation => "synchronisation",
            Self::Idle => "idle",
        }
    }
}

/// A time of a step in which no kernel ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Index of its step.
    pub step: u32,
    /// Why.
    pub kind: GapKind,
    /// Its start.
    pub start: Nanos,
    /// Its length.
    pub duration: Nanos,
    /// The module in whose call it was.
    pub module: Option<Name>,
    /// Index of the kernel that ended it.
    pub next: Option<u32>,
}

impl Recording {
    /// The text of a name.
    pub fn text(&self, name: Option<Name>) -> &str {
        name.map_or("", |name| self.names.text(name))
    }

    /// Mean length of its steps, in ms.
    pub fn step_ms(&self) -> f64 {
        let all: f64 = self.steps.iter().map(|step| (step.end - step.start) as f64).sum();
        1e-6 * all / self.steps.len().max(1) as f64
    }
}
