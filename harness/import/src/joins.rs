//! Functions of several tensors: sums, products, concatenations.

use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;
use zoo_recipe::schema::{Count, Pair, Size};

use crate::Refusal;
use crate::arguments::{At, wrapped};
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::operation::{Tensor, What};
use crate::reader::{Picked, Reader, Seen};
use crate::rows::Join;
use crate::scores::Bias;
use crate::trace::Argument;
use crate::view::View;
use crate::word::{Word, number};

pub(crate) const POSITIONS: &str = "`positions` adds to each token the row of its position";

/// The two operands of a function.
enum Operands {
    /// Two tensors.
    Both(Argument, Argument),
    /// A tensor and a parameter, with the shape in which the parameter is used; whether the parameter comes first.
    Parameter(Argument, String, Vec<usize>, bool),
    /// A tensor and rows of a parameter.
    Picked(Argument, Picked),
    /// A tensor and a number; whether the number comes first.
    Number(Argument, f64, bool),
}

/// The axis of samples that `concat` names, if it has one.
pub(crate) fn along(axis: usize) -> Option<zoo::Axis> {
    axis.checked_sub(1).and_then(|axis| [zoo::Axis::Channel, zoo::Axis::Height, zoo::Axis::Width].get(axis).copied())
}

impl Reader<'_> {
    fn operands(&self, at: &mut At<'_>) -> Result<Operands, Refusal> {
        let (Some(first), Some(second)) = (at.input(), at.argument(1, &["other"])) else {
            return Err(at.unknown_form("other"));
        };
        let parameter = |argument: &Argument| match (argument, self.given(Some(argument))) {
            (Argument::Parameter(name), _) => Some((name.clone(), self.trace.shape(name).to_vec())),
            (_, Some(Seen::Reshaped(name, shape))) => Some((name.clone(), shape.clone())),
            _ => None,
        };
        let picked = |argument: &Argument| {
            if let Some(Seen::Picked(picked)) = self.given(Some(argument)) { Some(picked.clone()) } else { None }
        };
        Ok(match (first, second) {
            (one, other @ Argument::Value(_)) | (other @ Argument::Value(_), one) if let Some(picked) = picked(one) => {
                Operands::Picked(other.clone(), picked)
            }
            (one, other @ Argument::Value(_)) if let Some((name, shape)) = parameter(one) => {
                Operands::Parameter(other.clone(), name, shape, true)
            }
            (other @ Argument::Value(_), one) if let Some((name, shape)) = parameter(one) => {
                Operands::Parameter(other.clone(), name, shape, false)
            }
            (first, second) => match (self.number_in(at, first, second), self.number_in(at, second, first)) {
                (None, Some(value)) => Operands::Number(first.clone(), value, false),
                (Some(value), None) => Operands::Number(second.clone(), value, true),
                (None, None) | (Some(_), Some(_)) => Operands::Both(first.clone(), second.clone()),
            },
        })
    }

    /// Refuses a factor on the second operand.
    fn without_factor(&self, at: &mut At<'_>) -> Result<(), Refusal> {
        match at.named("alpha").map(Argument::number) {
            None | Some(Some(1.0)) => Ok(()),
            Some(_) => Err(at.refuse("its second operand has a factor (`alpha`)", "`scale` multiplies by a number")),
        }
    }

    fn both(&mut self, at: &mut At<'_>, what: What, first: &Argument, second: &Argument) -> Result<(), Refusal> {
        let repeated = |argument: &Argument| match self.given(Some(argument)) {
            Some(Seen::Repeated(once)) => Some(Argument::Value(*once)),
            _ => None,
        };
        let (first, second) = match (repeated(first), repeated(second)) {
            (Some(first), None) => (first, second.clone()),
            (None, Some(second)) => (first.clone(), second),
            (None, None) | (Some(_), Some(_)) => (first.clone(), second.clone()),
        };
        let rank = at.made()?.shape.len();
        let (first, second) = (self.beside_values(at, &first, rank)?, self.beside_values(at, &second, rank)?);
        let (first, second) = (self.sides_beside(at, &first, rank)?, self.sides_beside(at, &second, rank)?);
        let (first, views) = self.rows(at, Some(&first), None)?;
        let (second, others) = self.rows(at, Some(&second), None)?;
        if !views.is_empty() && views == others && self.shape_of(first) == self.shape_of(second) {
            let shape = self.shape_of(first).to_vec();
            return self.gives_viewed(at, what, vec![first, second], None, shape, views);
        }
        let shapes = [self.shape_of(first), self.shape_of(second)];
        let may_repeat = shapes[0].len() == shapes[1].len();
        let largest = |(one, other): (&usize, &usize)| *one.max(other);
        let repeats = shapes[0].iter().zip(shapes[1]).map(largest).eq(at.made()?.shape.iter().copied());
        if shapes[0] != shapes[1] && !(may_repeat && repeats) {
            let what = format!("it combines tensors of shapes {:?} and {:?}", shapes[0], shapes[1]);
            return Err(at.refuse(what, "sums and products repeat axes of one element, and no others"));
        }
        self.gives(at, what, vec![first, second], None)
    }

    /// A word for a tensor and a number.
    fn counted(&mut self, at: &mut At<'_>, x: &Argument, word: Word) -> Result<(), Refusal> {
        let x = self.operand(at, Some(x))?;
        self.gives(at, What::Layer(word), vec![x], None)
    }

    pub(crate) fn add(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if let Some(input @ Argument::Buffer(_)) = at.input()
            && (self.trace.constant(input).is_none() || at.call.name().ends_with('_'))
        {
            // The batch counters of normalisations are ignored if nothing uses them.
            at.told_by_the_result();
            self.is(at.made()?.value, Seen::Unsaid("it computes with a buffer"));
            return Ok(());
        }
        self.without_factor(at)?;
        if self.turned_sum(at, 1.0)?.is_some()
            || self.shifted(at)?.is_some()
            || self.join_of_row(at, Join::Add, false)?.is_some()
            || self.biased_norm(at)?.is_some()
            || self.biased_mask(at)?.is_some()
            || self.plus_table(at)?.is_some()
        {
            return Ok(());
        }
        if let (Some(mask), Some(scores)) = (at.input(), self.scores(at.argument(1, &["other"])))
            && let Some(mask) = self.trace.constant(mask).cloned()
        {
            return self.mask_of_scores(at, scores, &mask);
        }
        if let Some(scores) = self.scores(at.input()) {
            let other = at.argument(1, &["other"]);
            if let Some(mask) = other.and_then(|other| self.trace.constant(other)).cloned() {
                return self.mask_of_scores(at, scores, &mask);
            }
            if let Some(Seen::Picked(bias)) = self.given(other).cloned() {
                return self.bias_of_scores(at, scores, Bias::Rows(bias));
            }
            if let Some(Computed::Offsets(offsets)) = self.computed(other).cloned() {
                return self.bias_of_scores(at, scores, Bias::Offsets(offsets));
            }
        }
        match self.operands(at)? {
            Operands::Both(first, second) => self.both(at, What::Add, &first, &second),
            Operands::Number(x, value, _) => match value == 0.0 && self.unchanged(at, &x)?.is_some() {
                true => Ok(()),
                false => self.counted(at, &x, Word::formula(format!("x + {}", number(value)))),
            },
            Operands::Picked(x, picked) => self.add_positions(at, &x, &picked),
            Operands::Parameter(x, name, seen, _) => {
                let x = self.operand(at, Some(&x))?;
                let (own, shape) = (self.trace.shape(&name), self.shape_of(x));
                if own != seen || own.first() != Some(&1) || own.get(1..) != shape.get(1..) {
                    return self.with_parameter(at, What::Add, x, (&name, &seen, false));
                }
                let layer = Layer::AddParameter(zoo::AddParameter { init: zoo_graph::Init::Constant(0.0) });
                self.layer(at, layer, x, Some(name))
            }
        }
    }

    /// The first rows of a table, one for each token.
    fn add_positions(&mut self, at: &mut At<'_>, x: &Argument, picked: &Picked) -> Result<(), Refusal> {
        let x = self.operand(at, Some(x))?;
        let (shape, table) = (self.shape_of(x), self.trace.shape(&picked.table));
        let (Some(name), [_, t, e], [rows, width]) = (picked.table.strip_suffix(".weight"), shape, table) else {
            return Err(at.refuse(format!("it adds rows of the parameter `{}` to {shape:?}", picked.table), POSITIONS));
        };
        let is_row = |extents: &[usize]| extents == [*t, *e] || extents == [1, *t, *e] || extents == shape;
        let is_row_of =
            |[from, step]: &[usize; 2]| t.saturating_sub(1).saturating_mul(*step).saturating_add(*from) < *rows;
        let first = picked
            .rows
            .counts_up()
            .filter(is_row_of)
            .filter(|_| picked.views.is_empty() && is_row(&picked.shape) && width == e);
        let Some([from, step]) = first.map(|first| first.map(Count)) else {
            let what = format!("it adds rows of the parameter `{}` that do not follow each other", picked.table);
            return Err(at.refuse(what, POSITIONS));
        };
        let init = zoo_graph::Init::Normal(zoo_graph::init::NormalInit { std: 1.0 });
        let layer = Layer::Positions(zoo::Positions { rows: Size(*rows), from, step, init });
        self.layer(at, layer, x, Some(name.to_owned()))
    }

    /// The first operand minus the second, or, if it is `turned`, the second minus the first: `1 - x`.
    pub(crate) fn subtract(&mut self, at: &mut At<'_>, turned: bool) -> Result<(), Refusal> {
        self.without_factor(at)?;
        if !turned && self.turned_sum(at, -1.0)?.is_some() || self.join_of_row(at, Join::Subtract, turned)?.is_some() {
            return Ok(());
        }
        match self.operands(at)? {
            Operands::Both(first, second) if turned => self.both(at, What::Subtract, &second, &first),
            Operands::Both(first, second) => self.both(at, What::Subtract, &first, &second),
            Operands::Number(x, value, first) => {
                let value = number(value);
                let formula = if first || turned { format!("{value} - x") } else { format!("x - {value}") };
                self.counted(at, &x, Word::formula(formula))
            }
            Operands::Parameter(x, name, seen, is_first) => {
                let x = self.operand(at, Some(&x))?;
                self.with_parameter(at, What::Subtract, x, (&name, &seen, is_first != turned))
            }
            Operands::Picked(_, Picked { table: name, .. }) => {
                let from = if turned { "from " } else { "" };
                Err(at.refuse(format!("it subtracts {from}the parameter `{name}`"), "`add_parameter` adds one"))
            }
        }
    }

    pub(crate) fn multiply(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if let Some(scores) = self.scores(at.input()) {
            let other = at.argument(1, &["other"]);
            if let Some(Computed::Factor(name, bound)) = self.computed(other).cloned() {
                return self.factor_of_scores(at, scores, (name, bound));
            }
        }
        if let Some(scores) = self.kept_scores(at) {
            return self.becomes(at, scores);
        }
        if self.multiple(at)?.is_some()
            || self.times_table(at)?.is_some()
            || self.join_of_row(at, Join::Mul, false)?.is_some()
            || self.scaled_norm(at)?.is_some()
        {
            return Ok(());
        }
        match self.operands(at)? {
            Operands::Both(first, second) => self.both(at, What::Mul, &first, &second),
            Operands::Number(x, by, _) => {
                if by == 1.0 && self.unchanged(at, &x)?.is_some() {
                    return Ok(());
                }
                if let Some(scores) = self.scores(Some(&x)) {
                    return self.scale_of_scores(at, scores, by);
                }
                if self.view_times(at, &x, by)?.is_some() {
                    return Ok(());
                }
                self.counted(at, &x, Word::of(&Layer::Scale(zoo::Scale { by })))
            }
            Operands::Picked(_, picked) => {
                let what = format!("it multiplies by rows of the parameter `{}`", picked.table);
                Err(at.refuse(what, "`positions` adds a row to each token"))
            }
            Operands::Parameter(x, name, seen, _) => {
                let start = self.trace.parameters.get(&name).and_then(|own| own.start).unwrap_or(1.0);
                let own = self.trace.shape(&name);
                if let Argument::Value(value) = x
                    && let Some([n, h, w, c]) = self.shape(value).as_deref()
                    && (own, &seen[..]) == (&[*c][..], &[*c][..])
                {
                    // Channels last: the layer reads maps, [C, H, W].
                    let (first, last) = (View::Permute(vec![0, 3, 1, 2]), View::Permute(vec![0, 2, 3, 1]));
                    let maps = vec![*n, *c, *h, *w];
                    let x = self.operand_viewed(at, Some(&x), &[first])?;
                    let what = What::Layer(Word::of(&Layer::LayerScale(zoo::LayerScale { start, flat: true })));
                    return self.gives_viewed(at, what, vec![x], Some(name), maps, vec![last]);
                }
                let x = self.operand(at, Some(&x))?;
                let shape = self.shape_of(x);
                let flat = own.len() == 1 && shape.len() == 4;
                let fits = match *shape {
                    [_, c, _, _] => [&[c, 1, 1][..], &[1, c, 1, 1]].contains(&&seen[..]) && (flat || own == [c, 1, 1]),
                    [.., e] => own == [e] && seen.last() == Some(&e),
                    [] => false,
                };
                if !fits {
                    return self.with_parameter(at, What::Mul, x, (&name, &seen, false));
                }
                self.layer(at, Layer::LayerScale(zoo::LayerScale { start, flat }), x, Some(name))
            }
        }
    }

    pub(crate) fn divide(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if self.join_of_row(at, Join::Divide, false)?.is_some() {
            return Ok(());
        }
        match self.operands(at)? {
            Operands::Number(x, by, false) => {
                if by == 1.0 && self.unchanged(at, &x)?.is_some() {
                    return Ok(());
                }
                if let Some(scores) = self.scores(Some(&x)) {
                    return self.scale_of_scores(at, scores, 1.0 / by);
                }
                if self.view_times(at, &x, 1.0 / by)?.is_some() {
                    return Ok(());
                }
                self.counted(at, &x, Word::formula(format!("x / {}", number(by))))
            }
            Operands::Both(first, second) => {
                let rank = at.made()?.shape.len();
                let second = self.beside_values(at, &second, rank)?;
                let by = self.inverse(at, &second)?;
                self.both(at, What::Mul, &first, &Argument::Value(by))
            }
            _ => Err(at.refuse("it divides by a parameter, or a parameter", "`mul` multiplies by one")),
        }
    }

    /// 1 divided by a tensor, as a tensor that is none of the trace.
    fn inverse(&mut self, at: &mut At<'_>, of: &Argument) -> Result<usize, Refusal> {
        let x = match self.given(Some(of)) {
            Some(Seen::Repeated(once)) => self.operand(at, Some(&Argument::Value(*once)))?,
            _ => self.operand(at, Some(of))?,
        };
        let shape = self.shape_of(x).to_vec();
        let inverse = self.inner(at, What::Layer(Word::formula("1 / x".to_owned())), vec![x], shape);
        Ok(self.new_value(Seen::Of(inverse, Vec::new())))
    }

    /// The second operand divided by the first: `1 / x`.
    pub(crate) fn divide_by(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if self.join_of_row(at, Join::Divide, true)?.is_some() {
            return Ok(());
        }
        match self.operands(at)? {
            Operands::Number(x, value, _) => self.counted(at, &x, Word::formula(format!("{} / x", number(value)))),
            Operands::Both(first, second) => {
                let rank = at.made()?.shape.len();
                let first = self.beside_values(at, &first, rank)?;
                let by = self.inverse(at, &first)?;
                self.both(at, What::Mul, &second, &Argument::Value(by))
            }
            _ => Err(at.refuse("it divides a parameter, or by one", "`map` divides numbers by its operand")),
        }
    }

    /// A sum over axes; over an axis of two elements, the sum of two tensors.
    pub(crate) fn sum(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let input = at.input();
        if let Some(Computed::Stacked(parts)) = self.computed(input).cloned() {
            return self.sum_of(at, &parts);
        }
        let Some(mut shape) = input.and_then(|input| self.shape(input.value()?)) else {
            return Err(at.unknown_form("input"));
        };
        let axis = match at.argument(1, &["dim", "axis"]) {
            Some(Argument::List(axes)) if axes.len() == 1 => axes[0].int(),
            Some(axis) => axis.int(),
            None => None,
        };
        let axis = axis.and_then(|axis| wrapped(axis, shape.len())).filter(|axis| shape[*axis] == 2);
        let Some(axis) = axis else { return self.folded(at, "row_sum(x)") };
        let keeps_axis = at.flag(2, "keepdim", false)?;
        shape.remove(axis);
        let first = self.operand_viewed(at, input, &[View::Select(axis, 0)])?;
        let second = self.operand_viewed(at, input, &[View::Select(axis, 1)])?;
        let views = if keeps_axis { vec![View::Reshape(at.made()?.shape.clone())] } else { Vec::new() };
        self.gives_viewed(at, What::Add, vec![first, second], None, shape, views)
    }

    /// The sum of several tensors of one shape, one after another.
    fn sum_of(&mut self, at: &mut At<'_>, parts: &[usize]) -> Result<(), Refusal> {
        let axis = match at.argument(1, &["dim", "axis"]) {
            Some(Argument::List(axes)) if axes.len() == 1 => axes[0].int(),
            Some(axis) => axis.int(),
            None => None,
        };
        let keeps_axis = at.flag(2, "keepdim", false)?;
        let ([first, others @ .., last], Some(0), false) = (parts, axis, keeps_axis) else {
            return Err(at.refuse("a sum of stacked tensors along other axes", "`add` adds tensors"));
        };
        let mut sum = self.operand(at, Some(&Argument::Value(*first)))?;
        let shape = self.shape_of(sum).to_vec();
        for part in others {
            let part = self.operand(at, Some(&Argument::Value(*part)))?;
            sum = self.inner(at, What::Add, vec![sum, part], shape.clone());
        }
        let last = self.operand(at, Some(&Argument::Value(*last)))?;
        self.gives(at, What::Add, vec![sum, last], None)
    }

    /// Stacks tensors along a new axis: they are concatenated along the next axis, which is then split.
    pub(crate) fn stack(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(Argument::List(parts)) = at.argument(0, &["tensors"]) else {
            return Err(at.unknown_form("tensors"));
        };
        let made = at.made()?;
        let axis = at.argument(1, &["dim"]);
        if self.turned_joined(at, &parts.iter().collect::<Vec<_>>(), axis)?.is_some() {
            return Ok(());
        }
        let axis = match axis {
            Some(axis) => axis.int().and_then(|axis| wrapped(axis, made.shape.len())),
            None => Some(0),
        };
        if axis == Some(0)
            && let Some(parts) = parts.iter().map(Argument::value).collect::<Option<Vec<usize>>>()
        {
            return self.is_computed(at, Computed::Stacked(parts));
        }
        let Some(along) = axis.and_then(along) else {
            let what = "it stacks samples, or along an axis that is not supported";
            return Err(at.refuse(what, "`concat` joins channels or rows"));
        };
        let operands = parts.iter().map(|part| self.operand(at, Some(part))).collect::<Result<Vec<_>, _>>()?;
        let Some((axis, mut joined)) = axis.zip(operands.first().map(|part| self.shape_of(*part).to_vec())) else {
            return Err(at.unknown_form("tensors"));
        };
        if axis >= joined.len() || operands.iter().any(|part| self.shape_of(*part) != joined) {
            return Err(at.unknown_form("tensors"));
        }
        joined[axis] *= operands.len();
        let split = vec![View::Reshape(made.shape.clone())];
        self.gives_viewed(at, What::Concat(along), operands, None, joined, split)
    }

    /// The map of which the parts are the pixels of each square of four, column by column, joined along the channels.
    fn merged(&self, parts: &[&Argument], axis: usize) -> Option<(Tensor, Vec<View>)> {
        let mut whole: Option<(Tensor, Vec<View>)> = None;
        for (place, part) in parts.iter().enumerate() {
            let Some(Seen::Of(base, views)) = self.given(Some(part)) else { return None };
            let (before, [View::Every(1, down, 2), View::Every(2, across, 2)]) = views.split_last_chunk()? else {
                return None;
            };
            if [*across, *down] != [place / 2, place % 2] || axis != 3 {
                return None;
            }
            let own = (*base, before.to_vec());
            if *whole.get_or_insert_with(|| own.clone()) != own {
                return None;
            }
        }
        let (base, mut views) = whole.filter(|_| parts.len() == 4)?;
        let [_, height, width, _] = self.shape_of(base) else { return None };
        // A map of an odd size is filled up by the layer.
        if views[..] == [View::Fill(vec![0, height % 2, width % 2, 0])] {
            views.clear();
        }
        let [_, height, width, _] = crate::view::shape(self.shape_of(base), &views)[..] else { return None };
        let is_whole = views.is_empty() || (height % 2, width % 2) == (0, 0);
        is_whole.then_some((base, views))
    }

    pub(crate) fn concat(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(Argument::List(parts)) = at.argument(0, &["tensors"]) else {
            return Err(at.unknown_form("tensors"));
        };
        let made = at.made()?;
        let rank = made.shape.len();
        let axis = at.argument(1, &["dim", "axis"]);
        let given = axis;
        let axis = match axis {
            Some(axis) => axis.int().and_then(|axis| wrapped(axis, rank)),
            None => Some(0),
        };
        let Some(axis) = axis else { return Err(at.unknown_form("dim")) };
        // An empty tensor adds nothing: a cache before the first token.
        let is_empty = |part: &&Argument| self.trace.constant(part).is_some_and(Constant::is_empty);
        let parts: Vec<&Argument> = parts.iter().filter(|part| !is_empty(part)).collect();
        if let [Argument::Value(only)] = parts[..]
            && let Some(seen) = self.seen(*only).cloned()
            && self.shape(*only).as_ref() == Some(&made.shape)
        {
            self.is(made.value, seen);
            let plain = self.plain.get(only).cloned();
            self.plain.extend(plain.map(|plain| (made.value, plain)));
            return Ok(());
        }
        if self.turned_joined(at, &parts, given)?.is_some() {
            return Ok(());
        }
        if (rank, axis) == (3, 1) && self.leading_tokens(at, &parts)?.is_some() {
            return Ok(());
        }
        if let Some((base, views)) = self.merged(&parts, axis) {
            let x = self.view(at, base, views)?;
            return self.layer(at, Layer::MergePatches(zoo::MergePatches { size: Pair([2, 2]) }), x, None);
        }
        if rank == 1 && self.are_sides(&parts) {
            return self.is_computed(at, Computed::Sides(parts.into_iter().cloned().collect()));
        }
        let Some(along) = along(axis) else {
            let what = format!("it joins tensors along axis {axis}");
            return Err(at.refuse(what, "`concat` joins along channel, height or width"));
        };
        let operands = parts.iter().map(|part| self.operand(at, Some(part))).collect::<Result<Vec<_>, _>>()?;
        match operands[..] {
            [only] => {
                self.is(made.value, Seen::Of(only, Vec::new()));
                Ok(())
            }
            _ => self.gives(at, What::Concat(along), operands, None),
        }
    }
}
