//! The operations of a network, in the terms of recipes.

use std::collections::{HashMap, HashSet};

use zoo_recipe::layers::Axis;

use crate::Refusal;
use crate::word::Word;

/// A tensor, by its number. Numbers above those of the trace are intermediate tensors of the recipe.
pub type Tensor = usize;

/// One operation or one call of a module.
#[derive(Clone, Debug)]
pub enum Unit {
    /// An operation.
    Operation(Operation),
    /// A module with its operations.
    Module(Module),
}

/// An operation for which recipes have a layer.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The layer.
    pub what: What,
    /// Its operands: for a layer the current value, then taps.
    pub operands: Vec<Tensor>,
    /// Its result.
    pub result: Tensor,
    /// The path of its module, or of its parameter.
    pub name: Option<String>,
    /// Its position in the source.
    pub at: String,
}

/// The kind of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A layer with these settings.
    Layer(Word),
    /// The sum of two tensors.
    Add,
    /// The first tensor minus the second.
    Subtract,
    /// The product of two tensors.
    Mul,
    /// The concatenation of all operands along an axis.
    Concat(Axis),
    /// A map `[n, h, w, c]` as windows `[n, windows, tokens, c]`.
    Cut(Windows),
    /// Windows as a map again.
    Join(Windows),
    /// By token of a window, the number of its part of the map.
    Segments(Windows),
}

/// Windows of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// Height and width of a window.
    pub size: [usize; 2],
    /// Height and width of the map.
    pub map: [usize; 2],
    /// By how many rows and columns they are moved.
    pub shift: [usize; 2],
}

impl Windows {
    /// What a recipe says of them.
    pub fn key(&self) -> String {
        format!("{:?} {:?}", self.size, self.one_shift())
    }

    /// Number of windows below and beside each other.
    pub fn grid(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.map[axis].div_ceil(self.size[axis].max(1)))
    }

    /// Number of windows, and of tokens of each.
    pub fn counts(&self) -> [usize; 2] {
        [self.grid(), self.size].map(|[down, across]| down.saturating_mul(across))
    }

    /// The shift as recipes have it: the same for both axes, and none along an axis of one window.
    pub fn one_shift(&self) -> Option<usize> {
        let (grid, [down, across]) = (self.grid(), self.shift);
        let shift = down.max(across);
        let fits = |axis: usize| self.shift[axis] == if grid[axis] > 1 { shift } else { 0 };
        (fits(0) && fits(1) && self.size.iter().all(|extent| shift < *extent)).then_some(shift)
    }

    /// By window and token, the number of its part of the map: tokens of a window that were not neighbours before the
    /// map was moved have different ones.
    pub fn segments(&self) -> Vec<usize> {
        let [rows, columns] = self.grid();
        let [height, width] = self.size;
        let part = |axis: usize, place: usize| {
            let moved = (self.grid()[axis] * self.size[axis]).saturating_sub(self.shift[axis]);
            usize::from(self.shift[axis] > 0 && place >= moved)
        };
        let windows = (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column]));
        let token = |[row, column]: [usize; 2]| {
            (0..height)
                .flat_map(move |y| (0..width).map(move |x| 2 * part(0, row * height + y) + part(1, column * width + x)))
        };
        windows.flat_map(token).collect()
    }
}

impl What {
    /// A canonical text, which is equal for equal operations. The order of the operands of a sum does not matter.
    pub fn key(&self) -> String {
        match self {
            Self::Layer(word) => word.key(),
            Self::Add => "add".to_owned(),
            Self::Subtract => "subtract".to_owned(),
            Self::Mul => "mul".to_owned(),
            Self::Concat(axis) => format!("concat {axis:?}"),
            Self::Cut(windows) => format!("cut {}", windows.key()),
            Self::Join(windows) => format!("join {}", windows.key()),
            Self::Segments(windows) => format!("segments {}", windows.key()),
        }
    }

    /// Whether its operands can be exchanged.
    pub fn commutes(&self) -> bool {
        match self {
            Self::Add | Self::Mul => true,
            Self::Layer(_) | Self::Subtract | Self::Concat(_) | Self::Cut(_) | Self::Join(_) | Self::Segments(_) => {
                false
            }
        }
    }
}

/// One call of a module with several operations.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its class, without packages.
    pub class: String,
    /// File and line of the class, unless it belongs to PyTorch.
    pub source: Option<String>,
    /// File and line of the call.
    pub at: String,
    /// The tensors that it reads.
    pub inputs: Vec<Tensor>,
    /// Its result; the first computed one if there are several.
    pub output: Tensor,
    /// Its return values by key, if there are several.
    pub returns: Vec<(String, Tensor)>,
    /// Its operations, in order of execution.
    pub body: Vec<Unit>,
}

impl Unit {
    /// Its result.
    pub fn result(&self) -> Tensor {
        match self {
            Self::Operation(operation) => operation.result,
            Self::Module(module) => module.output,
        }
    }

    /// All its results.
    pub fn results(&self) -> Vec<Tensor> {
        match self {
            Self::Operation(operation) => vec![operation.result],
            Self::Module(module) => {
                std::iter::once(module.output).chain(module.returns.iter().map(|(_, tensor)| *tensor)).collect()
            }
        }
    }

    /// The tensors that it reads.
    pub fn operands(&self) -> &[Tensor] {
        match self {
            Self::Operation(operation) => &operation.operands,
            Self::Module(module) => &module.inputs,
        }
    }

    /// Its position in the source.
    pub fn at(&self) -> &str {
        match self {
            Self::Operation(operation) => &operation.at,
            Self::Module(module) => &module.at,
        }
    }
}

/// The network.
#[derive(Clone, Debug)]
pub struct Network {
    /// The call of the network.
    pub root: Module,
    /// Its inputs, by name.
    pub inputs: Vec<(String, Tensor)>,
    /// The key under which it returns its result, if there is one.
    pub output: Option<String>,
    /// Calls of modules and of layers with parameters after the first: their name and their result, and the number of
    /// the call.
    pub again: HashMap<(String, Tensor), usize>,
    /// Parameters that get no gradient.
    pub untrained: Vec<String>,
    /// By result, attentions whose scale is the usual one, with the scale said.
    pub said: HashMap<Tensor, Word>,
    /// The first part that can be compared with a recipe, and not yet written as one: a mask that is an input.
    pub unwritten: Option<Refusal>,
}

impl Network {
    /// Says the scale of an attention that is the usual one by chance: where the same line of the source computes
    /// another one too, as of channels that attend to each other.
    pub(crate) fn say_scales(&mut self) {
        let is_said = |what: &What| matches!(what, What::Layer(word) if word.settings.contains_key("scale"));
        let mut lines = HashSet::new();
        each_operation(&mut self.root, &mut |operation| {
            lines.extend(is_said(&operation.what).then(|| operation.at.clone()));
        });
        each_operation(&mut self.root, &mut |operation| {
            if let Some(said) = self.said.get(&operation.result).filter(|_| lines.contains(&operation.at)) {
                operation.what = What::Layer(said.clone());
            }
        });
    }
}

/// Calls `visit` with all operations inside a module.
fn each_operation(module: &mut Module, visit: &mut dyn FnMut(&mut Operation)) {
    for unit in &mut module.body {
        match unit {
            Unit::Operation(operation) => visit(operation),
            Unit::Module(inner) => each_operation(inner, visit),
        }
    }
}
