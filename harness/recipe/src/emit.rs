//! Programs for other frameworks: a network as PyTorch, or as MindSpore.
//!
//! `walk` walks through the resolved network as it is built; what it writes is a program of `crate::python`. Layers
//! write themselves in PyTorch's words; `crate::python::mindspore` has those of MindSpore.

mod mindspore;
mod train;
mod walk;

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::python::{self, classes, drop_inputs, initial, print, trim};
use crate::schema::InputShape;
use crate::{ConfigPath, Recipe, ResolvedModel, lower};

pub use crate::python::Dialect;
pub use train::{rules_of_step, train};

/// Modules of the standard library, by what needs them, in the order of their imports.
const IMPORTS: [(&str, &str); 4] = [
    ("math.", "import math"),
    ("OrderedDict(", "from collections import OrderedDict"),
    ("Callable[", "from collections.abc import Callable"),
    (": Any", "from typing import Any"),
];

/// What a program is written from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The recipe as it was named.
    pub recipe: &'a str,
    /// Its profile.
    pub profile: Option<&'a str>,
    /// Values that were overridden, as `path=value`.
    pub sets: &'a [String],
    /// Whether `rules.py` is written in place of `train.py`.
    pub rules_alone: bool,
    /// Version of zoo.
    pub version: &'a str,
    /// Hash of the recipe with all values, by which programs of one recipe are known.
    pub hash: fn(&[u8]) -> u64,
}

/// A program, as names and texts of files.
///
/// # Errors
/// As [`model`].
pub fn program(
    dialect: Dialect,
    recipe: &Recipe,
    resolved: &ResolvedModel,
    origin: Origin<'_>,
) -> Result<Vec<(&'static str, String)>, Diagnostics> {
    let mut files = vec![("model.py", model(dialect, recipe, resolved)?)];
    match dialect {
        Dialect::PyTorch => files.push(match origin.rules_alone {
            true => ("rules.py", rules_of_step(recipe, resolved)?),
            false => ("train.py", train(recipe, resolved)?),
        }),
        Dialect::MindSpore => files.extend(mindspore::files(recipe, resolved, origin.rules_alone)?),
    }
    let unwritten = |error: serde_yaml::Error| {
        let path = ConfigPath::default();
        let diagnostic = Diagnostic::error(recipe.span(""), path, format!("it cannot be written: {error}"));
        Diagnostics::new(vec![diagnostic], recipe.spans.sources())
    };
    let yaml = recipe.to_yaml().map_err(unwritten)?;
    let about = serde_json::json!({
        "framework": dialect.name().to_lowercase(),
        "zoo": origin.version,
        "recipe": origin.recipe,
        "profile": origin.profile,
        "set": origin.sets,
        "class": class_name(recipe),
        "classes": resolved.classes,
        "inputs": resolved.inputs.iter().map(|(name, shape)| described(name, shape)).collect::<Vec<_>>(),
        "golden": recipe.golden,
        "fingerprint": format!("{:016x}", (origin.hash)(yaml.as_bytes())),
    });
    let about = format!("{about:#}\n");
    files.extend([("README.md", readme(dialect, recipe, resolved, origin)), ("recipe.yaml", yaml)]);
    files.push(("emitted.json", about));
    Ok(files)
}

/// Name, kind, type and shape of an input, without the batch.
fn described(name: &str, shape: &InputShape) -> serde_json::Value {
    let (kind, dtype) = match shape {
        InputShape::Image(_) => ("image", "float32"),
        InputShape::Indices(_) => ("indices", "int64"),
        InputShape::Numbers(_) => ("numbers", "float32"),
    };
    let extents: Vec<usize> = shape.extents().iter().map(|extent| extent.0).collect();
    serde_json::json!({"name": name, "kind": kind, "dtype": dtype, "shape": extents})
}

fn readme(dialect: Dialect, recipe: &Recipe, resolved: &ResolvedModel, origin: Origin<'_>) -> String {
    let class = class_name(recipe);
    let about = recipe.description.as_deref().unwrap_or(&recipe.name);
    let shapes = resolved.inputs.iter().map(|(name, shape)| {
        let extents: Vec<String> = shape.extents().iter().map(|extent| extent.0.to_string()).collect();
        format!("`{name}` of `[N, {}]`", extents.join(", "))
    });
    let shapes: Vec<String> = shapes.collect();
    let command = std::iter::once(format!("zoo emit {} --to {}", origin.recipe, dialect.name().to_lowercase()))
        .chain(origin.profile.map(|profile| format!("--profile {profile}")))
        .chain(origin.sets.iter().map(|set| format!("--set '{set}'")))
        .chain(origin.rules_alone.then(|| "--no-data".to_owned()));
    let command: Vec<String> = command.collect();
    let training = match origin.rules_alone {
        true => "\n`rules.py` has the loss, the optimizer and the learning rates, for a loop with data of yours.\n".to_owned(),
        false if dialect == Dialect::MindSpore => mindspore::COMMANDS.to_owned(),
        false => "\nTrain it on a GPU, on an NPU, or on all GPUs of a machine:\n\n```\npython train.py --device cuda \
                  --precision bf16\npython train.py --device npu\ntorchrun --nproc-per-node 8 train.py --device cuda\n```\n\n\
                  It writes `log.jsonl` and `checkpoint.pt` into `--out`, goes on with `--resume`, and ends with exit \
                  code 1 if it misses the target. `python train.py --help` lists the options. It needs torchvision.\n"
            .to_owned()
            + &train::about_data(recipe),
    };
    let needs = match dialect {
        Dialect::PyTorch => "It needs PyTorch 2.4 or later.",
        Dialect::MindSpore => mindspore::NEEDS,
    };
    format!(
        "# {}\n\n{about}.\n\n`model.py` has the network, `{class}`, for {}. {needs} `recipe.yaml` is what it was written from, by `{}` of zoo {}.\n{training}\nProve that it is the recipe: its operations, and \
         its numbers where there is a golden:\n\n```\npython -m zoo_golden prove .\n```\n",
        recipe.name,
        shapes.join(" and "),
        command.join(" "),
        origin.version,
    )
}

/// Refuses names that would end a text of Python in which they stand.
fn expect_quotable<'n>(
    recipe: &Recipe,
    path: &str,
    mut names: impl Iterator<Item = &'n str>,
) -> Result<(), Diagnostic> {
    let ends = |c: char| c == '"' || c == '\\' || c.is_control();
    match names.find(|name| name.contains(ends)) {
        None => Ok(()),
        Some(name) => {
            let message = format!("{name:?} cannot stand in a program: it has a quotation mark or a backslash");
            Err(recipe.error_at(&path.into(), message))
        }
    }
}

/// `model.py`: the network as a module of the framework.
///
/// # Errors
/// What the framework cannot express, with the line of the recipe.
pub fn model(dialect: Dialect, recipe: &Recipe, resolved: &ResolvedModel) -> Result<String, Diagnostics> {
    let fail = |diagnostic| Diagnostics::new(vec![diagnostic], recipe.spans.sources());
    expect_quotable(recipe, "name", [recipe.name.as_str()].into_iter()).map_err(fail)?;
    expect_quotable(recipe, "model.inputs", recipe.model.inputs.keys().map(String::as_str)).map_err(fail)?;
    expect_quotable(recipe, "model.outputs", resolved.outputs.keys().map(String::as_str)).map_err(fail)?;
    let (graph, shapes) = lower::shapes(recipe, resolved)
        .map_err(|error| fail(Diagnostic::error(recipe.span("model"), ConfigPath::from("model"), error.to_string())))?;
    let written = walk::write(dialect, &recipe.model, resolved, &shapes).map_err(fail)?;
    let mut uses = written.uses;
    trim(&mut uses);
    drop_inputs(&mut uses);
    let defined: HashSet<String> = written.helpers.iter().flat_map(|helper| python::defined(helper)).collect();
    let classes = classes::classes(uses, &recipe.name, &defined);
    let mut body: Vec<String> = Vec::new();
    for helper in &written.helpers {
        body.extend(["".to_owned(), "".to_owned()]);
        body.extend(helper.trim().lines().map(str::to_owned));
    }
    for (index, class) in classes.iter().enumerate() {
        let root = index + 1 == classes.len();
        let doc = match root {
            true => recipe.description.clone().unwrap_or_else(|| recipe.name.clone()),
            false => format!("`{}` of {}.", class.content.label, recipe.name),
        };
        body.extend(["".to_owned(), "".to_owned()]);
        let (mut more, mut methods) = (Vec::new(), Vec::new());
        if root {
            let refused = |reason| {
                let path = ConfigPath::from("model");
                fail(Diagnostic::error(recipe.span("model"), path, reason))
            };
            methods = initial::method(dialect.style(), &graph, &written.modules, &written.ties).map_err(refused)?;
            if dialect == Dialect::MindSpore {
                // Names of parameters, also of those that were added to cells inside of others.
                more.push("        self.update_parameters_name()".to_owned());
            }
            if !methods.is_empty() {
                more.push("        self.initialize()".to_owned());
            }
            let at = |path| dialect.frame().at_path("self", path);
            more.extend(written.ties.iter().map(|(name, other)| format!("        {} = {}", at(name), at(other))));
        }
        body.extend(print::class(dialect.frame(), class, &doc, root, &defined, (&more, &methods)));
    }
    let mut text = body.join("\n");
    if dialect == Dialect::MindSpore {
        text = mindspore::completed(text);
    }
    let imports = match dialect {
        Dialect::PyTorch => imports(&text),
        Dialect::MindSpore => mindspore::imports(&text),
    };
    let mut lines = Vec::new();
    print::docstring(&format!("The network of {}.", recipe.name), 0, &mut lines);
    lines.push(String::new());
    lines.extend(imports);
    Ok(format!("{}\n{text}\n", lines.join("\n")))
}

/// Imports of the standard library that a text needs, with an empty line behind them.
fn standard(text: &str) -> Vec<String> {
    let mut imports = Vec::new();
    for (module, line) in IMPORTS {
        if text.contains(module) {
            imports.push(line.to_owned());
        }
    }
    if !imports.is_empty() {
        imports.push(String::new());
    }
    imports
}

fn imports(text: &str) -> Vec<String> {
    let mut imports = standard(text);
    if text.contains("torch.") {
        imports.push("import torch".to_owned());
    }
    imports.push("from torch import Tensor, nn".to_owned());
    if text.contains("functional.") {
        imports.push("from torch.nn import functional".to_owned());
    }
    // As a word: attributes may have the same name.
    let called = |name: &&str| text.contains(&format!(" {name}(")) || text.contains(&format!("({name}("));
    let depth: Vec<&str> = ["StochasticDepth", "stochastic_depth"].into_iter().filter(called).collect();
    if !depth.is_empty() {
        imports.push(format!("from torchvision.ops import {}", depth.join(", ")));
    }
    imports
}

/// The name of the network's class.
pub fn class_name(recipe: &Recipe) -> String {
    classes::camel(&recipe.name)
}
