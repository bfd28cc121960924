//! The program under way.

use zoo_graph::Graph;

use crate::Recipe;
use crate::diagnostic::Diagnostic;
use crate::python::Dialect;
use crate::python::classes::camel;
use crate::schema::Source;

/// Imports, by what needs them: a text of the program. In the order of the file; an empty line divides sections.
type Imports = &'static [(&'static str, &'static str)];

const PYTORCH: Imports = &[
    ("argparse.", "import argparse"),
    ("importlib.", "import importlib"),
    ("json.", "import json"),
    ("math.", "import math"),
    ("os.", "import os"),
    ("struct.", "import struct"),
    ("sys.", "import sys"),
    ("time.", "import time"),
    ("Counter(", "from collections import Counter"),
    ("[", ABSTRACT),
    ("fnmatchcase(", "from fnmatch import fnmatchcase"),
    ("Path(", "from pathlib import Path"),
    ("TextIO", "from typing import TextIO"),
    ("", ""),
    ("numpy.", "import numpy"),
    ("torch.", "import torch"),
    ("Image.", "from PIL import Image"),
    ("Tokenizer.", "from tokenizers import Tokenizer"),
    ("distributed.", "from torch import Tensor, distributed, nn"),
    ("", "from torch import Tensor, nn"),
    ("functional.", "from torch.nn import functional"),
    ("DistributedDataParallel(", "from torch.nn.parallel import DistributedDataParallel"),
    ("record_function(", "from torch.profiler import record_function"),
    ("DataLoader(", "from torch.utils.data import DataLoader, Dataset"),
    ("ops.", "from torchvision import ops"),
    ("ImageFolder(", "from torchvision.datasets import ImageFolder"),
    (" v2.", "from torchvision.transforms import v2"),
    ("", ""),
];

/// As [`PYTORCH`], with MindSpore.
const MINDSPORE: Imports = &[
    ("argparse.", "import argparse"),
    ("json.", "import json"),
    ("math.", "import math"),
    ("os.", "import os"),
    ("sys.", "import sys"),
    ("time.", "import time"),
    ("Counter(", "from collections import Counter, deque"),
    ("[", ABSTRACT),
    ("ThreadPoolExecutor(", "from concurrent.futures import Future, ThreadPoolExecutor"),
    ("fnmatchcase(", "from fnmatch import fnmatchcase"),
    ("Path(", "from pathlib import Path"),
    ("TextIO", "from typing import TextIO"),
    ("", ""),
    ("mindspore.", "import mindspore"),
    ("np.", "import numpy as np"),
    ("ParameterTuple(", "from mindspore import Parameter, ParameterTuple, Tensor, nn, ops"),
    ("ImageOps.", "from PIL import Image, ImageEnhance, ImageOps"),
    ("Image.", "from PIL import Image"),
    ("save_file(", "from safetensors.numpy import load_file, save_file"),
    ("Tokenizer.", "from tokenizers import Tokenizer"),
    ("", ""),
];

/// What is completed with the names that the program uses.
const ABSTRACT: &str = "from collections.abc import ";

/// A program, section by section.
pub(in crate::emit) struct Program<'a> {
    /// The framework.
    pub dialect: Dialect,
    /// The recipe.
    pub recipe: &'a Recipe,
    /// The graph of its step, for two samples.
    pub graph: &'a Graph,
    /// Whether it reads what `zoo data make` writes.
    pub prepared: bool,
    sections: Vec<String>,
}

/// Whether the program reads what `zoo data make` writes, because it cannot prepare such data.
pub(super) fn prepared(recipe: &Recipe) -> bool {
    match recipe.data.source {
        Source::ImageFolder(_) | Source::Cifar10(_) | Source::Idx(_) => false,
        Source::TextFile(_) => recipe.preprocess.masking.is_some(),
        Source::Characters(_)
        | Source::TextScenes(_)
        | Source::Shapes(_)
        | Source::BoxedShapes(_)
        | Source::Videos(_)
        | Source::Sentences(_)
        | Source::ClassFolders(_)
        | Source::TextFolder(_)
        | Source::LabelMaps(_)
        | Source::Boxes(_)
        | Source::Crop511(_)
        | Source::FrameFolder(_) => true,
    }
}

impl<'a> Program<'a> {
    /// A program without content.
    pub fn new(dialect: Dialect, recipe: &'a Recipe, graph: &'a Graph) -> Self {
        Self { dialect, recipe, graph, prepared: prepared(recipe), sections: Vec::new() }
    }

    /// Adds a function, a class, or constants.
    pub fn add(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() && !self.sections.iter().any(|known| known == text) {
            self.sections.push(text.to_owned());
        }
    }

    /// An error at a path of the recipe.
    pub fn refuse(&self, path: &str, message: impl Into<String>) -> Diagnostic {
        self.recipe.error_at(&path.into(), message)
    }

    /// The class of the network.
    pub fn network(&self) -> String {
        camel(&self.recipe.name)
    }

    /// The first output of the network, of what its call returns.
    pub fn first_output(&self, outputs: &str) -> String {
        match &self.graph.outputs[..] {
            [] | [_] => outputs.to_owned(),
            [(name, _), ..] => format!("{outputs}[\"{name}\"]"),
        }
    }

    /// The names of the inputs of the network.
    pub fn inputs(&self) -> Vec<&'a str> {
        self.recipe.model.inputs.keys().map(String::as_str).collect()
    }

    /// The call of the network on a batch.
    pub fn call(&self, network: &str) -> String {
        let arguments: Vec<String> = self.inputs().iter().map(|name| format!("batch[\"{name}\"]")).collect();
        format!("{network}({})", arguments.join(", "))
    }

    /// The file.
    pub fn text(&self) -> String {
        let body = self.sections.join("\n\n\n");
        let about = match body.contains("def main(") {
            true => format!("\"\"\"Trains {}; `python train.py --help` lists the options.\"\"\"", self.recipe.name),
            false => format!("\"\"\"Loss, optimizer and learning rate of {}.\"\"\"", self.recipe.name),
        };
        let mut lines = vec![about, String::new()];
        let abstract_ = ["Callable", "Iterable", "Iterator", "Sequence"]
            .into_iter()
            .filter(|name| body.contains(&format!("{name}[")));
        let abstract_ = format!("{ABSTRACT}{}", abstract_.collect::<Vec<_>>().join(", "));
        let imports = match self.dialect {
            Dialect::PyTorch => PYTORCH,
            Dialect::MindSpore => MINDSPORE,
        };
        for (needle, line) in imports {
            let line = if *line == ABSTRACT { abstract_.as_str() } else { line };
            let standard = lines.len() > 2;
            let module = line.split_once(" import ").map_or("", |(module, _)| module);
            let same = |known: &String| known.strip_prefix(module).is_some_and(|rest| rest.starts_with(" import "));
            let again = !standard && line.is_empty() || module.starts_with("from ") && lines.iter().any(same);
            if (needle.is_empty() || body.contains(needle)) && line != ABSTRACT && !again {
                lines.push(line.to_owned());
            }
        }
        let mut own = Vec::new();
        own.extend(
            body.contains(&format!("{}()", self.network())).then(|| format!("from model import {}", self.network())),
        );
        if self.dialect == Dialect::MindSpore {
            let used = ["load", "parameters", "save", "state"];
            let used = used.into_iter().filter(|name| {
                body.contains(&format!(" {name}(network")) || body.contains(&format!("{name}(self.network"))
            });
            let used: Vec<&str> = used.collect();
            own.extend((!used.is_empty()).then(|| format!("from weights import {}", used.join(", "))));
        }
        match own.is_empty() {
            true => _ = lines.pop(),
            false => lines.extend(own),
        }
        format!("{}\n\n{body}\n", lines.join("\n"))
    }
}
