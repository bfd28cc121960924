//! Layers to be written.

use indexmap::{IndexMap, IndexSet};
use zoo_recipe::layers::Axis;

use crate::word::{Entry, Kind, Word};

/// A layer, as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A separate layer.
    Layer {
        /// Its key and settings.
        word: Word,
        /// Its name; before layout, the path of its module or parameter. `None` for a plain function.
        name: Option<String>,
    },
    /// Stores the current value under a name.
    Tap(String),
    /// Continues from a stored value.
    From(String),
    /// Adds, subtracts or multiplies by a stored value.
    Join(&'static str, String),
    /// Calls a module, or a layer with parameters, again.
    Again {
        /// Its name; before layout, its path.
        name: String,
        /// The number of the call, from 1.
        call: usize,
    },
    /// Sum of two branches.
    Residual {
        /// The branch with more layers.
        main: Vec<Item>,
        /// The other branch.
        shortcut: Vec<Item>,
    },
    /// Branches that are concatenated along an axis.
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
        /// Its name; before layout, its path.
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
        /// Whether it exists, if this differs between uses of the enclosing block.
        enabled: Option<Entry>,
        /// Whether it is written inline.
        closed: bool,
    },
    /// A block used as a module.
    Use {
        /// The module's name.
        name: String,
        /// The name of the block.
        block: String,
        /// Its arguments.
        args: IndexMap<String, Entry>,
        /// Arguments that count channels.
        channels: IndexSet<String>,
        /// Taps that it reads, by their names inside.
        inputs: IndexMap<String, String>,
        /// Its return values by key, if there are several.
        returns: IndexMap<String, String>,
        /// Whether it exists, if this differs between uses of the enclosing block.
        enabled: Option<Entry>,
    },
    /// A block, repeated several times.
    Stack {
        /// The name of the module; empty if the uses have no common module.
        name: String,
        /// The name of the block.
        block: String,
        /// The prefix of the number in the name of each use.
        item: String,
        /// Number of uses.
        repeat: Entry,
        /// Arguments of every use.
        args: IndexMap<String, Entry>,
        /// Arguments of the first use that differ.
        first: IndexMap<String, Entry>,
        /// Arguments that count channels.
        channels: IndexSet<String>,
    },
}

impl Item {
    /// The lists of layers inside it.
    pub fn lists(&self) -> Vec<&Vec<Self>> {
        match self {
            Self::Residual { main, shortcut } => vec![main, shortcut],
            Self::Concat { branches, .. } => branches.iter().collect(),
            Self::Around { body, .. } | Self::Scope { body, .. } | Self::Module { body, .. } => vec![body],
            Self::Layer { .. }
            | Self::Tap(_)
            | Self::From(_)
            | Self::Join(..)
            | Self::Again { .. }
            | Self::Use { .. }
            | Self::Stack { .. } => Vec::new(),
        }
    }

    /// The same, to be changed.
    pub fn lists_mut(&mut self) -> Vec<&mut Vec<Self>> {
        match self {
            Self::Residual { main, shortcut } => vec![main, shortcut],
            Self::Concat { branches, .. } => branches.iter_mut().collect(),
            Self::Around { body, .. } | Self::Scope { body, .. } | Self::Module { body, .. } => vec![body],
            Self::Layer { .. }
            | Self::Tap(_)
            | Self::From(_)
            | Self::Join(..)
            | Self::Again { .. }
            | Self::Use { .. }
            | Self::Stack { .. } => Vec::new(),
        }
    }

    /// Whether it joins branches, and can have the name of a module of which it is all.
    pub fn is_join(&self) -> bool {
        match self {
            Self::Residual { .. } | Self::Concat { .. } => true,
            Self::Around { word, .. } => word.kind == Kind::Gate,
            Self::Layer { .. }
            | Self::Tap(_)
            | Self::From(_)
            | Self::Join(..)
            | Self::Again { .. }
            | Self::Scope { .. }
            | Self::Module { .. }
            | Self::Use { .. }
            | Self::Stack { .. } => false,
        }
    }
}

/// Calls `visit` with every list of layers, those inside before those around them.
pub fn each_list(items: &mut Vec<Item>, visit: &mut dyn FnMut(&mut Vec<Item>)) {
    items.iter_mut().flat_map(Item::lists_mut).for_each(|list| each_list(list, visit));
    visit(items);
}

/// Number of written layers.
pub fn size(items: &[Item]) -> usize {
    items.iter().map(|item| 1 + item.lists().into_iter().map(|list| size(list)).sum::<usize>()).sum()
}
