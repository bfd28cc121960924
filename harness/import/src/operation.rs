//! The operations of a network in terms of recipes.

use zoo_recipe::layers::Axis;

use crate::word::Word;

/// A tensor, by its number; numbers beyond those of the trace are of tensors that recipes make in between.
pub type Tensor = usize;

/// One operation or one call of a module.
#[derive(Clone, Debug)]
pub enum Unit {
    /// An operation.
    Operation(Operation),
    /// A module with its operations.
    Module(Module),
}

/// An operation that a recipe has a layer for.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its operations.
    pub what: What,
    /// Its operands: for a layer the current value, then taps.
    pub operands: Vec<Tensor>,
    /// Its result.
    pub result: Tensor,
    /// The path of the module that it is, or of the parameter that it has.
    pub name: Option<String>,
    /// Its position in the source.
    pub at: String,
}

/// The layer of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The description of this layer.
    Layer(Word),
    /// The sum of two tensors.
    Add,
    /// The first less the second.
    Subtract,
    /// The product of two tensors.
    Mul,
    /// All operands joined along an axis.
    Concat(Axis),
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
        }
    }

    /// Whether its operands may change places.
    pub fn commutes(&self) -> bool {
        match self {
            Self::Add | Self::Mul => true,
            Self::Layer(_) | Self::Subtract | Self::Concat(_) => false,
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
    /// File and line of the class, where it is not PyTorch's own.
    pub source: Option<String>,
    /// File and line that called it.
    pub at: String,
    /// The tensors that it is given.
    pub inputs: Vec<Tensor>,
    /// Its result; the first one that it computed if there are several.
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
}
