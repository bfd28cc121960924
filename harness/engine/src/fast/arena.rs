//! The memory of all values of a graph, in one piece.

use crate::KernelError;
use std::ops::Range;
use zoo_graph::Bytes;
use zoo_kernels::AlignedBuf;

/// f32 elements in ranges that a [`zoo_graph::MemoryPlan`] gives.
pub(super) struct Arena(AlignedBuf);

impl Arena {
    /// Zeros.
    pub fn of(bytes: Bytes) -> Self {
        Self(AlignedBuf::zeroed((bytes.0 as usize).div_ceil(size_of::<f32>())))
    }

    /// The elements of a range.
    pub fn at(&self, place: &Range<usize>) -> &[f32] {
        &self.0[place.clone()]
    }

    /// The elements of a range.
    pub fn at_mut(&mut self, place: &Range<usize>) -> &mut [f32] {
        &mut self.0[place.clone()]
    }

    /// Copies a range to another of the same length.
    pub fn copy(&mut self, from: &Range<usize>, to: &Range<usize>) {
        self.0.copy_within(from.clone(), to.start);
    }

    /// Ranges to be written, in the given order, and everything else.
    ///
    /// # Errors
    /// Two of the ranges overlap.
    pub fn split(&mut self, places: &[Range<usize>]) -> Result<(Vec<&mut [f32]>, Others<'_>), KernelError> {
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|r| places[*r].start);
        let (mut taken, mut pieces) = (Vec::with_capacity(places.len()), Vec::with_capacity(places.len() + 1));
        let (mut at, mut left) = (0, &mut self.0[..]);
        for r in order {
            let place = &places[r];
            let apart = || KernelError::Result { place: r, expected: "apart from the other results" };
            let before = place.start.checked_sub(at).ok_or_else(apart)?;
            let (piece, rest) = left.split_at_mut(before);
            let (result, rest) = rest.split_at_mut(place.len());
            pieces.push((at, &*piece));
            taken.push((r, result));
            (at, left) = (place.end, rest);
        }
        pieces.push((at, left));
        taken.sort_by_key(|(r, _)| *r);
        Ok((taken.into_iter().map(|(_, result)| result).collect(), Others(pieces)))
    }
}

/// What lies beside some ranges of an arena: pieces and where they begin, in order.
pub(super) struct Others<'a>(Vec<(usize, &'a [f32])>);

impl<'a> Others<'a> {
    /// The elements of a range, if it is in one piece.
    pub fn at(&self, place: &Range<usize>) -> Option<&'a [f32]> {
        let after = self.0.partition_point(|(start, _)| *start <= place.start);
        let (start, piece) = self.0.get(after.checked_sub(1)?)?;
        piece.get(place.start - start..place.end - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_can_be_written_while_the_rest_is_read() {
        let mut arena = Arena::of(Bytes(4 * 64));
        arena.at_mut(&(0..64)).iter_mut().enumerate().for_each(|(i, value)| *value = i as f32);
        let (results, others) = arena.split(&[32..48, 0..16]).unwrap();
        assert_eq!((results[0][0], results[1][15]), (32.0, 15.0));
        assert_eq!(others.at(&(16..32)).unwrap()[0], 16.0);
        assert_eq!(others.at(&(48..64)).unwrap()[15], 63.0);
        assert!(others.at(&(16..33)).is_none() && others.at(&(0..16)).is_none());
        assert!(arena.split(&[0..16, 8..24]).is_err());
    }
}
