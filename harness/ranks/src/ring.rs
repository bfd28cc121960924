//! Ring all-reduce (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
//!
//! Each rank owns a part of the values. Parts travel around the ring and are summed; the sums then travel around once
//! more. Every part is summed in one order, so all ranks have the same bits.

/// The ranks before and after this one.
pub(crate) trait Neighbours {
    /// Sends to the next rank, and fills `received` with values of the previous rank.
    fn pass(&mut self, sent: &[f32], received: &mut [f32]);
}

/// Replaces the values by their means over `size` ranks. `rank` is the index of this rank. All ranks have the same
/// number of values.
///
/// `room` stores received values before they are added; it needs `values.len() / size` elements, rounded up.
pub(crate) fn mean(values: &mut [f32], rank: usize, size: usize, room: &mut [f32], neighbours: &mut impl Neighbours) {
    if values.is_empty() {
        return;
    }
    let mut parts: Vec<&mut [f32]> = values.chunks_mut(values.len().div_ceil(size)).collect();
    parts.resize_with(size, Default::default);
    for step in 1..size {
        let (sent, received) = ((rank + size - step + 1) % size, (rank + size - step) % size);
        let room = &mut room[..parts[received].len()];
        neighbours.pass(parts[sent], room);
        // After the last step, the sum is complete.
        let ranks = if step + 1 == size { size as f32 } else { 1.0 };
        parts[received].iter_mut().zip(&*room).for_each(|(sum, value)| *sum = (*sum + value) / ranks);
    }
    for step in 1..size {
        let (sent, received) = ((rank + size - step + 2) % size, (rank + size - step + 1) % size);
        // With two ranks or more, the two parts are different.
        if let Ok([sent, received]) = parts.get_disjoint_mut([sent, received]) {
            neighbours.pass(sent, received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    struct Channels {
        next: Sender<Vec<f32>>,
        previous: Receiver<Vec<f32>>,
    }

    impl Neighbours for Channels {
        fn pass(&mut self, sent: &[f32], received: &mut [f32]) {
            self.next.send(sent.to_vec()).unwrap();
            received.copy_from_slice(&self.previous.recv().unwrap());
        }
    }

    /// Multiples of 1/8 below 2, so that their sums are exact.
    fn given(rank: usize, len: usize) -> Vec<f32> {
        (0..len).map(|i| ((7 * i + 3 * rank) % 13) as f32 * 0.125).collect()
    }

    fn means(size: usize, len: usize) -> Vec<Vec<f32>> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| channel::<Vec<f32>>()).unzip();
        // Rank r receives on channel r, so the previous rank sends on it.
        let start = |(rank, previous): (usize, Receiver<Vec<f32>>)| {
            let mut neighbours = Channels { next: senders[(rank + 1) % size].clone(), previous };
            thread::spawn(move || {
                let (mut values, mut room) = (given(rank, len), vec![f32::NAN; len.div_ceil(size)]);
                mean(&mut values, rank, size, &mut room, &mut neighbours);
                values
            })
        };
        let threads: Vec<_> = receivers.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn every_rank_has_the_mean_of_all() {
        for size in 1..=6 {
            for len in [0, 1, 2, 3, 5, 6, 7, 12, 64, 101] {
                let sum = |i: usize| (0..size).map(|rank| given(rank, len)[i]).sum::<f32>();
                let expected: Vec<f32> = (0..len).map(|i| sum(i) / size as f32).collect();
                for (rank, found) in means(size, len).into_iter().enumerate() {
                    assert_eq!(found, expected, "rank {rank} of {size}, {len} values");
                }
            }
        }
    }
}
