//! Combines views of PyTorch (view, permute, select and so on) until layers of a recipe can express them.

use zoo_recipe::Layer;
use zoo_recipe::layers::{ChannelShuffle, Flatten, Pad, PadMode, Permute, Reshape, Roll, Slice, Take};
use zoo_recipe::schema::{Count, Padding, Size};

use crate::operation::Windows;
use crate::patches::merged;
use crate::tokens::{grid, tokens};

/// One step. The batch is axis 0.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// The same elements, row-major, with this shape.
    Reshape(Vec<usize>),
    /// For each axis of the result, the axis of the operand.
    Permute(Vec<usize>),
    /// Selects an index of an axis and removes the axis.
    Select(usize, usize),
    /// A range of an axis: the start index and the length.
    Slice(usize, usize, usize),
    /// Every so many indices of an axis: the axis, the first index, the step.
    Every(usize, usize, usize),
    /// By axis, how far elements move towards its end, and from there to its beginning.
    Roll(Vec<i64>),
    /// By axis, the number of zeros behind its elements.
    Fill(Vec<usize>),
}

/// What a recipe has for views.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// A layer.
    Layer(Box<Layer>),
    /// A map becomes windows.
    Cut(Windows),
    /// Windows become a map.
    Join(Windows),
}

impl View {
    /// The shape of the view of a tensor with this shape.
    pub fn shape(&self, from: &[usize]) -> Vec<usize> {
        match self {
            Self::Reshape(shape) => shape.clone(),
            Self::Permute(order) => order.iter().filter_map(|axis| from.get(*axis).copied()).collect(),
            Self::Select(axis, _) => {
                from.iter().enumerate().filter(|(at, _)| at != axis).map(|(_, extent)| *extent).collect()
            }
            Self::Slice(axis, _, size) => {
                from.iter().enumerate().map(|(at, extent)| if at == *axis { *size } else { *extent }).collect()
            }
            Self::Every(axis, first, step) => {
                let left = |extent: usize| extent.saturating_sub(*first).div_ceil((*step).max(1));
                from.iter().enumerate().map(|(at, extent)| if at == *axis { left(*extent) } else { *extent }).collect()
            }
            Self::Roll(_) => from.to_vec(),
            Self::Fill(after) => from.iter().zip(after).map(|(extent, after)| extent.saturating_add(*after)).collect(),
        }
    }

    /// The same of a tensor that has an axis of `n` samples before all others.
    pub fn by_sample(&self, n: usize) -> Self {
        match self {
            Self::Reshape(to) => Self::Reshape([&[n], &to[..]].concat()),
            Self::Permute(order) => {
                Self::Permute(std::iter::once(0).chain(order.iter().map(|axis| axis + 1)).collect())
            }
            Self::Select(axis, index) => Self::Select(axis + 1, *index),
            Self::Slice(axis, from, size) => Self::Slice(axis + 1, *from, *size),
            Self::Every(axis, first, step) => Self::Every(axis + 1, *first, *step),
            Self::Roll(by) => Self::Roll([&[0], &by[..]].concat()),
            Self::Fill(after) => Self::Fill([&[0], &after[..]].concat()),
        }
    }

    /// Whether samples stay separate: the batch stays the first axis.
    fn keeps_samples(&self, from: &[usize]) -> bool {
        match self {
            Self::Reshape(shape) => shape.first() == from.first(),
            Self::Permute(order) => order.first() == Some(&0),
            Self::Select(axis, _) | Self::Slice(axis, ..) | Self::Every(axis, ..) => *axis > 0,
            Self::Roll(by) => by.first() == Some(&0),
            Self::Fill(after) => after.first() == Some(&0),
        }
    }
}

/// The shape after several views.
pub fn shape(from: &[usize], views: &[View]) -> Vec<usize> {
    views.iter().fold(from.to_vec(), |shape, view| view.shape(&shape))
}

/// The same view in as few steps as possible.
pub fn simplified(from: &[usize], views: &[View]) -> Vec<View> {
    let mut found: Vec<View> = Vec::new();
    for view in views {
        let next = match (found.last(), view) {
            (Some(View::Reshape(_)), View::Reshape(_)) => {
                found.pop();
                view.clone()
            }
            // An index that stays an axis of one element.
            (Some(View::Select(axis, index)), View::Reshape(to))
                if *to == View::Slice(*axis, *index, 1).shape(&shape(from, &found[..found.len() - 1])) =>
            {
                let slice = View::Slice(*axis, *index, 1);
                found.pop();
                slice
            }
            (Some(View::Reshape(to)), View::Select(axis, 0)) if to.get(*axis) == Some(&1) => {
                let mut to = to.clone();
                to.remove(*axis);
                found.pop();
                View::Reshape(to)
            }
            (Some(View::Permute(first)), View::Permute(second)) => {
                let joined = second.iter().filter_map(|axis| first.get(*axis).copied()).collect();
                found.pop();
                View::Permute(joined)
            }
            (Some(View::Permute(order)), View::Select(axis, index)) if let Some(source) = order.get(*axis).copied() => {
                // The selection comes first, so that the removed axis is not moved.
                let rest = order.iter().enumerate().filter(|(to, _)| to != axis);
                let rest = rest.map(|(_, from)| if *from > source { from - 1 } else { *from }).collect();
                found.pop();
                found.push(View::Select(source, *index));
                View::Permute(rest)
            }
            _ => view.clone(),
        };
        let before = shape(from, &found);
        let is_identity = match &next {
            View::Reshape(shape) => *shape == before,
            View::Permute(order) => order.iter().enumerate().all(|(to, from)| to == *from),
            View::Select(..) => false,
            View::Slice(axis, _, size) => before.get(*axis) == Some(size),
            View::Every(_, first, step) => (*first, *step) == (0, 1),
            View::Roll(by) => by.iter().all(|by| *by == 0),
            View::Fill(after) => after.iter().all(|after| *after == 0),
        };
        if !is_identity {
            found.push(next);
        }
    }
    if found.len() < views.len() { simplified(from, &found) } else { found }
}

/// The same views with samples as an axis of their own, where they are one axis with others for a while. `None` if that
/// axis moves, or stays until the end.
fn apart(from: &[usize], views: &[View]) -> Option<Vec<View>> {
    let n = *from.first().filter(|n| **n > 0)?;
    let (mut found, mut joined) = (Vec::new(), false);
    for view in views {
        found.push(match view {
            View::Reshape(to) => match to.split_first()? {
                (first, _) if *first == n => {
                    joined = false;
                    view.clone()
                }
                (first, rest) if first.is_multiple_of(n) => {
                    joined = true;
                    View::Reshape([&[n, first / n], rest].concat())
                }
                _ => return None,
            },
            other if !joined => other.clone(),
            View::Permute(order) => {
                let (0, rest) = (*order.first()?, &order[1..]) else { return None };
                View::Permute([0, 1].into_iter().chain(rest.iter().map(|axis| axis + 1)).collect())
            }
            View::Select(axis @ 1.., index) => View::Select(axis + 1, *index),
            View::Slice(axis @ 1.., start, size) => View::Slice(axis + 1, *start, *size),
            View::Every(axis @ 1.., first, step) => View::Every(axis + 1, *first, *step),
            View::Roll(by) if by.first() == Some(&0) => View::Roll([&[0], &by[..]].concat()),
            View::Fill(after) if after.first() == Some(&0) => View::Fill([&[0], &after[..]].concat()),
            View::Select(..) | View::Slice(..) | View::Every(..) | View::Roll(_) | View::Fill(_) => return None,
        });
    }
    (!joined).then_some(found)
}

/// A map `[n, h, w, c]` as windows `[n, windows, tokens, c]`: filled up with zeros, moved, cut; and the number of
/// views.
fn cut(shape: &[usize], views: &[View]) -> Option<(Windows, usize)> {
    let &[n, height, width, c] = shape else { return None };
    let (fill, rest) = match views {
        [View::Fill(after), rest @ ..] => (<[usize; 4]>::try_from(&after[..]).ok()?, rest),
        _ => ([0; 4], views),
    };
    let (moved, rest) = match rest {
        [View::Roll(by), rest @ ..] => (<[i64; 4]>::try_from(&by[..]).ok()?, rest),
        _ => ([0; 4], rest),
    };
    let [View::Reshape(apart), View::Permute(order), View::Reshape(together), ..] = rest else { return None };
    let &[samples, rows, h, columns, w, channels] = &apart[..] else { return None };
    // The axis of a single window may be left out.
    let is_whole = rows * columns == 1 && together == &[n, h * w, c];
    let is_cut = order == &[0, 1, 3, 2, 4, 5] && (is_whole || together == &[n, rows * columns, h * w, c]);
    let fits = [samples, rows * h, columns * w, channels]
        == [n, height.saturating_add(fill[1]), width.saturating_add(fill[2]), c]
        && [fill[0], fill[3]] == [0, 0]
        && fill[1] < h
        && fill[2] < w;
    let shift = [moved[1], moved[2]].map(|by| usize::try_from(-by).ok());
    let ([Some(down), Some(across)], [0, _, _, 0]) = (shift, moved) else { return None };
    let windows = Windows { size: [h, w], map: [height, width], shift: [down, across] };
    (is_cut && fits && windows.one_shift().is_some()).then_some((windows, views.len() - rest.len() + 3))
}

/// Windows `[n, windows, tokens, c]` as the map `[n, h, w, c]` that they are of: the opposite of [`cut`].
fn join(shape: &[usize], views: &[View], windows: &Windows) -> Option<usize> {
    let (&[n, .., c], 3 | 4) = (shape, shape.len()) else { return None };
    let ([rows, columns], [h, w], [height, width]) = (windows.grid(), windows.size, windows.map);
    let mut wanted = vec![
        View::Reshape(vec![n, rows, columns, h, w, c]),
        View::Permute(vec![0, 1, 3, 2, 4, 5]),
        View::Reshape(vec![n, rows.saturating_mul(h), columns.saturating_mul(w), c]),
    ];
    if windows.shift != [0, 0] {
        let by = windows.shift.map(|by| i64::try_from(by).unwrap_or(i64::MAX));
        wanted.push(View::Roll(vec![0, by[0], by[1], 0]));
    }
    if rows.saturating_mul(h) != height {
        wanted.push(View::Slice(1, 0, height));
    }
    if columns.saturating_mul(w) != width {
        wanted.push(View::Slice(2, 0, width));
    }
    if views.starts_with(&wanted) {
        return Some(wanted.len());
    }
    // The map may get another shape at once.
    let is_plain = wanted.len() == 3 && matches!(views.get(2), Some(View::Reshape(_)));
    (is_plain && views.starts_with(&wanted[..2])).then_some(2)
}

/// Whether a shape is another one with this axis as parts and what is in each.
fn is_split(whole: &[usize], apart: &[usize], axis: usize) -> bool {
    apart.len() == whole.len() + 1
        && apart[..axis] == whole[..axis]
        && apart[axis + 2..] == whole[axis + 1..]
        && apart[axis].checked_mul(apart[axis + 1]) == whole.get(axis).copied()
}

/// The map `[n, h, w, c]` that tokens `[n, t, c]` are cut into windows as.
fn map_of_tokens(shape: &[usize], views: &[View]) -> Option<Vec<usize>> {
    let ([n, t, c], [View::Reshape(apart), View::Permute(order), View::Reshape(_), ..]) = (shape, views) else {
        return None;
    };
    match apart[..] {
        [samples, rows, h, columns, w, channels] if (&samples, &channels) == (n, c) => {
            let (height, width) = (rows.checked_mul(h)?, columns.checked_mul(w)?);
            (order == &[0, 1, 3, 2, 4, 5] && height.checked_mul(width) == Some(*t)).then(|| vec![*n, height, width, *c])
        }
        _ => None,
    }
}

/// Layers that do the same to each sample of a tensor of this shape, in these windows; `None` where samples are mixed,
/// or the batch moves.
pub fn pieces(from: &[usize], views: &[View], windows: Option<&Windows>) -> Option<Vec<Piece>> {
    let apart = apart(from, views);
    let mut rest = &simplified(from, apart.as_deref().unwrap_or(views))[..];
    let mut shape = from.to_vec();
    let mut inside = windows.cloned();
    let mut found = Vec::new();
    while let Some(first) = rest.first() {
        if inside.is_none()
            && let Some(map) = map_of_tokens(&shape, rest)
        {
            let to = map.iter().skip(1).map(|extent| Size(*extent)).collect();
            found.push(Piece::Layer(Box::new(Layer::Reshape(Reshape { to }))));
            shape = map;
        }
        let whole = match &inside {
            Some(windows) => join(&shape, rest, windows).map(|taken| (Piece::Join(windows.clone()), taken)),
            None => cut(&shape, rest).map(|(windows, taken)| (Piece::Cut(windows), taken)),
        };
        if let Some((piece, taken)) = whole {
            let next = rest[..taken].iter().fold(shape.clone(), |shape, view| view.shape(&shape));
            (inside, shape) = match &piece {
                Piece::Cut(windows) => (Some(windows.clone()), next),
                Piece::Join(Windows { map: [height, width], .. }) => {
                    let ends = [shape.first(), Some(height), Some(width), shape.last()];
                    (None, ends.into_iter().flatten().copied().collect())
                }
                Piece::Layer(_) => (None, next),
            };
            found.push(piece);
            rest = &rest[taken..];
            continue;
        }
        let (layer, taken) = match (rest, &shape[..]) {
            _ if let Some(found) =
                merged(&shape, rest).or_else(|| tokens(&shape, rest)).or_else(|| grid(&shape, rest)) =>
            {
                found
            }
            ([View::Reshape(split), View::Permute(order), View::Reshape(joined), ..], [n, c, h, w])
                if joined == &shape
                    && order == &[0, 2, 1, 3, 4]
                    && split.len() == 5
                    && [split[0], split[1] * split[2], split[3], split[4]] == [*n, *c, *h, *w] =>
            {
                (Layer::ChannelShuffle(ChannelShuffle { groups: Size(split[1]) }), 3)
            }
            // One of equal parts of an axis.
            ([View::Reshape(apart), View::Select(axis, index), ..], _)
                if *axis > 0 && is_split(&shape, apart, *axis) && apart[0] == shape[0] =>
            {
                let size = apart[axis + 1];
                (Layer::Slice(Slice { axis: Count(axis - 1), from: Count(index * size), size: Size(size) }), 2)
            }
            _ if !first.keeps_samples(&shape) => return None,
            ([View::Reshape(to), ..], _) if to.len() == 2 && shape.len() > 2 => (Layer::Flatten(Flatten {}), 1),
            ([View::Reshape(to), ..], _) => {
                let to = to.iter().skip(1).map(|extent| Size(*extent)).collect();
                (Layer::Reshape(Reshape { to }), 1)
            }
            ([View::Permute(order), ..], _) => {
                let order = order.iter().skip(1).map(|axis| axis - 1).collect();
                (Layer::Permute(Permute { order }), 1)
            }
            ([View::Select(axis, index), ..], _) => {
                (Layer::Take(Take { axis: Count(axis - 1), index: Count(*index) }), 1)
            }
            ([View::Roll(by), ..], _) => {
                let by: Option<Vec<i32>> = by.iter().skip(1).map(|by| i32::try_from(*by).ok()).collect();
                (Layer::Roll(Roll { by: by? }), 1)
            }
            ([View::Fill(after), ..], [_, _, _, _]) if after.last() == Some(&0) => {
                // `pad` takes maps, [C, H, W].
                let order = |order: [usize; 3]| Layer::Permute(Permute { order: order.to_vec() });
                let pad = Pad { size: Padding([0, after[1], 0, after[2]]), mode: PadMode::Zeros };
                found.extend([order([2, 0, 1]), Layer::Pad(pad)].map(|layer| Piece::Layer(Box::new(layer))));
                (order([1, 2, 0]), 1)
            }
            ([View::Every(axis, first, step), ..], _) if *first < *step && shape[*axis].is_multiple_of(*step) => {
                let mut apart = shape[1..].to_vec();
                apart.splice(axis - 1..*axis, [shape[*axis] / step, *step]);
                let apart = Reshape { to: apart.into_iter().map(Size).collect() };
                found.push(Piece::Layer(Box::new(Layer::Reshape(apart))));
                (Layer::Take(Take { axis: Count(*axis), index: Count(*first) }), 1)
            }
            ([View::Fill(_) | View::Every(..), ..], _) => return None,
            ([View::Slice(axis, from, size), ..], _) => {
                (Layer::Slice(Slice { axis: Count(axis - 1), from: Count(*from), size: Size(*size) }), 1)
            }
            ([], _) => break,
        };
        shape = rest[..taken].iter().fold(shape, |shape, view| view.shape(&shape));
        rest = &rest[taken..];
        found.push(Piece::Layer(Box::new(layer)));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_recipe::layers::Tokens;

    #[test]
    fn steps_that_undo_each_other_vanish() {
        let views = [View::Permute(vec![1, 0, 2]), View::Permute(vec![1, 0, 2])];
        assert_eq!(simplified(&[5, 7, 9], &views), []);
        let views = [View::Reshape(vec![5, 63]), View::Reshape(vec![5, 7, 9])];
        assert_eq!(simplified(&[5, 7, 9], &views), []);
    }

    #[test]
    fn what_goes_away_is_taken_before_axes_move() {
        let views = [View::Permute(vec![2, 0, 3, 1, 4]), View::Select(0, 1)];
        assert_eq!(simplified(&[5, 7, 3, 2, 4], &views), [View::Select(2, 1), View::Permute(vec![0, 2, 1, 3])]);
        assert_eq!(shape(&[5, 7, 3, 2, 4], &views), shape(&[5, 7, 3, 2, 4], &simplified(&[5, 7, 3, 2, 4], &views)));
    }

    #[test]
    fn an_index_that_stays_an_axis_is_a_slice() {
        let views = [View::Select(1, 3), View::Reshape(vec![5, 1, 9])];
        assert_eq!(simplified(&[5, 7, 9], &views), [View::Slice(1, 3, 1)]);
        let other = [View::Select(1, 3), View::Reshape(vec![5, 9, 1])];
        assert_eq!(simplified(&[5, 7, 9], &other), other);
    }

    fn layers(from: &[usize], views: &[View]) -> Option<Vec<Layer>> {
        let layer = |piece| match piece {
            Piece::Layer(layer) => Some(*layer),
            Piece::Cut(_) | Piece::Join(_) => None,
        };
        pieces(from, views, None)?.into_iter().map(layer).collect()
    }

    #[test]
    fn windows_are_cut_and_joined() {
        let views = [
            View::Fill(vec![0, 1, 2, 0]),
            View::Roll(vec![0, -1, -1, 0]),
            View::Reshape(vec![5, 2, 4, 3, 4, 6]),
            View::Permute(vec![0, 1, 3, 2, 4, 5]),
            View::Reshape(vec![5, 6, 16, 6]),
        ];
        let windows = Windows { size: [4, 4], map: [7, 10], shift: [1, 1] };
        let from = [5, 7, 10, 6];
        assert_eq!(pieces(&from, &views, None), Some(vec![Piece::Cut(windows.clone())]));
        let back = [
            View::Reshape(vec![5, 2, 3, 4, 4, 8]),
            View::Permute(vec![0, 1, 3, 2, 4, 5]),
            View::Reshape(vec![5, 8, 12, 8]),
            View::Roll(vec![0, 1, 1, 0]),
            View::Slice(1, 0, 7),
            View::Slice(2, 0, 10),
        ];
        let inside = [5, 6, 16, 8];
        assert_eq!(pieces(&inside, &back, Some(&windows)), Some(vec![Piece::Join(windows.clone())]));
        // Not cut off where it was filled up.
        let other = pieces(&inside, &back[..5], Some(&windows));
        assert!(other.is_none_or(|pieces| !pieces.contains(&Piece::Join(windows.clone()))));
        assert_eq!(windows.segments()[..16].iter().max(), Some(&0));
        assert_eq!(windows.segments()[80..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 2, 2, 2, 3]);
        // Two axes with windows beside each other are moved alike.
        let uneven = Windows { shift: [1, 2], ..windows };
        assert_eq!(
            (uneven.one_shift(), Windows { map: [4, 10], shift: [0, 2], ..uneven }.one_shift()),
            (None, Some(2))
        );
    }

    #[test]
    fn tokens_are_a_map_while_they_are_windows() {
        let views = [
            View::Reshape(vec![5, 2, 4, 3, 4, 6]),
            View::Permute(vec![0, 1, 3, 2, 4, 5]),
            View::Reshape(vec![5, 6, 16, 6]),
        ];
        let windows = Windows { size: [4, 4], map: [8, 12], shift: [0, 0] };
        let reshape = |to: &[usize]| {
            let to = to.iter().map(|extent| Size(*extent)).collect();
            Piece::Layer(Box::new(Layer::Reshape(Reshape { to })))
        };
        let cut = [reshape(&[8, 12, 6]), Piece::Cut(windows.clone())];
        assert_eq!(pieces(&[5, 96, 6], &views, None), Some(cut.to_vec()));
        let back = [
            View::Reshape(vec![5, 2, 3, 4, 4, 6]),
            View::Permute(vec![0, 1, 3, 2, 4, 5]),
            View::Reshape(vec![5, 96, 6]),
        ];
        let joined = [Piece::Join(windows.clone()), reshape(&[96, 6])];
        assert_eq!(pieces(&[5, 6, 16, 6], &back, Some(&windows)), Some(joined.to_vec()));
    }

    #[test]
    fn samples_are_one_axis_with_others_for_a_while() {
        // MobileViT: the pixels of each square of four become rows.
        let views = [
            View::Reshape(vec![5 * 8 * 2, 2, 3, 2]),
            View::Permute(vec![0, 2, 1, 3]),
            View::Reshape(vec![5, 8, 6, 4]),
            View::Permute(vec![0, 3, 2, 1]),
        ];
        let wanted = [
            Layer::Reshape(Reshape { to: [16, 2, 3, 2].map(Size).to_vec() }),
            Layer::Permute(Permute { order: vec![0, 2, 1, 3] }),
            Layer::Reshape(Reshape { to: [8, 6, 4].map(Size).to_vec() }),
            Layer::Permute(Permute { order: vec![2, 1, 0] }),
        ];
        assert_eq!(layers(&[5, 8, 4, 6], &views), Some(wanted.to_vec()));
        assert_eq!(layers(&[5, 8, 4, 6], &views[..2]), None);
        let moved = [View::Reshape(vec![10, 4, 6]), View::Permute(vec![1, 0, 2]), View::Reshape(vec![5, 8, 6])];
        assert_eq!(layers(&[5, 8, 6], &moved), None);
    }

    #[test]
    fn tokens_and_shuffles_are_found() {
        let tokens = [View::Reshape(vec![5, 8, 12]), View::Permute(vec![0, 2, 1])];
        assert_eq!(layers(&[5, 8, 3, 4], &tokens), Some(vec![Layer::Tokens(Tokens { size: None })]));
        let shuffle =
            [View::Reshape(vec![5, 2, 4, 3, 3]), View::Permute(vec![0, 2, 1, 3, 4]), View::Reshape(vec![5, 8, 3, 3])];
        let groups = Layer::ChannelShuffle(ChannelShuffle { groups: Size(2) });
        assert_eq!(layers(&[5, 8, 3, 3], &shuffle), Some(vec![groups]));
    }

    #[test]
    fn one_of_equal_parts_is_a_slice() {
        let part = |axis, from, size| Layer::Slice(Slice { axis: Count(axis), from: Count(from), size: Size(size) });
        let views = [View::Reshape(vec![5, 3, 4, 7]), View::Select(1, 2)];
        assert_eq!(layers(&[5, 12, 7], &views), Some(vec![part(0, 8, 4)]));
        let last = [View::Reshape(vec![5, 7, 2, 6]), View::Select(2, 0), View::Permute(vec![0, 2, 1])];
        let swap = Layer::Permute(Permute { order: vec![1, 0] });
        assert_eq!(layers(&[5, 7, 12], &last), Some(vec![part(1, 0, 6), swap]));
        // Every third, and parts of samples.
        let every = [View::Reshape(vec![5, 4, 3, 7]), View::Select(2, 2)];
        assert!(layers(&[5, 12, 7], &every).is_some_and(|layers| layers.len() == 2));
        assert_eq!(layers(&[6, 12], &[View::Reshape(vec![2, 3, 12]), View::Select(0, 1)]), None);
    }

    #[test]
    fn what_mixes_samples_has_no_layer() {
        assert_eq!(layers(&[5, 8, 3], &[View::Permute(vec![1, 0, 2])]), None);
        assert_eq!(layers(&[5, 8, 3], &[View::Reshape(vec![40, 3])]), None);
    }
}
