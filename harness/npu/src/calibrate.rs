//! Fits named numbers of a device file to measured kernels, each by the mechanism that it describes.
//!
//! A kernel waits for one unit: matrix units, Vector units, device memory, transfers from the shared cache, or its
//! launch. The number of each unit is scaled by the median of measured over predicted time of the kernels that wait for
//! it. That moves kernels from one unit to another, so this is repeated. Kernels that wait for their launch tell its
//! time and that of each tensor, by the numbers of tensors that they have. What is left over is the rate of single
//! operators, if their kernels agree about it. Every second kernel is kept apart for the error. Medians of units and
//! rates are over time: half of the time of the kernels is below.

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
use std::collections::BTreeMap;
use zoo_measured::{Kernel, Recording, Unit};
use zoo_recipe::Recipe;

/// Rounds of fitting.
const ROUNDS: usize = 8;

/// Fewer kernels than these do not decide about a number.
const FEWEST: usize = 3;

/// Kernels of an operator agree about its rate if half of them are this close to it.
const AGREEMENT: f64 = 0.1;

/// Rates that are closer to 1 than this are those of the units.
const DIFFERENCE: f64 = 0.02;

/// A number that was fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// Its path in the device file.
    pub path: String,
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
    /// The same, over the number of kernels, before.
    pub before_by_count: f64,
    /// The same, after.
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
    let mut fitted = Numbers::default();
    used_cores(recordings, &mut after, &mut fitted);
    drawn_masks(recordings, &mut after, &mut fitted);
    let tuned = recipe.npu.tuned;
    for _ in 0..ROUNDS {
        let current = profile(recipe, &after, Work::Train)?;
        for bound in [Bound::Cube, Bound::Vector, Bound::Hbm, Bound::L2] {
            let waiting = || fit.iter().filter(|sample| current.prices[sample.kernel].bound == bound);
            let Some((path, figure)) = number(&mut after, bound, tuned).filter(|_| waiting().count() >= FEWEST) else {
                continue;
            };
            let wanted = |sample: &&Sample| figure.value * current.prices[sample.kernel].time.us() / sample.us;
            let new = median(waiting().map(|sample| (wanted(sample), sample.us)).collect());
            let most = if path.ends_with("efficiency") { 1.0 } else { f64::INFINITY };
            let new = new.map_or(figure.value, |new| rounded(new.min(most)));
            fitted.set(path, figure, new, waiting().count());
        }
        let waiting: Vec<(u64, f64)> = fit
            .iter()
            .map(|sample| (&current.prices[sample.kernel], sample.us))
            .filter(|(price, _)| price.bound == Bound::Launch && price.launches == 1)
            .map(|(price, us)| (price.tensors, us - (price.time - price.launch).us()))
            .collect();
        fit_launch(&mut after, &waiting, &mut fitted);
    }
    let current = profile(recipe, &after, Work::Train)?;
    fit_rates(&mut after, &current, &fit, &mut fitted);
    let end = profile(recipe, &after, Work::Train)?;
    let error = |of: &Profile, sample: &Sample| (of.prices[sample.kernel].time.us() / sample.us - 1.0).abs();
    let errors = |of: &Profile, samples: &[&Sample]| {
        median(samples.iter().map(|sample| (error(of, sample), sample.us)).collect()).unwrap_or(0.0)
    };
    let by_count = |of: &Profile| median(apart.iter().map(|sample| (error(of, sample), 1.0)).collect()).unwrap_or(0.0);
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
        fitted: fitted.0.into_values().filter(|fitted| fitted.before != fitted.after).collect(),
        kernels: [fit.len(), apart.len()],
        before: errors(&given, &apart),
        after: errors(&end, &apart),
        before_by_count: by_count(&given),
        after_by_count: by_count(&end),
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

/// Numbers that were fitted, by their paths.
#[derive(Default)]
struct Numbers(IndexMap<String, Fitted>);

impl Numbers {
    /// Sets a number, and keeps its first value.
    fn set(&mut self, path: &str, figure: &mut Figure, after: f64, kernels: usize) {
        let before = self.0.get(path).map_or(figure.value, |fitted| fitted.before);
        figure.value = after;
        self.0.insert(path.to_owned(), Fitted { path: path.to_owned(), before, after, kernels });
    }
}

/// A number that the device does not have yet.
fn neutral(value: f64) -> Figure {
    Figure { value, source: String::new(), fitted_to: Vec::new() }
}

/// The number of cores that products used, which is read, not fitted.
fn used_cores(recordings: &[Recording], device: &mut Device, fitted: &mut Numbers) {
    let products = recordings.iter().flat_map(|r| &r.kernels).filter(|kernel| kernel.unit == Unit::Cube);
    let cores: Vec<u32> = products.filter_map(|kernel| kernel.cores).collect();
    if let Some(most) = cores.iter().max() {
        fitted.set("cores", &mut device.cores, f64::from(*most), cores.len());
    }
}

/// The rate at which masks of dropouts are drawn beside other kernels: a bit per element, in rows of bytes.
fn drawn_masks(recordings: &[Recording], device: &mut Device, fitted: &mut Numbers) {
    let rate = |recording: &Recording, kernel: &Kernel| {
        let axes = recording.text(kernel.outputs).split(',').map(|axis| axis.trim().parse::<f64>().ok());
        let bytes = axes.collect::<Option<Vec<f64>>>()?.into_iter().product::<f64>();
        (kernel.duration > 0).then(|| 8.0 * bytes / (1e-3 * kernel.duration as f64))
    };
    let drawn = recordings.iter().flat_map(|recording| {
        let random = recording.kernels.iter().filter(|kernel| kernel.unit == Unit::Random);
        random.filter_map(move |kernel| Some((rate(recording, kernel)?, 1.0)))
    });
    let rates: Vec<(f64, f64)> = drawn.collect();
    let kernels = rates.len();
    if let Some(rate) = median(rates).filter(|_| kernels >= FEWEST) {
        let figure = device.control.mask_elements_per_us.get_or_insert_with(|| neutral(0.0));
        fitted.set("control.mask_elements_per_us", figure, rounded(rate), kernels);
    }
}

/// Fits the time of a launch, and of each tensor, to the times of kernels besides their transfers, in us, with their
/// numbers of tensors: the slope is the median of those between medians of the same number.
fn fit_launch(device: &mut Device, waiting: &[(u64, f64)], fitted: &mut Numbers) {
    let mut by_tensors: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for (tensors, us) in waiting {
        by_tensors.entry(*tensors).or_default().push((*us, 1.0));
    }
    by_tensors.retain(|_, times| times.len() >= FEWEST);
    let middles: Vec<(f64, usize, f64)> =
        by_tensors.into_iter().filter_map(|(n, times)| Some((n as f64, times.len(), median(times)?))).collect();
    let pairs = middles.iter().enumerate().flat_map(|(i, a)| middles[i + 1..].iter().map(move |b| (a, b)));
    let slopes = pairs.map(|(a, b)| ((b.2 - a.2) / (b.0 - a.0), a.1.min(b.1) as f64)).collect();
    if let Some(slope) = median(slopes).map(|slope| hundredths(slope.max(0.0))) {
        let figure = device.control.tensor_us.get_or_insert_with(|| neutral(0.0));
        fitted.set("control.tensor_us", figure, slope, waiting.len());
    }
    let of_tensor = device.control.tensor_us.as_ref().map_or(0.0, |figure| figure.value);
    let rest = waiting.iter().map(|(tensors, us)| (us - of_tensor * *tensors as f64, 1.0)).collect();
    if let Some(launch) = median(rest).filter(|_| waiting.len() >= FEWEST) {
        fitted.set("control.launch_us", &mut device.control.launch_us, hundredths(launch.max(0.0)), waiting.len());
    }
}

/// Fits the rates of operators whose kernels agree that the units are used in another way.
fn fit_rates(device: &mut Device, current: &Profile, fit: &[&Sample], fitted: &mut Numbers) {
    let mut by_operator: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in fit {
        let price = &current.prices[sample.kernel];
        let (busy, us) = ((price.time - price.launch).us(), sample.us - price.launch.us());
        if price.bound != Bound::Launch && us > 0.0 {
            let node = current.kernels[sample.kernel].nodes[0];
            by_operator.entry(current.graph.nodes[node].op.name()).or_default().push((busy / us, sample.us));
        }
    }
    for (operator, rates) in by_operator.into_iter().filter(|(_, rates)| rates.len() >= FEWEST) {
        let kernels = rates.len();
        let Some(rate) = median(rates.clone()) else { continue };
        let spread = median(rates.into_iter().map(|(other, _)| ((other / rate - 1.0).abs(), 1.0)).collect());
        if spread.is_some_and(|spread| spread <= AGREEMENT) && (rate - 1.0).abs() >= DIFFERENCE {
            let figure = device.operators.rates.entry(operator.to_owned()).or_insert_with(|| neutral(1.0));
            let value = rounded(figure.value * rate);
            fitted.set(&format!("operators.rates.{operator}"), figure, value, kernels);
        }
    }
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
        Bound::Launch | Bound::Host => None,
    }
}

/// Hundredths of a microsecond, in which profilers write times.
fn hundredths(us: f64) -> f64 {
    (100.0 * us).round() / 100.0
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
            let source = match path.as_str() {
                "cores" => format!("the most cores of {kernels} products of {of}"),
                "control.mask_elements_per_us" => format!("median of {kernels} masks of {of}"),
                _ => format!("fitted to {kernels} of {fit} kernels of {of}; {errors}"),
            };
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
    use crate::DeviceLibrary;

    #[test]
    fn medians_over_time() {
        assert_eq!(median(vec![(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), Some(2.0));
        assert_eq!(median(vec![(1.0, 1.0), (2.0, 1.0), (9.0, 5.0)]), Some(9.0));
        assert_eq!(median(Vec::new()), None);
    }

    /// Three kernels of 2 tensors take 1.9 us in the middle, three of 7 take 5.4: 0.7 us for each tensor, and 0.5
    /// before.
    #[test]
    fn a_launch_takes_longer_with_more_tensors() {
        let mut device =
            DeviceLibrary::new([concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes")]).load("ascend910b").unwrap();
        let mut fitted = Numbers::default();
        fit_launch(&mut device, &[(2, 1.8), (2, 1.9), (2, 2.2), (7, 5.4), (7, 5.0), (7, 6.0), (3, 9.0)], &mut fitted);
        assert_eq!(device.control.tensor_us.map(|figure| figure.value), Some(0.7));
        assert_eq!(device.control.launch_us.value, 0.5);
        assert_eq!(fitted.0["control.launch_us"].before, 10.5);
    }

    #[test]
    fn four_digits() {
        assert_eq!([0.812_345, 10.456_7, 0.0].map(rounded), [0.8123, 10.46, 0.0]);
    }
}
