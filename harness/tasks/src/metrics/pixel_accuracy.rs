//! Pixel accuracy of label maps.

use super::Confusion;
use zoo_recipe::schema::{Metric, Score};

/// Share of correctly classified pixels; those without prediction are not. NaN without pixels.
pub fn pixel_accuracy(pixels: &Confusion) -> Score {
    let classes = pixels.true_classes();
    let right: u64 = classes.iter().map(|class| pixels.count(*class, *class)).sum();
    let all: u64 = classes.iter().map(|class| pixels.samples(*class)).sum();
    Score { metric: Metric::PixelAccuracy, value: right as f64 / all as f64, of: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut pixels = Confusion::new(&[]);
        for (class, found, count) in [(0, 0, 3), (0, 1, 1), (1, 1, 1), (1, 0, 1)] {
            pixels.count_in(class, found, count);
        }
        assert!((pixel_accuracy(&pixels).value - 4.0 / 6.0).abs() < 1e-15);
        pixels.unpredicted = [(1, 1), (2, 1)].into();
        assert!((pixel_accuracy(&pixels).value - 4.0 / 8.0).abs() < 1e-15);
        assert!(pixel_accuracy(&Confusion::new(&[])).value.is_nan());
    }
}
