//! Combines views of PyTorch (view, permute, select and so on) until layers of a recipe can express them.

use zoo_recipe::Layer;
use zoo_recipe::layers::{ChannelShuffle, Flatten, Permute, Reshape, Slice, Take, Tokens};
use zoo_recipe::schema::{Count, Size};

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
        }
    }

    /// Whether samples stay separate: the batch stays the first axis.
    fn keeps_samples(&self, from: &[usize]) -> bool {
        match self {
            Self::Reshape(shape) => shape.first() == from.first(),
            Self::Permute(order) => order.first() == Some(&0),
            Self::Select(axis, _) | Self::Slice(axis, ..) => *axis > 0,
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
        };
        if !is_identity {
            found.push(next);
        }
    }
    if found.len() < views.len() { simplified(from, &found) } else { found }
}

/// Layers that do the same with each sample of a tensor of this shape; `None` if samples are mixed or the batch is
/// moved.
pub fn layers(from: &[usize], views: &[View]) -> Option<Vec<Layer>> {
    let mut rest = &simplified(from, views)[..];
    let mut shape = from.to_vec();
    let mut found = Vec::new();
    while let Some(first) = rest.first() {
        let (layer, taken) = match (rest, &shape[..]) {
            ([View::Reshape(split), View::Permute(order), View::Reshape(joined), ..], [n, c, h, w])
                if joined == &shape
                    && order == &[0, 2, 1, 3, 4]
                    && split.len() == 5
                    && [split[0], split[1] * split[2], split[3], split[4]] == [*n, *c, *h, *w] =>
            {
                (Layer::ChannelShuffle(ChannelShuffle { groups: Size(split[1]) }), 3)
            }
            ([View::Reshape(flat), View::Permute(order), ..], [n, c, h, w])
                if order == &[0, 2, 1] && flat[..] == [*n, *c, h * w] =>
            {
                (Layer::Tokens(Tokens { size: None }), 2)
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
            ([View::Slice(axis, from, size), ..], _) => {
                (Layer::Slice(Slice { axis: Count(axis - 1), from: Count(*from), size: Size(*size) }), 1)
            }
            ([], _) => break,
        };
        shape = rest[..taken].iter().fold(shape, |shape, view| view.shape(&shape));
        rest = &rest[taken..];
        found.push(layer);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn tokens_and_shuffles_are_found() {
        let tokens = [View::Reshape(vec![5, 8, 12]), View::Permute(vec![0, 2, 1])];
        assert_eq!(layers(&[5, 8, 3, 4], &tokens), Some(vec![Layer::Tokens(Tokens { size: None })]));
        let shuffle =
            [View::Reshape(vec![5, 2, 4, 3, 3]), View::Permute(vec![0, 2, 1, 3, 4]), View::Reshape(vec![5, 8, 3, 3])];
        let groups = Layer::ChannelShuffle(ChannelShuffle { groups: Size(2) });
        assert_eq!(layers(&[5, 8, 3, 3], &shuffle), Some(vec![groups]));
    }

    #[test]
    fn what_mixes_samples_has_no_layer() {
        assert_eq!(layers(&[5, 8, 3], &[View::Permute(vec![1, 0, 2])]), None);
        assert_eq!(layers(&[5, 8, 3], &[View::Reshape(vec![40, 3])]), None);
    }
}
