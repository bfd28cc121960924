//! Fits named numbers of a device file to measured kernels, each by the mechanism that it describes.
//!
//! A kernel waits for one unit: matrix units, Vector units, device memory, transfers from the shared cache, or its launch.
//! The number of each unit is scaled by the median of measured over predicted time of the kernels that wait for it. That
//! moves kernels from one unit to another, so this is repeated. Every second kernel is kept apart for the error. Medians
//! are over time: half of the time of the kernels is below. Otherwise the many kernels of two microseconds would decide.

use crate::{
    NpuError,
    compile::Work,
    device::Device,
    figure::Figure,
    measured::times,
    price::Bound,
    profile::{Profile, profile},
};
use indexmap::IndexMap;
use serde::Serialize;
use zoo_measured::{Recording, Unit};
use zoo_recipe::Recipe;

/// Rounds of fitting.
const ROUNDS: usize = 8;

/// Fewer kernels than these do not decide about a number.
const FEWEST: usize = 3;

/// A number that was fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// Its path in the device file.
    pub path: &'static str,
    /// Its value before.
    pub before: f64,
    /// Its value after.
    pub after: f64,
    /// The kernels that decided, in the last round.
    pub kernels: usize,
}

/// The errors of an operator's kernels that were kept apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// The operator, by the name of the clock.
    pub operator: String,
    /// Measured kernels.
    pub kernels: usize,
    /// Measured rate: TFLOP per second of products, otherwise gigabytes per second.
    pub rate: f64,
    /// The unit of the rate.
    pub unit: &'static str,
    /// Median error of the prediction before.
    pub before: f64,
    /// Median error of the prediction after.
    pub after: f64,
}

/// A fitted device.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The device.
    #[serde(skip)]
    pub device: Device,
    /// What was fitted.
    pub fitted: Vec<Fitted>,
    /// Kernels that were fitted to, and that were kept apart.
    pub kernels: [usize; 2],
    /// Median error of the kernels that were kept apart, over their time, before.
    pub before: f64,
    /// The same, after.
    pub after: f64,
    /// The same, over the number of kernels, after.
    pub after_by_count: f64,
    /// By operator.
    pub operators: Vec<Rate>,
}

/// A measured kernel.
struct Sample {
    kernel: usize,
    us: f64,
}

/// Fits a device to the kernels of a recipe's step.
///
/// # Errors
/// A step that cannot be predicted, or recordings in which too few of its kernels are found.
pub fn calibrate(recipe: &Recipe, device: &Device, recordings: &[Recording]) -> Result<Calibration, NpuError> {
    let given = profile(recipe, device, Work::Train)?;
    let mut samples: Vec<Sample> = recordings
        .iter()
        .flat_map(|recording| times(recording, &given))
        .map(|(kernel, us)| Sample { kernel, us })
        .filter(|sample| sample.us > 0.0)
        .collect();
    // Every second kernel of each operator, in order of their sizes.
    let key = |sample: &Sample| (given.kernel_name(&given.kernels[sample.kernel]), given.prices[sample.kernel].bytes);
    samples.sort_by_cached_key(key);
    let (fit, apart): (Vec<_>, Vec<_>) = samples.iter().enumerate().partition(|(i, _)| i % 2 == 0);
    let [fit, apart] = [fit, apart].map(|half| half.into_iter().map(|(_, sample)| sample).collect::<Vec<_>>());
    if apart.len() < FEWEST {
        return Err(NpuError::Uncalibrated { found: samples.len() });
    }
    let mut after = device.clone();
    let mut fitted: IndexMap<&'static str, Fitted> = IndexMap::new();
    fitted.extend(used_cores(recordings, &mut after).map(|cores| (cores.path, cores)));
    let tuned = recipe.npu.tuned;
    for _ in 0..ROUNDS {
        let current = profile(recipe, &after, Work::Train)?;
        for bound in [Bound::Cube, Bound::Vector, Bound::Hbm, Bound::L2, Bound::Launch] {
            let of_bound: Vec<&&Sample> =
                fit.iter().filter(|sample| current.prices[sample.kernel].bound == bound).collect();
            let Some((path, figure)) = number(&mut after, bound, tuned).filter(|_| of_bound.len() >= FEWEST) else {
                continue;
            };
            let before = figure.value;
            let wanted = |sample: &Sample| match (current.prices[sample.kernel].time.us(), bound) {
                (predicted, Bound::Launch) => before + sample.us - predicted,
                (predicted, Bound::Cube | Bound::Vector | Bound::Hbm | Bound::L2 | Bound::Host) => {
                    before * predicted / sample.us
                }
            };
            // A launch takes as long for a kernel of any size.
            let weight = |sample: &Sample| if bound == Bound::Launch { 1.0 } else { sample.us };
            let new = median(of_bound.iter().map(|sample| (wanted(sample), weight(sample))).collect());
            let Some(new) = new else { continue };
            let most = if path.ends_with("efficiency") { 1.0 } else { f64::INFINITY };
            figure.value = rounded(new.max(0.0).min(most));
            let first = fitted.get(path).map_or(before, |fitted| fitted.before);
            fitted.insert(path, Fitted { path, before: first, after: figure.value, kernels: of_bound.len() });
        }
    }
    let end = profile(recipe, &after, Work::Train)?;
    let error = |of: &Profile, sample: &Sample| (of.prices[sample.kernel].time.us() / sample.us - 1.0).abs();
    let errors = |of: &Profile, samples: &[&Sample]| {
        median(samples.iter().map(|sample| (error(of, sample), sample.us)).collect()).unwrap_or(0.0)
    };
    let mut by_operator: IndexMap<String, Vec<&Sample>> = IndexMap::new();
    for sample in &apart {
        by_operator.entry(given.kernel_name(&given.kernels[sample.kernel])).or_default().push(sample);
    }
    let operators = by_operator.into_iter().map(|(operator, samples)| {
        let price = |sample: &&Sample| &given.prices[sample.kernel];
        let flop: u64 = samples.iter().map(|sample| price(sample).flop).sum();
        let bytes: u64 = samples.iter().map(|sample| moved(&given, sample.kernel)).sum();
        let us: f64 = samples.iter().map(|sample| sample.us).sum();
        let (rate, unit) =
            if flop > 0 { (flop as f64 / us * 1e-6, "TFLOP/s") } else { (bytes as f64 / us * 1e-3, "GB/s") };
        let (before, after) = (errors(&given, &samples), errors(&end, &samples));
        Rate { operator, kernels: samples.len(), rate, unit, before, after }
    });
    let mut operators: Vec<Rate> = operators.collect();
    operators.sort_by(|a, b| b.kernels.cmp(&a.kernels).then(a.operator.cmp(&b.operator)));
    Ok(Calibration {
        fitted: fitted.into_values().filter(|fitted| fitted.before != fitted.after).collect(),
        kernels: [fit.len(), apart.len()],
        before: errors(&given, &apart),
        after: errors(&end, &apart),
        after_by_count: median(apart.iter().map(|sample| (error(&end, sample), 1.0)).collect()).unwrap_or(0.0),
        operators,
        device: after,
    })
}

/// The median of values with weights: half of the weight is at smaller ones.
fn median(mut values: Vec<(f64, f64)>) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let is_middle = |(_, weight): &&(f64, f64)| {
        below += weight;
        below >= half
    };
    values.iter().find(is_middle).map(|(value, _)| *value)
}

/// Bytes of operands and results of a kernel.
fn moved(profile: &Profile, kernel: usize) -> u64 {
    let nodes = profile.kernels[kernel].nodes.iter().map(|node| &profile.graph.nodes[*node]);
    nodes.flat_map(|node| node.inputs.iter().chain(&node.outputs)).map(|value| profile.graph.ty(*value).bytes().0).sum()
}

/// The number of cores that products used, which is read, not fitted.
fn used_cores(recordings: &[Recording], device: &mut Device) -> Option<Fitted> {
    let products = recordings.iter().flat_map(|r| &r.kernels).filter(|kernel| kernel.unit == Unit::Cube);
    let cores: Vec<u32> = products.filter_map(|kernel| kernel.cores).collect();
    let most = f64::from(*cores.iter().max()?);
    let before = std::mem::replace(&mut device.cores.value, most);
    Some(Fitted { path: "cores", before, after: most, kernels: cores.len() })
}

/// The number that decides about kernels that wait for a unit.
fn number(device: &mut Device, bound: Bound, tuned: bool) -> Option<(&'static str, &mut Figure)> {
    match bound {
        Bound::Cube if tuned => Some(("matrix.tuned_efficiency", &mut device.matrix.tuned_efficiency)),
        Bound::Cube => Some(("matrix.efficiency", &mut device.matrix.efficiency)),
        Bound::Vector => Some(("vector.efficiency", &mut device.vector.efficiency)),
        Bound::Hbm if tuned => Some(("hbm.tuned_efficiency", &mut device.hbm.tuned_efficiency)),
        Bound::Hbm => Some(("hbm.efficiency", &mut device.hbm.efficiency)),
        Bound::L2 => Some(("l2.bytes_per_cycle", &mut device.l2.bytes_per_cycle)),
        Bound::Launch => Some(("control.launch_us", &mut device.control.launch_us)),
        Bound::Host => None,
    }
}

/// Four digits.
fn rounded(value: f64) -> f64 {
    let scale = 10f64.powf(3.0 - value.abs().log10().floor());
    if value == 0.0 || !scale.is_finite() { value } else { (value * scale).round() / scale }
}

impl Calibration {
    /// The device file, with another name. Each number says what it was fitted to.
    ///
    /// # Errors
    /// A device that cannot be written as YAML.
    pub fn file(&self, name: &str, of: &str) -> Result<String, serde_yaml::Error> {
        let mut device = serde_yaml::to_value(&self.device)?;
        let [fit, apart] = self.kernels;
        let errors =
            format!("median error of {apart} others {:.1} %, before {:.1} %", 100.0 * self.after, 100.0 * self.before);
        for Fitted { path, kernels, .. } in &self.fitted {
            let how = if *path == "cores" { "cores that products use in" } else { "fitted to" };
            let source = format!("{how} {kernels} of {fit} kernels of {of}; {errors}");
            let figure = path.split('.').try_fold(&mut device, |value, key| value.get_mut(key));
            if let Some(figure) = figure.and_then(serde_yaml::Value::as_mapping_mut) {
                figure.insert("source".into(), source.into());
            }
        }
        if let Some(device) = device.as_mapping_mut() {
            device.insert("name".into(), name.into());
            device.insert("host".into(), self.device.host.name.as_str().into());
        }
        Ok(format!("# yaml-language-server: $schema=../schema/device.json\n{}", serde_yaml::to_string(&device)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_over_time() {
        assert_eq!(median(vec![(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), Some(2.0));
        assert_eq!(median(vec![(1.0, 1.0), (2.0, 1.0), (9.0, 5.0)]), Some(9.0));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn four_digits() {
        assert_eq!([0.812_345, 10.456_7, 0.0].map(rounded), [0.8123, 10.46, 0.0]);
    }
}
