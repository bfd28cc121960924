//! Frameworks that programs are written for, and what they call the frame of a network.

use super::code::{Binding, Code, Piece};
use super::initial::{self, Style};
use super::names::is_identifier;
use super::{mindspore, names};

/// A framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PyTorch.
    PyTorch,
    /// MindSpore.
    MindSpore,
}

/// What a framework calls modules and their holders. Codes name them in PyTorch's words until they are printed.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The base of all modules.
    pub module: &'static str,
    /// Modules in a row.
    pub sequential: &'static str,
    /// A list of modules.
    pub list: &'static str,
    /// A dict of modules; without one, a plain module holds modules under names.
    pub dict: Option<&'static str>,
    /// Whether a list of modules takes a generator.
    pub generator: bool,
    /// The method that computes the result.
    pub forward: &'static str,
    /// The method that adds a module.
    pub add: &'static str,
    /// The method that finds a module.
    pub find: &'static str,
    /// The method that adds a parameter.
    pub add_parameter: &'static str,
}

const PYTORCH: Frame = Frame {
    module: "nn.Module",
    sequential: "nn.Sequential",
    list: "nn.ModuleList",
    dict: Some("nn.ModuleDict"),
    generator: true,
    forward: "forward",
    add: "add_module",
    find: "get_submodule",
    add_parameter: "register_parameter",
};

/// A `nn.CellDict` cannot hold lists.
const MINDSPORE: Frame = Frame {
    module: "nn.Cell",
    sequential: "nn.SequentialCell",
    list: "nn.CellList",
    dict: None,
    generator: false,
    forward: "construct",
    add: "insert_child_to_cell",
    find: "get_sub_cell",
    add_parameter: "insert_param_to_cell",
};

impl Frame {
    /// A part of a module, whose name may be a number.
    pub(super) fn part(&self, owner: &str, name: &str) -> String {
        if is_identifier(name) { format!("{owner}.{name}") } else { format!("{owner}.{}(\"{name}\")", self.find) }
    }

    /// What stands at a path in a module.
    pub(crate) fn at_path(&self, owner: &str, path: &str) -> String {
        path.split('.').fold(owner.to_owned(), |owner, name| self.part(&owner, name))
    }
}

impl Dialect {
    /// Its words.
    pub(crate) fn frame(self) -> &'static Frame {
        match self {
            Self::PyTorch => &PYTORCH,
            Self::MindSpore => &MINDSPORE,
        }
    }

    /// How it writes initial values.
    pub(crate) fn style(self) -> &'static Style {
        match self {
            Self::PyTorch => &initial::PYTORCH,
            Self::MindSpore => &mindspore::STYLE,
        }
    }

    /// Whether every module has an attribute of this name.
    pub(super) fn is_attribute(self, name: &str) -> bool {
        match self {
            Self::PyTorch => names::is_attribute(name),
            Self::MindSpore => mindspore::is_attribute(name),
        }
    }

    /// What a loop over the parameters of `network` runs over.
    pub(crate) fn parameters(self) -> &'static str {
        match self {
            Self::PyTorch => "network.parameters()",
            Self::MindSpore => "network.trainable_params()",
        }
    }

    /// The same with their names in a state_dict.
    pub(crate) fn named_parameters(self) -> &'static str {
        match self {
            Self::PyTorch => "network.named_parameters()",
            Self::MindSpore => "parameters(network).items()",
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "PyTorch",
            Self::MindSpore => "MindSpore",
        }
    }
}

impl Frame {
    /// Holders of modules in the words of the framework.
    pub fn worded(&self, mut code: Code) -> Code {
        let mut list = false;
        for piece in &mut code.pieces {
            match piece {
                Piece::Text(text) => {
                    list = text == "nn.ModuleList";
                    match text.as_str() {
                        "nn.Sequential" => *text = self.sequential.to_owned(),
                        "nn.ModuleList" => *text = self.list.to_owned(),
                        _ => {}
                    }
                }
                Piece::List(_, items, _) => {
                    for item in items {
                        let worded = self.worded(item.clone());
                        let is_list = matches!(worded.pieces.first(), Some(Piece::List("[", ..)));
                        // A list is no generator.
                        let brackets = list && !is_list && !self.generator;
                        *item = if brackets { worded.around("[", "]", Binding::Tight) } else { worded };
                    }
                }
                Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) => {}
                Piece::Child(_) | Piece::New(_) | Piece::Row(..) => {}
            }
        }
        code
    }
}
