//! Human-readable numbers.

use std::fmt;
pub use zoo_pages::counted;

/// A count with its digits in groups of three.
pub fn grouped(n: impl Into<u64>) -> String {
    zoo_pages::grouped(n.into()).replace('\u{202f}', " ")
}

/// A count with a decimal prefix: `25.557 M`.
pub fn scaled(n: u64, decimals: usize) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match steps.iter().find(|(unit, _)| n as f64 >= *unit) {
        Some((unit, prefix)) => format!("{:.decimals$} {prefix}", n as f64 / unit),
        None => n.to_string(),
    }
}

/// A fraction in percent: `92.7 %`.
pub fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

/// The median; 0 for an empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match (values.get(n.saturating_sub(1) / 2), values.get(n / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => 0.0,
    }
}

/// A small number such as an error: two digits and the exponent, `0` for zero.
pub struct Small(pub f64);

impl fmt::Display for Small {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0.0 => f.write_str("0"),
            x if x.is_infinite() => f.write_str("inf"),
            x => write!(f, "{x:.1e}"),
        }
    }
}

/// A ratio: one decimal below 1000, an exponent above.
pub struct Ratio(pub f64);

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            x if x.is_infinite() => f.write_str("inf"),
            x if x.abs() >= 1000.0 => write!(f, "{x:.1e}"),
            x => write!(f, "{x:.1}"),
        }
    }
}

/// A duration in seconds: `0.8 s`, `42 s`, `3 min 05 s`, `1 h 12 min`.
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0.round() as u64;
        match whole {
            _ if self.0 < 9.95 => write!(f, "{:.1} s", self.0),
            0..60 => write!(f, "{whole} s"),
            60..3600 => write!(f, "{} min {:02} s", whole / 60, whole % 60),
            _ => write!(f, "{} h {:02} min", whole / 3600, whole % 3600 / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_by_hand() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(["7", "1 000", "25 557 032"], [7u64, 1000, 25_557_032].map(grouped).each_ref().map(String::as_str));
        assert_eq!([1, 2].map(|n| counted(n, "epoch")), ["1 epoch", "2 epochs"]);
        assert_eq!(scaled(25_557_032, 3), "25.557 M");
        assert_eq!(scaled(4_089_184_256, 2), "4.09 G");
        assert_eq!(scaled(12, 3), "12");
        assert_eq!(percent(0.9269), "92.7 %");
        assert_eq!(Small(3.14e-7).to_string(), "3.1e-7");
        assert_eq!(Small(0.0).to_string(), "0");
        assert_eq!([Ratio(2.96), Ratio(1e6), Ratio(f64::INFINITY)].map(|r| r.to_string()), ["3.0", "1.0e6", "inf"]);
        assert_eq!(Seconds(0.75).to_string(), "0.8 s");
        assert_eq!(Seconds(185.2).to_string(), "3 min 05 s");
        assert_eq!(Seconds(4350.0).to_string(), "1 h 12 min");
    }
}
