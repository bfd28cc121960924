//! The arguments of `zoo run`.

use crate::Failure;
use crate::complete;
use crate::context::Context;
use crate::memory::MemoryArgs;
use crate::options::{Change, JunitArgs};
use std::path::{Path, PathBuf};
use zoo_train::Launch;

/// Prove the training step, train, evaluate, and judge the result against the target.
///
/// By default, trains the `mini` profile of the recipe: generated data, minutes on a CPU. First the recipe as written
/// is checked against its golden, with the same kernels that the training uses. The run folder contains checkpoints,
/// TensorBoard events, a log (events.jsonl) and report.html. Ctrl-C saves a checkpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo run resnet50
  zoo run resnet50 --data ../cifar10 --set train.epochs=3
  zoo run resnet50 --profile full --data /data/imagenet --out runs/imagenet
  zoo run resnet50 --memory-limit 2GiB         refuse to start if it needs more memory
  zoo run resnet50 --repeat 3                  train with three seeds and judge them together
  zoo run resnet50 --junit run.xml             one test case per golden stage and target, for CI
  mpirun -n 4 zoo run resnet50                 use four processes: docs/many-machines.md
  zoo run resnet50 --resume                    resume the last run of this recipe
  zoo run --resume runs/imagenet               resume this run
  zoo run resnet50 --set train.seed=1 --format json | jq 'select(.event == \"result\")'")]
pub struct Args {
    /// Name of a recipe, or path of its file; with --resume also a run folder
    #[arg(value_name = "RECIPE", add = complete::runs_or_recipes())]
    pub(super) recipe: String,
    #[command(flatten)]
    pub(super) change: Change,
    /// Train on the data in this folder or file: CIFAR-10 binaries, MNIST files, train/CLASS/* with val/CLASS/*, or
    /// CLASS/*; images with gts for text detection; folders of frames (DAVIS, VOT) for tracking; a text file for
    /// language models
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Run folder; by default runs/RECIPE-PROFILE-NUMBER, or runs/RECIPE-NUMBER if the recipe has no profiles. With
    /// --repeat, the folder that contains the run folders, seed-0 and so on
    #[arg(short, long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Resume an interrupted run: the one in the given folder, or the last one of this recipe. Profile, overrides, data
    /// and device are those of the run; the result is bit-identical to an uninterrupted run
    #[arg(long)]
    pub(super) resume: bool,
    /// Train with N seeds, starting from the seed of the recipe, and judge the runs together like `zoo verdict`
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, conflicts_with = "resume")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) repeat: u16,
    /// Number of threads; results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
    /// Simulate the arithmetic of this device: the name of a file in recipes/devices, or host
    #[arg(long, value_name = "DEV|host", add = complete::devices_or_host())]
    pub(super) device: Option<String>,
    /// Skip the golden check
    #[arg(long)]
    pub(super) no_check: bool,
    #[command(flatten)]
    pub(super) memory: MemoryArgs,
    #[command(flatten)]
    pub(super) junit: JunitArgs,
}

impl Args {
    /// The settings of this run with absolute paths.
    pub(super) fn launch(&self, context: &Context) -> Result<Launch, Failure> {
        let is_file = self.recipe.ends_with(".yaml") || self.recipe.contains(['/', '\\']);
        let absolute = |path: &Path| std::path::absolute(path);
        Ok(Launch {
            recipe: match is_file {
                true => absolute(Path::new(&self.recipe))?.to_string_lossy().into_owned(),
                false => self.recipe.clone(),
            },
            profile: self.change.profile.clone(),
            sets: self.change.sets.clone(),
            data: self.data.as_deref().map(absolute).transpose()?,
            device: self.device.clone(),
            recipes: context.searched()?,
            no_check: self.no_check,
        })
    }
}
