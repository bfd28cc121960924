//! Functions that only move elements: reshapes, permutations, slices.

use crate::Refusal;
use crate::arguments::{At, wrapped};
use crate::constant::Constant;
use crate::constants::Plain;
use crate::cosine::Computed;
use crate::reader::{Picked, REPEATED, Reader, Seen};
use crate::trace::{Argument, Made};
use crate::view::View;

impl Reader<'_> {
    /// Makes the result of the call a view of its operand.
    pub(crate) fn viewed(&mut self, at: &mut At<'_>, made: &Made, views: Vec<View>) -> Result<(), Refusal> {
        if let Some(Argument::Value(value)) = at.input()
            && let Some(Seen::Repeated(once)) = self.seen(*value).cloned()
            && let Some(grouped) = self.grouped(once, *value, made)
        {
            self.is(made.value, grouped);
            return Ok(());
        }
        if let Some(scores) = self.scores(at.input())
            && scores.is_plain()
            && scores.viewed(&made.shape, &views).is_none()
            && let Some(Argument::Value(value)) = at.input()
        {
            self.tensor(*value, at.module, &at.call.at, &at.call.function, at.units)?;
        }
        if let Some(Argument::Value(value)) = at.input()
            && self.computed(at.input()).is_some_and(|computed| match computed {
                Computed::Row(_) => true,
                // A part of queries or keys, or other axes of them, where they are turned in another way.
                Computed::Turned(_) => {
                    let from = self.made(*value).map_or(&[][..], |from| &from.shape);
                    self.plain.contains_key(value) && computed.viewed(from, made, &views).is_none()
                }
                Computed::OfLengthOne(..) => {
                    let from = self.made(*value).map_or(&[][..], |from| &from.shape);
                    computed.viewed(from, made, &views).is_none()
                }
                _ => false,
            })
        {
            self.tensor(*value, at.module, &at.call.at, &at.call.function, at.units)?;
        }
        if let Some(Argument::Value(value)) = at.input()
            && matches!(self.seen(*value), Some(Seen::Expanded(..) | Seen::Repeated(_)))
            && !self.is_unchanged(*value, made, &views)
            && made.is_real()
        {
            self.tensor(*value, at.module, &at.call.at, &at.call.function, at.units)?;
        }
        if let Some(seen) = self.part(at.input(), made, &views) {
            self.is(made.value, seen);
            return Ok(());
        }
        let seen = match at.input() {
            Some(Argument::Value(value)) => match self.seen(*value) {
                Some(Seen::Part(..) | Seen::Same(..)) => {
                    Seen::Unsaid("it uses a part of what is computed of parameters alone")
                }
                Some(Seen::Of(base, known)) => {
                    self.check_view(at, *value, made, &views)?;
                    let all = [&known[..], &views[..]].concat();
                    Seen::Of(*base, crate::view::simplified(self.shape_of(*base), &all))
                }
                Some(Seen::Times(base, known, by)) => {
                    self.check_view(at, *value, made, &views)?;
                    let all = [&known[..], &views[..]].concat();
                    Seen::Times(*base, crate::view::simplified(self.shape_of(*base), &all), *by)
                }
                Some(Seen::Scores(scores)) => {
                    self.check_type(at, *value, made)?;
                    match scores.viewed(&made.shape, &views) {
                        Some(scores) => Seen::Scores(Box::new(scores)),
                        None => Seen::Unsaid("it uses the scores of an attention"),
                    }
                }
                Some(Seen::Reshaped(..)) => Seen::Unsaid("it uses a part of a parameter"),
                Some(Seen::Computed(computed)) => {
                    self.check_type(at, *value, made)?;
                    let shape = self.made(*value).map_or(&[][..], |from| &from.shape);
                    match computed.viewed(shape, made, &views) {
                        Some(computed) if matches!(computed, Computed::Turned(_) | Computed::Columns(_)) => {
                            self.plain.insert(made.value, Plain::Viewed(*value, views.clone()));
                            Seen::Computed(Box::new(computed))
                        }
                        Some(computed) => Seen::Computed(Box::new(computed)),
                        // A cache may keep a part for later tokens, which nothing here uses.
                        None if matches!(**computed, Computed::Turned(_)) => {
                            Seen::Unsaid("it uses a part of turned queries or keys")
                        }
                        None => {
                            let (what, nearest) = computed.refusal();
                            return Err(at.refuse(what, nearest));
                        }
                    }
                }
                Some(Seen::Picked(picked)) => {
                    self.check_type(at, *value, made)?;
                    let mut picked = picked.clone();
                    picked.shape = crate::view::shape(&picked.shape, &views);
                    picked.views.extend(views);
                    if picked.shape != made.shape {
                        return Err(at.refuse(
                            format!("it gives {:?}", made.shape),
                            "this form of the function is not supported",
                        ));
                    }
                    Seen::Picked(picked)
                }
                Some(seen @ (Seen::Expanded(..) | Seen::Repeated(_))) => {
                    match self.is_unchanged(*value, made, &views) {
                        true => seen.clone(),
                        false => Seen::Unsaid("it uses a part of a repeated tensor, or moves its axes"),
                    }
                }
                Some(Seen::Unsaid(what)) => Seen::Unsaid(what),
                None => return Err(at.unknown_form("input")),
            },
            Some(Argument::Parameter(_)) => Seen::Unsaid("it uses a reshaped parameter"),
            Some(Argument::Buffer(_)) => Seen::Unsaid("it computes with a buffer"),
            _ => return Err(at.unknown_form("input")),
        };
        self.is(made.value, seen);
        Ok(())
    }

    /// Heads `[n, heads, 1, t, d]`, repeated along the third axis, that become one axis with it.
    fn grouped(&mut self, once: usize, repeated: usize, made: &Made) -> Option<Seen> {
        let (&[n, heads, group, t, d], &[samples, all, length, width]) =
            (&self.made(repeated)?.shape[..], &made.shape[..])
        else {
            return None;
        };
        let is_each = self.shape(once)? == [n, heads, 1, t, d];
        if !is_each || [samples, all, length, width] != [n, heads.checked_mul(group)?, t, d] {
            return None;
        }
        let to = View::Reshape(vec![n, heads, t, d]);
        let seen = match self.seen(once)? {
            Seen::Of(base, views) => {
                let views = [&views[..], &[to]].concat();
                Seen::Of(*base, crate::view::simplified(self.shape_of(*base), &views))
            }
            Seen::Computed(computed) => match &**computed {
                Computed::Turned(turned) => Seen::Computed(Box::new(Computed::Turned(turned.viewed(&[to])?))),
                _ => return None,
            },
            _ => return None,
        };
        let of = self.new_value(seen);
        Some(Seen::Computed(Box::new(Computed::Grouped { of, group, columns: false })))
    }

    /// Each element along an axis several times: heads that share keys, or any others.
    pub(crate) fn repeated(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let input = at.input();
        let group = at.size(1, "repeats", None)?;
        let rank = at.made()?.shape.len();
        let axis = at.axis(2, &["dim"], rank)?;
        match input {
            Some(Argument::Value(of)) if (rank, axis) == (4, 1) => {
                let grouped = Computed::Grouped { of: *of, group, columns: false };
                self.is_computed(at, grouped)
            }
            Some(Argument::Value(of)) if let Some(mut apart) = self.shape(*of) => {
                apart.insert(axis + 1, group);
                self.repeated_along(at, *of, (axis + 1, apart))
            }
            _ => Err(at.refuse("it repeats a tensor", REPEATED)),
        }
    }

    /// A tensor several times along a new axis, of which the result is another shape. apart: the place of the axis, and
    /// the shape with it.
    fn repeated_along(
        &mut self,
        at: &mut At<'_>,
        of: usize,
        (axis, apart): (usize, Vec<usize>),
    ) -> Result<(), Refusal> {
        let made = at.made()?.clone();
        let mut once = apart.clone();
        once[axis] = 1;
        let x = self.operand_viewed(at, Some(&Argument::Value(of)), &[View::Reshape(once)])?;
        let x = self.new_value(Seen::Of(x, Vec::new()));
        let all = self.new_value(Seen::Repeated(x));
        self.made.insert(all, Made { value: all, shape: apart, ..made.clone() });
        let all = self.operand(at, Some(&Argument::Value(all)))?;
        self.is(made.value, Seen::Of(all, vec![View::Reshape(made.shape)]));
        Ok(())
    }

    /// Whether these views of a tensor are the tensor.
    fn is_unchanged(&self, value: usize, made: &Made, views: &[View]) -> bool {
        self.made(value).is_some_and(|from| {
            (&from.shape, &from.dtype) == (&made.shape, &made.dtype)
                && crate::view::simplified(&from.shape, views).is_empty()
        })
    }

    /// A function that changes nothing.
    pub(crate) fn same(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        at.told_by_the_result();
        let made = at.made()?;
        let parameter = match at.input() {
            Some(Argument::Parameter(name)) => Some(name.clone()),
            _ => None,
        };
        match parameter {
            Some(name) if made.is_real() => self.is(made.value, Seen::Reshaped(name, made.shape.clone())),
            Some(_) => self.is(made.value, Seen::Unsaid("it rounds a parameter to whole numbers")),
            None => self.viewed(at, made, Vec::new())?,
        }
        Ok(())
    }

    pub(crate) fn reshaped(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        at.told_by_the_result();
        let made = at.made()?;
        self.viewed(at, made, vec![View::Reshape(made.shape.clone())])
    }

    pub(crate) fn permuted(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(shape) = self.shape_of_input(at)? else { return Ok(()) };
        let rank = shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        match at.call.name().trim_end_matches('_') {
            "permute" => {
                let axes = match at.argument(1, &["dims"]) {
                    Some(Argument::List(axes)) => &axes[..],
                    _ => at.call.args.get(1..).unwrap_or_default(),
                };
                let axes: Option<Vec<usize>> = axes.iter().map(|axis| wrapped(axis.int()?, rank)).collect();
                at.told_by_the_result();
                order = axes.ok_or_else(|| at.unknown_form("dims"))?;
            }
            "T" => order.reverse(),
            "t" if rank == 2 => order.reverse(),
            "mT" if rank >= 2 => order.swap(rank - 1, rank - 2),
            "transpose" | "swapaxes" | "swapdims" => {
                let first = at.axis(1, &["dim0", "axis0"], rank)?;
                order.swap(first, at.axis(2, &["dim1", "axis1"], rank)?);
            }
            _ => return Err(at.unknown_form("input")),
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        match sorted.into_iter().eq(0..rank) {
            true => self.viewed(at, at.made()?, vec![View::Permute(order)]),
            false => Err(at.unknown_form("dims")),
        }
    }

    /// The shape of the operand of the function; `None` for unsupported values, whose results are unsupported too.
    fn shape_of_input(&mut self, at: &mut At<'_>) -> Result<Option<Vec<usize>>, Refusal> {
        if let Some(Argument::Value(value)) = at.input() {
            match self.seen(*value) {
                Some(Seen::Picked(picked)) => return Ok(Some(picked.shape.clone())),
                Some(Seen::Reshaped(_, shape)) => return Ok(Some(shape.clone())),
                _ => {}
            }
            if let Some(shape) = self.shape(*value) {
                return Ok(Some(shape));
            }
            if let Some(Seen::Expanded(..) | Seen::Repeated(_) | Seen::Computed(_)) = self.seen(*value) {
                return Ok(self.made(*value).map(|made| made.shape.clone()));
            }
        }
        if let Some(Argument::Parameter(name)) = at.input() {
            return Ok(Some(self.trace.shape(name).to_vec()));
        }
        at.told_by_the_result();
        at.call.outputs.values().try_for_each(|made| self.viewed(at, made, Vec::new()))?;
        Ok(None)
    }

    /// Divides an axis into pieces. For equal pieces, the axis is split in two, and an index of the first one is
    /// selected.
    pub(crate) fn pieces(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let unbinds = at.call.name() == "unbind";
        let Some(mut shape) = self.shape_of_input(at)? else { return Ok(()) };
        let axis = match at.argument(if unbinds { 1 } else { 2 }, &["dim"]) {
            Some(axis) => axis.int().and_then(|axis| wrapped(axis, shape.len())),
            None => Some(0),
        };
        let Some(axis) = axis else { return Err(at.unknown_form("dim")) };
        // The results determine number and size of pieces.
        at.told_by_the_result();
        let made = at.call.outputs.values();
        if !unbinds {
            let sizes: Vec<Option<usize>> = made.clone().map(|piece| piece.shape.get(axis).copied()).collect();
            let (Some(Some(size)), Some(extent)) = (sizes.first(), shape.get(axis)) else {
                return Err(at.unknown_form("dim"));
            };
            if sizes.iter().any(|other| *other != Some(*size)) || size * sizes.len() != *extent {
                let mut from = 0;
                for piece in made {
                    let size = piece.shape.get(axis).copied().ok_or_else(|| at.unknown_form("dim"))?;
                    self.viewed(at, piece, vec![View::Slice(axis, from, size)])?;
                    from += size;
                }
                return Ok(());
            }
            shape.splice(axis..=axis, [sizes.len(), *size]);
        }
        for (index, piece) in made.enumerate() {
            let take = View::Select(axis, index);
            let views = if unbinds { vec![take] } else { vec![View::Reshape(shape.clone()), take] };
            self.viewed(at, piece, views)?;
        }
        Ok(())
    }

    /// The constant of `x[:, constant]`.
    fn columns_of(&self, at: &mut At<'_>) -> Option<Constant> {
        let Some(Argument::List(parts)) = at.argument(1, &["key"]) else { return None };
        match &parts[..] {
            [Argument::Slice([None, None, None]), columns] => self.trace.constant(columns).cloned(),
            _ => None,
        }
    }

    pub(crate) fn indexed(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let made = at.made()?;
        if let Some(Argument::Parameter(table)) = at.input()
            && let Some(rows) = at.argument(1, &["key"]).and_then(|rows| self.trace.constant(rows)).cloned()
            && let [_, width] = self.trace.shape(table)
            && [&rows.shape[..], &[*width]].concat() == made.shape
        {
            let picked = Picked { table: table.clone(), rows, views: Vec::new(), shape: made.shape.clone() };
            self.is(made.value, Seen::Picked(picked));
            return Ok(());
        }
        if let Some(Argument::Parameter(table)) = at.input()
            && let Some(columns) = self.columns_of(at)
            && let [heads, _] = self.trace.shape(table)
            && [&[*heads], &columns.shape[..]].concat() == made.shape
        {
            // As rows of the table with its axes exchanged.
            let last = columns.shape.len();
            let views = vec![View::Permute(std::iter::once(last).chain(0..last).collect())];
            let picked = Picked { table: table.clone(), rows: columns, views, shape: made.shape.clone() };
            self.is(made.value, Seen::Picked(picked));
            return Ok(());
        }
        let Some(shape) = self.shape_of_input(at)? else { return Ok(()) };
        let place = |axis: usize, index: i64| wrapped(index, *shape.get(axis)?);
        if at.call.name() == "select" {
            let axis = at.axis(1, &["dim"], shape.len())?;
            let index = at.argument(2, &["index"]).and_then(Argument::int).and_then(|index| place(axis, index));
            let Some(index) = index else { return Err(at.unknown_form("index")) };
            return self.viewed(at, made, vec![View::Select(axis, index)]);
        }
        let parts = match at.argument(1, &["key"]) {
            Some(Argument::List(parts)) => &parts[..],
            Some(part) => std::slice::from_ref(part),
            // `x[None]`: what is absent otherwise.
            None => &[Argument::None],
        };
        let mut views = Vec::new();
        let (mut axis, mut from) = (0, 0);
        for part in parts {
            match part {
                // A new axis of one element: part of the shape of the result.
                Argument::None => {}
                Argument::Ellipsis(()) => {
                    let new = parts.iter().filter(|part| **part == Argument::None).count();
                    let skipped = shape.len().saturating_sub(parts.len() - 1 - new);
                    (axis, from) = (axis + skipped, from + skipped);
                }
                Argument::Slice([start, stop, None | Some(1)]) => {
                    let Some((start, size)) = shape.get(from).and_then(|extent| range(*start, *stop, *extent)) else {
                        return Err(at.unknown_form("index"));
                    };
                    views.push(View::Slice(axis, start, size));
                    (axis, from) = (axis + 1, from + 1);
                }
                Argument::Slice([None | Some(0..), None, Some(step @ 2..)]) => {
                    let Argument::Slice([first, ..]) = part else { return Err(at.unknown_form("index")) };
                    let (Ok(first), Ok(step)) = (usize::try_from(first.unwrap_or(0)), usize::try_from(*step)) else {
                        return Err(at.unknown_form("index"));
                    };
                    views.push(View::Every(axis, first, step));
                    (axis, from) = (axis + 1, from + 1);
                }
                Argument::Int(index) => {
                    let Some(index) = place(from, *index) else { return Err(at.unknown_form("index")) };
                    views.push(View::Select(axis, index));
                    from += 1;
                }
                Argument::Value(_) | Argument::Constant(_) | Argument::Buffer(_) | Argument::List(_) => {
                    return Err(at.refuse(
                        "its indices are a tensor",
                        "`take` selects one index, `slice` a range; `embedding` takes rows of a table",
                    ));
                }
                _ => {
                    return Err(
                        at.refuse("its indices are not contiguous", "`take` selects one index, `slice` a range")
                    );
                }
            }
        }
        if parts.contains(&Argument::None) {
            views.push(View::Reshape(made.shape.clone()));
        }
        self.viewed(at, made, views)
    }

    pub(crate) fn rolled(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(shape) = self.shape_of_input(at)? else { return Ok(()) };
        let (shifts, axes) = (at.numbers(1, "shifts")?, at.numbers(2, "dims")?);
        let mut by = vec![0i64; shape.len()];
        if shifts.len() != axes.len() {
            return Err(at.unknown_form("dims"));
        }
        for (shift, axis) in shifts.iter().zip(&axes) {
            let Some(axis) = wrapped(*axis, shape.len()) else { return Err(at.unknown_form("dims")) };
            by[axis] = by[axis].checked_add(*shift).ok_or_else(|| at.unknown_form("shifts"))?;
        }
        self.viewed(at, at.made()?, vec![View::Roll(by)])
    }

    pub(crate) fn expanded(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        at.told_by_the_result();
        let made = at.made()?;
        match at.input() {
            Some(Argument::Parameter(name)) => {
                let own = self.trace.shape(name).to_vec();
                self.repeated_parameter(name.clone(), &own, made);
                Ok(())
            }
            Some(Argument::Value(value)) if let Some(Seen::Reshaped(name, own)) = self.seen(*value).cloned() => {
                self.repeated_parameter(name, &own, made);
                Ok(())
            }
            Some(Argument::Value(value)) if self.shape(*value).as_ref() == Some(&made.shape) => self.same(at),
            Some(Argument::Value(value))
                if self.shape(*value).is_some_and(|own| {
                    own.len() == made.shape.len()
                        && own.iter().zip(&made.shape).all(|(own, made)| *own == 1 || own == made)
                }) =>
            {
                self.is(made.value, Seen::Repeated(*value));
                Ok(())
            }
            Some(Argument::Value(value))
                if let Some(own) = self.shape(*value)
                    && let Some((axis, times)) = repeats(&own, &made.shape) =>
            {
                let apart = [&own[..axis], &[times], &own[axis..]].concat();
                self.repeated_along(at, *value, (axis, apart))
            }
            _ => Err(at.refuse("it repeats a tensor", REPEATED)),
        }
    }
}

/// The only axis beside the samples along which a tensor of one shape is there several times in another one, and how
/// often.
fn repeats(own: &[usize], made: &[usize]) -> Option<(usize, usize)> {
    let mut others = own.iter().zip(made).enumerate().filter(|(_, (own, made))| own != made);
    let (axis, (own_extent, extent)) = others.next().filter(|(axis, _)| *axis > 0 && own.len() == made.len())?;
    (others.next().is_none() && extent.is_multiple_of(*own_extent)).then(|| (axis, extent / own_extent))
}

/// First index and number of the elements from `start` to before `stop`, in Python's notation; `None` if there are
/// none.
pub(crate) fn range(start: Option<i64>, stop: Option<i64>, extent: usize) -> Option<(usize, usize)> {
    let count = i64::try_from(extent).ok()?;
    let place = |index: i64| if index < 0 { index.saturating_add(count).max(0) } else { index.min(count) };
    let (start, stop) = (place(start.unwrap_or(0)), place(stop.unwrap_or(count)));
    let size = usize::try_from(stop - start).ok().filter(|size| *size > 0)?;
    Some((usize::try_from(start).ok()?, size))
}
