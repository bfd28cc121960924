//! The time of a step, divided: each instant belongs to one kernel or to a gap, so that all parts add up to the step.

use crate::Nanos;

/// A time in which an owner runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its start.
    pub start: Nanos,
    /// Its end.
    pub end: Nanos,
    /// Whose it is.
    pub owner: u32,
}

/// What is covered so far: intervals in order, without overlaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Axis(Vec<(Nanos, Nanos)>);

impl Axis {
    /// Covers what is not covered yet with pieces, the one that starts first before others, and adds to `own` what each
    /// owner gets. Pieces that come later only get what is left.
    pub fn claim(&mut self, mut pieces: Vec<Piece>, own: &mut [Nanos]) {
        pieces.sort_unstable_by_key(|piece| (piece.start, piece.end));
        let (mut covered, mut reached, mut added) = (0, Nanos::MIN, Vec::new());
        for piece in pieces {
            let mut from = piece.start.max(reached);
            while from < piece.end {
                while self.0.get(covered).is_some_and(|(_, end)| *end <= from) {
                    covered += 1;
                }
                let next = self.0.get(covered).map_or((Nanos::MAX, Nanos::MAX), |next| *next);
                let end = piece.end.min(next.0);
                if from < end {
                    if let Some(own) = own.get_mut(piece.owner as usize) {
                        *own += end - from;
                    }
                    added.push((from, end));
                }
                from = end.max(next.1);
            }
            reached = reached.max(piece.end);
        }
        self.0.extend(added);
        self.0.sort_unstable();
        self.0.dedup_by(|next, before| {
            let joins = next.0 <= before.1;
            if joins {
                before.1 = before.1.max(next.1);
            }
            joins
        });
    }

    /// What is not covered between two times.
    pub fn gaps(&self, start: Nanos, end: Nanos) -> Vec<(Nanos, Nanos)> {
        let (mut gaps, mut from) = (Vec::new(), start);
        let first = self.0.partition_point(|(_, other)| *other <= start);
        for (covered, until) in self.0[first..].iter().take_while(|(covered, _)| *covered < end) {
            if *covered > from {
                gaps.push((from, *covered));
            }
            from = from.max(*until);
        }
        if from < end {
            gaps.push((from, end));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(start: Nanos, end: Nanos, owner: u32) -> Piece {
        Piece { start, end, owner }
    }

    #[test]
    fn by_hand() {
        let (mut axis, mut own) = (Axis::default(), vec![0; 4]);
        axis.claim(vec![piece(10, 20, 0), piece(15, 30, 1)], &mut own);
        axis.claim(vec![piece(0, 40, 2), piece(18, 28, 3)], &mut own);
        assert_eq!(own, [10, 10, 20, 0]);
        assert_eq!(axis.gaps(-5, 50), [(-5, 0), (40, 50)]);
    }

    proptest! {
        #[test]
        fn all_parts_add_up(
            first in proptest::collection::vec((0i64..100, 0i64..20), 0..20),
            second in proptest::collection::vec((0i64..100, 0i64..20), 0..20),
        ) {
            let (mut axis, mut own) = (Axis::default(), vec![0; 40]);
            let pieces = |of: &[(i64, i64)], from: u32| {
                (from..).zip(of).map(|(owner, (start, length))| piece(*start, start + length, owner)).collect()
            };
            axis.claim(pieces(&first, 0), &mut own);
            axis.claim(pieces(&second, 20), &mut own);
            let gaps: Nanos = axis.gaps(0, 120).iter().map(|(start, end)| end - start).sum();
            prop_assert_eq!(own.iter().sum::<Nanos>() + gaps, 120);
            for ((_, length), own) in first.iter().zip(&own) {
                prop_assert!(own <= length);
            }
        }
    }
}
