//! Channels of a head that constants mix, position by position: rotary positions, in whichever way they are written.

use std::rc::Rc;

use zoo_recipe::layers::{Llama3Scaling, Pairs, Rotary, RotaryScaling};
use zoo_recipe::schema::Size;

use crate::Refusal;
use crate::arguments::{At, wrapped};
use crate::constant::Constant;
use crate::constants::Plain;
use crate::cosine::Computed;
use crate::operation::Tensor;
use crate::reader::{Reader, Seen};
use crate::rows::Join;
use crate::trace::Argument;
use crate::view::{self, View};

/// Most channels of a head.
const MOST_CHANNELS: usize = 1024;

pub(crate) const TURNED: &str =
    "`dot_product_attention` has `rotary`, which turns pairs of channels of queries and keys";

/// What a channel is multiplied by.
#[derive(Clone, Debug, PartialEq)]
enum Factor {
    /// A number.
    One(f64),
    /// A number for each position.
    Each(Rc<Vec<f64>>),
}

impl Factor {
    fn at(&self, position: usize) -> f64 {
        match self {
            Self::One(value) => *value,
            Self::Each(values) => values.get(position).copied().unwrap_or(f64::NAN),
        }
    }

    fn with(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        match (self, other) {
            (Self::One(a), Self::One(b)) => Self::One(of(*a, *b)),
            (Self::Each(each), _) | (_, Self::Each(each)) => {
                Self::Each(Rc::new((0..each.len()).map(|n| of(self.at(n), other.at(n))).collect()))
            }
        }
    }
}

/// A sum of channels, each with its factor.
type Row = Vec<(usize, Factor)>;

/// A tensor whose elements are sums of channels of another one, with factors that depend on the position alone.
#[derive(Clone, Debug)]
pub(crate) struct Turned {
    /// The other: a view of the result of an operation, whose last axis are the channels.
    of: (Tensor, Vec<View>),
    /// Its shape.
    from: Vec<usize>,
    /// The axis of positions, once it is known.
    positions: Option<usize>,
    /// The shape; all axes but the last of `from` come first.
    pub shape: Vec<usize>,
    /// For each element of the axes behind those, what it is.
    rows: Vec<Row>,
    /// The views of channels by which it began.
    begins: Vec<View>,
}

impl Turned {
    /// A view, of which all that works on channels alone is taken apart.
    fn of(base: Tensor, whole: &[usize], views: &[View], by: f64) -> Option<Self> {
        (0..=views.len()).find_map(|count| {
            let from = view::shape(whole, &views[..count]);
            let channels = from.last().copied().filter(|channels| (1..=MOST_CHANNELS).contains(channels))?;
            let rows = (0..channels).map(|channel| vec![(channel, Factor::One(by))]).collect();
            let (of, begins) = ((base, views[..count].to_vec()), views[count..].to_vec());
            let own = Self { of, shape: from.clone(), from, positions: None, rows, begins };
            views[count..].iter().try_fold(own, |own, view| own.of_channels(view))
        })
    }

    /// The result of an operation that it is made of.
    pub fn base(&self) -> Tensor {
        self.of.0
    }

    /// Number of axes before those of channels.
    fn leading(&self) -> usize {
        self.from.len() - 1
    }

    /// A view of the channels alone.
    fn of_channels(mut self, view: &View) -> Option<Self> {
        let first = self.leading();
        let shape = view.shape(&self.shape);
        let (axis, from, size, step) = match *view {
            View::Reshape(ref to) => {
                let is_whole = to.iter().product::<usize>() == self.shape.iter().product::<usize>();
                let keeps = is_whole && to.get(..first) == self.shape.get(..first);
                return keeps.then_some(Self { shape, ..self });
            }
            View::Select(axis, index) => (axis, index, 1, 1),
            View::Slice(axis, from, size) => (axis, from, size, 1),
            View::Every(axis, from, step) => (axis, from, usize::MAX, step),
            View::Permute(_) | View::Roll(_) | View::Fill(_) => return None,
        };
        let extent = *self.shape.get(axis).filter(|_| axis >= first)?;
        let behind: usize = self.shape[axis + 1..].iter().product();
        let is_kept =
            |place: usize| place.checked_sub(from).is_some_and(|behind| behind < size && behind.is_multiple_of(step));
        let rows = self.rows.drain(..).enumerate();
        let rows = rows.filter(|(index, _)| is_kept(index / behind % extent)).map(|(_, row)| row).collect();
        Some(Self { shape, rows, ..self })
    }

    /// Another view: one of channels, or one that leaves them alone.
    pub fn viewed(&self, views: &[View]) -> Option<Self> {
        view::simplified(&self.shape, views).iter().try_fold(self.clone(), |own, view| {
            if let Some(next) = own.clone().of_channels(view) {
                return Some(next);
            }
            // Heads may be one of the axes that move.
            let own = own.of_one_head().unwrap_or(own);
            let channels = own.shape.get(own.leading()..)?.to_vec();
            let shape = view.shape(&own.shape);
            let before = shape.strip_suffix(&channels[..])?.to_vec();
            let from = [&before[..], own.from.last_chunk::<1>()?].concat();
            let (view, positions) = match view {
                View::Permute(order) => {
                    let kept = order.len().checked_sub(channels.len())?;
                    if order.iter().skip(kept).copied().ne(kept..order.len()) {
                        return None;
                    }
                    let order: Vec<usize> = order[..kept].iter().copied().chain([kept]).collect();
                    let moved = |axis| order.iter().position(|source| *source == axis);
                    (View::Permute(order.clone()), own.positions.map(moved))
                }
                View::Reshape(_) => {
                    let place = |axis: usize| {
                        let ahead: usize = own.from[..axis].iter().product();
                        (0..before.len()).find(|to| {
                            before[*to] == own.from[axis] && before[..*to].iter().product::<usize>() == ahead
                        })
                    };
                    (View::Reshape(from.clone()), own.positions.map(place))
                }
                View::Select(..) | View::Slice(..) | View::Every(..) | View::Roll(_) | View::Fill(_) => return None,
            };
            let positions = match positions {
                None => None,
                Some(found) => Some(found?),
            };
            if view.shape(&own.from) != from {
                return None;
            }
            let of = (own.of.0, [&own.of.1[..], &[view]].concat());
            Some(Self { of, from, positions, shape, rows: own.rows, begins: Vec::new() })
        })
    }

    /// Multiplied by a constant that depends on channel and position alone.
    fn times(&self, table: &Constant) -> Option<Self> {
        let (first, rank) = (self.leading(), self.shape.len());
        let extents: Vec<usize> = [&vec![1; rank.checked_sub(table.shape.len())?][..], &table.shape[..]].concat();
        let fits = |axis: usize| extents[axis] == 1 || extents[axis] == self.shape[axis];
        let values: Vec<f64> = table.values().collect();
        let strides: Vec<usize> = (0..rank).map(|axis| extents[axis + 1..].iter().product()).collect();
        // The same for all samples, and for all heads.
        let varies = |axis: usize| {
            let n = extents[axis];
            (0..values.len()).any(|at| values[at] != values[at - at / strides[axis] % n * strides[axis]])
        };
        let varying: Vec<usize> = (0..first).filter(|axis| extents[*axis] > 1 && varies(*axis)).collect();
        let positions = match (&varying[..], self.positions) {
            ([], known) => known,
            ([axis], None) => Some(*axis),
            ([axis], Some(known)) if known == *axis => Some(known),
            _ => return None,
        };
        if !(0..rank).all(fits) {
            return None;
        }
        let channel = |row: usize| -> usize {
            let mut rest = row;
            (first..rank)
                .rev()
                .map(|axis| {
                    let place = rest % self.shape[axis];
                    rest /= self.shape[axis];
                    if extents[axis] == 1 { 0 } else { place * strides[axis] }
                })
                .sum()
        };
        let factor = |row: usize| match &varying[..] {
            [axis] => {
                let each = (0..self.shape[*axis]).map(|n| values[channel(row) + n * strides[*axis]]);
                Factor::Each(Rc::new(each.collect()))
            }
            _ => Factor::One(values[channel(row)]),
        };
        let rows = self.rows.iter().enumerate().map(|(index, row)| {
            let by = factor(index);
            row.iter().map(|(channel, own)| (*channel, own.with(&by, |a, b| a * b))).collect()
        });
        Some(Self { positions, rows: rows.collect(), ..self.clone() })
    }

    /// Multiplied by a number.
    fn scaled(&self, by: f64) -> Self {
        let by = Factor::One(by);
        let rows = self
            .rows
            .iter()
            .map(|row| row.iter().map(|(channel, own)| (*channel, own.with(&by, |a, b| a * b))).collect::<Row>());
        Self { rows: rows.collect(), ..self.clone() }
    }

    /// Whether both are made of the same channels.
    fn is_beside(&self, other: &Self) -> bool {
        self.of == other.of && self.from == other.from
    }

    fn positions_of(&self, other: &Self) -> Option<Option<usize>> {
        match (self.positions, other.positions) {
            (Some(a), Some(b)) => (a == b).then_some(Some(a)),
            (a, b) => Some(a.or(b)),
        }
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        if !self.is_beside(other) || self.shape != other.shape {
            return None;
        }
        let positions = self.positions_of(other)?;
        let rows = self.rows.iter().zip(&other.rows).map(|(a, b)| {
            let mut sum = a.clone();
            for (channel, factor) in b {
                match sum.iter_mut().find(|(known, _)| known == channel) {
                    Some((_, known)) => *known = known.with(factor, |a, b| a + b),
                    None => sum.push((*channel, factor.clone())),
                }
            }
            sum
        });
        Some(Self { positions, rows: rows.collect(), begins: common([self, other]), ..self.clone() })
    }

    /// Several side by side along an axis of channels, which may be new.
    fn joined(parts: &[Self], axis: usize, shape: &[usize]) -> Option<Self> {
        let (first, rest) = parts.split_first()?;
        if axis < first.leading() || !rest.iter().all(|part| first.is_beside(part)) {
            return None;
        }
        let positions = parts.iter().try_fold(None, |known: Option<usize>, part| match (known, part.positions) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => Some(a.or(b)),
        })?;
        // What of a part is beside each other in the result.
        let sizes = parts.iter().map(|part| Some(part.shape.get(axis..)?.iter().product::<usize>()));
        let sizes: Vec<usize> = sizes.collect::<Option<_>>()?;
        let mut rows = Vec::new();
        for block in 0..first.rows.len().checked_div(sizes[0])? {
            for (part, size) in parts.iter().zip(&sizes) {
                rows.extend_from_slice(part.rows.get(block * size..(block + 1) * size)?);
            }
        }
        let wanted: usize = shape.get(first.leading()..)?.iter().product();
        (rows.len() == wanted).then(|| Self {
            positions,
            rows,
            shape: shape.to_vec(),
            begins: common(parts),
            ..first.clone()
        })
    }

    /// The same for each head, if the channels are those of several heads.
    fn of_one_head(&self) -> Option<Self> {
        let [before @ .., heads, width] = &self.shape[..] else { return None };
        if before != &self.from[..self.leading()] {
            return None;
        }
        let rows = (0..*self.from.last()?).map(|channel| vec![(channel, Factor::One(1.0))]).collect();
        let whole = Self { shape: self.from.clone(), rows, begins: Vec::new(), ..self.clone() };
        (1..=self.begins.len()).find_map(|count| {
            let apart = self.begins[..count].iter().try_fold(whole.clone(), |whole, view| whole.of_channels(view))?;
            let own = *apart.shape.strip_prefix(before).filter(|own| own.len() == 2 && own[0] == *heads)?.last()?;
            // By head, channels of the head.
            let of_head = |head: usize| -> Option<Vec<Row>> {
                let known = apart.rows.get(head * own..(head + 1) * own)?;
                let place =
                    |channel: usize| known.iter().position(|row| matches!(row[..], [(one, _)] if one == channel));
                let rows = self.rows.get(head * width..(head + 1) * width)?.iter();
                rows.map(|row| row.iter().map(|(channel, by)| Some((place(*channel)?, by.clone()))).collect()).collect()
            };
            let first = of_head(0)?;
            (1..*heads).all(|head| of_head(head).as_ref() == Some(&first)).then(|| Self {
                of: (self.of.0, [&self.of.1[..], &self.begins[..count]].concat()),
                from: apart.shape.clone(),
                rows: first,
                begins: self.begins[count..].to_vec(),
                ..self.clone()
            })
        })
    }

    /// The same of the channels that are used, if they are beside each other and not all.
    fn of_used(&self) -> Option<Self> {
        let [before @ .., width] = &self.shape[..] else { return None };
        if before != &self.from[..self.leading()] || width >= self.from.last()? {
            return None;
        }
        let channels = || self.rows.iter().flatten().map(|(channel, _)| *channel);
        let (first, last) = (channels().min()?, channels().max()?);
        let move_down = |row: &Row| row.iter().map(|(channel, factor)| (channel - first, factor.clone())).collect();
        (last - first < *width).then(|| Self {
            of: (self.of.0, [&self.of.1[..], &[View::Slice(self.leading(), first, *width)]].concat()),
            from: self.shape.clone(),
            rows: self.rows.iter().map(move_down).collect(),
            begins: Vec::new(),
            ..self.clone()
        })
    }

    /// Queries or keys that rotary positions make of a view.
    pub fn rotary(&self) -> Option<((Tensor, Vec<View>), Rotary)> {
        if let Some(one) = self.of_one_head().or_else(|| self.of_used()) {
            return one.rotary();
        }
        let (positions, channels) = (self.positions?, *self.from.last()?);
        let length = *self.from.get(positions)?;
        if self.shape != self.from || length < 2 {
            return None;
        }
        let is_own = |(channel, row): &(usize, &Row)| row[..] == [(*channel, Factor::One(1.0))];
        let left = self.rows.iter().enumerate().rev().take_while(is_own).count();
        let width = channels - left;
        let half = width / 2;
        let partner = self.rows.first()?.iter().map(|(channel, _)| *channel).find(|channel| *channel != 0)?;
        let pairs = match partner {
            _ if partner == half => Pairs::Halves,
            1 => Pairs::Adjacent,
            _ => return None,
        };
        let pair = |n: usize| match pairs {
            Pairs::Halves => [n, n + half],
            Pairs::Adjacent => [2 * n, 2 * n + 1],
        };
        let factor = |row: usize, channel: usize| {
            let [(a, one), (b, other)] = &self.rows.get(row)?[..] else { return None };
            if *a == channel { Some(one) } else { (*b == channel).then_some(other) }
        };
        let mut rates = Vec::new();
        for n in 0..half {
            let [first, second] = pair(n);
            let [cosine, minus] = [factor(first, first)?, factor(first, second)?];
            let [same, sine] = [factor(second, second)?, factor(second, first)?];
            rates.push(sine.at(1).atan2(cosine.at(1)));
            let rate = *rates.last()?;
            for position in 0..length {
                // The tables may be those of f32.
                let angle = position as f64 * rate;
                let near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-6 * (1.0 + angle.abs());
                let (cos, sin) = (angle.cos(), angle.sin());
                let all = [(cosine, cos), (same, cos), (sine, sin), (minus, -sin)];
                if !all.iter().all(|(found, wanted)| near(found.at(position), *wanted)) {
                    return None;
                }
            }
        }
        if width % 2 == 1 || half == 0 {
            return None;
        }
        let (base, scaling) = base(&rates)?;
        let width = (width < channels).then_some(Size(width));
        Some((self.of.clone(), Rotary { base, width, pairs, scaling }))
    }
}

/// The views by which all of them begin.
fn common<'t>(parts: impl IntoIterator<Item = &'t Turned>) -> Vec<View> {
    let alike = |one: Vec<View>, other: &'t Turned| {
        one.into_iter().zip(&other.begins).take_while(|(one, other)| one == *other).map(|(one, _)| one).collect()
    };
    let mut parts = parts.into_iter();
    let first = parts.next().map_or_else(Vec::new, |first| first.begins.clone());
    parts.fold(first, alike)
}

/// Base and scaling of these angles between neighbouring positions.
fn base(rates: &[f64]) -> Option<(f64, Option<RotaryScaling>)> {
    let pairs = rates.len();
    let (first, last) = (*rates.first()?, *rates.last()?);
    let fits = |base: f64, scaling: Option<RotaryScaling>| {
        let rotary = Rotary { base, scaling, ..Rotary::default() };
        let near = |(own, found): (&f64, &f64)| (own - found).abs() <= 2e-6 * own.abs();
        rotary.rates(pairs).iter().zip(rates).all(near).then_some((rotary.base, rotary.scaling))
    };
    if pairs == 1 {
        return ((first - 1.0).abs() < 1e-6).then_some((Rotary::default().base, None));
    }
    let unscaled = rounded((last / first).powf(-(pairs as f64) / (pairs - 1) as f64));
    if (first - 1.0).abs() > 1e-6 {
        return fits(unscaled, Some(RotaryScaling::Linear(rounded(1.0 / first))));
    }
    if let Some(found) = fits(unscaled, None) {
        return Some(found);
    }
    // The second pair is not scaled, or all but the first are.
    let kept = rounded(rates[1].powf(-(pairs as f64)));
    let slowest = kept.powf(-((pairs - 1) as f64) / pairs as f64);
    let factor = rounded(slowest / last);
    (8..=20).find_map(|power| {
        let positions = f64::from(1u32 << power);
        let usual = Llama3Scaling { factor, positions, ..Llama3Scaling::default() };
        fits(kept, Some(RotaryScaling::Llama3(usual)))
    })
}

/// The shortest decimal number near this one.
pub(crate) fn rounded(value: f64) -> f64 {
    let near = |short: &f64| (short - value).abs() <= 1e-5 * value.abs();
    (0..8).filter_map(|digits| format!("{value:.digits$e}").parse().ok()).find(near).unwrap_or(value)
}

impl Reader<'_> {
    /// What an argument is in channels, if it can be seen so.
    fn in_channels(&self, argument: &Argument) -> Option<Turned> {
        match self.given(Some(argument))? {
            Seen::Of(base, views) => Turned::of(*base, self.shape_of(*base), views, 1.0),
            Seen::Times(base, views, by) => Turned::of(*base, self.shape_of(*base), views, *by),
            Seen::Computed(computed) => match &**computed {
                Computed::Turned(turned) => Some(turned.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether an argument is no longer a view.
    fn is_turned(&self, argument: &Argument) -> bool {
        matches!(self.computed(Some(argument)), Some(Computed::Turned(_)))
    }

    /// The result of a call is turned, and how it is computed otherwise.
    fn turns(&mut self, at: &At<'_>, turned: Option<Turned>, plain: Plain) -> Result<(), Refusal> {
        let made = at.made()?;
        self.is_plainly(at, plain)?;
        match turned.filter(|turned| turned.shape == made.shape) {
            Some(turned) => self.is_computed(at, Computed::Turned(turned)),
            None => Err(at.refuse("it multiplies by a constant tensor", TURNED)),
        }
    }

    /// A tensor times a constant one. `None` if there is no such operand.
    pub(crate) fn times_table(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (Some(first), Some(second)) = (at.input(), at.argument(1, &["other"])) else { return Ok(None) };
        let table = |argument: &Argument| self.trace.constant(argument).filter(|table| table.len() > 1).cloned();
        let (x, table) = match (table(first), table(second)) {
            (None, Some(table)) => (first, table),
            (Some(table), None) => (second, table),
            _ => {
                let number = [first, second].map(|argument| argument.number());
                let turned = [first, second].map(|argument| self.is_turned(argument));
                return match (turned, number) {
                    ([true, _], [_, Some(by)]) => self.turned_times(at, first, by).map(Some),
                    ([_, true], [Some(by), _]) => self.turned_times(at, second, by).map(Some),
                    _ => Ok(None),
                };
            }
        };
        if table.of_one_number().is_some() && !self.is_turned(x) {
            return Ok(None);
        }
        let Some(x) = self.in_channels(x) else { return Ok(None) };
        let Some(turned) = x.times(&table) else { return Ok(None) };
        self.turns(at, Some(turned), Plain::Join(Join::Mul, first.clone(), second.clone())).map(Some)
    }

    fn turned_times(&mut self, at: &At<'_>, x: &Argument, by: f64) -> Result<(), Refusal> {
        let turned = self.in_channels(x).map(|x| x.scaled(by));
        self.turns(at, turned, Plain::Scaled(x.clone(), by))
    }

    /// The opposite of a tensor. `None` if it is not one of channels.
    pub(crate) fn turned_negated(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let Some(x) = at.input() else { return Ok(None) };
        match self.given(Some(x)).cloned() {
            Some(Seen::Of(base, views)) if !views.is_empty() => {
                self.is(at.made()?.value, Seen::Times(base, views, -1.0));
                Ok(Some(()))
            }
            Some(Seen::Computed(_)) if self.is_turned(x) => self.turned_times(at, x, -1.0).map(Some),
            _ => Ok(None),
        }
    }

    /// A sum, or the difference, of tensors of which one is turned. `None` if there is none.
    pub(crate) fn turned_sum(&mut self, at: &mut At<'_>, sign: f64) -> Result<Option<()>, Refusal> {
        let (Some(first), Some(second)) = (at.input(), at.argument(1, &["other"])) else { return Ok(None) };
        if !self.is_turned(first) && !self.is_turned(second) {
            return Ok(None);
        }
        let sum = self.in_channels(first).zip(self.in_channels(second));
        let Some(sum) = sum.and_then(|(first, second)| first.plus(&second.scaled(sign))) else { return Ok(None) };
        let join = if sign < 0.0 { Join::Subtract } else { Join::Add };
        self.turns(at, Some(sum), Plain::Join(join, first.clone(), second.clone())).map(Some)
    }

    /// Tensors side by side, or stacked, of which one is turned or negated. `None` if there is none.
    pub(crate) fn turned_joined(
        &mut self,
        at: &mut At<'_>,
        parts: &[&Argument],
        axis: Option<&Argument>,
    ) -> Result<Option<()>, Refusal> {
        let is_negated = |part: &&&Argument| matches!(self.given(Some(part)), Some(Seen::Times(_, _, -1.0)));
        if !parts.iter().any(|part| self.is_turned(part) || is_negated(&part)) {
            return Ok(None);
        }
        let made = at.made()?;
        let axis = axis.and_then(Argument::int).and_then(|axis| wrapped(axis, made.shape.len()));
        let known: Option<Vec<Turned>> = parts.iter().map(|part| self.in_channels(part)).collect();
        let is_new = at.call.name() == "stack";
        let joined = known.zip(axis).and_then(|(known, axis)| {
            let all = parts.iter().map(|part| (*part).clone()).collect();
            Some((Turned::joined(&known, axis, &made.shape)?, Plain::Joined(all, axis, is_new)))
        });
        match joined {
            Some((turned, plain)) => self.turns(at, Some(turned), plain).map(Some),
            None => Ok(None),
        }
    }
}
