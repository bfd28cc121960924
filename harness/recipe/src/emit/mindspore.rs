//! Programs in MindSpore.

mod data;
mod record;
mod train;
mod transforms;

use super::standard;
use super::train::{loss, optimizer as rule, program::Program, rate, written};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::python::mindspore::{AVERAGE, CLIPPED_NORM, CLIPPED_VALUE, INITIALIZERS};
use crate::python::{Dialect, real};
use crate::schema::Clip;
use crate::{Recipe, ResolvedModel};

/// What it needs, in the README.
pub(super) const NEEDS: &str = "It needs MindSpore 2.7 or later.";

/// How it is trained, in the README.
pub(super) const COMMANDS: &str = "\nTrain it on a CPU or an Ascend:\n\n```\npython train.py\npython train.py --device \
                                   ascend\n```\n\nIt writes `log.jsonl`, `checkpoint.npz` and `weights.safetensors` \
                                   into `--out`, goes on with `--resume`, and ends with exit code 1 if it misses the \
                                   target. `python train.py --help` lists the options. `weights.py` reads and writes \
                                   weights by their names in a state_dict.\n";

/// Weights by their names in a state_dict.
const WEIGHTS: &str = r#""""Parameters and running statistics by their names in a state_dict of PyTorch."""

from pathlib import Path

from mindspore import Parameter, Tensor, nn
from safetensors.numpy import load_file, save_file

NORMALISATION = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
NAMES = {
    nn.BatchNorm1d: NORMALISATION,
    nn.BatchNorm2d: NORMALISATION,
    nn.GroupNorm: NORMALISATION,
    nn.LayerNorm: NORMALISATION,
    nn.Embedding: {"embedding_table": "weight"},
}
"""What parameters of cells are called there."""


def state(network: nn.Cell) -> dict[str, Parameter]:
    """Parameters and running statistics; what several cells share has its name in the first."""
    found: dict[str, Parameter] = {}
    known = set()
    for prefix, cell in network.cells_and_names():
        names = next((names for kind, names in NAMES.items() if isinstance(cell, kind)), {})
        for local, parameter in cell.parameters_and_names(expand=False):
            if id(parameter) not in known:
                known.add(id(parameter))
                name = names.get(local, local)
                found[f"{prefix}.{name}" if prefix else name] = parameter
    return found


def parameters(network: nn.Cell) -> dict[str, Parameter]:
    """Those that are trained."""
    return {name: parameter for name, parameter in state(network).items() if parameter.requires_grad}


def load(network: nn.Cell, path: Path) -> None:
    """Loads a file of safetensors that has them all, and nothing else but counts of batches."""
    values = load_file(path)
    own = state(network)
    unknown = [name for name in values if name not in own and not name.endswith("num_batches_tracked")]
    missing = [name for name in own if name not in values]
    if missing or unknown:
        raise SystemExit(f"{path} lacks {missing}, and has {unknown} that the network lacks")
    for name, parameter in own.items():
        parameter.set_data(Tensor(values[name], parameter.dtype))


def save(network: nn.Cell, path: Path) -> None:
    """Writes a file of safetensors."""
    save_file({name: parameter.asnumpy() for name, parameter in state(network).items()}, path)
"#;

/// Fills a parameter.
const FILL: &str = r#"

def fill(parameter: Parameter, start: Initializer) -> None:
    """Draws the values of a parameter."""
    parameter.set_data(initializer(start, parameter.shape, parameter.dtype))
"#;

/// The files beside the network.
pub(super) fn files(
    recipe: &Recipe,
    resolved: &ResolvedModel,
    rules_alone: bool,
) -> Result<Vec<(&'static str, String)>, Diagnostics> {
    let whole = |program: &mut Program<'_>| {
        rules(program)?;
        train::write(program)
    };
    let training = match rules_alone {
        true => ("rules.py", written(Dialect::MindSpore, recipe, resolved, rules)?),
        false => ("train.py", written(Dialect::MindSpore, recipe, resolved, whole)?),
    };
    Ok(vec![("weights.py", WEIGHTS.trim_start().to_owned()), training])
}

/// Loss, optimizer and learning rate.
fn rules(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let train = &program.recipe.train;
    let batch = "Samples per step, of all devices together.";
    program.add(&format!("BATCH = {}\n\"\"\"{batch}\"\"\"\nEPOCHS = {}", train.batch, train.epochs));
    loss::write(program)?;
    rule::write(program)?;
    rate(program);
    if let Some(decay) = train.ema {
        let decay = match train.ema_warmup {
            true => format!("min({}, (1 + done) / (10 + done))", real(decay)),
            false => real(decay),
        };
        program.add(&AVERAGE.replace("DECAY", &decay));
    }
    for clip in &program.recipe.gradients.clip {
        program.add(&match clip {
            Clip::Norm(bound) => CLIPPED_NORM.replace("BOUND", &real(*bound)),
            Clip::Value(bound) => CLIPPED_VALUE.replace("BOUND", &real(*bound)),
        });
    }
    if program.recipe.gradients.clip.len() > 1 {
        return Err(program.refuse("gradients.clip[1]", "a second clipping is not written in MindSpore yet"));
    }
    match program.recipe.train.parts.is_empty() && program.recipe.train.init_from.is_none() {
        true => Ok(()),
        false => Err(program.refuse("train.parts", "parts are not written in MindSpore yet")),
    }
}

/// The text of the network with the function that its initial values need.
pub(super) fn completed(text: String) -> String {
    // Cells that only hold others do not tell them their names.
    let refresh = "        self.update_parameters_name()\n";
    let text = if text.contains("nn.Cell()\n") { text } else { text.replace(refresh, "") };
    if text.contains(" fill(") { format!("{FILL}{text}") } else { text }
}

/// Imports of `model.py`.
pub(super) fn imports(text: &str) -> Vec<String> {
    let mut imports = standard(text);
    let called = |name: &&str| text.contains(&format!(" {name}(")) || *name == "Initializer";
    let mut names: Vec<&str> = ["Parameter"].into_iter().filter(|name| text.contains(&format!("{name}("))).collect();
    if text.contains(" fill(") && !names.contains(&"Parameter") {
        names.push("Parameter");
    }
    names.extend(["Tensor", "nn"]);
    names.extend(text.contains("ops.").then_some("ops"));
    imports.extend(text.contains("mindspore.").then(|| "import mindspore".to_owned()));
    imports.extend(text.contains("np.").then(|| "import numpy as np".to_owned()));
    imports.push(format!("from mindspore import {}", names.join(", ")));
    if text.contains(" fill(") {
        let starts = INITIALIZERS.into_iter().filter(called);
        let names: Vec<&str> = starts.chain(["initializer"]).collect();
        imports.push(format!("from mindspore.common.initializer import {}", names.join(", ")));
    }
    imports
}
