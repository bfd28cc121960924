//! Measures sums over several ranks.

use crate::Failure;
use crate::console::{Console, HEADING, paint};
use crate::numbers::median;
use crate::table::Table;
use serde::Serialize;
use std::io::Write;
use std::time::Instant;
use zoo_graph::Bytes;
use zoo_ranks::Ranks;

/// Bytes that are summed: from a scalar to more than a bucket of gradients.
const SIZES: [usize; 6] = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// Sums of each size, after two that are not measured: memory is used for the first time.
const TIMES: usize = 7;
const WARM_UP: usize = 2;

/// Sums of several sizes, and the fitted latency and bandwidth.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Collectives {
    sums: Vec<Sum>,
    /// Fixed time of a sum, independent of its size: `links.latency_ms` of a device file.
    latency_ms: f64,
    /// Bytes divided by the remaining time: `links.gb_per_s` of a device file.
    gb_per_s: f64,
}

/// A sum over all ranks.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sum {
    bytes: usize,
    /// Median.
    ms: f64,
}

impl Collectives {
    /// Measures sums while nothing else is computed.
    ///
    /// # Errors
    /// Ranks that have gone.
    pub(super) fn measure(ranks: &Ranks) -> Result<Self, Failure> {
        let mut sums = Vec::new();
        for bytes in SIZES {
            let mut ms = Vec::new();
            let mut values = vec![vec![1.0; bytes / size_of::<f32>()]];
            for n in 0..WARM_UP + TIMES {
                ranks.meet()?;
                let begun = Instant::now();
                values = ranks.mean(values).wait()?;
                if n >= WARM_UP {
                    ms.push(1e3 * begun.elapsed().as_secs_f64());
                }
            }
            sums.push(Sum { bytes, ms: median(ms) });
        }
        let (latency_ms, gb_per_s) = fit(&sums);
        Ok(Self { sums, latency_ms, gb_per_s })
    }

    /// A table, and the lines of a device file.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub(super) fn print(&self, ranks: usize, out: &mut Console) -> Result<(), Failure> {
        writeln!(out, "\n{}", paint(HEADING, format!("sums over {ranks} ranks")))?;
        let mut table = Table::new([">bytes", ">ms", ">GB/s"]);
        for Sum { bytes, ms } in &self.sums {
            let rate = *bytes as f64 / ms / 1e6;
            table.row([
                Bytes(*bytes as u64).to_string().into(),
                format!("{ms:.3}").into(),
                format!("{rate:.2}").into(),
            ]);
        }
        write!(out, "{table}")?;
        let source = "source: \"measured: zoo bench\"";
        writeln!(out, "\nlinks:")?;
        writeln!(out, "  devices_per_server: {{value: {ranks}, {source}}}")?;
        writeln!(out, "  latency_ms: {{value: {:.3}, {source}}}", self.latency_ms)?;
        writeln!(out, "  gb_per_s: {{value: {:.3}, {source}}}", self.gb_per_s)?;
        Ok(())
    }
}

/// Latency in ms and rate in GB/s of the line through these sums whose relative errors have the least squares.
fn fit(sums: &[Sum]) -> (f64, f64) {
    // Of (latency + bytes * slope) / ms - 1.
    let [mut aa, mut ab, mut bb, mut a, mut b] = [0.0; 5];
    for Sum { bytes, ms } in sums {
        let (x, y) = (1.0 / ms, *bytes as f64 / ms);
        (aa, ab, bb, a, b) = (aa + x * x, ab + x * y, bb + y * y, a + x, b + y);
    }
    let determinant = aa * bb - ab * ab;
    let latency = ((a * bb - b * ab) / determinant).max(0.0);
    let slope = (b - latency * ab) / bb;
    (latency, 1e-6 / slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_by_hand() {
        // 0.5 ms and 2 GB/s: 2e6 bytes per ms.
        let sum = |bytes: usize| Sum { bytes, ms: 0.5 + bytes as f64 / 2e6 };
        let (latency, rate) = fit(&SIZES.map(sum));
        assert!((latency - 0.5).abs() < 1e-9 && (rate - 2.0).abs() < 1e-9, "{latency} {rate}");
        let (latency, _) = fit(&[Sum { bytes: 1000, ms: 1.0 }, Sum { bytes: 2000, ms: 3.0 }]);
        assert_eq!(latency, 0.0, "no time is negative");
    }
}
