//! Reads a trace into the operations of the network: modules with their operations, and combined views.

use std::collections::{HashMap, HashSet};

use zoo_recipe::layers::Axis;

use crate::arguments::At;
use crate::cosine::Computed;
use crate::formula;
use crate::functions::{OUTSIDE, is_inside};
use crate::modes::Mode;
use crate::operands::moved;
use crate::operation::{Module, Network, Operation, Tensor, Unit, What};
use crate::reader::{AGAIN, Reader, Seen};
use crate::trace::{Argument, Call, ModuleCall, Trace};
use crate::view::View;
use crate::word::Kind;
use crate::{ImportError, Refusal};

/// Reads the operations of a network.
///
/// # Errors
/// The first unsupported operation.
pub fn read(trace: &Trace) -> Result<Network, ImportError> {
    let network = read_any(trace)?;
    if let Some(unwritten) = network.unwritten {
        return Err(unwritten.into());
    }
    Ok(network)
}

/// As [`read`], for a network that may have parts that are compared alone.
///
/// # Errors
/// As [`read`].
pub fn read_any(trace: &Trace) -> Result<Network, ImportError> {
    call(trace, Mode::Training)
}

/// Reads the operations of a network in evaluation mode.
///
/// # Errors
/// The first unsupported operation.
pub fn read_evaluation(trace: &Trace) -> Result<Network, ImportError> {
    call(trace, Mode::Evaluation).map_err(|error| match error {
        ImportError::Refused(mut refusal) => {
            refusal.what = format!("in evaluation mode, {}", refusal.what);
            ImportError::Refused(refusal)
        }
        other => other,
    })
}

fn call(trace: &Trace, mode: Mode) -> Result<Network, ImportError> {
    let mut reader = Reader::new(trace, mode);
    let inputs = trace.inputs.iter().map(|(name, made)| (name.clone(), made.value)).collect();
    let Some(mut root) = reader.call(&trace.root)? else {
        return Err(refuse_module(trace, &trace.root, "its result is not a tensor of samples").into());
    };
    let output = match &root.returns[..] {
        [(key, _)] => Some(key.clone()).filter(|key| !key.is_empty()),
        _ => None,
    };
    if root.returns.len() == 1 {
        root.returns.clear();
    }
    let Reader { again, unwritten, gradients, said, .. } = reader;
    Ok(Network { root, inputs, output, again, untrained: gradients.untrained(trace), said, unwritten })
}

fn refuse_module(trace: &Trace, call: &ModuleCall, what: &str) -> Refusal {
    Refusal {
        module: call.module.clone(),
        operator: trace.modules.get(&call.module).map_or("", |module| module.class.as_str()).to_owned(),
        at: place(trace, call).to_owned(),
        what: what.to_owned(),
        nearest: "modules of recipes take one tensor and give one; taps carry further ones".to_owned(),
    }
}

/// Where a module is called; where it is defined, if it is the network, which is called from outside.
fn place<'t>(trace: &'t Trace, call: &'t ModuleCall) -> &'t str {
    let source = || trace.modules.get(&call.module)?.source.as_deref();
    Some(call.at.as_str()).filter(|at| !at.is_empty()).or_else(source).unwrap_or(&trace.model)
}

impl Reader<'_> {
    /// The operations of a module; `None` if it only gives what is part of a later layer, as rows of a parameter.
    fn call(&mut self, call: &ModuleCall) -> Result<Option<Module>, ImportError> {
        let path = &call.module;
        let given: Vec<usize> = call.args.iter().chain(call.kwargs.values()).flat_map(Argument::values).collect();
        let mut inputs = Vec::new();
        for value in given {
            // Arguments from the caller were computed by it, so they exist as tensors.
            match self.seen(value) {
                Some(Seen::Of(tensor, views)) if views.is_empty() => {
                    if !inputs.contains(tensor) {
                        inputs.push(*tensor);
                    }
                }
                Some(seen @ (Seen::Computed(_) | Seen::Scores(_))) => {
                    // What an attention is made of, which may be put together in this module.
                    inputs.extend(seen.bases().into_iter().filter(|base| !inputs.contains(base)).collect::<Vec<_>>());
                }
                // What was never set has no numbers that anything could use.
                Some(Seen::Picked(_) | Seen::Unsaid(_)) => {}
                Some(Seen::Of(tensor, views)) if self.is_joined(*tensor, views) || self.is_of_table(*tensor, views) => {
                    if !inputs.contains(tensor) {
                        inputs.push(*tensor);
                    }
                }
                _ => return Err(refuse_module(self.trace, call, "its argument is not a tensor of samples").into()),
            }
        }
        let mut body = Vec::new();
        let is_again = usize::from(call.call > 0);
        self.inside_again += is_again;
        for inner in &call.body {
            match inner {
                Call::Module(inner) => self.module(path, inner, &mut body)?,
                Call::Function(inner) => {
                    self.function(&mut At::new(path, inner, &mut body))?;
                }
            }
        }
        self.inside_again -= is_again;
        let given: Vec<usize> = call.outputs.values().flat_map(Argument::values).collect();
        if body.is_empty()
            && !given.is_empty()
            && given
                .iter()
                .all(|value| matches!(self.seen(*value), Some(Seen::Picked(_) | Seen::Computed(_) | Seen::Scores(_))))
        {
            return Ok(None);
        }
        if body.is_empty() && !call.outputs.is_empty() && given.is_empty() {
            // Constants alone, as tables of angles.
            return Ok(None);
        }
        let mut returns = Vec::new();
        for (key, value) in &call.outputs {
            for value in value.values() {
                // The weights of an attention may be given too, if nothing uses them, and rows of a parameter, for
                // others.
                let is_aside = match self.seen(value) {
                    Some(Seen::Unsaid(_)) => true,
                    Some(Seen::Scores(_) | Seen::Picked(_)) => call.outputs.len() > 1,
                    Some(Seen::Computed(computed)) => {
                        call.outputs.len() > 1 && matches!(**computed, Computed::Routed(_))
                    }
                    _ => false,
                };
                if !is_aside {
                    let at = place(self.trace, call);
                    let normed = match self.seen(value) {
                        Some(Seen::Of(base, _)) if self.normed_heads.contains(base) => Some(*base),
                        _ => None,
                    };
                    if let Some(normed) = normed {
                        returns.push((key.clone(), normed));
                        continue;
                    }
                    let given = match self.joined_rows(value, path, at, &mut body)? {
                        Some(tensor) => tensor,
                        None => self.tensor(value, path, at, "return", &mut body)?,
                    };
                    returns.push((key.clone(), given));
                }
            }
        }
        let tensors = || returns.iter().map(|(_, tensor)| *tensor);
        let Some(output) = tensors().find(|tensor| !inputs.contains(tensor)).or(tensors().next()) else {
            let refused = call.outputs.values().flat_map(Argument::values).find_map(|value| self.refused.get(&value));
            let none = || refuse_module(self.trace, call, "its result is not a tensor");
            return Err(refused.cloned().unwrap_or_else(none).into());
        };
        if let [(key, _)] = &returns[..]
            && key.is_empty()
        {
            returns.clear();
        }
        let described = self.trace.modules.get(path);
        let class = described.map_or("", |module| module.class.as_str());
        let mut module = Module {
            path: path.clone(),
            class: class.rsplit('.').next().unwrap_or_default().to_owned(),
            source: described.and_then(|module| module.source.clone()),
            at: call.at.clone(),
            inputs,
            output,
            returns,
            body,
        };
        self.open_windows(&mut module);
        shorten_sums(&mut module.body);
        let given: Vec<Tensor> = module.returns.iter().map(|(_, tensor)| *tensor).chain([output]).collect();
        drop_unused(&mut module.body, &given);
        formula::combine(&mut module);
        Ok(Some(module))
    }

    /// Adds a call of a module inside `outer`.
    fn module(&mut self, outer: &str, call: &ModuleCall, units: &mut Vec<Unit>) -> Result<(), ImportError> {
        let class = self.trace.modules.get(&call.module).map_or("", |module| module.class.as_str());
        if EMPTY.contains(&class) && call.body.is_empty() || self.passes_on(call) {
            return Ok(());
        }
        if class == ROW
            && call
                .body
                .iter()
                .any(|inner| matches!(inner, Call::Module(inner) if !is_inside(&inner.module, &call.module)))
        {
            // A row of modules that have their names elsewhere: what it gives is what the last of them gives.
            for inner in &call.body {
                match inner {
                    Call::Module(inner) => self.module(outer, inner, units)?,
                    Call::Function(inner) => self.function(&mut At::new(outer, inner, units))?,
                }
            }
            return Ok(());
        }
        // One module may be called from several places: all calls but the first are calls of that again.
        let elsewhere = !is_inside(&call.module, outer);
        if elsewhere && call.call == 0 {
            let what = format!("it is called by `{outer}`, of which it is no part, or under another name");
            let nearest = OUTSIDE.to_owned();
            return Err(Refusal { nearest, ..refuse_module(self.trace, call, &what) }.into());
        }
        for value in call.args.iter().chain(call.kwargs.values()).flat_map(Argument::values) {
            let later =
                |seen: &Seen| matches!(seen, Seen::Computed(_) | Seen::Scores(_) | Seen::Picked(_) | Seen::Unsaid(_));
            if self.seen(value).is_some_and(later) {
                continue;
            }
            let is_of_table = match self.seen(value) {
                Some(Seen::Of(base, views)) => self.is_of_table(*base, views),
                _ => false,
            };
            if !is_of_table && self.joined_rows(value, outer, &call.at, units)?.is_none() {
                self.tensor(value, outer, &call.at, &call.module, units)?;
            }
        }
        let of_constants = self.of_constants(call, outer, units)?;
        let call = of_constants.as_ref().unwrap_or(call);
        let Some(mut module) = self.call(call)? else { return Ok(()) };
        // A function that selects one of several tensors is marked.
        let picks = module.body.is_empty() && module.inputs.len() > 1;
        if module.inputs.contains(&module.output) && !picks {
            return Err(refuse_module(self.trace, call, "it is a module without operations").into());
        }
        if let [Unit::Operation(first), ..] = &module.body[..]
            && matches!(first.what, What::Concat(_))
            && module.inputs.len() > 1
            && first.operands == module.inputs
        {
            // A module that concatenates its arguments gets the concatenated tensor (layers of DenseNet).
            module.inputs = vec![first.result];
            units.push(module.body.remove(0));
        }
        let path = &module.path;
        let own = |name: &Option<String>| name.as_ref() == Some(path);
        if let [Unit::Operation(only)] = &mut module.body[..]
            && (only.name.is_none() || own(&only.name))
            && can_be_named(&only.what)
            && (module.returns.is_empty() || gives_first(&only.what))
        {
            only.name = Some(path.clone());
            if elsewhere {
                self.again.insert((path.clone(), only.result), call.call);
            }
            units.append(&mut module.body);
            return Ok(());
        }
        let has_own = |unit: &&Unit| matches!(unit, Unit::Operation(operation) if own(&operation.name));
        if module.body.iter().filter(has_own).count() > 1 {
            let refusal = refuse_module(self.trace, call, "several of its functions have parameters of its own");
            let nearest = "one layer of a module may have the module's parameters: `name: .`";
            return Err(Refusal { nearest: nearest.to_owned(), ..refusal }.into());
        }
        let has_source = module.body.iter().any(|unit| unit.operands().is_empty());
        if module.inputs.is_empty() && !has_source {
            return Err(refuse_module(self.trace, call, "it has no tensor as its argument").into());
        }
        let is_same = self.remember((path, path), sketch(&module), module.output);
        // What is called again as a whole may have modules that give several tensors.
        if call.call > 0 && (!is_same || module.returns.len() > 1 && self.inside_again == 0) {
            let what = match is_same {
                true => "it is called again, and gives several tensors",
                false => "it is called again, and computes something else, or with other tensors beside its first",
            };
            let refusal = Refusal { nearest: AGAIN.to_owned(), ..refuse_module(self.trace, call, what) };
            self.unwritten.get_or_insert(refusal);
        }
        units.push(Unit::Module(module));
        Ok(())
    }

    /// Whether a module only contains empty ones, and returns one of its arguments.
    fn passes_on(&self, call: &ModuleCall) -> bool {
        let modules = self.trace.modules.iter();
        let mut inside = modules.filter(|(path, _)| **path != call.module && is_inside(path, &call.module)).peekable();
        let given: Vec<&Argument> = call.args.iter().chain(call.kwargs.values()).collect();
        let is_idle = |inner: &Call| matches!(inner, Call::Module(inner) if inner.body.is_empty());
        inside.peek().is_some()
            && inside.all(|(_, module)| EMPTY.contains(&module.class.as_str()))
            && call.body.iter().all(is_idle)
            && call.outputs.len() == 1
            && call.outputs.values().all(|output| given.contains(&output))
    }

    /// Whether these views only make one axis of samples and tokens, or make samples another axis than the first.
    fn is_joined(&self, tensor: Tensor, views: &[View]) -> bool {
        match (views, self.shape_of(tensor)) {
            ([_], _) if moved(views).is_some() => true,
            ([View::Reshape(to)], [n, 1]) if to == &[*n] => true,
            ([View::Reshape(to)], [n, t, rest @ ..]) => to.split_first() == Some((&(n * t), rest)),
            _ => false,
        }
    }
}

/// What a module computes of its first argument, with all others, as a text that is equal for equal calls.
fn sketch(module: &Module) -> String {
    fn inside(module: &Module, places: &mut HashMap<Tensor, String>, text: &mut String) {
        for unit in &module.body {
            let operands = unit.operands().iter().map(|operand| match places.get(operand) {
                Some(place) => place.clone(),
                None => operand.to_string(),
            });
            let operands = operands.collect::<Vec<_>>().join(", ");
            match unit {
                Unit::Operation(Operation { what, name, .. }) => {
                    *text += &format!("{} {name:?}({operands}); ", what.key());
                }
                Unit::Module(inner) => {
                    *text += &format!("{}({operands}): ", inner.path);
                    inside(inner, places, text);
                }
            }
            for result in unit.results() {
                let place = format!("t{}", places.len());
                places.entry(result).or_insert(place);
            }
        }
    }
    let mut places = HashMap::from_iter(module.inputs.first().map(|first| (*first, "x".to_owned())));
    let mut text = String::new();
    inside(module, &mut places, &mut text);
    text + places.get(&module.output).map_or("", String::as_str)
}

/// Modules that return their argument, and whose outputs are not in goldens.
const EMPTY: [&str; 2] = ["torch.nn.modules.linear.Identity", ROW];
const ROW: &str = "torch.nn.modules.container.Sequential";

/// Whether a layer of a recipe can represent a module.
fn can_be_named(what: &What) -> bool {
    match what {
        What::Layer(word) => word.kind != Kind::Formula,
        What::Add | What::Subtract | What::Mul | What::Concat(_) => false,
        What::Cut(_) | What::Join(_) | What::Segments(_) => false,
    }
}

/// Whether a layer is a module that returns its result first, followed by another value.
fn gives_first(what: &What) -> bool {
    matches!(what, What::Layer(word) if word.kind == Kind::First)
}

/// Lets a concatenation begin with an earlier one that has its first operands.
fn shorten_sums(units: &mut [Unit]) {
    let mut known: Vec<(Vec<Tensor>, Axis, Tensor)> = Vec::new();
    for unit in units {
        let Unit::Operation(operation) = unit else { continue };
        let What::Concat(axis) = operation.what else { continue };
        let whole = operation.operands.clone();
        let prefix = known.iter().filter(|(operands, along, _)| {
            *along == axis && operands.len() < whole.len() && whole.starts_with(operands)
        });
        if let Some((operands, _, result)) = prefix.max_by_key(|(operands, ..)| operands.len()) {
            let rest = &whole[operands.len()..];
            operation.operands = std::iter::once(*result).chain(rest.iter().copied()).collect();
        }
        known.push((whole, axis, operation.result));
    }
}

/// Removes unnamed operations whose results are not used.
fn drop_unused(units: &mut Vec<Unit>, given: &[Tensor]) {
    loop {
        let operands = units.iter().flat_map(Unit::operands);
        let used: HashSet<Tensor> = operands.chain(given).copied().collect();
        let before = units.len();
        units.retain(|unit| match unit {
            Unit::Operation(operation) => operation.name.is_some() || used.contains(&operation.result),
            Unit::Module(_) => true,
        });
        if units.len() == before {
            return;
        }
    }
}
