//! Programs for other frameworks: a network as PyTorch.
//!
//! [`network`] walks through the resolved network as it is built: each layer says how it is written. The result are
//! uses of classes; [`classes`] makes one class of uses that differ in numbers only, and [`print`] writes it.

mod at;
mod blocks;
mod classes;
mod code;
mod formula;
mod forward;
mod initial;
mod network;
mod number;
mod print;
mod python;
mod repeat;
mod train;
mod usage;

use std::collections::{HashMap, HashSet};

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::schema::InputShape;
use crate::{ConfigPath, Recipe, ResolvedModel, lower};

use usage::Usage;

pub(crate) use at::{At, Given};
pub(crate) use code::{Binding, Code, Piece, Var};
pub(crate) use number::{Kind, Number};
pub(crate) use train::{Judged, real};
pub use train::{rules_of_step, train};

/// Modules of the standard library, by what needs them, in the order of their imports.
const IMPORTS: [(&str, &str); 3] = [
    ("math.", "import math"),
    ("OrderedDict(", "from collections import OrderedDict"),
    ("Callable[", "from collections.abc import Callable"),
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

/// A program in PyTorch, as names and texts of files.
///
/// # Errors
/// As [`model`].
pub fn pytorch(
    recipe: &Recipe,
    resolved: &ResolvedModel,
    origin: Origin<'_>,
) -> Result<Vec<(&'static str, String)>, Diagnostics> {
    let model = model(recipe, resolved)?;
    let training = match origin.rules_alone {
        true => ("rules.py", rules_of_step(recipe, resolved)?),
        false => ("train.py", train(recipe, resolved)?),
    };
    let unwritten = |error: serde_yaml::Error| {
        let path = ConfigPath::default();
        let diagnostic = Diagnostic::error(recipe.span(""), path, format!("it cannot be written: {error}"));
        Diagnostics::new(vec![diagnostic], recipe.spans.sources())
    };
    let yaml = recipe.to_yaml().map_err(unwritten)?;
    let about = serde_json::json!({
        "framework": "pytorch",
        "zoo": origin.version,
        "recipe": origin.recipe,
        "profile": origin.profile,
        "set": origin.sets,
        "class": class_name(recipe),
        "classes": resolved.classes,
        "inputs": resolved.inputs.iter().map(|(name, shape)| described(name, shape)).collect::<Vec<_>>(),
        "golden": recipe.golden.as_ref().map(|golden| &golden.manifest),
        "fingerprint": format!("{:016x}", (origin.hash)(yaml.as_bytes())),
    });
    let readme = readme(recipe, resolved, origin);
    let about = format!("{about:#}\n");
    Ok(vec![("model.py", model), training, ("README.md", readme), ("recipe.yaml", yaml), ("emitted.json", about)])
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

fn readme(recipe: &Recipe, resolved: &ResolvedModel, origin: Origin<'_>) -> String {
    let class = class_name(recipe);
    let about = recipe.description.as_deref().unwrap_or(&recipe.name);
    let shapes = resolved.inputs.iter().map(|(name, shape)| {
        let extents: Vec<String> = shape.extents().iter().map(|extent| extent.0.to_string()).collect();
        format!("`{name}` of `[N, {}]`", extents.join(", "))
    });
    let shapes: Vec<String> = shapes.collect();
    let command = std::iter::once(format!("zoo emit {} --to pytorch", origin.recipe))
        .chain(origin.profile.map(|profile| format!("--profile {profile}")))
        .chain(origin.sets.iter().map(|set| format!("--set '{set}'")))
        .chain(origin.rules_alone.then(|| "--no-data".to_owned()));
    let command: Vec<String> = command.collect();
    let training = match origin.rules_alone {
        true => "\n`rules.py` has the loss, the optimizer and the learning rates, for a loop with data of yours.\n".to_owned(),
        false => "\nTrain it on a GPU, on an NPU, or on all GPUs of a machine:\n\n```\npython train.py --device cuda \
                  --precision bf16\npython train.py --device npu\ntorchrun --nproc-per-node 8 train.py --device cuda\n```\n\n\
                  It writes `log.jsonl` and `checkpoint.pt` into `--out`, goes on with `--resume`, and ends with exit \
                  code 1 if it misses the target. `python train.py --help` lists the options. It needs torchvision.\n"
            .to_owned()
            + &train::about_data(recipe),
    };
    format!(
        "# {}\n\n{about}.\n\n`model.py` has the network, `{class}`, for {}. It needs PyTorch 2.4 or later. `recipe.yaml` \
         is what it was written from, by `{}` of zoo {}.\n{training}\nProve that it is the recipe: its operations, and \
         its numbers where there is a golden:\n\n```\npython -m zoo_golden prove .\n```\n",
        recipe.name,
        shapes.join(" and "),
        command.join(" "),
        origin.version,
    )
}

/// `model.py`: the network as a PyTorch module.
///
/// # Errors
/// What PyTorch cannot express, with the line of the recipe.
pub fn model(recipe: &Recipe, resolved: &ResolvedModel) -> Result<String, Diagnostics> {
    let fail = |diagnostic| Diagnostics::new(vec![diagnostic], recipe.spans.sources());
    let (graph, shapes) = lower::shapes(recipe, resolved)
        .map_err(|error| fail(Diagnostic::error(recipe.span("model"), ConfigPath::from("model"), error.to_string())))?;
    let written = network::write(&recipe.model, resolved, &shapes).map_err(fail)?;
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
            methods = initial::method(&graph, &written.modules, &written.ties);
            if !methods.is_empty() {
                more.push("        self.initialize()".to_owned());
            }
            more.extend(written.ties.iter().map(|(name, other)| format!("        self.{name} = self.{other}")));
        }
        body.extend(print::class(class, &doc, root, &defined, (&more, &methods)));
    }
    let text = body.join("\n");
    let mut imports = Vec::new();
    for (module, line) in IMPORTS {
        if text.contains(module) {
            imports.push(line.to_owned());
        }
    }
    if !imports.is_empty() {
        imports.push(String::new());
    }
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
    let mut lines = Vec::new();
    print::docstring(&format!("The network of {}.", recipe.name), 0, &mut lines);
    lines.push(String::new());
    lines.extend(imports);
    Ok(format!("{}\n{text}\n", lines.join("\n")))
}

/// The name of the network's class.
pub fn class_name(recipe: &Recipe) -> String {
    classes::camel(&recipe.name)
}

/// Results of classes that something needs, by the key of the class.
type Needed = HashMap<String, HashSet<usize>>;

/// Removes what nothing needs: calls, and results of classes.
fn trim(uses: &mut Vec<Usage>) {
    let mut needed = Needed::new();
    needed.insert("model".to_owned(), (0..uses.last().map_or(0, |root| root.outputs.len())).collect());
    loop {
        let known = needed.clone();
        let mut trimmed = uses.clone();
        for index in (0..uses.len()).rev() {
            trim_one(&mut trimmed, index, &mut needed);
        }
        if needed == known {
            *uses = trimmed;
            break;
        }
    }
}

/// Classes that do not need the present value do not get it.
fn drop_inputs(uses: &mut [Usage]) {
    loop {
        let needs = |usage: &Usage| {
            let x = usage.inputs[0].1;
            let computed = usage.statements.iter().any(|statement| statement.code.values().contains(&x));
            computed || usage.inputs.len() == 1 || usage.outputs.iter().any(|(_, var)| *var == x)
        };
        let needing: HashSet<String> =
            uses.iter().filter(|usage| needs(usage)).map(|usage| usage.key.clone()).collect();
        let mut dropped = vec![false; uses.len()];
        for (usage, dropped) in uses.iter_mut().zip(&mut dropped) {
            if !needing.contains(&usage.key) {
                usage.inputs.remove(0);
                *dropped = true;
            }
        }
        if !dropped.contains(&true) {
            return;
        }
        for usage in uses.iter_mut() {
            let children = usage.children.iter();
            let paths: HashSet<String> = children
                .filter(|child| {
                    let code = child.code.as_ref();
                    code.is_some_and(|code| matches!(code.pieces[..], [Piece::New(inner)] if dropped[inner]))
                })
                .map(|child| child.path.clone())
                .collect();
            for statement in &mut usage.statements {
                if let [Piece::Child(path), Piece::List(_, operands, _)] = &mut statement.code.pieces[..]
                    && paths.contains(path)
                {
                    operands.remove(0);
                }
            }
            forward::prune(usage);
        }
    }
}

fn trim_one(uses: &mut [Usage], index: usize, needed: &mut Needed) {
    let mut wanted = needed.get(&uses[index].key).cloned().unwrap_or_default();
    wanted.extend(0..uses[index].returns);
    let mut place = 0;
    uses[index].outputs.retain(|_| {
        place += 1;
        wanted.contains(&(place - 1))
    });
    forward::prune(&mut uses[index]);
    let mut usage = uses[index].clone();
    let outputs = usage.outputs.iter().map(|(_, var)| *var);
    let used: HashSet<Var> =
        usage.statements.iter().flat_map(|statement| statement.code.values()).chain(outputs).collect();
    for child in &usage.children {
        let Some(code) = &child.code else { continue };
        let whole = match code.pieces[..] {
            [Piece::New(inner)] => Some(uses[inner].key.clone()),
            _ => None,
        };
        let mut inside = Vec::new();
        code.visit(&mut |piece| {
            if let Piece::New(inner) = piece {
                inside.push(uses[*inner].key.clone());
            }
        });
        for key in inside.into_iter().filter(|key| Some(key) != whole.as_ref()) {
            needed.entry(key).or_default().insert(0);
        }
        let Some(key) = whole else { continue };
        let inner =
            code.pieces.first().and_then(|piece| if let Piece::New(inner) = piece { Some(*inner) } else { None });
        let returns = inner.map_or(0, |inner| uses[inner].returns);
        let results = needed.entry(key).or_default();
        results.extend(0..returns);
        let called = |code: &Code| matches!(code.pieces.first(), Some(Piece::Child(path)) if *path == child.path);
        let calls = usage.statements.iter_mut().filter(|statement| called(&statement.code));
        for call in calls {
            let live = call.targets.iter().enumerate().filter(|(_, target)| used.contains(target));
            results.extend(live.map(|(place, _)| place));
            let mut place = 0;
            call.targets.retain(|_| {
                place += 1;
                results.contains(&(place - 1))
            });
        }
    }
    uses[index] = usage;
}
