//! What the tensors of a trace are in terms of a recipe, and how they become operations.

use std::collections::{HashMap, HashSet};

use zoo_recipe::Layer;
use zoo_recipe::layers::DistanceBias;
use zoo_recipe::schema::Padding;

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::constants::Plain;
use crate::cosine::Computed;
use crate::gradients::Gradients;
use crate::masks::first_masked;
use crate::modes::Mode;
use crate::operation::{Operation, Tensor, Unit, What, Windows};
use crate::overwritten::Piece;
use crate::rows;
use crate::scores::Scores;
use crate::trace::{Argument, Call, Made, ModuleCall, Trace};
use crate::view::{self, View};
use crate::word::Word;

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
    /// A view of a parameter, which is seen in this shape before.
    Part(String, Vec<usize>, Vec<View>),
    /// What is computed of parameters alone: a view of a tensor that has an axis of samples before those of the trace.
    Same(Tensor, Vec<View>),
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
            Self::Expanded(..) | Self::Repeated(_) | Self::Reshaped(..) | Self::Same(..) => Vec::new(),
            Self::Part(..) | Self::Picked(_) | Self::Unsaid(_) => Vec::new(),
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
    pub(crate) mode: Mode,
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
    pub(crate) made: HashMap<usize, Made>,
    /// The type of real numbers, of which a recipe has one.
    pub(crate) real: Option<String>,
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
    /// By tensor of the trace, why it cannot be used.
    pub(crate) refused: HashMap<usize, Refusal>,
    /// By tensor of the trace of which not all numbers are set yet, the ranges that are, and what they are.
    pub(crate) pieces: HashMap<usize, Vec<Piece>>,
    /// Windows side by side that are samples of their own: the map that they are of, and their view of it.
    pub(crate) tiles: HashMap<Tensor, (Tensor, Vec<View>)>,
    /// As [`crate::operation::Network::said`].
    pub(crate) said: HashMap<Tensor, Word>,
    /// Modules that are called again around the one that is read.
    pub(crate) inside_again: usize,
    /// What gets gradients.
    pub(crate) gradients: Gradients,
    /// By tensor of the trace, how it is computed if it is part of no layer.
    pub(crate) plain: HashMap<usize, Plain>,
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
            refused: HashMap::new(),
            pieces: HashMap::new(),
            tiles: HashMap::new(),
            said: HashMap::new(),
            inside_again: 0,
            gradients: Gradients::default(),
            plain: HashMap::new(),
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
                | Computed::Sides(_)
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
            Seen::Part(_, shape, views) => Some(view::shape(shape, views)),
            Seen::Same(tensor, views) => view::shape(self.shape_of(*tensor), views).get(1..).map(<[usize]>::to_vec),
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

    /// A tensor of the trace, as the trace describes it.
    pub(crate) fn made(&self, value: usize) -> Option<&Made> {
        self.made.get(&value)
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
