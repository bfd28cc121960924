//! Mean and variance of output channels, from moments that tiles collected.
//!
//! A tile adds its values to sums about a pivot (the mean of the task's first tile): f32 inside the tile, f64 between
//! tiles. Sums of tasks are combined in f64 in the order of the tasks by the rule of Chan, Golub and LeVeque (1979),
//! "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances".

use crate::blocked::C0;
use crate::micro::correlate::Moments;

/// Where the statistics of a convolution's output go: one value per output channel each.
#[derive(Debug)]
pub struct Statistics<'a> {
    /// Mean over images and pixels.
    pub mean: &'a mut [f32],
    /// Biased variance (divided by the number of values) over images and pixels.
    pub variance: &'a mut [f32],
}

/// Combines the moments `[chunk][block]` of all chunks of the output.
pub(crate) fn combine(chunks: &[Vec<Moments>], statistics: Statistics<'_>) {
    assert_eq!(statistics.mean.len(), statistics.variance.len(), "statistics");
    for (channel, (mean_out, variance_out)) in
        statistics.mean.iter_mut().zip(statistics.variance.iter_mut()).enumerate()
    {
        let (block, lane) = (channel / C0, channel % C0);
        let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
        for chunk in chunks {
            let moments = &chunk[block];
            let part_count = moments.count as f64;
            let part_mean = f64::from(moments.pivot[lane]) + moments.sum[lane] / part_count;
            let part_squares = moments.squares[lane] - moments.sum[lane] * moments.sum[lane] / part_count;
            let total = count + part_count;
            let delta = part_mean - mean;
            mean += delta * (part_count / total);
            squares += part_squares + delta * delta * (count * part_count / total);
            count = total;
        }
        *mean_out = mean as f32;
        // Rounding may leave a negative sum; `max` would also hide a NaN.
        *variance_out = if squares < 0.0 { 0.0 } else { (squares / count) as f32 };
    }
}
