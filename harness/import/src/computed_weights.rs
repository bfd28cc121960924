//! What is computed of parameters alone: a value that is the same for all samples, of which a recipe has one for each.

use indexmap::IndexMap;

use crate::Refusal;
use crate::arguments::At;
use crate::operation::Tensor;
use crate::reader::{Reader, Seen};
use crate::trace::{Argument, FunctionCall, Made};
use crate::view::{self, View};

/// Where a function has its axis, and the usual one.
type AxisArgument = (usize, Option<i64>);

/// Functions of parameters alone.
const OF_PARAMETERS: &[(&[&str], Option<AxisArgument>)] = &[
    (&["exp", "expm1", "log", "sqrt", "rsqrt", "square", "abs", "neg", "__neg__", "reciprocal"], None),
    (&["sigmoid", "tanh", "relu", "softplus", "silu", "gelu", "clamp", "pow", "__pow__", "sin", "cos"], None),
    (&["add", "__add__", "__radd__", "sub", "__sub__", "rsub", "__rsub__"], None),
    (&["mul", "__mul__", "__rmul__", "div", "__truediv__", "__rtruediv__", "matmul", "__matmul__", "mm"], None),
    (&["softmax"], Some((1, None))),
    (&["sum", "mean", "amax"], Some((1, None))),
    (&["norm", "vector_norm", "linalg_vector_norm"], Some((2, None))),
    (&["normalize"], Some((2, Some(1)))),
];

/// Functions of a value of samples and one of parameters alone.
const OF_BOTH: &[&str] = &[
    "add",
    "__add__",
    "__iadd__",
    "__radd__",
    "sub",
    "__sub__",
    "rsub",
    "__rsub__",
    "mul",
    "__mul__",
    "__imul__",
    "__rmul__",
    "div",
    "__truediv__",
    "__rtruediv__",
];

/// Functions that multiply matrices.
const PRODUCTS: &[&str] = &["matmul", "__matmul__", "mm", "linear"];

impl Reader<'_> {
    /// A parameter, or what is computed of parameters alone, as a view of a tensor `[n, ..]`.
    fn of_same(&mut self, at: &mut At<'_>, argument: &Argument) -> Option<(Tensor, Vec<View>)> {
        let (name, shape, views) = match (argument, self.given(Some(argument))) {
            (_, Some(Seen::Same(base, views))) => return Some((*base, views.clone())),
            (_, Some(Seen::Part(name, shape, views))) => (name.clone(), shape.clone(), views.clone()),
            (Argument::Parameter(name), _) => (name.clone(), self.trace.shape(name).to_vec(), Vec::new()),
            (_, Some(Seen::Reshaped(name, shape))) => (name.clone(), shape.clone(), Vec::new()),
            _ => return None,
        };
        let line = at.call.at.clone();
        // A number is a row of one.
        let shape = if shape.is_empty() { vec![1] } else { shape };
        let base = self.parameter_as_tensor(&name, &shape, at.units, &line);
        Some((base, views.iter().map(|view| view.by_sample(self.trace.batch)).collect()))
    }

    fn is_same(&self, argument: &Argument) -> bool {
        matches!(argument, Argument::Parameter(_))
            || matches!(self.given(Some(argument)), Some(Seen::Same(..) | Seen::Part(..) | Seen::Reshaped(..)))
    }

    /// A view of a parameter, or of what is computed of parameters alone. `None` if the operand is neither.
    pub(crate) fn part(&self, argument: Option<&Argument>, made: &Made, views: &[View]) -> Option<Seen> {
        let (name, shape, known) = match (argument?, self.given(argument)) {
            (Argument::Parameter(name), _) => (name, self.trace.shape(name).to_vec(), &[][..]),
            (_, Some(Seen::Reshaped(name, shape))) => (name, shape.clone(), &[][..]),
            (_, Some(Seen::Part(name, shape, known))) => (name, shape.clone(), &known[..]),
            (_, Some(Seen::Same(base, known))) => {
                let by_sample = views.iter().map(|view| view.by_sample(self.trace.batch));
                let all: Vec<View> = known.iter().cloned().chain(by_sample).collect();
                let all = view::simplified(self.shape_of(*base), &all);
                let fits = view::shape(self.shape_of(*base), &all).get(1..) == Some(&made.shape[..]);
                return fits.then_some(Seen::Same(*base, all));
            }
            _ => return None,
        };
        let views = view::simplified(&shape, &[known, views].concat());
        // What takes all of a parameter is the parameter.
        match views[..] {
            [] | [View::Reshape(_)] => Some(Seen::Reshaped(name.clone(), made.shape.clone())),
            _ if view::shape(&shape, &views) == made.shape => Some(Seen::Part(name.clone(), shape, views)),
            _ => None,
        }
    }

    /// A value that is none of the trace, of this shape.
    fn stands_for(&mut self, base: Tensor, views: Vec<View>, made: &Made) -> Argument {
        let views = view::simplified(self.shape_of(base), &views);
        let shape = view::shape(self.shape_of(base), &views);
        let value = self.new_value(Seen::Of(base, views));
        self.made.insert(value, Made { value, shape, dtype: made.dtype.clone() });
        Argument::Value(value)
    }

    /// A function that is read in no other way, if parameters are among its operands.
    pub(crate) fn of_parameters(&mut self, at: &mut At<'_>, name: &str) -> Result<Option<()>, Refusal> {
        let arguments = || at.call.args.iter().chain(at.call.kwargs.values());
        let of_samples = arguments().any(|one| matches!(one, Argument::Value(_)) && !self.is_same(one));
        let others = arguments().any(|one| matches!(one, Argument::Constant(_) | Argument::Buffer(_)));
        if others || !arguments().any(|one| self.is_same(one)) {
            return Ok(None);
        }
        at.told_by_the_result();
        match of_samples {
            true if PRODUCTS.contains(&name) => self.product_with_same(at, name),
            true if OF_BOTH.contains(&name) => self.joined_with_same(at),
            true => Ok(None),
            false => self.of_parameters_alone(at, name),
        }
    }

    fn of_parameters_alone(&mut self, at: &mut At<'_>, name: &str) -> Result<Option<()>, Refusal> {
        let Some((_, axis)) = OF_PARAMETERS.iter().find(|(names, _)| names.contains(&name)) else { return Ok(None) };
        let (made, n) = (at.made()?.clone(), self.trace.batch);
        if made.shape.is_empty() {
            return Ok(None);
        }
        let rank = made.shape.len();
        let given = |network: &mut Self, at: &mut At<'_>, argument: &Argument| match network.is_same(argument) {
            true => {
                let (base, mut views) = network.of_same(at, argument)?;
                let shape = view::shape(network.shape_of(base), &views);
                let missing = (rank + 1).saturating_sub(shape.len());
                views.push(View::Reshape([&[n], &vec![1; missing][..], &shape[1..]].concat()));
                Some(network.stands_for(base, views, &made))
            }
            false => Some(argument.clone()),
        };
        let call = at.call;
        let args = call.args.iter().map(|one| given(self, at, one)).collect::<Option<Vec<_>>>();
        let kwargs = call.kwargs.iter().map(|(key, one)| Some((key.clone(), given(self, at, one)?)));
        let kwargs = kwargs.collect::<Option<IndexMap<_, _>>>();
        let (Some(mut args), Some(mut kwargs)) = (args, kwargs) else { return Ok(None) };
        if let Some((place, usual)) = axis {
            let behind = |one: &Argument| match one {
                Argument::Int(axis @ 0..) => Argument::Int(axis + 1),
                other => other.clone(),
            };
            match (kwargs.get_mut("dim"), args.get_mut(*place)) {
                (Some(axis), _) | (None, Some(axis)) => {
                    *axis = match &*axis {
                        Argument::List(axes) => Argument::List(axes.iter().map(behind).collect()),
                        one => behind(one),
                    };
                }
                (None, None) => match usual {
                    Some(axis) => drop(kwargs.insert("dim".to_owned(), Argument::Int(axis + 1))),
                    None => return Ok(None),
                },
            }
        }
        let value = self.new_value(Seen::Unsaid("it is computed here"));
        let result = Made { value, shape: [&[n], &made.shape[..]].concat(), dtype: made.dtype.clone() };
        self.made.insert(value, result.clone());
        self.calls(at, &at.call.function.clone(), args, kwargs, &result)?;
        let base = self.tensor(value, at.module, &at.call.at, &at.call.function, at.units)?;
        self.is(made.value, Seen::Same(base, Vec::new()));
        Ok(Some(()))
    }

    /// A sum or product of two operands, of which one is of parameters alone.
    fn joined_with_same(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (made, n) = (at.made()?.clone(), self.trace.batch);
        let rank = made.shape.len();
        let mut args = Vec::new();
        for argument in &at.call.args {
            if !self.is_same(argument) {
                args.push(argument.clone());
                continue;
            }
            let Some((base, mut views)) = self.of_same(at, argument) else { return Ok(None) };
            let shape = view::shape(self.shape_of(base), &views);
            let own = match &shape[1..] {
                [1, own @ ..] if own.len() + 1 == rank => own,
                own => own,
            };
            let Some(missing) = rank.checked_sub(own.len() + 1) else { return Ok(None) };
            views.push(View::Reshape([&[n], &vec![1; missing][..], own].concat()));
            args.push(self.stands_for(base, views, &made));
        }
        self.calls(at, &at.call.function.clone(), args, at.call.kwargs.clone(), &made).map(Some)
    }

    /// A product of matrices, of which the second is of parameters alone.
    fn product_with_same(&mut self, at: &mut At<'_>, name: &str) -> Result<Option<()>, Refusal> {
        let made = at.made()?.clone();
        let argument = |place: usize, key: &str| at.call.args.get(place).or_else(|| at.call.kwargs.get(key)).cloned();
        let second = argument(1, if name == "linear" { "weight" } else { "other" });
        let (Some(x), Some(weight)) = (argument(0, "input"), second) else { return Ok(None) };
        let bias = argument(2, "bias").filter(|bias| name == "linear" && *bias != Argument::None);
        if self.is_same(&x) || !self.is_same(&weight) {
            return Ok(None);
        }
        let Some((matrix, mut views)) = self.of_same(at, &weight) else { return Ok(None) };
        if name == "linear" {
            views.push(View::Permute(vec![0, 2, 1]));
        }
        if view::shape(self.shape_of(matrix), &views).len() != 3 {
            return Ok(None);
        }
        let views = view::simplified(self.shape_of(matrix), &views);
        let rows = match self.given(Some(&x)) {
            Some(Seen::Of(base, views)) => (*base, views.clone()),
            _ => (self.operand(at, Some(&x))?, Vec::new()),
        };
        let Some(bias) = bias else { return self.rows_times(at, rows, (matrix, views)).map(Some) };
        let value = self.new_value(Seen::Unsaid("it is computed here"));
        let product = Made { value, ..made.clone() };
        self.made.insert(value, product.clone());
        let call = FunctionCall { outputs: IndexMap::from([(String::new(), product)]), ..at.call.clone() };
        self.rows_times(&mut At::new(at.module, &call, at.units), rows, (matrix, views))?;
        let args = vec![Argument::Value(value), bias];
        self.calls(at, "torch.add", args, IndexMap::new(), &made).map(Some)
    }
}
