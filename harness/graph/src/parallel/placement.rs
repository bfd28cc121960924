//! Which part of a tensor a rank has.

use crate::tensor::Shape;
use std::{fmt, ops::Range};

/// A tensor that is divided along one of its axes. The axis consists of runs, each of which is divided equally: rows of
/// queries, keys and values in one matrix are three runs, and each rank has a part of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The axis.
    pub axis: usize,
    /// The extents of its runs. Their sum is the extent of the axis.
    pub runs: Vec<usize>,
}

impl Part {
    /// An axis of a shape as one run.
    pub fn of(shape: &Shape, axis: usize) -> Self {
        Self { axis, runs: vec![shape[axis]] }
    }

    /// The same runs of another axis.
    #[must_use]
    pub fn along(&self, axis: usize) -> Self {
        Self { axis, runs: self.runs.clone() }
    }

    /// Whether every run can be divided into this many equal parts.
    pub fn divides(&self, ranks: usize) -> bool {
        self.runs.iter().all(|run| run.is_multiple_of(ranks))
    }

    /// The shape of the part of a rank.
    pub fn local(&self, shape: &Shape, ranks: usize) -> Shape {
        let mut local = shape.to_vec();
        local[self.axis] /= ranks;
        local.into()
    }

    /// What the rank at a place has of the axis, in order.
    pub fn ranges(&self, place: usize, ranks: usize) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        self.runs.iter().map(move |run| {
            let own = run / ranks;
            let first = start + place * own;
            start += run;
            first..first + own
        })
    }

    /// The axis after a reshape, if one axis of the new shape is divided in the same way.
    ///
    /// Both shapes are read as one list of elements in row-major order. The part of a rank consists of runs of it; an
    /// axis of the new shape fits if all its runs are whole rows of what follows it, and equal for all that is before.
    pub fn reshaped(&self, from: &Shape, to: &Shape, ranks: usize) -> Option<Self> {
        let before: usize = from[..self.axis].iter().product();
        let behind: usize = from[self.axis + 1..].iter().product();
        let runs: Vec<usize> = std::iter::repeat_n(&self.runs, before).flatten().map(|run| run * behind).collect();
        let fits = |axis: usize| {
            let before: usize = to[..axis].iter().product();
            let behind: usize = to[axis + 1..].iter().product();
            let (each, rest) = (runs.len().checked_div(before)?, runs.len().checked_rem(before)?);
            let own = runs.get(..each).filter(|own| rest == 0 && !own.is_empty())?;
            let equal = runs.chunks(each).all(|other| other == own);
            let whole = own.iter().all(|run| run.is_multiple_of(behind * ranks));
            let own: Vec<usize> = own.iter().map(|run| run / behind.max(1)).collect();
            (equal && whole && own.iter().sum::<usize>() == to[axis]).then_some(Self { axis, runs: own })
        };
        (0..to.len()).find_map(fits)
    }
}

/// Which part of a tensor the ranks along an axis of the mesh have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each rank has the whole tensor.
    Whole,
    /// Each rank has a part.
    Split(Part),
    /// The tensor is the sum of what the ranks have.
    Partial,
    /// Each rank has something of its own.
    Local,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Split(Part { axis, runs }) if runs.len() == 1 => write!(f, "split along axis {axis}"),
            Self::Split(Part { axis, runs }) => write!(f, "split along axis {axis} in runs of {runs:?}"),
            Self::Partial => f.write_str("partial sum"),
            Self::Local => f.write_str("own values"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reshaped(axis: usize, runs: &[usize], from: &[usize], to: &[usize]) -> Option<(usize, Vec<usize>)> {
        let part = Part { axis, runs: runs.to_vec() };
        part.reshaped(&from.into(), &to.into(), 2).map(|part| (part.axis, part.runs))
    }

    #[test]
    fn heads_of_one_matrix_of_queries_keys_and_values() {
        // Rows of 12 heads of 64, three times.
        let found = reshaped(2, &[12, 12, 12], &[1, 8, 36, 64], &[1, 8, 2304]);
        assert_eq!(found, Some((2, vec![768, 768, 768])));
        assert_eq!(reshaped(2, &[768, 768, 768], &[1, 8, 2304], &[1, 8, 36, 64]), Some((2, vec![12, 12, 12])));
    }

    #[test]
    fn heads_of_a_group_stay_together() {
        // Four heads are two groups of two: half of the heads is one group.
        assert_eq!(reshaped(1, &[4], &[1, 4, 8, 16], &[1, 2, 16, 16]), Some((1, vec![2])));
        // Two heads are one group of two: half of the heads is half of the rows of the group.
        assert_eq!(reshaped(1, &[2], &[1, 2, 8, 16], &[1, 1, 16, 16]), Some((2, vec![16])));
        // Half of the tokens is a part of the rows of each head.
        assert_eq!(reshaped(2, &[8], &[1, 4, 8, 16], &[1, 2, 16, 16]), Some((2, vec![8, 8])));
    }

    #[test]
    fn samples_and_tokens_as_rows() {
        assert_eq!(reshaped(0, &[4], &[4, 6, 5], &[24, 5]), Some((0, vec![24])));
        assert_eq!(reshaped(1, &[6], &[4, 6, 5], &[24, 5]), Some((0, vec![6, 6, 6, 6])));
        assert_eq!(reshaped(0, &[6, 6, 6, 6], &[24, 5], &[4, 6, 5]), Some((1, vec![6])));
        assert_eq!(reshaped(2, &[6], &[4, 5, 6], &[4, 2, 15]), None);
    }

    #[test]
    fn ranges_of_runs() {
        let part = Part { axis: 0, runs: vec![4, 2] };
        assert_eq!(part.ranges(1, 2).collect::<Vec<_>>(), [2..4, 5..6]);
        assert!(part.divides(2) && !part.divides(4));
    }
}
