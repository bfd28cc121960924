//! Tensors of which a part is overwritten: what stays before and behind it, and the new part in between.

use crate::Refusal;
use crate::arguments::{At, wrapped};
use crate::axes::range;
use crate::constant::Constant;
use crate::joins::along;
use crate::operation::{Tensor, What};
use crate::products::Place;
use crate::reader::{Reader, Seen};
use crate::trace::{Argument, Made};
use crate::view::View;

const WRITTEN: &str = "a part of a tensor is overwritten";
const NEAREST: &str =
    "`concat` joins what is before a range of channels, rows or columns, the range, and what is behind it";
const UNSET: &str = "it uses numbers that were never set";

/// A range of an axis: the axis, the first index, the number of indices.
pub(crate) type Range = (usize, usize, usize);

/// A range, and what was written to it.
pub(crate) type Piece = (Range, Tensor);

impl Reader<'_> {
    /// A tensor whose numbers are set later, if at all.
    pub(crate) fn unset(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        at.told_by_the_result();
        let value = at.made()?.value;
        self.is(value, Seen::Unsaid(UNSET));
        self.pieces.insert(value, Vec::new());
        Ok(())
    }

    /// PyTorch's `x[key] = value`.
    pub(crate) fn overwritten(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if self.bias_cut(at)?.is_some() {
            return Ok(());
        }
        let (before, value) = (at.units.len(), at.made()?.value);
        if let Err(refusal) = self.with_ranges(at) {
            // What is changed in place need not be used again, but for its part.
            at.units.truncate(before);
            at.told_by_the_result();
            self.is(value, Seen::Unsaid(WRITTEN));
            self.refused.insert(value, refusal);
        }
        Ok(())
    }

    fn with_ranges(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (input, made) = (at.input(), at.made()?);
        let (ranges, kept) = self.written_ranges(at, made)?;
        let mut part = made.shape.clone();
        ranges.iter().for_each(|(axis, _, size)| part[*axis] = *size);
        if part.first() != Some(&self.trace.batch) || !made.is_real() {
            return Err(at.refuse(WRITTEN, NEAREST));
        }
        let value = self.written_value(at, part, &kept)?;
        let pieces = input.and_then(Argument::value).and_then(|value| self.pieces.get(&value)).cloned();
        let result = match pieces {
            None => {
                let x = self.operand(at, input)?;
                self.with_part(at, x, &ranges, value)?
            }
            Some(mut pieces) => {
                let [own] = ranges[..] else { return Err(at.refuse(WRITTEN, NEAREST)) };
                pieces.push((own, value));
                pieces.sort_by_key(|((_, from, _), _)| *from);
                let (axis, extent) = (own.0, made.shape[own.0]);
                let next = |end: Option<usize>, ((along, from, size), _): &Piece| {
                    end.filter(|end| along == &axis && end == from).map(|end| end + size)
                };
                if pieces.iter().fold(Some(0), next) != Some(extent) {
                    self.is(made.value, Seen::Unsaid(UNSET));
                    self.pieces.insert(made.value, pieces);
                    return Ok(());
                }
                let parts = pieces.into_iter().map(|(_, part)| part).collect();
                self.joined_along(at, axis, parts, made.shape.clone())?
            }
        };
        self.is(made.value, Seen::Of(result, Vec::new()));
        Ok(())
    }

    /// The ranges that a key names, and for each axis of the tensor whether the value has it.
    fn written_ranges(&self, at: &mut At<'_>, made: &Made) -> Result<(Vec<Range>, Vec<bool>), Refusal> {
        let key = at.argument(1, &["key"]).ok_or_else(|| at.unknown_form("key"))?;
        let parts = if let Argument::List(parts) = key { &parts[..] } else { std::slice::from_ref(key) };
        let named = parts.iter().filter(|part| !matches!(part, Argument::Ellipsis(()))).count();
        let (mut ranges, mut kept) = (Vec::new(), Vec::new());
        for part in parts {
            let (axis, extent) = (kept.len(), made.shape.get(kept.len()).copied());
            match (part, extent) {
                (Argument::Ellipsis(()), _) => kept.resize(axis + made.shape.len().saturating_sub(named), true),
                (Argument::Slice([start, stop, None | Some(1)]), Some(extent)) => {
                    let (from, size) = range(*start, *stop, extent).ok_or_else(|| at.unknown_form("key"))?;
                    ranges.extend((size < extent).then_some((axis, from, size)));
                    kept.push(true);
                }
                (Argument::Int(index), Some(extent)) => {
                    let index = wrapped(*index, extent).ok_or_else(|| at.unknown_form("key"))?;
                    ranges.push((axis, index, 1));
                    kept.push(false);
                }
                _ => return Err(at.refuse("the elements that are overwritten are no ranges", NEAREST)),
            }
        }
        kept.resize(made.shape.len(), true);
        Ok((ranges, kept))
    }

    /// What is written, in the shape of the part: a number, or a tensor that may lack axes or repeat along them.
    fn written_value(&mut self, at: &mut At<'_>, part: Vec<usize>, kept: &[bool]) -> Result<Tensor, Refusal> {
        let value = at.argument(2, &["value"]).ok_or_else(|| at.unknown_form("value"))?;
        if let Some(number) = value.number() {
            let each = Constant::new(part.clone(), std::iter::repeat_n(number, part.iter().skip(1).product()));
            let place = Place { module: at.module, at: &at.call.at, operator: &at.call.function };
            return self.constant_as_tensor(&each, part, place, at.units);
        }
        let value = self.beside_values(at, value, kept.iter().filter(|is_kept| **is_kept).count())?;
        let shape = |value: usize| self.shape(value).or_else(|| Some(self.made(value)?.shape.clone()));
        let of = value.value().and_then(shape).ok_or_else(|| at.unknown_form("value"))?;
        let mut own = of.iter().copied();
        let once: Vec<usize> = kept.iter().map(|is_kept| if *is_kept { own.next().unwrap_or(0) } else { 1 }).collect();
        if of.len() != kept.iter().filter(|is_kept| **is_kept).count()
            || once.iter().zip(&part).any(|(once, all)| *once != 1 && once != all)
        {
            return Err(at.refuse(format!("{of:?} is written to a part {part:?}"), NEAREST));
        }
        let views = if once == of { Vec::new() } else { vec![View::Reshape(once.clone())] };
        let x = self.operand_viewed(at, Some(&value), &views)?;
        if once == part {
            return Ok(x);
        }
        let x = self.new_value(Seen::Of(x, Vec::new()));
        let all = self.new_value(Seen::Repeated(x));
        let dtype = at.made()?.dtype.clone();
        self.made.insert(all, Made { value: all, shape: part, dtype });
        self.operand(at, Some(&Argument::Value(all)))
    }

    /// A tensor with another one in the place of these ranges.
    fn with_part(&mut self, at: &mut At<'_>, x: Tensor, ranges: &[Range], part: Tensor) -> Result<Tensor, Refusal> {
        let Some(((axis, from, size), rest)) = ranges.split_first() else { return Ok(part) };
        let shape = self.shape_of(x).to_vec();
        let slice = |from: usize, size: usize| vec![View::Slice(*axis, from, size)];
        let part = match rest {
            [] => part,
            _ => {
                let inside = self.view(at, x, slice(*from, *size))?;
                self.with_part(at, inside, rest, part)?
            }
        };
        let mut parts = Vec::new();
        if *from > 0 {
            parts.push(self.view(at, x, slice(0, *from))?);
        }
        parts.push(part);
        let end = from + size;
        if end < shape[*axis] {
            parts.push(self.view(at, x, slice(end, shape[*axis] - end))?);
        }
        self.joined_along(at, *axis, parts, shape)
    }

    fn joined_along(
        &mut self,
        at: &mut At<'_>,
        axis: usize,
        parts: Vec<Tensor>,
        shape: Vec<usize>,
    ) -> Result<Tensor, Refusal> {
        let along = along(axis).ok_or_else(|| at.refuse(WRITTEN, NEAREST))?;
        Ok(if let [only] = parts[..] { only } else { self.inner(at, What::Concat(along), parts, shape) })
    }
}
