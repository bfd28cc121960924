//! Reads a trace into the operations of the network: modules with their operations, and combined views.

use std::collections::{HashMap, HashSet};

use zoo_recipe::Layer;
use zoo_recipe::layers::Axis;

use crate::arguments::At;
use crate::operation::{Module, Network, Operation, Tensor, Unit, What};
use crate::trace::{Argument, Call, Made, ModuleCall, Trace};
use crate::view::{self, View};
use crate::word::{Kind, Word};
use crate::{ImportError, Refusal};

/// Reads the operations of a network.
///
/// # Errors
/// The first unsupported operation.
pub fn read(trace: &Trace) -> Result<Network, ImportError> {
    let mut reader =
        Reader { trace, seen: HashMap::new(), shapes: HashMap::new(), types: HashMap::new(), real: None, next: 0 };
    reader.next = reader.largest(&trace.root) + 1;
    for input in trace.inputs.values() {
        reader.see(input);
        reader.types.insert(input.value, input.dtype.clone());
    }
    reader.real = trace.inputs.values().find(|input| input.is_real()).map(|input| input.dtype.clone());
    if let Some((name, _)) = trace.parameters.iter().find(|(_, parameter)| parameter.frozen) {
        let what = format!("the parameter `{name}` gets no gradient (`requires_grad=False`)");
        return Err(Refusal::of_parameter(trace, name, what, "`train.parts` freezes modules of a recipe").into());
    }
    let inputs = trace.inputs.iter().map(|(name, made)| (name.clone(), made.value)).collect();
    let root = reader.call(&trace.root)?;
    if root.returns.len() > 1 {
        let what = format!("it gives {} tensors", root.returns.len());
        return Err(reader.refuse_module(&trace.root, &what).into());
    }
    Ok(Network { root, inputs })
}

/// The meaning of a tensor of the trace.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// A view of the result of an operation.
    Of(Tensor, Vec<View>),
    /// A parameter, repeated for every sample.
    Expanded(String),
    /// A parameter in another shape.
    Reshaped(String, Vec<usize>),
    /// Something unsupported that must not be used, with a description.
    Unsaid(&'static str),
}

pub(crate) struct Reader<'t> {
    pub(crate) trace: &'t Trace,
    /// Meanings by the numbers of the trace.
    seen: HashMap<usize, Seen>,
    /// Shapes of the results of operations.
    shapes: HashMap<Tensor, Vec<usize>>,
    /// Element types by the numbers of the trace.
    types: HashMap<usize, String>,
    /// The type of real numbers; a recipe has only one.
    real: Option<String>,
    next: Tensor,
}

impl Reader<'_> {
    fn largest(&self, call: &ModuleCall) -> usize {
        let inside = call.body.iter().map(|inner| match inner {
            Call::Module(inner) => self.largest(inner),
            Call::Function(inner) => inner.outputs.values().map(|made| made.value).max().unwrap_or(0),
        });
        let inputs = self.trace.inputs.values().map(|made| made.value);
        inside.chain(inputs).max().unwrap_or(0)
    }

    fn see(&mut self, made: &Made) {
        self.seen.insert(made.value, Seen::Of(made.value, Vec::new()));
        self.shapes.insert(made.value, made.shape.clone());
    }

    /// The operations of a module.
    fn call(&mut self, call: &ModuleCall) -> Result<Module, ImportError> {
        let path = &call.module;
        let given: Vec<usize> = call.args.iter().chain(call.kwargs.values()).flat_map(Argument::values).collect();
        let mut inputs = Vec::new();
        for value in given {
            // Arguments from the caller were computed by it, so they exist as tensors.
            match self.seen.get(&value) {
                Some(Seen::Of(tensor, views)) if views.is_empty() => {
                    if !inputs.contains(tensor) {
                        inputs.push(*tensor);
                    }
                }
                _ => return Err(self.refuse_module(call, "its argument is not a tensor of samples").into()),
            }
        }
        let mut body = Vec::new();
        for inner in &call.body {
            match inner {
                Call::Module(inner) => self.module(path, inner, &mut body)?,
                Call::Function(inner) => {
                    self.function(&mut At::new(path, inner, &mut body))?;
                }
            }
        }
        let mut returns = Vec::new();
        for (key, value) in &call.outputs {
            for value in value.values() {
                if !matches!(self.seen(value), Some(Seen::Unsaid(_))) {
                    returns.push((key.clone(), self.tensor(value, path, &call.at, "return", &mut body)?));
                }
            }
        }
        let tensors = || returns.iter().map(|(_, tensor)| *tensor);
        let Some(output) = tensors().find(|tensor| !inputs.contains(tensor)).or(tensors().next()) else {
            return Err(self.refuse_module(call, "its result is not a tensor").into());
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
        shorten_sums(&mut module.body);
        let given: Vec<Tensor> = module.returns.iter().map(|(_, tensor)| *tensor).chain([output]).collect();
        drop_unused(&mut module.body, &given);
        Ok(module)
    }

    fn refuse_module(&self, call: &ModuleCall, what: &str) -> Refusal {
        let class = self.trace.modules.get(&call.module).map_or("", |module| module.class.as_str());
        Refusal {
            module: call.module.clone(),
            operator: class.to_owned(),
            at: call.at.clone(),
            what: what.to_owned(),
            nearest: "modules of recipes take one tensor and give one; taps carry further ones".to_owned(),
        }
    }

    /// Adds a call of a module inside `outer`.
    fn module(&mut self, outer: &str, call: &ModuleCall, units: &mut Vec<Unit>) -> Result<(), ImportError> {
        let class = self.trace.modules.get(&call.module).map_or("", |module| module.class.as_str());
        if EMPTY.contains(&class) && call.body.is_empty() {
            return Ok(());
        }
        for value in call.args.iter().chain(call.kwargs.values()).flat_map(Argument::values) {
            self.tensor(value, outer, &call.at, &call.module, units)?;
        }
        let mut module = self.call(call)?;
        // A function that selects one of several tensors is marked.
        let picks = module.body.is_empty() && module.inputs.len() > 1;
        if module.inputs.contains(&module.output) && !picks {
            return Err(self.refuse_module(call, "it is a module without operations").into());
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
            if call.call > 0 && self.has_parameters(path) {
                return Err(self.refuse_module(call, "its parameters are used by several calls").into());
            }
            units.append(&mut module.body);
            return Ok(());
        }
        let has_own = |unit: &&Unit| matches!(unit, Unit::Operation(operation) if own(&operation.name));
        if module.body.iter().filter(has_own).count() > 1 {
            let refusal = self.refuse_module(call, "several of its functions have parameters of its own");
            let nearest = "one layer of a module may have the module's parameters: `name: .`";
            return Err(Refusal { nearest: nearest.to_owned(), ..refusal }.into());
        }
        if call.call > 0 {
            return Err(self.refuse_module(call, "it is called more than once").into());
        }
        if module.inputs.is_empty() {
            return Err(self.refuse_module(call, "it has no tensor as its argument").into());
        }
        units.push(Unit::Module(module));
        Ok(())
    }

    fn has_parameters(&self, path: &str) -> bool {
        self.trace.parameters.keys().any(|name| name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
    }

    /// The shape of a tensor of the trace, if it is the result of an operation.
    pub(crate) fn shape(&self, value: usize) -> Option<Vec<usize>> {
        match self.seen.get(&value)? {
            Seen::Of(tensor, views) => Some(view::shape(self.shape_of(*tensor), views)),
            Seen::Expanded(_) | Seen::Reshaped(..) | Seen::Unsaid(_) => None,
        }
    }

    /// The shape of the result of an operation.
    pub(crate) fn shape_of(&self, tensor: Tensor) -> &[usize] {
        self.shapes.get(&tensor).map_or(&[], Vec::as_slice)
    }

    /// The meaning of a tensor of the trace.
    pub(crate) fn seen(&self, value: usize) -> Option<&Seen> {
        self.seen.get(&value)
    }

    /// Records the meaning of a tensor of the trace.
    pub(crate) fn is(&mut self, value: usize, seen: Seen) {
        self.seen.insert(value, seen);
    }

    /// A tensor of the trace as the result of an operation. Views become operations.
    pub(crate) fn tensor(
        &mut self,
        value: usize,
        module: &str,
        at: &str,
        operator: &str,
        units: &mut Vec<Unit>,
    ) -> Result<Tensor, Refusal> {
        let refuse = |what: &str, nearest: &str| Refusal {
            module: module.to_owned(),
            operator: operator.to_owned(),
            at: at.to_owned(),
            what: what.to_owned(),
            nearest: nearest.to_owned(),
        };
        let (base, views) = match self.seen.get(&value) {
            Some(Seen::Of(base, views)) => (*base, views.clone()),
            Some(Seen::Expanded(name)) => {
                let what = format!("it uses the parameter `{name}`, once for every sample");
                return Err(refuse(
                    &what,
                    "`prepend` puts a learned token before the others, `add_parameter` adds one",
                ));
            }
            Some(Seen::Reshaped(name, _)) => {
                let what = format!("it uses the parameter `{name}` in another shape");
                return Err(refuse(&what, "`layer_scale` multiplies the channels of maps by one, with `flat`"));
            }
            Some(Seen::Unsaid(what)) => return Err(refuse(what, "there is no layer that gives it")),
            None => return Err(refuse("it uses a tensor of unknown origin", "this is a defect of the trace")),
        };
        let shape = self.shape_of(base);
        let Some(layers) = view::layers(shape, &views) else {
            let what = format!("it moves the batch axis, or combines samples: {}", text(shape, &views));
            return Err(refuse(
                &what,
                "`reshape` and `permute` work on each sample separately; write `windows` by hand, as the recipe \
                 swin_t does",
            ));
        };
        let shape = view::shape(shape, &views);
        let mut last = base;
        for (index, layer) in layers.iter().enumerate() {
            last = self.next;
            self.next += 1;
            let operand = if index == 0 { base } else { last - 1 };
            let what = What::Layer(Word::of(layer));
            let operands = vec![operand];
            units.push(Unit::Operation(Operation { what, operands, result: last, name: None, at: at.to_owned() }));
        }
        self.shapes.insert(last, shape);
        self.seen.insert(value, Seen::Of(last, Vec::new()));
        Ok(last)
    }

    /// A view of a tensor as the result of an operation.
    pub(crate) fn view(&mut self, at: &mut At<'_>, base: Tensor, views: Vec<View>) -> Result<Tensor, Refusal> {
        let value = self.next;
        self.next += 1;
        self.is(value, Seen::Of(base, views));
        self.tensor(value, at.module, &at.call.at, &at.call.function, at.units)
    }

    /// The tensor of an argument.
    pub(crate) fn operand(&mut self, at: &mut At<'_>, argument: Option<&Argument>) -> Result<Tensor, Refusal> {
        match argument {
            Some(Argument::Value(value)) => self.tensor(*value, at.module, &at.call.at, &at.call.function, at.units),
            Some(Argument::Parameter(name)) => {
                let what = format!("it computes with the parameter `{name}`");
                Err(at.refuse(
                    what,
                    "`add_parameter` and `layer_scale` add and multiply by one, `prepend` puts one first",
                ))
            }
            Some(Argument::Buffer(name)) => {
                let what = format!("it computes with the buffer `{name}`");
                Err(at.refuse(what, "recipes have no constant tensors"))
            }
            _ => Err(
                at.refuse("it is not given a tensor where one is needed", "this form of the function is not supported")
            ),
        }
    }

    /// A view of an argument as the result of an operation. Views that cancel each other are not computed.
    pub(crate) fn operand_viewed(
        &mut self,
        at: &mut At<'_>,
        argument: Option<&Argument>,
        views: &[View],
    ) -> Result<Tensor, Refusal> {
        let (base, mut all) = match argument {
            Some(Argument::Value(value)) if let Some(Seen::Of(base, known)) = self.seen(*value) => {
                (*base, known.clone())
            }
            other => (self.operand(at, other)?, Vec::new()),
        };
        all.extend_from_slice(views);
        self.view(at, base, all)
    }

    /// Adds an operation inside a call. Its result is not a tensor of the trace.
    pub(crate) fn inner(&mut self, at: &mut At<'_>, what: What, operands: Vec<Tensor>, shape: Vec<usize>) -> Tensor {
        let result = self.next;
        self.next += 1;
        self.shapes.insert(result, shape);
        at.units.push(Unit::Operation(Operation { what, operands, result, name: None, at: at.call.at.clone() }));
        result
    }

    /// Adds an operation whose result is the only tensor of the call.
    pub(crate) fn gives(
        &mut self,
        at: &mut At<'_>,
        what: What,
        operands: Vec<Tensor>,
        name: Option<String>,
    ) -> Result<(), Refusal> {
        let made = at.made()?;
        self.see(made);
        let (result, at_line) = (made.value, at.call.at.clone());
        at.units.push(Unit::Operation(Operation { what, operands, result, name, at: at_line }));
        Ok(())
    }

    /// As [`Self::gives`], if the tensor of the call is a view of the operation's result, which has this shape.
    pub(crate) fn gives_viewed(
        &mut self,
        at: &mut At<'_>,
        what: What,
        operands: Vec<Tensor>,
        name: Option<String>,
        shape: Vec<usize>,
        views: Vec<View>,
    ) -> Result<(), Refusal> {
        let made = at.made()?;
        if view::shape(&shape, &views) != made.shape {
            return Err(at.refuse(format!("it gives {:?}", made.shape), "this form of the function is not supported"));
        }
        let result = self.next;
        self.next += 1;
        let views = view::simplified(&shape, &views);
        self.shapes.insert(result, shape);
        self.seen.insert(made.value, Seen::Of(result, views));
        at.units.push(Unit::Operation(Operation { what, operands, result, name, at: at.call.at.clone() }));
        Ok(())
    }

    /// Adds a layer with one operand.
    pub(crate) fn layer(
        &mut self,
        at: &mut At<'_>,
        layer: Layer,
        x: Tensor,
        name: Option<String>,
    ) -> Result<(), Refusal> {
        self.gives(at, What::Layer(Word::of(&layer)), vec![x], name)
    }

    /// Checks that all real numbers have the same type, because a recipe has only one; and that gradients are
    /// enabled.
    pub(crate) fn check_types(&mut self, at: &At<'_>) -> Result<(), Refusal> {
        for made in at.call.outputs.values() {
            self.types.insert(made.value, made.dtype.clone());
            if !made.is_real() {
                continue;
            }
            let real = self.real.get_or_insert_with(|| made.dtype.clone());
            if *real != made.dtype {
                let what = format!("it computes in {}, and other parts in {real}", made.dtype);
                return Err(at.refuse(
                    what,
                    "a recipe has a single floating-point type; the device file decides what is computed in half \
                     precision",
                ));
            }
            if at.call.no_grad {
                return Err(at.refuse("gradients are switched off there", "`train.parts` freezes modules of a recipe"));
            }
        }
        Ok(())
    }

    /// Checks that the result of a call, which is this view of a tensor of the trace, has its element type, its
    /// number of elements, and the shape of the view.
    pub(crate) fn check_view(&self, at: &At<'_>, from: usize, made: &Made, views: &[View]) -> Result<(), Refusal> {
        let (Some(known), Some(kind)) = (self.shape(from), self.types.get(&from)) else {
            return Err(at.unknown_form("input"));
        };
        if *kind != made.dtype {
            let what = format!("it makes {} of {kind}", made.dtype);
            return Err(at.refuse(what, "recipes have no type conversion"));
        }
        let mut shape = known;
        for view in views {
            let next = view.shape(&shape);
            let keeps_elements = match view {
                View::Reshape(_) => next.iter().product::<usize>() == shape.iter().product::<usize>(),
                View::Permute(_) | View::Select(..) | View::Slice(..) => true,
            };
            if !keeps_elements {
                return Err(at.unknown_form("shape"));
            }
            shape = next;
        }
        if shape != made.shape {
            return Err(at.refuse(format!("it gives {:?}", made.shape), "this form of the function is not supported"));
        }
        Ok(())
    }
}

/// Modules that return their argument, and whose outputs are not in goldens.
const EMPTY: [&str; 2] = ["torch.nn.modules.linear.Identity", "torch.nn.modules.container.Sequential"];

/// Whether a layer of a recipe can represent a module.
fn can_be_named(what: &What) -> bool {
    match what {
        What::Layer(word) => word.kind != Kind::Formula,
        What::Add | What::Subtract | What::Mul | What::Concat(_) => false,
    }
}

/// Whether a layer is a module that returns its result first, followed by another value.
fn gives_first(what: &What) -> bool {
    matches!(what, What::Layer(word) if word.kind == Kind::First)
}

/// A shape and its conversions, for messages.
fn text(shape: &[usize], views: &[View]) -> String {
    let mut shape = shape.to_vec();
    let mut text = format!("{shape:?}");
    for view in views {
        shape = view.shape(&shape);
        text += &format!(" -> {shape:?}");
    }
    text
}

/// Rewrites a concatenation to start with an earlier one that has the same first operands.
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
