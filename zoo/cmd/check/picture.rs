//! Histograms of exponents as a line of text.

use zoo_golden::device::Exponents;
use zoo_graph::DType;

/// Marks by height, from the lowest to the highest frequency.
const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The frame of a histogram: exponents per mark, and the limits of the format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture {
    /// The first exponent.
    from: i32,
    /// Exponents per mark.
    step: i32,
    /// Number of marks.
    count: i32,
    /// First exponent of the format.
    least: i32,
    /// First exponent beyond the format.
    most: i32,
    name: &'static str,
}

impl Picture {
    /// The frame for a half-precision type; `None` for other types.
    pub(super) fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F16 => Some(Self { from: -44, step: 4, count: 16, least: -24, most: 16, name: "fp16" }),
            DType::Bf16 => Some(Self { from: -160, step: 16, count: 20, least: -128, most: 128, name: "bf16" }),
            DType::F32 | DType::F64 | DType::U32 => None,
        }
    }

    /// A mark for each group of exponents, with a height proportional to its frequency; bars at the limits of the
    /// format. Values outside the frame count at its edge.
    pub(super) fn draw(&self, exponents: &Exponents) -> String {
        let mut groups = vec![0u64; self.count as usize];
        for (exponent, count) in exponents {
            let group = (exponent - self.from).div_euclid(self.step).clamp(0, self.count - 1);
            groups[group as usize] += count;
        }
        let most = groups.iter().copied().max().unwrap_or(0).max(1);
        let mut text = String::new();
        for (group, count) in groups.into_iter().enumerate() {
            let begins = self.from + group as i32 * self.step;
            if begins == self.least || begins == self.most {
                text.push('|');
            }
            let height = (count as f64 / most as f64 * (MARKS.len() - 1) as f64).round() as usize;
            text.push(if count == 0 { ' ' } else { MARKS[height] });
        }
        text
    }

    /// The legend of the histogram.
    pub(super) fn legend(&self) -> String {
        let Self { from, step, count, name, .. } = self;
        format!(
            "exponents on the device from 2^{from} to 2^{}, {step} to a mark; {name} holds those between the bars",
            from + step * count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_as_high_as_exponents_are_frequent() {
        let picture = Picture::of(DType::F16).unwrap();
        assert_eq!(picture.draw(&Exponents::new()), "     |          | ");
        let exponents = Exponents::from([(-90, 1), (-25, 40), (-24, 80), (0, 10), (3, 10), (15, 1), (16, 79)]);
        assert_eq!(picture.draw(&exponents), "▁   ▅|█     ▃   |█".replace("   |█", "  ▁|█"));
        assert!(picture.legend().chars().count() <= 100);
    }
}
