//! Converts operations with operands to lists of layers: finds branches that start from one tensor and are joined
//! again.

mod in_order;
mod taps;

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use crate::Refusal;
use crate::item::{Item, size};
use crate::operation::{Module, Network, Operation, Tensor, Unit, What, Windows};
use crate::word::{Entry, Kind, SEGMENTS, Setting, Word};

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

    /// The layers of a branch, from one tensor to another; `None` if branches are entangled, or nested too deeply.
    fn branch(&mut self, from: Tensor, to: Tensor) -> Result<Option<Vec<Item>>, Refusal> {
        if self.branches >= MOST_BRANCHES || self.around + self.branches >= MOST_AROUND {
            return Ok(None);
        }
        self.branches += 1;
        let items = self.run(from, to);
        self.branches -= 1;
        items
    }

    /// The layers from one tensor to another; `None` if branches are entangled.
    fn run(&mut self, from: Tensor, to: Tensor) -> Result<Option<Vec<Item>>, Refusal> {
        let mut reversed = Vec::new();
        let mut at = to;
        while at != from {
            if let Some(tap) = self.further.get(&at) {
                reversed.push(vec![Item::From(tap.clone())]);
                break;
            }
            let Some(index) = self.producers.get(&at).copied() else { return Ok(None) };
            if !self.done.insert(index) {
                return Ok(None);
            }
            let unit = &self.module.body[index];
            if matches!(unit, Unit::Module(module) if !gives_one(module)) {
                return Ok(None);
            }
            let (besides, operands): (Vec<Tensor>, Vec<Tensor>) =
                unit.operands().iter().partition(|operand| self.is_beside(operand));
            match (unit, &operands[..]) {
                (_, [one]) if let Some(item) = self.called_again(unit) => {
                    reversed.push(vec![item]);
                    at = *one;
                }
                (_, []) if !besides.is_empty() => return Ok(None),
                // A parameter takes nothing from before.
                (_, []) => {
                    reversed.push(vec![self.item(unit)?]);
                    at = from;
                }
                (Unit::Operation(Operation { what: What::Join(windows), .. }), [one]) => {
                    let Some((item, from)) = self.windows(windows, *one)? else { return Ok(None) };
                    reversed.push(vec![item]);
                    at = from;
                }
                (Unit::Operation(Operation { what: What::Layer(word), name, .. }), [one]) if !besides.is_empty() => {
                    let (mut items, taps) = self.made_beside(&besides);
                    items.push(Item::Layer { word: attending(word, taps), name: name.clone() });
                    reversed.push(items);
                    at = *one;
                }
                (_, [one]) => {
                    reversed.push(vec![self.item(unit)?]);
                    at = *one;
                }
                (_, operands) => {
                    let fork = self.dominators.get(&at).copied().unwrap_or(self.input);
                    let Unit::Operation(operation) = unit else { return Ok(None) };
                    if let Some((item, from)) = self.with_further(operation, operands) {
                        reversed.push(vec![item]);
                        at = from;
                        continue;
                    }
                    let Some(items) = self.join(operation, operands, &besides, fork)? else { return Ok(None) };
                    reversed.push(items);
                    at = fork;
                }
            }
        }
        reversed.reverse();
        Ok(Some(reversed.concat()))
    }

    /// The layer that works on windows, of which `joined` become a map again; and the map that they are of.
    fn windows(&mut self, windows: &Windows, joined: Tensor) -> Result<Option<(Item, Tensor)>, Refusal> {
        let mut cut = joined;
        let map = loop {
            let Some(index) = self.producers.get(&cut).copied() else { return Ok(None) };
            match &self.module.body[index] {
                Unit::Operation(Operation { what: What::Cut(other), operands, .. }) if other == windows => {
                    self.done.insert(index);
                    break operands.first().copied().unwrap_or(self.input);
                }
                _ => cut = self.dominators.get(&cut).copied().unwrap_or(self.input),
            }
        };
        let Some(body) = self.branch(cut, joined)? else { return Ok(None) };
        let word = Word::windows(windows.size, windows.one_shift().unwrap_or(0), reads_segments(&body));
        Ok(Some((Item::Around { word, body }, map)))
    }

    /// The layers that make what an attention takes beside tensors, and their taps by the keys of the attention.
    fn made_beside(&mut self, besides: &[Tensor]) -> (Vec<Item>, Vec<(&'static str, String)>) {
        let (mut items, mut taps) = (Vec::new(), Vec::new());
        for tensor in besides {
            let shared = self.known.shared.get(tensor);
            let Some(index) = self.beside.get(tensor).copied() else {
                // Another module makes it.
                taps.extend(shared.map(|tap| (BIAS, tap.clone())));
                continue;
            };
            self.done.insert(index);
            match &self.module.body[index] {
                Unit::Operation(Operation { what: What::Layer(word), name, .. })
                    if let Kind::Beside(key) = word.kind =>
                {
                    let tap = match shared {
                        Some(_) => BIAS.to_owned(),
                        None => self.tap(key),
                    };
                    let word = attending(word, vec![("tap", tap.clone())]);
                    items.push(Item::Layer { word, name: name.clone() });
                    // Where its parameter is one of a module that is not called, the tap is named within that.
                    let path = name.as_deref().and_then(|name| name.strip_prefix(&self.module.path));
                    let scope = path.and_then(|path| path.trim_start_matches('.').rsplit_once('.'));
                    taps.push((key, scope.map_or(tap.clone(), |(scope, _)| format!("{scope}.{tap}"))));
                }
                Unit::Operation(_) | Unit::Module(_) => taps.push((SEGMENTS, SEGMENTS.to_owned())),
            }
        }
        (items, taps)
    }

    /// An operation of a tensor and a further input, and that tensor.
    fn with_further(&self, operation: &Operation, operands: &[Tensor]) -> Option<(Item, Tensor)> {
        let &[first, second] = operands else { return None };
        let tap = |tensor| self.further.get(&tensor).cloned();
        match (&operation.what, tap(first), tap(second)) {
            (What::Concat(_), ..) => None,
            (_, None, Some(other)) => Some((joined(operation, other), first)),
            (what, Some(other), None) if what.commutes() => Some((joined(operation, other), second)),
            _ => None,
        }
    }

    /// An operation of several tensors, with its branches from `fork` on.
    fn join(
        &mut self,
        operation: &Operation,
        operands: &[Tensor],
        besides: &[Tensor],
        fork: Tensor,
    ) -> Result<Option<Vec<Item>>, Refusal> {
        if let (What::Layer(word), &[query, key, value]) = (&operation.what, operands) {
            return self.attention(operation, word, [query, key, value], besides, fork);
        }
        let mut branches = Vec::new();
        for operand in operands {
            let Some(items) = self.branch(fork, *operand)? else { return Ok(None) };
            branches.push(items);
        }
        let starts_elsewhere = |items: &Vec<Item>| matches!(items.first(), Some(Item::From(_)));
        if branches.iter().any(starts_elsewhere) && !matches!(operation.what, What::Concat(_)) {
            return Ok(None);
        }
        Ok(Some(match (&operation.what, &mut branches[..]) {
            (What::Add, [first, second]) => {
                let (first, second) = (std::mem::take(first), std::mem::take(second));
                // The branch with more layers is the main branch.
                let swap = size(&second) > size(&first);
                let (main, shortcut) = if swap { (second, first) } else { (first, second) };
                if main.is_empty() {
                    return Ok(None);
                }
                vec![Item::Residual { main, shortcut }]
            }
            (What::Mul, [first, second]) if first.is_empty() != second.is_empty() => {
                let body = if first.is_empty() { second } else { first };
                vec![Item::Around { word: Word::gate(), body: std::mem::take(body) }]
            }
            (What::Mul | What::Subtract | What::Layer(_), [first, second]) => {
                let start = self.tap("x");
                let mut items = vec![Item::Tap(start.clone())];
                if second.is_empty() {
                    items.append(first);
                    items.push(joined(operation, start));
                    return Ok(Some(items));
                }
                let other = self.tap(taps::second(&operation.what));
                items.append(second);
                items.extend([Item::Tap(other.clone()), Item::From(start)]);
                items.append(first);
                items.push(joined(operation, other));
                items
            }
            (What::Concat(axis), _) => vec![Item::Concat { branches, axis: *axis }],
            (What::Add | What::Mul | What::Subtract | What::Layer(_), _)
            | (What::Cut(_) | What::Join(_) | What::Segments(_), _) => return Ok(None),
        }))
    }

    /// An attention, with the branches of its operands from `fork` on. What keys and values have in common comes first.
    fn attention(
        &mut self,
        operation: &Operation,
        word: &Word,
        [query, key, value]: [Tensor; 3],
        besides: &[Tensor],
        fork: Tensor,
    ) -> Result<Option<Vec<Item>>, Refusal> {
        let common = self.common(key, value);
        let mut items = Vec::new();
        let [x, key_tap, value_tap] = ["x", "key", "value"].map(|role| self.tap(role));
        items.push(Item::Tap(x.clone()));
        let Some(first) = self.branch(fork, common)? else { return Ok(None) };
        let made = self.producers.get(&common).filter(|_| !first.is_empty());
        let made = made.map(|index| taps::made_by(&self.module.body[*index], self.module));
        let shared = made.map(|name| self.tap(&name));
        items.extend(first);
        items.extend(shared.clone().map(Item::Tap));
        let Some(to_key) = self.branch(common, key)? else { return Ok(None) };
        items.extend(to_key);
        items.extend([Item::Tap(key_tap.clone()), Item::From(shared.unwrap_or_else(|| x.clone()))]);
        let Some(to_value) = self.branch(common, value)? else { return Ok(None) };
        items.extend(to_value);
        items.extend([Item::Tap(value_tap.clone()), Item::From(x)]);
        let Some(to_query) = self.branch(fork, query)? else { return Ok(None) };
        items.extend(to_query);
        let (made, taps) = self.made_beside(besides);
        items.extend(made);
        let taps = [("key", key_tap), ("value", value_tap)].into_iter().chain(taps).collect();
        items.push(Item::Layer { word: attending(word, taps), name: operation.name.clone() });
        Ok(Some(items))
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

/// Whether a layer in a list, or in a module there, reads the numbers of parts of windows.
fn reads_segments(items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Layer { word, .. } => word.settings.contains_key(SEGMENTS),
        Item::Residual { main, shortcut } => reads_segments(main) || reads_segments(shortcut),
        Item::Concat { branches, .. } => branches.iter().any(|branch| reads_segments(branch)),
        Item::Around { body, .. } | Item::Scope { body, .. } | Item::Module { body, .. } => reads_segments(body),
        Item::Tap(_) | Item::From(_) | Item::Again { .. } | Item::Join(..) => false,
        Item::Use { .. } | Item::Stack { .. } => false,
    })
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
