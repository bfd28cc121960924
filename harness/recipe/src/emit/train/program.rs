//! The program under way.

use zoo_graph::Graph;

use crate::Recipe;
use crate::diagnostic::Diagnostic;
use crate::emit::classes::camel;

/// Imports, by what needs them: a text of the program. In the order of the file; an empty line divides sections.
const IMPORTS: &[(&str, &str)] = &[
    ("argparse.", "import argparse"),
    ("copy.", "import copy"),
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

/// What is completed with the names that the program uses.
const ABSTRACT: &str = "from collections.abc import ";

/// A program, section by section.
pub(super) struct Program<'a> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// The graph of its step, for two samples.
    pub graph: &'a Graph,
    /// Whether it reads what `zoo data make` writes.
    pub prepared: bool,
    sections: Vec<String>,
}

impl<'a> Program<'a> {
    /// A program without content.
    pub fn new(recipe: &'a Recipe, graph: &'a Graph) -> Self {
        Self { recipe, graph, prepared: super::data::prepared(recipe), sections: Vec::new() }
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
        let abstract_ =
            ["Callable", "Iterable", "Iterator"].into_iter().filter(|name| body.contains(&format!("{name}[")));
        let abstract_ = format!("{ABSTRACT}{}", abstract_.collect::<Vec<_>>().join(", "));
        for (needle, line) in IMPORTS {
            let line = if *line == ABSTRACT { abstract_.as_str() } else { line };
            let standard = lines.len() > 2;
            let again = !standard && line.is_empty()
                || line.starts_with("from torch import")
                    && lines.iter().any(|known| known.starts_with("from torch import"));
            if (needle.is_empty() || body.contains(needle)) && line != ABSTRACT && !again {
                lines.push(line.to_owned());
            }
        }
        if body.contains(&format!("{}()", self.network())) {
            lines.push(format!("from model import {}", self.network()));
        } else {
            lines.pop();
        }
        format!("{}\n\n{body}\n", lines.join("\n"))
    }
}
