//! Operands of layers: views of tensors become layers where one is needed as a tensor.

use zoo_recipe::Layer;

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::operation::{Tensor, Unit, What};
use crate::products::Place;
use crate::reader::{REPEATED, Reader, SCORES, Seen};
use crate::trace::Argument;
use crate::view::{self, Piece, View};
use crate::word::{Word, number};

impl Reader<'_> {
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
        let (base, views) = match self.seen(value) {
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
                self.is(value, seen);
                return self.tensor(value, module, at, operator, units);
            }
            Some(Seen::Repeated(once)) => {
                let once = *once;
                let Some(shape) = self.made(value).filter(|made| made.is_real()).map(|made| made.shape.clone()) else {
                    return Err(refuse("it repeats a tensor", REPEATED));
                };
                // Sums repeat axes of one element: here with zeros.
                let x = self.tensor(once, module, at, operator, units)?;
                let of_sample = shape.iter().skip(1).product();
                let zeros = Constant::new(shape.clone(), std::iter::repeat_n(0.0, of_sample));
                let zeros = self.constant_as_tensor(&zeros, shape.clone(), Place { module, at, operator }, units)?;
                let sum = self.push(units, What::Add, vec![x, zeros], shape, at);
                self.is(value, Seen::Of(sum, Vec::new()));
                return Ok(sum);
            }
            Some(Seen::Expanded(name, shape)) => {
                let (name, shape) = (name.clone(), shape[1..].to_vec());
                let base = self.parameter_as_tensor(&name, &shape, units, at);
                self.is(value, Seen::Of(base, Vec::new()));
                return Ok(base);
            }
            Some(Seen::Reshaped(name, _)) => {
                let what = format!("it uses the parameter `{name}` in another shape");
                return Err(refuse(&what, "`layer_scale` multiplies the channels of maps by one, with `flat`"));
            }
            Some(Seen::Part(..) | Seen::Same(..)) => {
                return Err(refuse(
                    "it uses what is computed of parameters alone",
                    "`parameter` gives one to every sample, to be added, multiplied, or the matrix of a product",
                ));
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
                    self.is(value, Seen::Of(base, views));
                    return self.tensor(value, module, at, operator, units);
                }
                if let Computed::OfLengthOne(base, views, axis) = &**computed {
                    let (base, views, axis) = (*base, views.clone(), *axis);
                    let (base, views) = self.rows_of_length_one((base, &views, axis), units, (module, at, operator))?;
                    self.is(value, Seen::Of(base, views));
                    return self.tensor(value, module, at, operator, units);
                }
                let (what, nearest) = computed.refusal();
                let place = Place { module, at, operator };
                return match self.plainly(value, place, units)? {
                    Some(()) => self.tensor(value, module, at, operator, units),
                    None => Err(refuse(&what, nearest)),
                };
            }
            Some(Seen::Unsaid(what)) => {
                return Err(self
                    .refused
                    .get(&value)
                    .cloned()
                    .unwrap_or_else(|| refuse(what, "there is no layer that gives it")));
            }
            None => return Err(refuse("it uses a tensor of unknown origin", "this is a defect of the trace")),
        };
        // Windows side by side are samples of their own, or parts of the map that they are of.
        let (base, views) = match self.tiles.get(&base) {
            Some((map, own)) if view::shape(self.shape_of(base), &views).first() == Some(&self.trace.batch) => {
                (*map, view::simplified(self.shape_of(*map), &[&own[..], &views].concat()))
            }
            _ => (base, views),
        };
        let shape = self.shape_of(base);
        if view::shape(shape, &views).len() < 2 && !views.is_empty() {
            return Err(refuse(
                "it takes away the last axis: a number is left of each sample",
                "values of recipes have an axis beside the samples: keep one of one element",
            ));
        }
        let Some(pieces) = view::pieces(shape, &views, self.windows(base)) else {
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
        self.is(value, Seen::Of(last, Vec::new()));
        Ok(last)
    }

    /// An argument as a tensor for a function of each row, the last axis: samples and what is beside them may be one
    /// axis of the argument, or samples another axis than the first. With the views that make what the function gives
    /// of its result `[n, .., width]`.
    pub(crate) fn rows(
        &mut self,
        at: &mut At<'_>,
        argument: Option<&Argument>,
        width: Option<usize>,
    ) -> Result<(Tensor, Vec<View>), Refusal> {
        if let Some(Seen::Of(base, views)) = self.given(argument)
            && let Some((before, moved)) = moved(views)
        {
            let (base, before, moved) = (*base, before.to_vec(), moved.clone());
            return Ok((self.view(at, base, before)?, vec![moved]));
        }
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

    /// The tensor `[n, t, ..]` of which an argument has samples and what is beside them as one axis, `[n*t, ..]`, or
    /// samples as another axis, `[t, n, ..]`; `None` for any other argument.
    pub(crate) fn joined_rows(
        &mut self,
        value: usize,
        module: &str,
        at: &str,
        units: &mut Vec<Unit>,
    ) -> Result<Option<Tensor>, Refusal> {
        if let Some(Seen::Times(base, views, by)) = self.seen(value).cloned()
            && moved(&views).is_some()
        {
            let shape = self.shape_of(base).to_vec();
            let times = self.push(units, What::Layer(scaled(by)), vec![base], shape, at);
            self.is(value, Seen::Of(times, views));
        }
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
        if let Some((before, moved)) = moved(&views) {
            let apart = self.new_value(Seen::Of(base, before.to_vec()));
            let apart = self.tensor(apart, module, at, "view", units)?;
            self.is(value, Seen::Of(apart, vec![moved.clone()]));
            return Ok(Some(apart));
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
            Some(Argument::Constant(_) | Argument::Buffer(_))
                if let Some(constant) = argument.and_then(|one| self.trace.constant(one)) =>
            {
                let (constant, shape) = (constant.clone(), constant.shape.clone());
                let place = Place { module: at.module, at: &at.call.at, operator: &at.call.function };
                self.constant_as_tensor(&constant, shape, place, at.units)
            }
            Some(Argument::Buffer(name)) => {
                let what = format!("it computes with the buffer `{name}`, which the network changes");
                Err(at.refuse(what, "running statistics belong to `bn`, and nothing else is kept from step to step"))
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
}

/// What moves samples to another axis than the first, and leaves rows as they are; and what comes before.
pub(crate) fn moved(views: &[View]) -> Option<(&[View], &View)> {
    let (last, before) = views.split_last()?;
    let View::Permute(order) = last else { return None };
    (order.first() != Some(&0) && order.last() == Some(&(order.len() - 1))).then_some((before, last))
}

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
