//! Logistic loss of masks at chosen positions; positions that do not count cost nothing.

use crate::{C0, parallel, resize::Tap};
use rayon::prelude::*;

/// Where the logits of a position lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// A row per position.
    Rows,
    /// Along the channels of row-major maps: `side * side` of them.
    Channels {
        /// Height and width of a position's map.
        side: usize,
    },
    /// Along the channels of blocked maps.
    Blocked {
        /// Height and width of a position's map.
        side: usize,
    },
}

/// Extents of the loss.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Positions per image.
    pub places: usize,
    /// Height and width of a window.
    pub size: usize,
    /// Where logits lie.
    pub logits: Logits,
    /// How a map of logits is enlarged to a window, the same down and across; not used for rows.
    pub taps: &'a [Tap],
}

/// What the loss gives beside its gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Mean over pixels and positions of `log(1 + exp(-mask * logit))`; 0 without positions.
    pub loss: f64,
    /// Mean over positions of the intersection over union of `logit >= 0` and `mask = 1`.
    pub iou: f64,
    /// Share of positions where that is above 0.5.
    pub above_half: f64,
    /// Share of positions where that is above 0.7.
    pub above_most: f64,
}

impl Shape<'_> {
    /// Number of logits of a position.
    fn count(&self) -> usize {
        match self.logits {
            Logits::Rows => self.size * self.size,
            Logits::Channels { side } | Logits::Blocked { side } => side * side,
        }
    }

    /// Where the k-th logit of a position lies.
    fn place(&self, position: usize, k: usize) -> usize {
        let (image, place) = (position / self.places, position % self.places);
        match self.logits {
            Logits::Rows => position * self.count() + k,
            Logits::Channels { .. } => (image * self.count() + k) * self.places + place,
            Logits::Blocked { .. } => {
                ((image * self.count().div_ceil(C0) + k / C0) * self.places + place) * C0 + k % C0
            }
        }
    }

    /// A map of logits as a window. In f64: terms of both signs meet in [`Shape::reduce`], and what is left of them may
    /// be small.
    fn enlarge(&self, map: &[f64]) -> Vec<f64> {
        let (Logits::Channels { side } | Logits::Blocked { side }) = self.logits else { return map.to_vec() };
        let mut row = vec![0.0; side];
        let mut window = Vec::with_capacity(self.size * self.size);
        for down in self.taps {
            let [a, b] = [down.first, down.second].map(|i| &map[i * side..][..side]);
            row.iter_mut()
                .zip(a.iter().zip(b))
                .for_each(|(row, (a, b))| *row = (1.0 - down.weight) * a + down.weight * b);
            window.extend(self.taps.iter().map(|t| (1.0 - t.weight) * row[t.first] + t.weight * row[t.second]));
        }
        window
    }

    /// The adjoint of [`Shape::enlarge`].
    fn reduce(&self, window: Vec<f64>) -> Vec<f64> {
        let (Logits::Channels { side } | Logits::Blocked { side }) = self.logits else { return window };
        let mut map = vec![0.0; side * side];
        for (down, pixels) in self.taps.iter().zip(window.chunks_exact(self.size)) {
            let mut row = vec![0.0; side];
            for (across, g) in self.taps.iter().zip(pixels) {
                row[across.first] += (1.0 - across.weight) * g;
                row[across.second] += across.weight * g;
            }
            for (i, share) in [(down.first, 1.0 - down.weight), (down.second, down.weight)] {
                map[i * side..][..side].iter_mut().zip(&row).for_each(|(sum, g)| *sum += share * g);
            }
        }
        map
    }
}

/// The loss at the positions whose `select` is 1, and its gradient by the logits. `windows` holds `size * size` mask
/// values per position: 1 inside, -1 outside, 0 unknown.
///
/// # Panics
/// If a slice is too short for the positions.
pub fn mask_soft_margin(
    shape: &Shape<'_>,
    logits: &[f32],
    windows: &[f32],
    select: &[f32],
    gradient: &mut [f32],
) -> Outcome {
    gradient.par_chunks_mut(1 << 16).for_each(|g| g.fill(0.0));
    let chosen: Vec<usize> = (0..select.len()).filter(|i| select[*i] == 1.0).collect();
    if chosen.is_empty() {
        return Outcome::default();
    }
    let pixels = shape.size * shape.size;
    let share = 1.0 / (chosen.len() * pixels) as f64;
    let results = parallel::map(chosen.len(), |n| {
        let position = chosen[n];
        let own: Vec<f64> = (0..shape.count()).map(|k| f64::from(logits[shape.place(position, k)])).collect();
        let mut shown = shape.enlarge(&own);
        let (mut loss, mut both, mut either) = (0.0, 0usize, 0usize);
        for (x, mask) in shown.iter_mut().zip(&windows[position * pixels..][..pixels]) {
            let mask = f64::from(*mask);
            let margin = -mask * *x;
            let shrunk = libm::exp(-margin.abs());
            loss += margin.max(0.0) + libm::log1p(shrunk);
            let (predicted, inside) = (*x >= 0.0, mask == 1.0);
            both += usize::from(predicted && inside);
            either += usize::from(predicted || inside);
            // The slope is -mask / (1 + exp(-margin)), written with an exponential that does not overflow.
            let sigmoid = if margin >= 0.0 { 1.0 / (1.0 + shrunk) } else { shrunk / (1.0 + shrunk) };
            *x = -mask * share * sigmoid;
        }
        let overlap = if either == 0 { 0.0 } else { both as f64 / either as f64 };
        (loss, overlap, shape.reduce(shown))
    });
    let mut outcome = Outcome::default();
    let each = 1.0 / chosen.len() as f64;
    for (position, (loss, overlap, slopes)) in chosen.iter().zip(results) {
        outcome.loss += loss * share;
        outcome.iou += overlap * each;
        outcome.above_half += if overlap > 0.5 { each } else { 0.0 };
        outcome.above_most += if overlap > 0.7 { each } else { 0.0 };
        for (k, slope) in slopes.into_iter().enumerate() {
            gradient[shape.place(*position, k)] = slope as f32;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::filled;

    #[test]
    fn one_position_by_hand() {
        let shape = Shape { places: 2, size: 2, logits: Logits::Rows, taps: &[] };
        let logits = [9.0, 9.0, 9.0, 9.0, 1.0, -2.0, 0.5, -1.0];
        let windows = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 0.0];
        let mut gradient = [f32::NAN; 8];
        let outcome = mask_soft_margin(&shape, &logits, &windows, &[0.0, 1.0], &mut gradient);
        let terms = [(-1.0f64).exp(), 2.0f64.exp(), 0.5f64.exp(), 1.0].map(f64::ln_1p);
        assert!((outcome.loss - terms.iter().sum::<f64>() / 4.0).abs() < 1e-12);
        // Predicted: first and third; inside: first and second. One of three is both.
        assert!((outcome.iou - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!((outcome.above_half, outcome.above_most), (0.0, 0.0));
        assert_eq!(gradient[..4], [0.0; 4]);
        assert!((f64::from(gradient[4]) + 0.25 / (1.0 + 1f64.exp())).abs() < 1e-7);
        assert_eq!(gradient[7], 0.0, "an unknown pixel has no gradient");
    }

    #[test]
    fn blocked_and_row_major_logits_agree_and_nothing_chosen_is_zero() {
        let (side, size, places) = (5, 9, 6);
        let taps: Vec<Tap> =
            (0..size).map(|i| Tap { first: i / 2, second: (i / 2 + 1).min(4), weight: (i % 2) as f64 / 2.0 }).collect();
        let logits = filled(2 * side * side * places, 1);
        let windows: Vec<f32> = filled(2 * places * size * size, 2).iter().map(|v| v.signum()).collect();
        let mut select = vec![0.0; 2 * places];
        (select[3], select[7]) = (1.0, 1.0);
        let plain = Shape { places, size, logits: Logits::Channels { side }, taps: &taps };
        let blocked = Shape { logits: Logits::Blocked { side }, ..plain };
        let mut stored = vec![0.0; 2 * 2 * C0 * places];
        for position in 0..2 * places {
            (0..25).for_each(|k| stored[blocked.place(position, k)] = logits[plain.place(position, k)]);
        }
        let (mut a, mut b) = (vec![f32::NAN; logits.len()], vec![f32::NAN; stored.len()]);
        let first = mask_soft_margin(&plain, &logits, &windows, &select, &mut a);
        assert_eq!(first, mask_soft_margin(&blocked, &stored, &windows, &select, &mut b));
        assert!((0..2 * places).all(|p| (0..25).all(|k| a[plain.place(p, k)] == b[blocked.place(p, k)])));
        assert!(a.iter().any(|g| *g != 0.0));
        assert_eq!(mask_soft_margin(&plain, &logits, &windows, &vec![-1.0; 2 * places], &mut a), Outcome::default());
        assert!(a.iter().all(|g| *g == 0.0));
    }
}
