//! `zoo golden inputs`: write the weights and inputs of a golden.

use crate::context::Context;
use crate::options::RecipeArgs;
use crate::output;
use crate::proof::{self, split::SplitArgs};
use crate::{Exit, Failure};
use candle_core::{Device, Tensor};
use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_golden::split;
use zoo_golden::start::{Conditions, Spelling, Start, start};
use zoo_tensors::{Array, ckpt, npz};
use zoo_train::weights::{replace, write};

/// Write the weights and inputs from which the step of a golden starts.
///
/// Start another implementation from them, compute one step, record it, and pass the recording to `zoo judge`. The
/// folder also contains step.json with optimizer, learning rates, weight decays, loss, and the keys that `zoo judge`
/// expects.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo golden inputs resnet18 -o begin                   weights.safetensors, inputs.safetensors
  zoo golden inputs resnet18 -o begin --as pth          weights.pth and inputs.pth, for torch.load
  zoo golden inputs resnet18 -o begin --as npz          weights.npz and inputs.npz, for numpy.load
  zoo golden inputs resnet50 -o begin --as mindspore    weights.ckpt and inputs.npz
  zoo golden inputs llama --parallel data=2,tensor=2 -o begin     for ranks that share a step

In Python:
  model.load_state_dict(safetensors.torch.load_file(\"begin/weights.safetensors\"))
  mindspore.load_param_into_net(network, mindspore.load_checkpoint(\"begin/weights.ckpt\"))")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Folder to write to; created if missing
    #[arg(short, long, alias = "output", value_name = "DIR")]
    out: PathBuf,
    /// What is written
    #[arg(long = "as", value_enum, value_name = "FORMAT", default_value_t = Form::Safetensors)]
    form: Form,
    /// Use this golden instead of the one that the recipe names
    #[arg(long, value_name = "FILE.json", conflicts_with = "parallel")]
    golden: Option<PathBuf>,
    #[command(flatten)]
    split: SplitArgs,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For safetensors, with the names of PyTorch's state_dict
    Safetensors,
    /// For numpy.load, with the same names
    Npz,
    /// For torch.load
    Pth,
    /// A checkpoint of MindSpore, with gamma, beta, moving_mean and moving_variance, and inputs for numpy.load
    Mindspore,
}

#[derive(Serialize)]
struct Report {
    recipe: String,
    weights: usize,
    inputs: usize,
    files: Vec<PathBuf>,
}

/// Writes the files.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let loaded = context.load(&args.recipe.recipe, &args.recipe.change)?;
    let spelling = match args.form {
        Form::Mindspore => Spelling::MindSpore,
        Form::Safetensors | Form::Npz | Form::Pth => Spelling::PyTorch,
    };
    let Start { weights, inputs, conditions } = match args.split.of(&loaded)? {
        Some((parallel, batch)) => split::start(&loaded.recipe, &parallel, batch, spelling)?,
        None => {
            let (golden, _) = proof::golden(&loaded, args.golden.as_deref(), context)?;
            start(&loaded.recipe, &golden, spelling)?
        }
    };
    let [of_weights, of_inputs] = match args.form {
        Form::Safetensors => ["weights.safetensors", "inputs.safetensors"],
        Form::Npz => ["weights.npz", "inputs.npz"],
        Form::Pth => ["weights.pth", "inputs.pth"],
        Form::Mindspore => ["weights.ckpt", "inputs.npz"],
    };
    let mut files = Vec::new();
    for (name, arrays) in [(of_weights, &weights), (of_inputs, &inputs)] {
        let path = args.out.join(name);
        output::expect_folder(&path)?;
        save(&path, arrays)?;
        files.push(path);
    }
    let path = args.out.join("step.json");
    output::write(&path, &described(&conditions)?, context)?;
    files.push(path);
    let report = Report { recipe: loaded.recipe.name, weights: weights.len(), inputs: inputs.len(), files };
    context.show(&report, |out| {
        let [weights, inputs, conditions] = [0, 1, 2].map(|n| report.files[n].display());
        writeln!(out, "{weights}: {} tensors", report.weights)?;
        writeln!(out, "{inputs}: {} tensors", report.inputs)?;
        Ok(writeln!(out, "{conditions}: optimizer, loss, and the keys of a recording")?)
    })
}

fn described(conditions: &Conditions) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(conditions).map_err(|error| Failure::Output(error.into()))?;
    Ok(text + "\n")
}

/// Writes tensors in the format given by the file name.
fn save(path: &Path, arrays: &[(String, Array)]) -> Result<(), Failure> {
    let refused = |reason: String| Failure::Unwritable { path: path.to_owned(), source: std::io::Error::other(reason) };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("npz") => replace(path, &npz::encode(arrays).map_err(refused)?)?,
        Some("ckpt") => replace(path, &ckpt::encode(arrays))?,
        _ => {
            let tensors: Result<Vec<_>, _> =
                arrays.iter().map(|(name, array)| Ok((name.clone(), tensor(array)?))).collect();
            write(path, &tensors.map_err(|error: candle_core::Error| refused(error.to_string()))?)?;
        }
    }
    Ok(())
}

fn tensor(array: &Array) -> Result<Tensor, candle_core::Error> {
    let shape = array.shape.as_slice();
    match array.dtype.is_float() {
        true => Tensor::from_vec(array.values.iter().map(|x| *x as f32).collect::<Vec<_>>(), shape, &Device::Cpu),
        false => Tensor::from_vec(array.values.iter().map(|x| *x as i64).collect::<Vec<_>>(), shape, &Device::Cpu),
    }
}
