//! Layers to be written.

use indexmap::{IndexMap, IndexSet};
use zoo_recipe::layers::Axis;

use crate::word::{Entry, Kind, Word};

/// A layer as it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A separate layer.
    Layer {
        /// Its operations.
        word: Word,
        /// Its name, which is the path of its module or of its parameter until it is laid out; `None`: a plain
        /// function.
        name: Option<String>,
    },
    /// Keeps the present value under a name.
    Tap(String),
    /// Goes on from a kept value.
    From(String),
    /// Adds, subtracts or multiplies by a kept value.
    Join(&'static str, String),
    /// Sum of two branches.
    Residual {
        /// The branch that computes.
        main: Vec<Item>,
        /// The branch around it.
        shortcut: Vec<Item>,
    },
    /// Branches, joined along an axis.
    Concat {
        /// The branches, in order.
        branches: Vec<Vec<Item>>,
        /// The axis.
        axis: Axis,
    },
    /// A layer around others: one that multiplies by a function, or applies them to windows.
    Around {
        /// The layer.
        word: Word,
        /// The others.
        body: Vec<Item>,
    },
    /// A name that is no module.
    Scope {
        /// The name.
        name: String,
        /// Its layers.
        body: Vec<Item>,
    },
    /// A module with its layers.
    Module {
        /// Its name, which is its path until it is laid out.
        name: String,
        /// Its path in the network.
        path: String,
        /// Its class.
        class: String,
        /// File and line of its class.
        source: Option<String>,
        /// Its layers.
        body: Vec<Item>,
        /// Its return values by key, if there are several: taps inside it.
        returns: IndexMap<String, String>,
        /// Whether it is there, where that differs between uses of the block around it.
        enabled: Option<Entry>,
        /// Whether it is written inline.
        closed: bool,
    },
    /// A block used as a module.
    Use {
        /// The module's name.
        name: String,
        /// The block's.
        block: String,
        /// Its arguments.
        args: IndexMap<String, Entry>,
        /// Arguments that count channels.
        channels: IndexSet<String>,
        /// Its return values by key, if there are several.
        returns: IndexMap<String, String>,
    },
    /// A block several times in a row.
    Stack {
        /// The name of the module; empty if the uses have no common module.
        name: String,
        /// The block's.
        block: String,
        /// The prefix of the number in the name of each use.
        item: String,
        /// How many times.
        repeat: Entry,
        /// Arguments of every use.
        args: IndexMap<String, Entry>,
        /// Those of the first that differ.
        first: IndexMap<String, Entry>,
        /// Arguments that count channels.
        channels: IndexSet<String>,
    },
}

impl Item {
    /// Whether it joins branches, and can have the name of a module of which it is all.
    pub fn is_join(&self) -> bool {
        match self {
            Self::Residual { .. } | Self::Concat { .. } => true,
            Self::Around { word, .. } => word.kind == Kind::Gate,
            Self::Layer { .. }
            | Self::Tap(_)
            | Self::From(_)
            | Self::Join(..)
            | Self::Scope { .. }
            | Self::Module { .. }
            | Self::Use { .. }
            | Self::Stack { .. } => false,
        }
    }
}

/// Calls `visit` with every list of layers, those inside before those around them.
pub fn each_list(items: &mut Vec<Item>, visit: &mut dyn FnMut(&mut Vec<Item>)) {
    for item in items.iter_mut() {
        match item {
            Item::Residual { main, shortcut } => {
                each_list(main, visit);
                each_list(shortcut, visit);
            }
            Item::Concat { branches, .. } => branches.iter_mut().for_each(|branch| each_list(branch, visit)),
            Item::Around { body, .. } | Item::Scope { body, .. } | Item::Module { body, .. } => each_list(body, visit),
            Item::Layer { .. }
            | Item::Tap(_)
            | Item::From(_)
            | Item::Join(..)
            | Item::Use { .. }
            | Item::Stack { .. } => {}
        }
    }
    visit(items);
}

/// Number of layers that are written.
pub fn size(items: &[Item]) -> usize {
    let one = |item: &Item| match item {
        Item::Layer { .. } | Item::Use { .. } | Item::Stack { .. } | Item::Join(..) => 1,
        Item::Tap(_) | Item::From(_) => 1,
        Item::Residual { main, shortcut } => 1 + size(main) + size(shortcut),
        Item::Concat { branches, .. } => 1 + branches.iter().map(|branch| size(branch)).sum::<usize>(),
        Item::Around { body, .. } | Item::Scope { body, .. } | Item::Module { body, .. } => 1 + size(body),
    };
    items.iter().map(one).sum()
}
