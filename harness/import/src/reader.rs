//! What the tensors of a trace are in terms of a recipe, and how they become operations.

use std::collections::{HashMap, HashSet};

use zoo_recipe::Layer;
use zoo_recipe::layers::DistanceBias;
use zoo_recipe::schema::Padding;

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::gradients::Gradients;
use crate::masks::first_masked;
use crate::modes::Mode;
use crate::operation::{Operation, Tensor, Unit, What, Windows};
use crate::products::Place;
use crate::rows;
use crate::scores::Scores;
use crate::trace::{Argument, Call, Made, ModuleCall, Trace};
use crate::view::{self, Piece, View};
use crate::word::{Word, number};

/// The meaning of a tensor of the trace.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// A view of the result of an operation.
    Of(Tensor, Vec<View>),
    /// A parameter, once for every sample, in this shape.
    Expanded(String, Vec<usize>),
    /// A value of the trace, repeated along axes of one element: products do this by themselves.
    Repeated(usize),
    /// A parameter in another shape.
    Reshaped(String, Vec<usize>),
    /// Rows of a parameter.
    Picked(Picked),
    /// A view of the result of an operation, times a number.
    Times(Tensor, Vec<View>, f64),
    /// Scores of an attention.
    Scores(Box<Scores>),
    /// What has no layer of its own, but is part of one.
    Computed(Box<Computed>),
    /// Something unsupported that must not be used, with a description.
    Unsaid(&'static str),
}

pub(crate) const AGAIN: &str = "`again` calls a module or a layer again, which computes the same of another tensor";
impl Seen {
    /// The results of operations that scores, or turned queries or keys, are made of.
    pub(crate) fn bases(&self) -> Vec<Tensor> {
        match self {
            Self::Scores(scores) => vec![scores.queries.0, scores.keys.0],
            Self::Computed(computed) => match &**computed {
                Computed::Turned(turned) | Computed::Columns(turned) => vec![turned.base()],
                _ => Vec::new(),
            },
            Self::Of(..) | Self::Times(..) => Vec::new(),
            Self::Expanded(..) | Self::Repeated(_) | Self::Reshaped(..) | Self::Picked(_) | Self::Unsaid(_) => {
                Vec::new()
            }
        }
    }
}

pub(crate) const REPEATED: &str = "products broadcast axes of one element";

/// Rows of a parameter `[rows, width]`, and views of them.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    /// The parameter.
    pub table: String,
    /// The numbers of the rows, of any shape.
    pub rows: Constant,
    /// What is made of `[rows' shape.., width]`.
    pub views: Vec<View>,
    /// Its shape.
    pub shape: Vec<usize>,
}

pub(crate) struct Reader<'t> {
    pub(crate) trace: &'t Trace,
    /// The mode in which the network was called.
    mode: Mode,
    /// By the numbers of the trace.
    seen: HashMap<usize, Seen>,
    /// Shapes of results of operations.
    shapes: HashMap<Tensor, Vec<usize>>,
    /// Results of operations on windows `[n, windows, tokens, ..]`, and those windows.
    windows: HashMap<Tensor, Windows>,
    /// Tokens `[n, t, heads, d]` that are `[n, t, heads*d]`, which they map to.
    pub(crate) divided: HashMap<Tensor, Tensor>,
    /// Results of normalisations of heads.
    pub(crate) normed_heads: HashSet<Tensor>,
    /// Whether the network moves maps, to cut them into other windows.
    pub(crate) moves_windows: bool,
    /// What is added to scores of tokens in other parts of such windows, if that leaves them a weight.
    pub(crate) masked: Option<f64>,
    /// Shapes and element types by the numbers of the trace.
    made: HashMap<usize, Made>,
    /// The type of real numbers, of which a recipe has one.
    real: Option<String>,
    /// Embeddings so far.
    pub(crate) tables: HashSet<String>,
    /// The first part that no recipe is written of.
    pub(crate) unwritten: Option<Refusal>,
    /// What modules and layers with parameters compute, and how often they were called, by name.
    pub(crate) known: HashMap<String, (String, usize)>,
    /// Biases by distance, by the names of their tables.
    pub(crate) distances: HashMap<String, (DistanceBias, Tensor)>,
    /// As [`crate::operation::Network::again`].
    pub(crate) again: HashMap<(String, Tensor), usize>,
    /// What gets gradients.
    pub(crate) gradients: Gradients,
    next: Tensor,
}

impl<'t> Reader<'t> {
    /// Knows the inputs of a trace.
    pub(crate) fn new(trace: &'t Trace, mode: Mode) -> Self {
        let mut reader = Self {
            trace,
            mode,
            seen: HashMap::new(),
            shapes: HashMap::new(),
            windows: HashMap::new(),
            divided: HashMap::new(),
            normed_heads: HashSet::new(),
            moves_windows: calls(&trace.root, "roll"),
            masked: first_masked(trace, &trace.root),
            made: HashMap::new(),
            real: trace.inputs.values().find(|input| input.is_real()).map(|input| input.dtype.clone()),
            tables: HashSet::new(),
            unwritten: None,
            known: HashMap::new(),
            distances: HashMap::new(),
            again: HashMap::new(),
            gradients: Gradients::default(),
            next: 0,
        };
        reader.next = reader.largest(&trace.root) + 1;
        for input in trace.inputs.values() {
            reader.see(input);
            reader.made.insert(input.value, input.clone());
        }
        reader
    }
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

    /// The shape of a tensor of the trace, if it is the result of an operation.
    pub(crate) fn shape(&self, value: usize) -> Option<Vec<usize>> {
        match self.seen.get(&value)? {
            Seen::Of(tensor, views) | Seen::Times(tensor, views, _) => Some(view::shape(self.shape_of(*tensor), views)),
            Seen::Scores(scores) => Some(scores.shape.clone()),
            Seen::Computed(computed) => match &**computed {
                Computed::OfLengthOne(tensor, views, _) => Some(view::shape(self.shape_of(*tensor), views)),
                Computed::Offsets(offsets) => Some(offsets.shape.clone()),
                Computed::Seen(_)
                | Computed::Hides(_)
                | Computed::Biased(..)
                | Computed::Routed(_)
                | Computed::Matrices(_) => self.made(value).map(|made| made.shape.clone()),
                Computed::Turned(turned) => Some(turned.shape.clone()),
                Computed::Row(row) => Some(rows::shape(self.shape_of(row.of))),
                Computed::Surrounded(of, Padding([top, bottom, left, right])) => {
                    let mut shape = self.shape_of(*of).to_vec();
                    for (extent, by) in shape.iter_mut().skip(2).zip([top + bottom, left + right]) {
                        *extent += by;
                    }
                    Some(shape)
                }
                Computed::Bounded(..)
                | Computed::Factor(..)
                | Computed::Bias(..)
                | Computed::Stacked(_)
                | Computed::Normed(..) => None,
                Computed::Standardised(_) | Computed::Multiple(..) => None,
                Computed::Shifted(name, _) => Some(self.trace.shape(name).to_vec()),
                Computed::Columns(turned) => Some(View::Permute(vec![0, 1, 3, 2]).shape(&turned.shape)),
                Computed::Grouped { of, group, columns } => {
                    let mut shape = self.shape(*of)?;
                    shape.get_mut(1).into_iter().for_each(|heads| *heads *= group);
                    Some(if *columns { View::Permute(vec![0, 1, 3, 2]).shape(&shape) } else { shape })
                }
            },
            Seen::Expanded(_, shape) => Some(shape.clone()),
            Seen::Repeated(_) | Seen::Reshaped(..) | Seen::Picked(_) | Seen::Unsaid(_) => None,
        }
    }

    /// The shape of the result of an operation.
    pub(crate) fn shape_of(&self, tensor: Tensor) -> &[usize] {
        self.shapes.get(&tensor).map_or(&[], Vec::as_slice)
    }

    /// The shape of a tensor with another last extent.
    pub(crate) fn widened(&self, tensor: Tensor, width: usize) -> Vec<usize> {
        let mut shape = self.shape_of(tensor).to_vec();
        shape.iter_mut().rev().take(1).for_each(|last| *last = width);
        shape
    }

    /// The meaning of a tensor of the trace.
    pub(crate) fn seen(&self, value: usize) -> Option<&Seen> {
        self.seen.get(&value)
    }

    /// What is known of an argument that is a tensor.
    pub(crate) fn given(&self, argument: Option<&Argument>) -> Option<&Seen> {
        self.seen(argument?.value()?)
    }

    /// A tensor that is none of the trace.
    pub(crate) fn new_value(&mut self, seen: Seen) -> usize {
        self.next += 1;
        self.seen.insert(self.next - 1, seen);
        self.next - 1
    }

    /// Records the meaning of a tensor of the trace.
    pub(crate) fn is(&mut self, value: usize, seen: Seen) {
        self.seen.insert(value, seen);
    }

    /// A tensor of the trace as the result of an operation: views become operations.
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
            Some(Seen::Times(base, views, by)) => {
                let (base, views) = (*base, views.clone());
                let what = What::Layer(scaled(*by));
                let shape = self.shape_of(base).to_vec();
                (self.push(units, what, vec![base], shape, at), views)
            }
            Some(Seen::Scores(scores)) => {
                let scores = (**scores).clone();
                let Some(seen) = self.scores_as_tensor(&scores, Place { module, at, operator }, units)? else {
                    return Err(refuse("it uses the scores of an attention", SCORES));
                };
                self.seen.insert(value, seen);
                return self.tensor(value, module, at, operator, units);
            }
            Some(Seen::Repeated(_)) => return Err(refuse("it repeats a tensor", REPEATED)),
            Some(Seen::Expanded(name, shape)) => {
                let (name, shape) = (name.clone(), shape[1..].to_vec());
                let base = self.parameter_as_tensor(&name, &shape, units, at);
                self.seen.insert(value, Seen::Of(base, Vec::new()));
                return Ok(base);
            }
            Some(Seen::Reshaped(name, _)) => {
                let what = format!("it uses the parameter `{name}` in another shape");
                return Err(refuse(&what, "`layer_scale` multiplies the channels of maps by one, with `flat`"));
            }
            Some(Seen::Picked(picked)) => {
                let what = format!("it computes with rows of the parameter `{}`", picked.table);
                return Err(refuse(
                    &what,
                    "`positions` adds a row to each token by its position; for rows by an input, add the input to the \
                     example batch (`--indices`)",
                ));
            }
            Some(Seen::Computed(computed)) => {
                if let Computed::Row(row) = &**computed {
                    let row = row.clone();
                    let (base, views) = self.row_as_tensor(&row, units, at);
                    self.seen.insert(value, Seen::Of(base, views));
                    return self.tensor(value, module, at, operator, units);
                }
                if let Computed::OfLengthOne(base, views, axis) = &**computed {
                    let (base, views, axis) = (*base, views.clone(), *axis);
                    let (base, views) = self.rows_of_length_one((base, &views, axis), units, (module, at, operator))?;
                    self.seen.insert(value, Seen::Of(base, views));
                    return self.tensor(value, module, at, operator, units);
                }
                let (what, nearest) = computed.refusal();
                return Err(refuse(&what, nearest));
            }
            Some(Seen::Unsaid(what)) => return Err(refuse(what, "there is no layer that gives it")),
            None => return Err(refuse("it uses a tensor of unknown origin", "this is a defect of the trace")),
        };
        let shape = self.shape_of(base);
        if view::shape(shape, &views).len() < 2 && !views.is_empty() {
            return Err(refuse(
                "it takes away the last axis: a number is left of each sample",
                "values of recipes have an axis beside the samples: keep one of one element",
            ));
        }
        let Some(pieces) = view::pieces(shape, &views, self.windows.get(&base)) else {
            let is_sparse = views.iter().any(|view| matches!(view, View::Every(..)));
            let what = match is_sparse {
                true => "it takes every second index of an axis, or every so many".to_owned(),
                false => format!("it moves the batch axis, or combines samples: {}", text(shape, &views)),
            };
            return Err(refuse(
                &what,
                "`reshape` and `permute` work on each sample separately, and `windows` and `merge_patches` on parts of a map",
            ));
        };
        if !pieces.is_empty() && self.made(base).is_some_and(|made| !made.is_real()) {
            return Err(refuse(
                "it takes parts of an input of indices, or changes its shape",
                "`embedding` reads all indices of an input: give each column an input of its own (`--indices NAME=N`)",
            ));
        }
        let shape = view::shape(shape, &views);
        let mut last = base;
        for piece in pieces {
            let what = match piece {
                Piece::Layer(layer) => What::Layer(Word::of(&layer)),
                Piece::Cut(windows) => What::Cut(windows),
                Piece::Join(windows) => What::Join(windows),
            };
            last = self.push(units, what, vec![last], shape.clone(), at);
        }
        if let ([leading @ .., heads, width], [view::View::Reshape(_)]) = (&shape[..], &views[..])
            && leading.len() == 2
            && self.shape_of(base) == [leading, &[heads * width]].concat()
        {
            self.divided.insert(last, base);
        }
        self.seen.insert(value, Seen::Of(last, Vec::new()));
        Ok(last)
    }

    /// Adds an operation whose result is no tensor of the trace, in this shape.
    pub(crate) fn push(
        &mut self,
        units: &mut Vec<Unit>,
        what: What,
        operands: Vec<Tensor>,
        shape: Vec<usize>,
        at: &str,
    ) -> Tensor {
        let result = self.next;
        self.next += 1;
        self.shapes.insert(result, shape);
        self.windows_of(&what, &operands, result);
        self.gradients.computed(&what, &operands, result);
        units.push(Unit::Operation(Operation { what, operands, result, name: None, at: at.to_owned() }));
        result
    }

    /// The result of an operation on windows is in windows.
    fn windows_of(&mut self, what: &What, operands: &[Tensor], result: Tensor) {
        let windows = match what {
            What::Cut(windows) => Some(windows.clone()),
            What::Join(_) | What::Segments(_) => None,
            What::Layer(_) | What::Add | What::Subtract | What::Mul | What::Concat(_) => {
                operands.iter().find_map(|operand| self.windows.get(operand)).cloned()
            }
        };
        self.windows.extend(windows.map(|windows| (result, windows)));
    }

    /// The windows that the result of an operation is in.
    pub(crate) fn windows(&self, tensor: Tensor) -> Option<&Windows> {
        self.windows.get(&tensor)
    }

    /// An argument as a tensor for a function of each row, the last axis: samples and what is beside them may be one
    /// axis of the argument. With the views that make what the function gives of its result `[n, .., width]`.
    pub(crate) fn rows(
        &mut self,
        at: &mut At<'_>,
        argument: Option<&Argument>,
        width: Option<usize>,
    ) -> Result<(Tensor, Vec<View>), Refusal> {
        if let Some(Seen::Of(base, views)) = self.given(argument)
            && let Some((View::Reshape(to), before)) = views.split_last()
            && let [joined, rest @ ..] = &to[..]
            && let n = self.trace.batch
            && *joined != n
            && joined.is_multiple_of(n)
            && view::shape(self.shape_of(*base), before).first() == Some(&n)
        {
            let apart = [&[n, joined / n], rest].concat();
            let mut to = to.clone();
            if let (Some(last), Some(width)) = (to.last_mut(), width) {
                *last = width;
            }
            let views = [before, &[View::Reshape(apart)]].concat();
            return Ok((self.view(at, *base, views)?, vec![View::Reshape(to)]));
        }
        Ok((self.operand(at, argument)?, Vec::new()))
    }

    /// The tensor `[n, t, ..]` of which an argument has samples and what is beside them as one axis, `[n*t, ..]`;
    /// `None` for any other argument.
    pub(crate) fn joined_rows(
        &mut self,
        value: usize,
        module: &str,
        at: &str,
        units: &mut Vec<Unit>,
    ) -> Result<Option<Tensor>, Refusal> {
        let Some(Seen::Of(base, views)) = self.seen(value) else { return Ok(None) };
        let (base, views) = (*base, views.clone());
        let n = self.trace.batch;
        if !views.is_empty() && view::shape(self.shape_of(base), &views) == [n] {
            // A number for each sample is a row of one.
            let row = self.new_value(Seen::Of(base, [&views[..], &[View::Reshape(vec![n, 1])]].concat()));
            let row = self.tensor(row, module, at, "view", units)?;
            self.is(value, Seen::Of(row, vec![View::Reshape(vec![n])]));
            return Ok(Some(row));
        }
        let Some((last @ View::Reshape(to), before)) = views.split_last() else { return Ok(None) };
        let (n, from) = (self.trace.batch, view::shape(self.shape_of(base), before));
        let [joined, rest @ ..] = &to[..] else { return Ok(None) };
        if from.first() != Some(&n) || *joined == n || !joined.is_multiple_of(n) || rest.is_empty() {
            return Ok(None);
        }
        let views = [before, &[View::Reshape([&[n, joined / n], rest].concat())]].concat();
        let apart = self.new_value(Seen::Of(base, views));
        let apart = self.tensor(apart, module, at, "view", units)?;
        self.is(value, Seen::Of(apart, vec![last.clone()]));
        Ok(Some(apart))
    }

    /// A view of a tensor as the result of an operation.
    pub(crate) fn view(&mut self, at: &mut At<'_>, base: Tensor, views: Vec<View>) -> Result<Tensor, Refusal> {
        let value = self.new_value(Seen::Of(base, views));
        self.tensor(value, at.module, &at.call.at, &at.call.function, at.units)
    }

    /// The tensor that an argument is.
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
            Some(Argument::Constant(_)) => {
                Err(at.refuse("it computes with a constant tensor", "recipes have no constant tensors"))
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

    /// An argument seen in another way, as a tensor that an operation gives; what it gives away with what it was is not
    /// computed.
    pub(crate) fn operand_viewed(
        &mut self,
        at: &mut At<'_>,
        argument: Option<&Argument>,
        views: &[View],
    ) -> Result<Tensor, Refusal> {
        let (base, mut all) = match self.given(argument) {
            Some(Seen::Of(base, known)) => (*base, known.clone()),
            _ => (self.operand(at, argument)?, Vec::new()),
        };
        all.extend_from_slice(views);
        self.view(at, base, all)
    }

    /// Adds an operation inside a call: its result is no tensor of the trace.
    pub(crate) fn inner(&mut self, at: &mut At<'_>, what: What, operands: Vec<Tensor>, shape: Vec<usize>) -> Tensor {
        let line = at.call.at.clone();
        self.push(at.units, what, operands, shape, &line)
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
        self.windows_of(&what, &operands, result);
        self.called(at, &what, &operands, name.as_ref(), result)?;
        at.units.push(Unit::Operation(Operation { what, operands, result, name, at: at_line }));
        Ok(())
    }

    /// Notes what a layer computes, and remembers its call if it has a name.
    fn called(
        &mut self,
        at: &At<'_>,
        what: &What,
        operands: &[Tensor],
        name: Option<&String>,
        result: Tensor,
    ) -> Result<(), Refusal> {
        self.gradients.computed(what, operands, result);
        let Some(name) = name else { return Ok(()) };
        let trains = self.gradients.used(self.trace, name, at.call.no_grad, result);
        trains.map_err(|what| at.refuse(what, "`train.parts` freezes a parameter wherever it is used"))?;
        let others = operands.get(1..).unwrap_or_default();
        // The layer with the parameters of a module is not the module.
        let own = if name == at.module { format!("{name}.") } else { name.clone() };
        match self.remember((name, &own), format!("{} {others:?}", what.key()), result) {
            true => Ok(()),
            false => Err(at.refuse(format!("`{name}` is used again, and in another way"), AGAIN)),
        }
    }

    /// Remembers a call of what has this name, and whether it is the same as before, if it was called. own: the name of
    /// it alone.
    pub(crate) fn remember(&mut self, (name, own): (&str, &str), what: String, result: Tensor) -> bool {
        let (known, calls) = self.known.entry(own.to_owned()).or_insert_with(|| (what.clone(), 0));
        if *calls > 0 {
            self.again.insert((name.to_owned(), result), *calls);
        }
        *calls += 1;
        *known == what
    }

    /// As [`Self::gives`], if the tensor of the call is a view of the result of the operation in this shape.
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
        self.windows_of(&what, &operands, result);
        self.shapes.insert(result, shape);
        self.seen.insert(made.value, Seen::Of(result, views));
        self.called(at, &what, &operands, name.as_ref(), result)?;
        at.units.push(Unit::Operation(Operation { what, operands, result, name, at: at.call.at.clone() }));
        Ok(())
    }

    /// Adds a layer on one tensor.
    pub(crate) fn layer(
        &mut self,
        at: &mut At<'_>,
        layer: Layer,
        x: Tensor,
        name: Option<String>,
    ) -> Result<(), Refusal> {
        self.gives(at, What::Layer(Word::of(&layer)), vec![x], name)
    }

    /// A recipe has one type of real numbers, and a gradient for each of them.
    pub(crate) fn check_types(&mut self, at: &At<'_>) -> Result<(), Refusal> {
        for made in at.call.outputs.values() {
            self.made.insert(made.value, made.clone());
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
        }
        Ok(())
    }

    /// A function may name the type that its operand has anyway.
    pub(crate) fn without_conversion(&self, at: &mut At<'_>) {
        let operand = at.call.args.first().or_else(|| at.call.kwargs.get("input")).and_then(Argument::value);
        if let Some(Made { dtype, .. }) = operand.and_then(|value| self.made(value)).filter(|made| made.is_real()) {
            at.without_conversion(dtype);
        }
    }

    /// A rate of dropout, which has to be 0 in evaluation mode.
    pub(crate) fn rate(&self, at: &At<'_>, rate: f64) -> Result<f64, Refusal> {
        match self.mode {
            Mode::Evaluation if rate != 0.0 => Err(at.refuse(
                format!("it drops a share of {rate} of the numbers"),
                "dropout of recipes is for training alone, as `F.dropout(x, p, self.training)` is",
            )),
            // 0.1, where the network keeps the number of f32 next to it: a rate decides how often something is dropped.
            Mode::Evaluation | Mode::Training => Ok(match rate as f32 {
                single if f64::from(single) == rate => single.to_string().parse().unwrap_or(rate),
                _ => rate,
            }),
        }
    }

    /// Refuses a normalisation that does not use the statistics that its mode wants: those of the batch in training,
    /// the stored ones in evaluation.
    pub(crate) fn check_statistics(&self, at: &At<'_>, of_batch: bool) -> Result<(), Refusal> {
        match (self.mode, of_batch) {
            (Mode::Training, true) | (Mode::Evaluation, false) => Ok(()),
            (Mode::Training, false) => Err(at.refuse(
                "it is frozen: it normalises by its running statistics",
                "`train.parts` with `statistics: stored` freezes parts of a recipe",
            )),
            (Mode::Evaluation, true) => Err(at.refuse(
                "it normalises by the statistics of the batch",
                "`bn` normalises by its running statistics there, as `F.batch_norm(.., training=self.training)` does",
            )),
        }
    }

    /// A tensor of the trace, as the trace describes it.
    pub(crate) fn made(&self, value: usize) -> Option<&Made> {
        self.made.get(&value)
    }

    /// What a call gives as a view of a tensor of the trace has to have its type.
    pub(crate) fn check_type(&self, at: &At<'_>, from: usize, made: &Made) -> Result<(), Refusal> {
        match self.made(from) {
            Some(Made { dtype, .. }) if *dtype == made.dtype => Ok(()),
            // Whole numbers stay what they are.
            Some(from) if !from.is_real() && !made.is_real() && made.dtype != "bool" => Ok(()),
            Some(Made { dtype, .. }) => {
                let what = format!("it makes {} of {dtype}", made.dtype);
                Err(at.refuse(what, "recipes have no type conversion"))
            }
            None => Err(at.unknown_form("input")),
        }
    }

    /// What a call gives as these views of a tensor of the trace has to have its type, its number of elements, and that
    /// shape.
    pub(crate) fn check_view(&self, at: &At<'_>, from: usize, made: &Made, views: &[View]) -> Result<(), Refusal> {
        self.check_type(at, from, made)?;
        let Some(mut shape) = self.shape(from) else { return Err(at.unknown_form("input")) };
        for view in views {
            let next = view.shape(&shape);
            let keeps_elements = match view {
                View::Reshape(_) => next.iter().product::<usize>() == shape.iter().product::<usize>(),
                View::Permute(_) | View::Select(..) | View::Slice(..) | View::Every(..) => true,
                View::Roll(_) | View::Fill(_) => true,
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

/// Whether a function is called somewhere.
fn calls(call: &ModuleCall, name: &str) -> bool {
    call.body.iter().any(|inner| match inner {
        Call::Module(inner) => calls(inner, name),
        Call::Function(inner) => inner.name() == name,
    })
}

pub(crate) const SCORES: &str =
    "an attention is scores, a bias, a mask, softmax and dropout, and the product with the values";

/// A layer that multiplies by a number, or divides by one that is shorter.
fn scaled(by: f64) -> Word {
    let divisor = 1.0 / by;
    match number(divisor).len() < number(by).len() && 1.0 / divisor == by {
        true => Word::formula(format!("x / {}", number(divisor))),
        false => Word::of(&Layer::Scale(zoo_recipe::layers::Scale { by })),
    }
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
