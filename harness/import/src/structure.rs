//! Converts operations with operands to lists of layers: finds branches that start from one tensor and are joined
//! again.

mod branches;
mod in_order;
mod taps;

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use crate::Refusal;
use crate::item::Item;
use crate::operation::{Module, Network, Operation, Tensor, Unit, What};
use crate::word::{Entry, Kind, Setting, Word};

/// Most branches inside each other in a module: a recipe has at most 64 levels, of which each branch needs up to four.
const MOST_BRANCHES: usize = 15;

/// Most branches inside each other in a module and those around it, which are read recursively.
const MOST_AROUND: usize = 60;

const ENTANGLED: &str = "it cuts a map into windows that are not joined in the same module, or beside other branches";

/// Whether the layer `windows` can stand for all windows that a module cuts and joins.
pub fn joins_windows(module: &Module) -> bool {
    let name = |(index, tensor): (usize, &Tensor)| (format!("input{index}"), *tensor);
    let inputs: Vec<(String, Tensor)> = module.inputs.iter().enumerate().map(name).collect();
    let around = Around { again: &HashMap::new(), shared: HashMap::new() };
    !matches!(inside(module, &around, &inputs, std::iter::empty(), 0), Err(refusal) if refusal.what == ENTANGLED)
}

/// The layers of a network, and the tap of its return value, if it has a key.
///
/// # Errors
/// A tensor that a module reads although it comes from outside and is not an argument.
pub fn layers(network: &Network) -> Result<(Vec<Item>, IndexMap<String, String>), Refusal> {
    let around = Around { again: &network.again, shared: shared(&network.root) };
    inside(&network.root, &around, &network.inputs, network.output.iter(), 0)
}

/// Calls after the first, as [`Network::again`].
type Again = HashMap<(String, Tensor), usize>;

/// What modules know of others.
struct Around<'n> {
    again: &'n Again,
    /// Biases of scores that attentions of several modules take, by the full names of their taps.
    shared: HashMap<Tensor, String>,
}

/// The biases that are used in other modules than those that make them.
fn shared(root: &Module) -> HashMap<Tensor, String> {
    fn visit<'m>(module: &'m Module, made: &mut HashMap<Tensor, &'m str>, found: &mut HashMap<Tensor, String>) {
        made.extend(beside(module).into_keys().map(|tensor| (tensor, module.path.as_str())));
        for unit in &module.body {
            match unit {
                Unit::Module(inner) => visit(inner, made, found),
                Unit::Operation(operation) => {
                    let others = operation.operands.iter().filter_map(|operand| Some((*operand, *made.get(operand)?)));
                    let others = others.filter(|(_, path)| *path != module.path);
                    found.extend(others.map(|(tensor, path)| {
                        (tensor, if path.is_empty() { BIAS.to_owned() } else { format!("{path}.{BIAS}") })
                    }));
                }
            }
        }
    }
    let mut found = HashMap::new();
    visit(root, &mut HashMap::new(), &mut found);
    found
}

/// The tap of a bias.
const BIAS: &str = "bias";

/// The layers of a module, and the taps of its return values by key, if there are several. `inputs` are further
/// tensors that it reads, by their names in the caller; `taken`: further names that its taps must not have; `around`:
/// number of branches that the module is in.
fn inside<'n>(
    module: &Module,
    known: &Around<'_>,
    inputs: &'n [(String, Tensor)],
    taken: impl Iterator<Item = &'n String>,
    around: usize,
) -> Result<(Vec<Item>, IndexMap<String, String>), Refusal> {
    // A module of constants and parameters alone begins with nothing.
    let input = module.inputs.first().copied();
    let input = input.unwrap_or(if module.body.is_empty() { module.output } else { Tensor::MAX });
    let further = inputs.iter().filter(|(_, tensor)| *tensor != input).map(|(name, tensor)| (*tensor, name.clone()));
    let mut body = Body {
        module,
        known,
        input,
        further: further.collect(),
        taken: inputs.iter().map(|(name, _)| name).chain(taken).cloned().collect(),
        beside: beside(module),
        producers: HashMap::new(),
        dominators: HashMap::new(),
        free: HashSet::new(),
        done: HashSet::new(),
        taps: HashMap::new(),
        around,
        branches: 0,
    };
    body.order()?;
    if gives_one(module)
        && !module.body.is_empty()
        && let Some(mut items) = body.run(input, module.output)?
        && body.done.len() == module.body.len()
        && in_sequence(&items, &mut HashMap::new())
        && (follow_each_other(module) || !body.beside.is_empty())
    {
        let mut returns = IndexMap::new();
        for (key, _) in &module.returns {
            let tap = body.tap("out");
            items.push(Item::Tap(tap.clone()));
            returns.insert(key.clone(), tap);
        }
        return Ok((items, returns));
    }
    body.taps.clear();
    body.in_order()
}

/// Whether what is called several times is called in the order of execution; `last` are numbers of calls by name.
fn in_sequence(items: &[Item], last: &mut HashMap<String, usize>) -> bool {
    items.iter().all(|item| match item {
        Item::Layer { name: Some(name), .. } => {
            last.get(name).is_none_or(|call| *call == 0) && {
                last.insert(name.clone(), 0);
                true
            }
        }
        Item::Module { path, body, .. } => {
            !last.contains_key(path) && in_sequence(body, last) && {
                last.insert(path.clone(), 0);
                true
            }
        }
        Item::Again { name, call } => last.insert(name.clone(), *call).is_none_or(|before| before < *call),
        Item::Residual { main, shortcut } => in_sequence(main, last) && in_sequence(shortcut, last),
        Item::Concat { branches, .. } => branches.iter().all(|branch| in_sequence(branch, last)),
        Item::Around { body, .. } | Item::Scope { body, .. } => in_sequence(body, last),
        Item::Layer { name: None, .. } | Item::Tap(_) | Item::From(_) | Item::Join(..) => true,
        Item::Use { .. } | Item::Stack { .. } => true,
    })
}

/// Whether each call of a layer needs what the call of it before gave, so that no order of branches changes theirs.
fn follow_each_other(module: &Module) -> bool {
    let results = module.body.iter().enumerate();
    let producers: HashMap<Tensor, usize> =
        results.flat_map(|(index, unit)| unit.results().into_iter().map(move |result| (result, index))).collect();
    let needs = |index: usize, before: usize| {
        let (mut open, mut known) = (vec![index], HashSet::new());
        while let Some(index) = open.pop() {
            let operands = module.body[index].operands().iter().filter_map(|operand| producers.get(operand).copied());
            open.extend(operands.filter(|operand| *operand >= before && known.insert(*operand)));
        }
        known.contains(&before)
    };
    let mut last: HashMap<&str, usize> = HashMap::new();
    module.body.iter().enumerate().all(|(index, unit)| match unit {
        Unit::Operation(Operation { name: Some(name), .. }) => {
            last.insert(name, index).is_none_or(|before| needs(index, before))
        }
        Unit::Operation(_) | Unit::Module(_) => true,
    })
}

/// Results that attentions take beside tensors, by the index of the unit that computes them.
fn beside(module: &Module) -> HashMap<Tensor, usize> {
    let is_beside = |what: &What| match what {
        What::Segments(_) => true,
        What::Layer(word) => matches!(word.kind, Kind::Beside(_)),
        What::Add | What::Subtract | What::Mul | What::Concat(_) | What::Cut(_) | What::Join(_) => false,
    };
    let one = |(index, unit): (usize, &Unit)| match unit {
        Unit::Operation(operation) => is_beside(&operation.what).then_some((operation.result, index)),
        Unit::Module(_) => None,
    };
    module.body.iter().enumerate().filter_map(one).collect()
}

/// Whether a module gives one tensor, which it may return under a key.
fn gives_one(module: &Module) -> bool {
    match &module.returns[..] {
        [] => true,
        [(_, tensor)] => *tensor == module.output,
        _ => false,
    }
}

struct Body<'m> {
    module: &'m Module,
    known: &'m Around<'m>,
    input: Tensor,
    /// Inputs of the network, except the first.
    further: HashMap<Tensor, String>,
    /// Names that taps must not have: they would hide those around, or be one with them.
    taken: HashSet<String>,
    /// What attentions take beside tensors: segments of windows and biases, and the unit that makes each.
    beside: HashMap<Tensor, usize>,
    /// Index of the unit that computes a tensor.
    producers: HashMap<Tensor, usize>,
    /// The nearest tensor that is on all paths from the input to this one.
    dominators: HashMap<Tensor, Tensor>,
    /// Tensors of parameters alone.
    free: HashSet<Tensor>,
    /// Units that are already placed.
    done: HashSet<usize>,
    /// Number of taps with each name.
    taps: HashMap<String, usize>,
    /// Number of branches that the module is in, and of those inside it that are being placed.
    around: usize,
    branches: usize,
}

impl Body<'_> {
    /// Finds the source of each tensor, and its dominator.
    fn order(&mut self) -> Result<(), Refusal> {
        self.dominators.insert(self.input, self.input);
        for (index, unit) in self.module.body.iter().enumerate() {
            let mut dominator = None;
            for operand in unit.operands() {
                if self.is_beside(operand) || self.free.contains(operand) {
                    continue;
                }
                if self.further.contains_key(operand) {
                    dominator = Some(self.input);
                    continue;
                }
                if !self.dominators.contains_key(operand) {
                    return Err(Refusal {
                        module: self.module.path.clone(),
                        operator: self.module.class.clone(),
                        at: unit.at().to_owned(),
                        what: "it uses a tensor of another module that is not one of its arguments".to_owned(),
                        nearest: "modules of recipes take one tensor and give one".to_owned(),
                    });
                }
                dominator = Some(dominator.map_or(*operand, |other| self.common(other, *operand)));
            }
            let is_beside = unit.results().iter().any(|result| self.is_beside(result));
            if !is_beside && unit.operands().iter().all(|operand| self.free.contains(operand)) {
                self.free.extend(unit.results());
            }
            for result in unit.results() {
                if !self.dominators.contains_key(&result) {
                    self.dominators.insert(result, dominator.unwrap_or(self.input));
                    self.producers.insert(result, index);
                }
            }
        }
        Ok(())
    }

    /// Position of a tensor in the order of execution.
    fn place(&self, tensor: Tensor) -> usize {
        self.producers.get(&tensor).map_or(0, |index| index + 1)
    }

    /// The nearest tensor that is on all paths to both.
    fn common(&self, mut first: Tensor, mut second: Tensor) -> Tensor {
        // Each step goes back in the order of execution.
        for _ in 0..=2 * self.producers.len() {
            if first == second {
                break;
            }
            match self.place(first) >= self.place(second) {
                true => first = self.dominators.get(&first).copied().unwrap_or(self.input),
                false => second = self.dominators.get(&second).copied().unwrap_or(self.input),
            }
        }
        first
    }

    /// Whether attentions take a tensor beside others.
    fn is_beside(&self, tensor: &Tensor) -> bool {
        self.beside.contains_key(tensor) || self.known.shared.contains_key(tensor)
    }

    /// The layer that calls a module again, if it was called before.
    fn called_again(&self, unit: &Unit) -> Option<Item> {
        let name = match unit {
            Unit::Operation(operation) => operation.name.clone()?,
            Unit::Module(module) => module.path.clone(),
        };
        let call = *self.known.again.get(&(name.clone(), unit.result()))?;
        Some(Item::Again { name, call })
    }

    /// A unit with one operand.
    fn item(&self, unit: &Unit) -> Result<Item, Refusal> {
        Ok(match unit {
            Unit::Module(module) => self.module(module, &[])?.0,
            Unit::Operation(operation) => match &operation.what {
                What::Layer(word) => Item::Layer { word: word.clone(), name: operation.name.clone() },
                What::Cut(_) | What::Join(_) | What::Segments(_) => return Err(self.entangled(unit.at())),
                What::Add | What::Subtract | What::Mul | What::Concat(_) => {
                    return Err(Refusal {
                        module: self.module.path.clone(),
                        operator: operation.what.key(),
                        at: operation.at.clone(),
                        what: "it combines a tensor with itself".to_owned(),
                        nearest: "`scale` multiplies by a number".to_owned(),
                    });
                }
            },
        })
    }

    /// A module inside this one, which reads these taps in addition to its first tensor.
    fn module(&self, module: &Module, taps: &[(String, Tensor)]) -> Result<(Item, IndexMap<String, String>), Refusal> {
        let (body, returns) = inside(module, self.known, taps, std::iter::empty(), self.around + self.branches)?;
        let item = Item::Module {
            name: module.path.clone(),
            path: module.path.clone(),
            class: module.class.clone(),
            source: module.source.clone(),
            body,
            returns: returns.clone(),
            enabled: None,
            closed: false,
        };
        Ok((item, returns))
    }

    /// Windows whose layers are no row.
    fn entangled(&self, at: &str) -> Refusal {
        Refusal {
            module: self.module.path.clone(),
            operator: self.module.class.clone(),
            at: at.to_owned(),
            what: ENTANGLED.to_owned(),
            nearest: "`windows` applies a row of layers to each window, and joins the windows again".to_owned(),
        }
    }

    /// A new name for a tap.
    fn tap(&mut self, role: &str) -> String {
        loop {
            let count = self.taps.entry(role.to_owned()).or_default();
            *count += 1;
            let name = if *count == 1 { role.to_owned() } else { format!("{role}{count}") };
            if !self.taken.contains(&name) {
                return name;
            }
        }
    }
}

impl What {
    /// The key of the layer for this operation with a tap.
    fn tag(&self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Mul => "mul",
            Self::Layer(word) => word.tag,
            Self::Concat(_) => "concat",
            Self::Cut(_) | Self::Join(_) | Self::Segments(_) => "windows",
        }
    }
}

/// An operation of the current value and a tap.
fn joined(operation: &Operation, other: String) -> Item {
    match &operation.what {
        What::Layer(word) if let Kind::Second { key, .. } = word.kind => {
            Item::Layer { word: attending(word, vec![(key, other)]), name: operation.name.clone() }
        }
        what => Item::Join(what.tag(), other),
    }
}

/// A layer with operands from taps.
fn attending(word: &Word, taps: Vec<(&str, String)>) -> Word {
    let mut word = word.clone();
    for (key, tap) in taps {
        word.settings.insert(key.to_owned(), Entry { value: Setting::Text(tap), default: None });
    }
    word
}
