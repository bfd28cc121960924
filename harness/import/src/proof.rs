//! Proves that a recipe equals the traced network: the same operations on the same operands, the same modules and
//! parameters.

use std::collections::{BTreeMap, HashMap};

use indexmap::IndexMap;
use zoo_graph::{Shape, Tap};
use zoo_recipe::layers::{
    Attention, Axis, Conv, Description, DotProductAttention, Experts, Matmul, Pad, PadMode, Slice, Xcorr,
};
use zoo_recipe::schema::{Count, Padding, Size};
use zoo_recipe::{BuildOptions, Layer, Recipe, ResolvedLayer, ResolvedModel, build};

use crate::decay::Roles;
use crate::error::unbuildable;
use crate::maps::resized;
use crate::operation::{Network, Operation, Tensor, Unit, What, Windows};
use crate::trace::{Argument, Call, ModuleCall, Trace};
use crate::word::{Kind, Word};
use crate::{ImportError, Refusal};

/// Numbers of parts that were found equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Proof {
    /// Number of operations.
    pub operations: usize,
    /// Number of module outputs.
    pub modules: usize,
    /// Number of parameters.
    pub parameters: usize,
    /// Whether the network in evaluation mode was found equal too.
    pub evaluation: bool,
}

/// Assigns numbers to operations; equal operations get equal numbers.
#[derive(Default)]
pub(crate) struct Numbers {
    known: HashMap<(String, Vec<usize>), usize>,
    names: Vec<String>,
    concats: HashMap<usize, (Axis, Vec<usize>)>,
}

impl Numbers {
    pub fn input(&mut self, name: &str) -> usize {
        self.number(format!("input {name}"), Vec::new())
    }

    pub fn of(&mut self, what: &What, name: Option<&str>, mut operands: Vec<usize>) -> usize {
        if what.commutes() {
            operands.sort_unstable();
        }
        let key = name.map_or_else(|| what.key(), |name| format!("{} called {name}", what.key()));
        let What::Concat(axis) = what else { return self.number(key, operands) };
        // Concatenations in two steps or at once are equal: they have the same elements in the same order.
        let inner = |operand: &usize| match self.concats.get(operand) {
            Some((other, parts)) if other == axis => parts.clone(),
            Some(_) | None => vec![*operand],
        };
        let parts: Vec<usize> = operands.iter().flat_map(inner).collect();
        let number = self.number(key, parts.clone());
        self.concats.insert(number, (*axis, parts));
        number
    }

    fn number(&mut self, key: String, operands: Vec<usize>) -> usize {
        let next = self.known.len();
        let number = *self.known.entry((key.clone(), operands)).or_insert(next);
        if number == next {
            self.names.push(key);
        }
        number
    }
}

/// The operations of a network, by canonical numbers.
#[derive(Clone, Default)]
struct Account {
    operations: BTreeMap<usize, usize>,
    /// In the order in which modules return.
    modules: IndexMap<String, usize>,
    calls: HashMap<String, usize>,
    /// Layers whose parameters are used without a call of their module, which may be called as well.
    aside: HashMap<String, usize>,
    /// What the network gives, by key; the key of a single tensor is empty.
    outputs: BTreeMap<String, usize>,
}

impl Account {
    /// The results of a module by key; the key of a single tensor is empty.
    fn module(&mut self, name: &str, parts: &[(&str, usize)]) {
        let call = self.calls.entry(name.to_owned()).or_default();
        for (key, number) in parts {
            let part = if key.is_empty() { String::new() } else { format!(".{key}") };
            self.modules.insert(format!("{name}#{call}{part}"), *number);
        }
        *call += 1;
    }

    /// All results of the call that this is a result of.
    fn results(&self, name: &str) -> impl Iterator<Item = usize> {
        let of = call(name);
        self.modules.iter().filter(move |(other, _)| call(other) == of).map(|(_, number)| *number)
    }

    fn operation(&mut self, number: usize) -> usize {
        *self.operations.entry(number).or_default() += 1;
        number
    }

    /// The module output of a named layer; none if its name is that of a parameter.
    fn layer(&mut self, word: &Word, name: &str, number: usize) {
        match word.kind {
            Kind::Parameter | Kind::Source | Kind::Beside(_) => {}
            // The module is not called.
            Kind::Wide if word.is_on("functional") => {
                self.aside.insert(format!("{name}#0"), number);
            }
            Kind::First => self.module(name, &[("0", number)]),
            Kind::Formula | Kind::Wide | Kind::Plain | Kind::Second { .. } | Kind::Gate | Kind::Windows => {
                self.module(name, &[("", number)])
            }
        }
    }
}

/// The module and call of a result: `fpn#0` of `fpn#0.p6`.
fn call(result: &str) -> &str {
    let calls = result.find('#').unwrap_or(0);
    result[calls..].find('.').map_or(result, |key| &result[..calls + key])
}

struct Traced<'p> {
    numbers: &'p mut Numbers,
    account: Account,
    tensors: HashMap<Tensor, usize>,
}

impl Traced<'_> {
    /// The content of the module `path`.
    fn units(&mut self, units: &[Unit], path: &str) {
        for unit in units {
            match unit {
                Unit::Module(module) => {
                    self.units(&module.body, &module.path);
                    let returns = module.returns.iter().map(|(key, tensor)| (key.as_str(), self.number(*tensor)));
                    let parts: Vec<(&str, usize)> = match module.returns.is_empty() {
                        true => vec![("", self.number(module.output))],
                        false => returns.collect(),
                    };
                    self.account.module(&module.path, &parts);
                }
                Unit::Operation(Operation { what, operands, result, name, .. }) => {
                    let operands = operands.iter().map(|operand| self.number(*operand)).collect();
                    let number = self.numbers.of(what, name.as_deref(), operands);
                    self.account.operation(number);
                    self.tensors.insert(*result, number);
                    // The layer with the module's own parameters is not the module.
                    if let (What::Layer(word), Some(name)) = (what, name.as_deref().filter(|name| *name != path)) {
                        self.account.layer(word, name, number);
                    }
                }
            }
        }
    }

    fn number(&self, tensor: Tensor) -> usize {
        self.tensors.get(&tensor).copied().unwrap_or(usize::MAX)
    }
}

struct Written<'p> {
    numbers: &'p mut Numbers,
    account: Account,
    taps: HashMap<String, usize>,
    /// Shapes of operand and result of the next layers, if they are known.
    shapes: std::vec::IntoIter<[Shape; 2]>,
}

impl Written<'_> {
    fn windows(&mut self, windows: &zoo_recipe::layers::Windows, map: [usize; 2], x: usize) -> usize {
        let size = windows.size.0;
        // A single window is not moved.
        let shift = [0, 1].map(|axis| if map[axis] > size[axis] { windows.shift.0 } else { 0 });
        let own = Windows { size, map, shift };
        let mut of = |what: What, operands| {
            let number = self.numbers.of(&what, None, operands);
            self.account.operation(number)
        };
        let cut = of(What::Cut(own.clone()), vec![x]);
        if let Some(tap) = &windows.segments {
            let segments = of(What::Segments(own.clone()), Vec::new());
            self.taps.insert(tap.clone(), segments);
        }
        let body = match (Layer::Windows(windows.clone())).describe() {
            Description::Row(body) => body.to_vec(),
            _ => Vec::new(),
        };
        let joined = self.row(&body, cut);
        let number = self.numbers.of(&What::Join(own), None, vec![joined]);
        self.account.operation(number)
    }

    fn row(&mut self, layers: &[ResolvedLayer], x: usize) -> usize {
        layers.iter().fold(x, |x, layer| self.layer(layer, x))
    }

    /// An operation without a name.
    fn operation(&mut self, layer: Layer, operands: Vec<usize>) -> usize {
        let number = self.numbers.of(&What::Layer(Word::of(&layer)), None, operands);
        self.account.operation(number)
    }

    fn layer(&mut self, layer: &ResolvedLayer, x: usize) -> usize {
        let shapes = self.shapes.next();
        match (&layer.kind, shapes) {
            // Parts of a map by their sizes, as the trace has them.
            (Layer::Crop(_), Some([from, to])) => {
                return (2..from.len()).fold(x, |x, axis| match from[axis] == to[axis] {
                    true => x,
                    false => {
                        let start = Count((from[axis] - to[axis]) / 2);
                        let slice = Slice { axis: Count(axis - 1), from: start, size: Size(to[axis]) };
                        self.operation(Layer::Slice(slice), vec![x])
                    }
                });
            }
            (Layer::Windows(windows), Some([from, _])) if let &[_, height, width, _] = &from[..] => {
                return self.windows(windows, [height, width], x);
            }
            (Layer::Upsample(own), Some(shapes)) => {
                if let [Some([_, _, height, width]), Some([_, _, to_height, to_width])] =
                    shapes.map(|shape| shape.nchw())
                {
                    let kind = Layer::Upsample(resized(own.clone(), [height, width], [to_height, to_width]));
                    return self.kind(&ResolvedLayer { kind, ..layer.clone() }, x);
                }
            }
            (Layer::Conv(own), Some(_)) if !matches!(own.pad.0, [t, b, l, r] if (t, l) == (b, r)) => {
                let x = self.operation(Layer::Pad(Pad { size: own.pad, mode: PadMode::Zeros }), vec![x]);
                let kind = Layer::Conv(Conv { pad: Padding::default(), ..own.clone() });
                return self.kind(&ResolvedLayer { kind, ..layer.clone() }, x);
            }
            _ => {}
        }
        self.kind(layer, x)
    }

    fn kind(&mut self, layer: &ResolvedLayer, x: usize) -> usize {
        let name = layer.name.as_deref();
        match &layer.kind {
            Layer::Windows(windows) => return self.windows(windows, [usize::MAX; 2], x),
            other => {
                if let Some((tap, beside)) = beside(other) {
                    let number = self.numbers.of(&What::Layer(Word::of(&beside)), name, Vec::new());
                    self.taps.insert(tap, self.account.operation(number));
                    return x;
                }
            }
        }
        let (result, is_container) = match layer.kind.describe() {
            Description::Tap(tap) => {
                self.taps.insert(tap.to_owned(), x);
                (x, false)
            }
            Description::From(tap) => (self.taps.get(tap).copied().unwrap_or(usize::MAX), false),
            Description::Row(body) | Description::Again(body) => (self.row(body, x), true),
            Description::Unused(body) => {
                // Their shapes are among the others.
                let (account, taps) = (self.account.clone(), self.taps.clone());
                self.row(body, x);
                (self.account, self.taps) = (account, taps);
                (x, false)
            }
            Description::Branches { lanes, .. } => {
                let operands: Vec<usize> = lanes.iter().map(|lane| self.row(lane, x)).collect();
                let what = match &layer.kind {
                    // Two names of one axis.
                    Layer::Concat(concat) if concat.axis == Axis::Token => What::Concat(Axis::Channel),
                    Layer::Concat(concat) => What::Concat(concat.axis),
                    Layer::Gate(_) => What::Mul,
                    Layer::Residual(_) => What::Add,
                    other => What::Layer(Word::of(other)),
                };
                let number = self.numbers.of(&what, None, operands);
                (self.account.operation(number), true)
            }
            Description::Step(step) => {
                let reads = step.reads.iter().map(|tap| self.taps.get(*tap).copied().unwrap_or(usize::MAX));
                // A parameter or a constant takes the place of the current value.
                let present = Some(x).filter(|_| !matches!(layer.kind, Layer::Parameter(_) | Layer::Constant(_)));
                let operands = present.into_iter().chain(reads).collect();
                let what = match &layer.kind {
                    Layer::Add(_) => What::Add,
                    Layer::Subtract(_) => What::Subtract,
                    Layer::Mul(_) => What::Mul,
                    Layer::Matmul(layer) => {
                        What::Layer(Word::of(&Layer::Matmul(Matmul { with: String::new(), ..layer.clone() })))
                    }
                    // Keys and values are operands.
                    Layer::DotProductAttention(layer) => {
                        let [key, value, mask, segments, bias, cosine] = [const { None }; 6];
                        let layer = DotProductAttention { key, value, mask, segments, bias, cosine, ..layer.clone() };
                        What::Layer(Word::of(&Layer::DotProductAttention(layer)))
                    }
                    Layer::Attention(layer) => {
                        let [key, value, mask] = [const { None }; 3];
                        What::Layer(Word::of(&Layer::Attention(Attention { key, value, mask, ..layer.clone() })))
                    }
                    // So are scores.
                    Layer::Experts(layer) => {
                        let layer = Experts { scores: String::new(), ..layer.clone() };
                        What::Layer(Word::of(&Layer::Experts(layer)))
                    }
                    // So is a kernel.
                    Layer::Xcorr(_) => What::Layer(Word::of(&Layer::Xcorr(Xcorr { kernel: String::new() }))),
                    other => What::Layer(Word::of(other)),
                };
                let number = self.numbers.of(&what, name, operands);
                self.account.operation(number);
                if let (What::Layer(word), Some(name), true) = (&what, name, layer.is_module) {
                    self.account.layer(word, name, number);
                }
                (number, false)
            }
        };
        if let (Some(name), true) = (name, is_container) {
            let tap =
                |(key, tap): (&'_ String, &String)| (key.clone(), self.taps.get(tap).copied().unwrap_or(usize::MAX));
            let returns: Vec<(String, usize)> = layer.returns.iter().map(tap).collect();
            let parts: Vec<(&str, usize)> = match returns.is_empty() {
                true => vec![("", result)],
                false => returns.iter().map(|(key, number)| (key.as_str(), *number)).collect(),
            };
            self.account.module(name, &parts);
        }
        result
    }
}

/// The tap of a layer that only makes one of parameters, and the layer without it.
fn beside(layer: &Layer) -> Option<(String, Layer)> {
    let mut own = layer.clone();
    let tap = match &mut own {
        Layer::RelativePositionBias(bias) => &mut bias.tap,
        Layer::ContinuousPositionBias(bias) => &mut bias.tap,
        Layer::DistanceBias(bias) => &mut bias.tap,
        Layer::LogitScale(scale) => &mut scale.tap,
        _ => return None,
    };
    Some((std::mem::take(tap), own))
}

/// What a module's several results are known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// Their keys, which goldens have.
    Keys,
    /// What they are: a program has an order of its own, and gives what is needed.
    Tensors,
}

/// Compares a recipe with the traced network. shapes: of operand and result of each layer of the recipe, if sizes that
/// it says otherwise are compared.
///
/// # Errors
/// The first difference.
pub fn same(
    network: &Network,
    model: &ResolvedModel,
    shapes: Vec<[Shape; 2]>,
    results: Results,
) -> Result<Proof, ImportError> {
    let mut numbers = Numbers::default();
    let inputs: Vec<usize> = network.inputs.iter().map(|(name, _)| numbers.input(name)).collect();
    let tensors = network.inputs.iter().map(|(_, tensor)| *tensor).zip(inputs.iter().copied()).collect();
    let mut traced = Traced { numbers: &mut numbers, account: Account::default(), tensors };
    traced.units(&network.root.body, "");
    traced.account.outputs = match &network.root.returns[..] {
        [] => BTreeMap::from([(String::new(), traced.number(network.root.output))]),
        returns => returns.iter().map(|(key, tensor)| (key.clone(), traced.number(*tensor))).collect(),
    };
    let traced = traced.account;
    let taps: HashMap<String, usize> = model.inputs.keys().map(|name| (name.clone(), numbers.input(name))).collect();
    let first = model.inputs.keys().next().and_then(|name| taps.get(name).copied()).unwrap_or(usize::MAX);
    let mut written = Written { numbers: &mut numbers, account: Account::default(), taps, shapes: shapes.into_iter() };
    let last = written.row(&model.body, first);
    let tap = |tap: &String| written.taps.get(tap).copied().unwrap_or(usize::MAX);
    written.account.outputs = match model.outputs.len() {
        0 => BTreeMap::from([(String::new(), last)]),
        1 => model.outputs.values().map(|name| (String::new(), tap(name))).collect(),
        _ => model.outputs.iter().map(|(key, name)| (key.clone(), tap(name))).collect(),
    };
    let written = written.account;
    let differs = |what: String| Err(ImportError::Differs(what));
    let by_tensor = results == Results::Tensors;
    for (name, number) in &traced.modules {
        match written.modules.get(name) {
            Some(other) if other == number => {}
            _ if by_tensor && written.results(name).any(|other| other == *number) => {}
            Some(other) => {
                let [theirs, ours] =
                    [number, other].map(|number| numbers.names.get(*number).cloned().unwrap_or_default());
                return differs(format!(
                    "the output of the module {name} is `{theirs}`, in the recipe it would be \
                                        `{ours}`"
                ));
            }
            None if written.aside.get(name) == Some(number) => {}
            None => return differs(format!("the recipe would lack the module {name}")),
        }
    }
    let is_called = |name: &str| by_tensor && traced.results(name).next().is_some();
    if let Some(name) = written.modules.keys().find(|name| !traced.modules.contains_key(*name) && !is_called(name)) {
        return differs(format!("the recipe would have an additional module {name}"));
    }
    let count = |account: &Account, number: &usize| account.operations.get(number).copied().unwrap_or(0);
    for number in traced.operations.keys().chain(written.operations.keys()) {
        let (theirs, ours) = (count(&traced, number), count(&written, number));
        if theirs != ours {
            let name = numbers.names.get(*number).cloned().unwrap_or_default();
            return differs(format!("`{name}` is computed {theirs} times, in the recipe it would be {ours} times"));
        }
    }
    if traced.outputs != written.outputs {
        let unlike = |(key, number): &(&String, &usize)| written.outputs.get(*key) != Some(*number);
        return differs(match traced.outputs.iter().find(unlike) {
            Some((key, _)) if !key.is_empty() => format!("the recipe would give another tensor as `{key}`"),
            Some(_) => "the recipe would give another tensor".to_owned(),
            None => "the recipe would give more tensors".to_owned(),
        });
    }
    let operations = traced.operations.values().sum();
    Ok(Proof { operations, modules: traced.modules.len(), parameters: 0, evaluation: false })
}

/// Compares the graph of a recipe with shapes and parameters of the trace, and returns the roles of its parameters and
/// the keys of its module outputs.
///
/// # Errors
/// As [`same`], and parameters that no operation uses.
pub fn shapes(trace: &Trace, recipe: &Recipe, model: &ResolvedModel) -> Result<(Roles, Vec<String>), ImportError> {
    let options = BuildOptions { batch: trace.batch, ..BuildOptions::eval(trace.batch) };
    let graph = build(recipe, model, &options).map_err(|error| unbuildable(recipe, error))?;
    let own: BTreeMap<&str, Vec<usize>> = graph
        .parameters()
        .map(|(_, variable)| (variable.name.as_str(), graph.ty(variable.value).shape.to_vec()))
        .collect();
    let theirs = trace.parameters.iter().filter(|(_, parameter)| parameter.same_as.is_none());
    let mut count = 0;
    for (name, parameter) in theirs {
        count += 1;
        match own.get(name.as_str()) {
            Some(shape) if *shape == parameter.shape => {}
            Some(shape) => {
                let message = format!(
                    "the recipe would give the parameter `{name}` the shape {shape:?} instead of {:?}",
                    parameter.shape
                );
                return Err(ImportError::Differs(message));
            }
            None => {
                let what = format!("nothing uses the parameter `{name}`");
                let nearest = "remove the module, or what is computed with it and not used";
                return Err(Refusal::of_parameter(trace, name, what, nearest).into());
            }
        }
    }
    if own.len() != count {
        return Err(ImportError::Differs(format!("there would be {} parameters, and there are {count}", own.len())));
    }
    let mut given = HashMap::new();
    outputs(&trace.root, &mut HashMap::new(), &mut given);
    for tap in &graph.taps {
        let zoo_graph::TapState::Value(value) = tap.state else { continue };
        let shape = graph.ty(value).shape.to_vec();
        let key = (tap.module.clone(), tap.call, tap.part.clone().unwrap_or_default());
        // Rows of positions are the same for all samples: PyTorch may have an axis of samples before them, or of one.
        // Samples and tokens may be one axis.
        let rows = |own: &[usize]| [&[own[0] * own[1]], &own[2..]].concat();
        let is_joined = |theirs: &[usize]| match (&shape[..], theirs) {
            ([n, 1], [samples]) => n == samples,
            _ => shape.len() > 2 && *theirs == rows(&shape),
        };
        let is_repeated =
            |theirs: &[usize]| [1, trace.batch].iter().any(|n| theirs.strip_prefix(&[*n]) == Some(&shape[..]));
        // Samples may be the second axis.
        let is_turned =
            |theirs: &[usize]| matches!(theirs, [t, n, rest @ ..] if [&[*n, *t], rest].concat() == shape && t != n);
        let is_other = |theirs: &&Vec<usize>| {
            **theirs != shape && !is_repeated(theirs) && !is_joined(theirs) && !is_turned(theirs)
        };
        if let Some(theirs) = given.get(&key).filter(is_other) {
            let message = format!("the module {} would give {shape:?}, and gives {theirs:?}", tap.key());
            return Err(ImportError::Differs(message));
        }
    }
    let roles = graph.parameters().map(|(_, variable)| (variable.name.clone(), variable.role.clone())).collect();
    Ok((roles, graph.taps.iter().map(Tap::key).collect()))
}

/// Shapes of the results of modules, by path, call and key.
fn outputs(
    call: &ModuleCall,
    shapes: &mut HashMap<usize, Vec<usize>>,
    given: &mut HashMap<(String, usize, String), Vec<usize>>,
) {
    for inner in &call.body {
        match inner {
            Call::Module(inner) => outputs(inner, shapes, given),
            Call::Function(inner) => {
                shapes.extend(inner.outputs.values().map(|made| (made.value, made.shape.clone())));
            }
        }
    }
    for (key, output) in &call.outputs {
        if let Argument::Value(value) = output
            && let Some(shape) = shapes.get(value)
        {
            given.insert((call.module.clone(), call.call, key.clone()), shape.clone());
        }
    }
}
