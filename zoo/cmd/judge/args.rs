//! The arguments of `zoo judge`.

use crate::complete;
use crate::memory::MemoryArgs;
use crate::options::{JunitArgs, RecipeArgs};
use crate::proof::split::SplitArgs;
use clap::ValueEnum;
use std::path::PathBuf;
use zoo_golden::Stage;

/// Find the first module that differs in a training step that ran elsewhere: on an NPU, in another framework, or in a
/// port.
///
/// The step must start from the weights and inputs that `zoo golden inputs RECIPE` writes. Record it with
/// zoo_golden.capture, with msprobe, or as named tensors. Each module output, loss, gradient and update is compared
/// with the result that f64 computes from the recorded operands. In this way an error shows only in the module that
/// made it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo judge resnet18 recorded                         a folder of zoo_golden.capture, or .npy files
  zoo judge resnet18 recorded.npz                     or .safetensors, or a file of torch.save
  zoo judge resnet18 dump/step0/rank0                 a dump of msprobe, tensors or statistics
  zoo judge resnet18 recorded --arithmetic bf16       recorded with automatic mixed precision
  zoo judge resnet18 dump/step0 --arithmetic ascend910 --loss-scale 1024
  zoo judge resnet18 dump                             several steps in turn: dump/step0, dump/step1, ...
  zoo judge resnet18 recorded --names names.yaml      maps other names to those of the golden
  zoo judge resnet18 dump/step0 --allow-missing=update    msprobe does not see the update
  zoo judge llama recorded --parallel data=2          folders of ranks: recorded/step0/rank0, rank1, ...
  zoo judge resnet18 recorded --format json | jq .first_divergence

Tensors of a recording are named by the keys of the golden: out/MODULE#CALL, loss, grad/NAME,
param1/NAME, buffer1/NAME, momentum1/NAME, start/NAME, input/NAME. names.yaml maps other names:
  names: {logits: 'out/fc#0'}      a name
  modules: {backbone.stem: conv1}  a module and everything inside; '' removes the prefix
  ignore: ['aux.*']                not compared
What wrappers add (module., _orig_mod., _fsdp_wrapped_module., the name of the network) is recognised.

Exit codes: 0 everything compared passes, and all of the step was compared or --allow-missing names
what was not; 1 something differs (fail), or is not recorded (partial); 3 the recording cannot be read.")]
pub struct Args {
    #[command(flatten)]
    pub(super) recipe: RecipeArgs,
    /// The recording: a file or a folder
    #[arg(value_name = "RECORDING")]
    pub(super) recording: PathBuf,
    /// Judge against this golden instead of the one that the recipe names
    #[arg(long, value_name = "FILE.json")]
    pub(super) golden: Option<PathBuf>,
    /// Arithmetic of the recorded step: f32, f16, bf16, or the name of a device in recipes/devices
    #[arg(long, value_name = "TYPE|DEV", default_value = "f32", add = complete::devices())]
    pub(super) arithmetic: String,
    /// Loss scale of the recording: recorded gradients are multiplied by it
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = positive)]
    pub(super) loss_scale: f64,
    /// File that maps names of the recording to names of the golden; by default names.yaml in its folder, if it exists
    #[arg(long, value_name = "FILE.yaml")]
    pub(super) names: Option<PathBuf>,
    /// Write a proposal for --names to this file, if the recording has names that the step does not have
    #[arg(long, value_name = "FILE.yaml")]
    pub(super) propose_names: Option<PathBuf>,
    /// Do not fail if the recording has names that the step does not have
    #[arg(long)]
    pub(super) allow_unmatched: bool,
    /// Accept that the recording lacks tensors, of any stage or of those named: the verdict is then `partial`, with
    /// exit code 0, if everything else passes
    #[arg(
        long,
        value_name = "STAGES",
        value_enum,
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    pub(super) allow_missing: Vec<Part>,
    /// The recorded steps have the learning rates of the recipe's schedule, and not all that of the golden
    #[arg(long, conflicts_with = "parallel")]
    pub(super) schedule: bool,
    #[command(flatten)]
    pub(super) split: SplitArgs,
    #[command(flatten)]
    pub(super) memory: MemoryArgs,
    #[command(flatten)]
    pub(super) junit: JunitArgs,
}

/// What a recording may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// Parts of all stages.
    All,
    /// Outputs of modules.
    Forward,
    /// The loss.
    Loss,
    /// Gradients.
    Backward,
    /// Parameters, state of the optimizer and statistics after the step.
    Update,
}

impl Part {
    pub(super) fn stages(self) -> Vec<Stage> {
        match self {
            Self::All => vec![Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update],
            Self::Forward => vec![Stage::Forward],
            Self::Loss => vec![Stage::Loss],
            Self::Backward => vec![Stage::Backward],
            Self::Update => vec![Stage::Update],
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("a loss scale must be above 0".to_owned()) }
}
