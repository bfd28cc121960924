//! The trace of one call of a network, written by `python -m zoo_golden` (golden/export/zoo_golden/trace.py).

use std::collections::HashSet;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::ImportError;
use crate::constant::Constant;

/// Version of the document. Those of format 1 are read too: they have no call in evaluation mode.
pub const FORMAT: u32 = 2;

/// Largest document in bytes, many times the size for any network.
pub const MAX_BYTES: usize = 64 << 20;

/// Largest number of a tensor.
const MAX_VALUE: usize = 1 << 32;

/// The trace of a network for one batch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// At most [`FORMAT`].
    pub format: u32,
    /// The source of the network: `torchvision:resnet18`.
    pub model: String,
    /// Versions of the packages, by name.
    #[serde(default)]
    pub made_with: IndexMap<String, String>,
    /// Number of classes.
    pub classes: usize,
    /// Samples of the batch: the first extent of every input.
    pub batch: usize,
    /// Inputs of the step, by name.
    pub inputs: IndexMap<String, Made>,
    /// The results of the network, by key; the key of a single tensor is empty.
    pub outputs: IndexMap<String, Argument>,
    /// Parameters by their names in the state_dict.
    pub parameters: IndexMap<String, Parameter>,
    /// Tensors that depend on neither inputs nor parameters.
    #[serde(default)]
    pub constants: Vec<Constant>,
    /// Buffers that functions read, and that the network does not change: the places of their values in `constants`.
    #[serde(default)]
    pub buffers: IndexMap<String, usize>,
    /// All modules by path, the network's own path being empty.
    pub modules: IndexMap<String, Module>,
    /// The call of the network in training mode.
    pub root: ModuleCall,
    /// The same in evaluation mode; none in documents of format 1.
    #[serde(default)]
    pub evaluation: Option<Evaluation>,
    /// Settings of the training step, if given.
    #[serde(default)]
    pub training: Option<Training>,
}

/// The call of the network in evaluation mode. Numbers of tensors and places of constants are its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// As [`Trace::inputs`].
    pub inputs: IndexMap<String, Made>,
    /// As [`Trace::outputs`].
    pub outputs: IndexMap<String, Argument>,
    /// As [`Trace::constants`].
    #[serde(default)]
    pub constants: Vec<Constant>,
    /// As [`Trace::buffers`].
    #[serde(default)]
    pub buffers: IndexMap<String, usize>,
    /// The call.
    pub root: ModuleCall,
}

/// A computed tensor or an input.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// Its unique number.
    pub value: usize,
    /// Its extents, including the batch.
    pub shape: Vec<usize>,
    /// Its element type, as named by PyTorch.
    pub dtype: String,
}

impl Made {
    /// Whether it contains real numbers.
    pub fn is_real(&self) -> bool {
        self.dtype.starts_with("float") || self.dtype == "bfloat16"
    }
}

/// A parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its extents.
    pub shape: Vec<usize>,
    /// The first name of the same tensor, if this is another name of it.
    #[serde(default)]
    pub same_as: Option<String>,
    /// The initial value of all its elements, if they are equal.
    #[serde(default)]
    pub start: Option<f64>,
    /// The standard deviation of its initial values, if several modules share it.
    #[serde(default)]
    pub spread: Option<f64>,
    /// Whether it has no gradient.
    #[serde(default)]
    pub frozen: bool,
}

/// A module of the network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// `torchvision.models.resnet.BasicBlock`.
    pub class: String,
    /// File and line of the class, unless it belongs to PyTorch.
    #[serde(default)]
    pub source: Option<String>,
}

/// One call of a module or of a function.
#[derive(Clone, Debug)]
pub enum Call {
    /// Of a module.
    Module(ModuleCall),
    /// Of a function.
    Function(FunctionCall),
}

impl<'de> Deserialize<'de> for Call {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Unlike maps of serde_json, those of serde_yaml keep the order of the file: results come in it.
        let object = serde_yaml::Mapping::deserialize(deserializer)?;
        let is_module = object.contains_key("module");
        let value = serde_yaml::Value::Mapping(object);
        match is_module {
            true => ModuleCall::deserialize(value).map(Self::Module),
            false => FunctionCall::deserialize(value).map(Self::Function),
        }
        .map_err(D::Error::custom)
    }
}

/// One call of a module.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleCall {
    /// Path of the module.
    pub module: String,
    /// Index of the call of the module, from 0.
    pub call: usize,
    /// File and line of the call.
    pub at: String,
    /// Positional arguments.
    pub args: Vec<Argument>,
    /// Keyword arguments.
    pub kwargs: IndexMap<String, Argument>,
    /// The calls inside, in order of execution.
    pub body: Vec<Call>,
    /// Its results, by key; the key of a single tensor is empty.
    pub outputs: IndexMap<String, Argument>,
}

/// One call of a function.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionCall {
    /// `torch.nn.functional.conv2d`, `torch.Tensor.__add__`.
    pub function: String,
    /// File and line of the call.
    pub at: String,
    /// Positional arguments.
    pub args: Vec<Argument>,
    /// Keyword arguments.
    pub kwargs: IndexMap<String, Argument>,
    /// Its results, by key; the key of a single tensor is empty.
    pub outputs: IndexMap<String, Made>,
    /// Whether gradients are disabled at the call.
    #[serde(default)]
    pub no_grad: bool,
}

impl FunctionCall {
    /// The function without package and class: `conv2d`, `__add__`.
    pub fn name(&self) -> &str {
        self.function.rsplit('.').next().unwrap_or_default()
    }
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// A tensor, by its number.
    Value(usize),
    /// A parameter, by name.
    Parameter(String),
    /// A buffer, by name.
    Buffer(String),
    /// A tensor that is the same in every step, by its place in [`Trace::constants`].
    Constant(usize),
    /// `start:stop:step`.
    Slice([Option<i64>; 3]),
    /// `...`.
    Ellipsis(()),
    /// An element type.
    Dtype(String),
    /// Something that depends on the number of samples, as it is for the traced batch.
    Batch(String),
    /// Anything else, by its class.
    Other(String),
    /// A switch.
    #[serde(untagged)]
    Bool(bool),
    /// An integer.
    #[serde(untagged)]
    Int(i64),
    /// Any other number.
    #[serde(untagged)]
    Float(f64),
    /// A text.
    #[serde(untagged)]
    Text(String),
    /// A list or a tuple.
    #[serde(untagged)]
    List(Vec<Argument>),
    /// `None`.
    #[serde(untagged)]
    None,
}

impl Argument {
    /// The value, if it is an integer.
    pub fn int(&self) -> Option<i64> {
        let Self::Int(value) = self else { return None };
        Some(*value)
    }

    /// The value, if it is a number.
    pub fn number(&self) -> Option<f64> {
        let Self::Float(value) = self else { return self.int().map(|value| value as f64) };
        Some(*value)
    }

    /// The tensor, if it is one.
    pub fn value(&self) -> Option<usize> {
        let Self::Value(value) = self else { return None };
        Some(*value)
    }

    /// Itself, or what the lists in it hold, in order.
    fn leaves(&self) -> Vec<&Self> {
        if let Self::List(items) = self { items.iter().flat_map(Self::leaves).collect() } else { vec![self] }
    }

    /// The tensors in it, in order.
    pub fn values(&self) -> Vec<usize> {
        self.leaves().into_iter().filter_map(Self::value).collect()
    }

    /// What of it depends on the number of samples.
    pub fn of_batch(&self) -> Option<&str> {
        self.leaves().into_iter().find_map(|leaf| if let Self::Batch(text) = leaf { Some(text.as_str()) } else { None })
    }

    fn parameters(&self) -> Vec<&str> {
        let leaves = self.leaves().into_iter();
        leaves.filter_map(|leaf| if let Self::Parameter(name) = leaf { Some(name.as_str()) } else { None }).collect()
    }
}

/// The training settings of the golden's step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Samples of a step.
    pub batch: usize,
    /// The learning rate.
    pub lr: f64,
    /// The terms of the loss; none for the cross entropy of the only output.
    #[serde(default)]
    pub losses: Vec<LossTerm>,
    /// Label smoothing over all classes.
    #[serde(default)]
    pub label_smoothing: f64,
    /// The label that cross entropy leaves out.
    #[serde(default)]
    pub ignore: Option<u32>,
    /// The optimizer, as named in recipes.
    pub optimizer: zoo_recipe::schema::Optimizer,
    /// Parameters without weight decay, if others have some.
    #[serde(default)]
    pub undecayed: Vec<String>,
    /// Limit of the norm of all gradients.
    #[serde(default)]
    pub clip_grad_norm: Option<f64>,
    /// The golden's manifest, relative to the folder of goldens.
    #[serde(default)]
    pub golden: Option<String>,
}

/// A term of the loss.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossTerm {
    /// What it is.
    pub kind: LossKind,
    /// The keys of the results of the network that it judges; empty for an only tensor.
    pub outputs: Vec<String>,
    /// The input that it compares with.
    #[serde(default)]
    pub target: Option<String>,
    /// The name of its value, if it is not the first of its kind.
    #[serde(default)]
    pub name: Option<String>,
}

/// The losses that `python -m zoo_golden port --loss` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Of scores of classes.
    CrossEntropy,
    /// Of logarithms of probabilities of classes.
    Nll,
    /// Squared differences.
    Mse,
    /// Absolute differences.
    Mae,
    /// Binary cross entropy of logits.
    Bce,
    /// The same of probabilities.
    BceProbabilities,
    /// Distances of an anchor.
    Triplet,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            batch: 32,
            lr: 0.01,
            losses: Vec::new(),
            label_smoothing: 0.0,
            ignore: None,
            optimizer: zoo_recipe::schema::Optimizer::Sgd(Default::default()),
            undecayed: Vec::new(),
            clip_grad_norm: None,
            golden: None,
        }
    }
}

impl Trace {
    /// Reads and validates a trace: every tensor is defined once and before its use, and every name is known.
    ///
    /// # Errors
    /// The error in the document.
    pub fn read(bytes: &[u8]) -> Result<Self, ImportError> {
        Self::parsed(bytes).map_err(ImportError::Malformed)
    }

    fn parsed(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!("more than {} MiB", MAX_BYTES >> 20));
        }
        let malformed = |error: serde_json::Error| error.to_string();
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(bytes).map_err(malformed)?;
        if !(1..=FORMAT).contains(&format) {
            let message = format!("it has format {format}, but this version reads formats 1 to {FORMAT}");
            return Err(message);
        }
        let trace: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        if format > 1 && trace.evaluation.is_none() {
            return Err("it lacks the call in evaluation mode".to_owned());
        }
        trace.validate()?;
        trace.in_evaluation().map_or(Ok(()), |evaluation| evaluation.validate())?;
        Ok(trace)
    }

    /// The trace of the network in evaluation mode, if there is one.
    pub fn in_evaluation(&self) -> Option<Self> {
        let Evaluation { inputs, outputs, constants, buffers, root } = self.evaluation.clone()?;
        Some(Self { inputs, outputs, constants, buffers, root, evaluation: None, training: None, ..self.clone() })
    }

    /// The shape of a parameter.
    pub fn shape(&self, parameter: &str) -> &[usize] {
        self.parameters.get(parameter).map_or(&[], |own| &own.shape)
    }

    /// The parameters that no function of the network reads, in training or in evaluation.
    pub fn unused(&self) -> Vec<String> {
        fn read<'t>(call: &'t ModuleCall, found: &mut HashSet<&'t str>) {
            for inner in &call.body {
                match inner {
                    Call::Module(inner) => read(inner, found),
                    Call::Function(inner) => {
                        found.extend(inner.args.iter().chain(inner.kwargs.values()).flat_map(Argument::parameters));
                    }
                }
            }
        }
        let mut found = HashSet::new();
        let roots = std::iter::once(&self.root).chain(self.evaluation.as_ref().map(|evaluation| &evaluation.root));
        roots.into_iter().for_each(|root| read(root, &mut found));
        let first = |name: &str| self.parameters.get(name).and_then(|own| own.same_as.clone());
        let first: HashSet<String> =
            found.iter().map(|name| first(name).unwrap_or_else(|| (*name).to_owned())).collect();
        let own = self.parameters.iter().filter(|(_, parameter)| parameter.same_as.is_none());
        own.map(|(name, _)| name.clone()).filter(|name| !first.contains(name)).collect()
    }

    /// The values of an argument that is a constant, or an unchanged buffer.
    pub fn constant(&self, argument: &Argument) -> Option<&Constant> {
        if let Argument::Buffer(name) = argument {
            return self.constants.get(*self.buffers.get(name)?);
        }
        let Argument::Constant(place) = argument else { return None };
        self.constants.get(*place)
    }

    fn validate(&self) -> Result<(), String> {
        let mut known = HashSet::new();
        if self.inputs.is_empty() || self.batch == 0 || self.classes == 0 {
            return Err("there is no input, no sample or no class".to_owned());
        }
        for (name, input) in &self.inputs {
            if input.shape.first() != Some(&self.batch) {
                let message = format!(
                    "the input `{name}` is {:?}, which does not begin with the batch {}",
                    input.shape, self.batch
                );
                return Err(message);
            }
            self.makes(input, &mut known, name)?;
        }
        for (name, parameter) in &self.parameters {
            if parameter.same_as.as_ref().is_some_and(|other| !self.parameters.contains_key(other)) {
                return Err(format!("the parameter `{name}` is an alias of a parameter that does not exist"));
            }
        }
        if !self.root.module.is_empty() {
            return Err("the call is not that of the network".to_owned());
        }
        self.validate_call(&self.root, &mut known, 0)?;
        self.outputs.values().try_for_each(|output| self.uses(output, &known, "the network"))
    }

    fn makes(&self, made: &Made, known: &mut HashSet<usize>, at: &str) -> Result<(), String> {
        if made.shape.len() > 16 || made.shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent)).is_none() {
            return Err(format!("{at}: a tensor of shape {:?}", made.shape));
        }
        match made.value <= MAX_VALUE && known.insert(made.value) {
            true => Ok(()),
            false => Err(format!("{at}: the tensor {} is made twice, or its number is too large", made.value)),
        }
    }

    fn uses(&self, argument: &Argument, known: &HashSet<usize>, at: &str) -> Result<(), String> {
        if let Some(value) = argument.values().into_iter().find(|value| !known.contains(value)) {
            return Err(format!("{at}: the tensor {value} is used before it is made"));
        }
        match argument.parameters().into_iter().find(|name| !self.parameters.contains_key(*name)) {
            Some(name) => Err(format!("{at}: there is no parameter `{name}`")),
            None => Ok(()),
        }
    }

    fn validate_call(&self, call: &ModuleCall, known: &mut HashSet<usize>, depth: usize) -> Result<(), String> {
        let path = &call.module;
        if !self.modules.contains_key(path) || depth > 64 {
            return Err(format!("there is no module `{path}`, or it is nested too deeply"));
        }
        call.args.iter().chain(call.kwargs.values()).try_for_each(|argument| self.uses(argument, known, path))?;
        for inner in &call.body {
            match inner {
                Call::Module(inner) => self.validate_call(inner, known, depth + 1)?,
                Call::Function(inner) => {
                    let arguments = inner.args.iter().chain(inner.kwargs.values());
                    arguments.into_iter().try_for_each(|argument| self.uses(argument, known, &inner.at))?;
                    inner.outputs.values().try_for_each(|made| self.makes(made, known, &inner.at))?;
                }
            }
        }
        call.outputs.values().try_for_each(|output| self.uses(output, known, path))
    }
}
