//! Constants as values, and products and sums with them that are no part of a layer.

use indexmap::IndexMap;
use zoo_recipe::Layer;
use zoo_recipe::layers::Scale;

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::joins::along;
use crate::operation::{Tensor, Unit, What};
use crate::products::Place;
use crate::reader::{Reader, Seen};
use crate::rows::Join;
use crate::tables;
use crate::trace::{Argument, Call, FunctionCall, Made, ModuleCall};
use crate::view::View;
use crate::word::{Setting, Word};

const CONSTANTS: &str = "`constant` has up to 64 numbers, or a formula of their indices: steps, powers, sines and cosines, and halves of \
                         an axis";

/// How a tensor is computed whose steps may be part of a layer.
#[derive(Clone, Debug)]
pub(crate) enum Plain {
    /// Of two operands.
    Join(Join, Argument, Argument),
    /// A number of times another.
    Scaled(Argument, f64),
    /// Several side by side along an axis, which may be new.
    Joined(Vec<Argument>, usize, bool),
    /// A view of a tensor of the trace.
    Viewed(usize, Vec<View>),
}

/// A call with a tensor in place of an argument, there and inside.
fn with_value(call: &ModuleCall, argument: &Argument, value: usize) -> ModuleCall {
    let put = |one: &Argument| if one == argument { Argument::Value(value) } else { one.clone() };
    let named = |all: &IndexMap<String, Argument>| all.iter().map(|(key, one)| (key.clone(), put(one))).collect();
    let inside = |inner: &Call| match inner {
        Call::Module(inner) => Call::Module(with_value(inner, argument, value)),
        Call::Function(inner) => Call::Function(FunctionCall {
            args: inner.args.iter().map(put).collect(),
            kwargs: named(&inner.kwargs),
            ..inner.clone()
        }),
    };
    ModuleCall {
        args: call.args.iter().map(put).collect(),
        kwargs: named(&call.kwargs),
        body: call.body.iter().map(inside).collect(),
        ..call.clone()
    }
}

impl Reader<'_> {
    /// A constant in this shape, of which the first axis is that of samples, or of one for all of them.
    pub(crate) fn constant_as_tensor(
        &mut self,
        constant: &Constant,
        shape: Vec<usize>,
        place: Place<'_>,
        units: &mut Vec<Unit>,
    ) -> Result<Tensor, Refusal> {
        let refuse = |what: String| Refusal {
            module: place.module.to_owned(),
            operator: place.operator.to_owned(),
            at: place.at.to_owned(),
            what,
            nearest: CONSTANTS.to_owned(),
        };
        let values: Vec<f64> = constant.values().collect();
        let (samples, own) = match shape.split_first() {
            Some((samples, own)) if !own.is_empty() => (*samples, own.to_vec()),
            _ => return Err(refuse(format!("it computes with a constant {:?} without samples", constant.shape))),
        };
        let size: usize = own.iter().product();
        let first = values.get(..size).unwrap_or_default();
        let is_each = samples == self.trace.batch;
        if samples != 1 && !is_each || size == 0 || !values.chunks(size).all(|sample| sample == first) {
            return Err(refuse(format!(
                "it computes with a constant {:?}, which is another for each sample",
                constant.shape
            )));
        }
        let word = match tables::layer(first, &own, is_each) {
            Some(layer) => Word::of(&Layer::Constant(layer)),
            None => {
                let what = format!("it computes with a constant {own:?}, of which no formula is known");
                self.unwritten.get_or_insert(refuse(what));
                Word::with("constant", "elements", Setting::Text(tables::digest(first, &own, is_each)))
            }
        };
        Ok(self.push(units, What::Layer(word), Vec::new(), shape, place.at))
    }

    /// An argument that is a constant, as a value with as many axes as what it is combined with; any other as it is.
    pub(crate) fn beside_values(
        &mut self,
        at: &mut At<'_>,
        argument: &Argument,
        rank: usize,
    ) -> Result<Argument, Refusal> {
        let Some(constant) = self.trace.constant(argument).cloned() else { return Ok(argument.clone()) };
        let place = Place { module: at.module, at: &at.call.at, operator: &at.call.function };
        let missing = rank.saturating_sub(constant.shape.len());
        let shape = [&vec![1; missing][..], &constant.shape].concat();
        let tensor = self.constant_as_tensor(&constant, shape, place, at.units)?;
        Ok(Argument::Value(self.new_value(Seen::Of(tensor, Vec::new()))))
    }

    /// A call of a module that is given constants alone, of which the first becomes a tensor outside of it. `None` for
    /// other calls.
    pub(crate) fn of_constants(
        &mut self,
        call: &ModuleCall,
        outer: &str,
        units: &mut Vec<Unit>,
    ) -> Result<Option<ModuleCall>, Refusal> {
        let given = || call.args.iter().chain(call.kwargs.values());
        // Rows of a table are for the table to take.
        let of_samples = |constant: &&Constant| {
            !constant.is_whole && constant.shape.len() > 1 && constant.shape[0] == self.trace.batch
        };
        let found = given().find_map(|one| Some((one, self.trace.constant(one).filter(of_samples)?)));
        let computes = call.outputs.values().any(|output| !output.values().is_empty());
        let Some((argument, constant)) = found.filter(|_| computes && given().all(|one| one.values().is_empty()))
        else {
            return Ok(None);
        };
        let (constant, shape) = (constant.clone(), constant.shape.clone());
        let place = Place { module: outer, at: &call.at, operator: &call.module };
        let dtype = self.real.clone().unwrap_or_else(|| "float32".to_owned());
        let tensor = self.constant_as_tensor(&constant, shape.clone(), place, units)?;
        let value = self.new_value(Seen::Of(tensor, Vec::new()));
        self.made.insert(value, Made { value, shape, dtype });
        Ok(Some(with_value(call, argument, value)))
    }

    /// Notes how the result of a call is computed.
    pub(crate) fn is_plainly(&mut self, at: &At<'_>, plain: Plain) -> Result<(), Refusal> {
        let value = at.made()?.value;
        self.plain.insert(value, plain);
        Ok(())
    }

    /// Computes a tensor of the trace step by step. `None` if that is not known.
    pub(crate) fn plainly(
        &mut self,
        value: usize,
        place: Place<'_>,
        units: &mut Vec<Unit>,
    ) -> Result<Option<()>, Refusal> {
        let Some(plain) = self.plain.get(&value).cloned() else { return Ok(None) };
        let seen = match plain {
            Plain::Viewed(of, views) => Seen::Of(self.placed(&Argument::Value(of), 0, place, units)?, views),
            Plain::Scaled(of, by) => {
                let x = self.placed(&of, 0, place, units)?;
                let shape = self.shape_of(x).to_vec();
                let what = What::Layer(Word::of(&Layer::Scale(Scale { by })));
                Seen::Of(self.push(units, what, vec![x], shape, place.at), Vec::new())
            }
            Plain::Join(join, first, second) => {
                let rank = self.made(value).map_or(0, |made| made.shape.len());
                let operands = [self.placed(&first, rank, place, units)?, self.placed(&second, rank, place, units)?];
                let [a, b] = operands.map(|operand| self.shape_of(operand));
                let shape = a.iter().zip(b).map(|(a, b)| *a.max(b)).collect();
                let what = match join {
                    Join::Add => What::Add,
                    Join::Subtract => What::Subtract,
                    Join::Mul => What::Mul,
                    Join::Divide => return Ok(None),
                };
                Seen::Of(self.push(units, what, operands.to_vec(), shape, place.at), Vec::new())
            }
            Plain::Joined(parts, axis, is_new) => {
                let Some(seen) = self.side_by_side(value, (&parts, axis, is_new), place, units)? else {
                    return Ok(None);
                };
                seen
            }
        };
        self.is(value, seen);
        Ok(Some(()))
    }

    /// Parts along an axis. Those of values of more axes than maps have are joined as maps.
    fn side_by_side(
        &mut self,
        value: usize,
        (parts, axis, is_new): (&[Argument], usize, bool),
        place: Place<'_>,
        units: &mut Vec<Unit>,
    ) -> Result<Option<Seen>, Refusal> {
        let Some(to) = self.made(value).map(|made| made.shape.clone()).filter(|to| axis > 0 && axis < to.len()) else {
            return Ok(None);
        };
        let map = |extent: usize| {
            let [before, behind] = [&to[1..axis], &to[axis + 1..]].map(|extents| extents.iter().product::<usize>());
            vec![to[0], before, extent, behind]
        };
        let mut operands = Vec::new();
        for part in parts {
            let x = self.placed(part, to.len(), place, units)?;
            let extent = if is_new { 1 } else { self.shape_of(x).get(axis).copied().unwrap_or(1) };
            let seen = self.new_value(Seen::Of(x, vec![View::Reshape(map(extent))]));
            operands.push(self.tensor(seen, place.module, place.at, place.operator, units)?);
        }
        let Some(along) = along(2) else { return Ok(None) };
        let joined = self.push(units, What::Concat(along), operands, map(to[axis]), place.at);
        Ok(Some(Seen::Of(joined, vec![View::Reshape(to)])))
    }

    /// An operand of one of these steps.
    fn placed(
        &mut self,
        argument: &Argument,
        rank: usize,
        place: Place<'_>,
        units: &mut Vec<Unit>,
    ) -> Result<Tensor, Refusal> {
        if let Some(constant) = self.trace.constant(argument).cloned() {
            let missing = rank.saturating_sub(constant.shape.len());
            let shape = [&vec![1; missing][..], &constant.shape].concat();
            return self.constant_as_tensor(&constant, shape, place, units);
        }
        match argument {
            Argument::Value(value) => self.tensor(*value, place.module, place.at, place.operator, units),
            _ => Err(Refusal {
                module: place.module.to_owned(),
                operator: place.operator.to_owned(),
                at: place.at.to_owned(),
                what: "it is not given a tensor where one is needed".to_owned(),
                nearest: "this form of the function is not supported".to_owned(),
            }),
        }
    }

    /// What is turned, but not by rotary positions, is computed step by step.
    pub(crate) fn not_turned(&mut self, at: &mut At<'_>, argument: Option<&Argument>) -> Result<(), Refusal> {
        if let (Some(Argument::Value(value)), Some(Computed::Turned(turned) | Computed::Columns(turned))) =
            (argument, self.computed(argument))
            && turned.rotary().is_none()
        {
            let place = Place { module: at.module, at: &at.call.at, operator: &at.call.function };
            self.plainly(*value, place, at.units)?;
        }
        Ok(())
    }
}
