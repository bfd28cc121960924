//! Compares initial values with those of the reference framework.
//!
//! A golden has its own weights, so a step does not test initialisers. Instead, values drawn by them are tested.

use crate::{
    error::GoldenError,
    facts::read_json,
    manifest::{Init as Rule, Manifest},
    report::Item,
};
use rayon::prelude::*;
use serde::Deserialize;
use statrs::distribution::{ContinuousCDF, Normal, Uniform};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};
use zoo_engine::init::first_values;
use zoo_graph::{Graph, Variable, VariableId, VariableRole};

/// Largest deviation of a statistic of initial values, in standard errors.
pub const INIT_SIGMAS: f64 = 6.0;
/// A Kolmogorov-Smirnov distance that chance exceeds once in 10^9 cases: 2 exp(-2 x^2) (Smirnov 1948).
const DISTANCE: f64 = 3.3;
/// Number of values that are drawn to test the initialiser of a parameter: at least the lower bound, with as many
/// seeds as necessary, and at most the upper bound.
const DRAWN: std::ops::Range<usize> = 1 << 12..1 << 16;
/// Number of first values that are compared to find parameters that draw the same random numbers.
const BEGINNING: usize = 4;

#[derive(Deserialize)]
struct InitTable {
    parameters: BTreeMap<String, InitFacts>,
}

/// Reference distribution of a parameter's initial values.
#[derive(Deserialize)]
struct InitFacts {
    kind: Kind,
    mean: f64,
    std: f64,
    absmax_bound: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Constant,
    /// The first filters of a convolution copy a channel each; the other ones are uniform.
    Dirac,
    Normal,
    /// Truncated at two standard deviations, which is the bound.
    TruncatedNormal,
    Uniform,
}

/// Compares the recipe's initialisers with `init.json` by statistics of drawn values, and the initial running
/// statistics and optimizer states with those of the framework. Without the file, there are no items.
///
/// # Errors
/// A file that exists but cannot be read, or an initialiser that cannot be drawn from.
pub fn init(graph: &Graph, manifest: &Manifest, folder: &Path) -> Result<Vec<Item>, GoldenError> {
    let Some(table) = read_json::<InitTable>(&folder.join("init.json"))? else { return Ok(Vec::new()) };
    let mut items = Vec::new();
    let mut beginnings: HashMap<[i64; BEGINNING], &str> = HashMap::new();
    let parameters: Vec<_> = graph.parameters().collect();
    let judged = parameters.par_iter().map(|(id, variable)| {
        let name = format!("initialiser of {}", variable.name);
        let Some(facts) = table.parameters.get(&variable.name) else {
            return Ok((Item::wrong(name, "the reference has no such parameter"), None));
        };
        let numel = graph.ty(variable.value).shape.numel();
        let draw = |seed: usize| first_values(graph, *id, seed as u64, numel.min(DRAWN.end));
        let seeds = if matches!(facts.kind, Kind::Constant) { 1 } else { DRAWN.start.div_ceil(numel.max(1)) };
        let values = (0..seeds).map(draw).collect::<Result<Vec<_>, _>>()?;
        let (values, copies) = match facts.kind {
            Kind::Dirac => without_copies(values, &graph.ty(variable.value).shape),
            Kind::Constant | Kind::Normal | Kind::TruncatedNormal | Kind::Uniform => (values, true),
        };
        if !copies {
            return Ok((Item::wrong(name, "the first filters do not copy the channels"), None));
        }
        if values.iter().all(Vec::is_empty) {
            return Ok((Item::measured(name, 0.0, INIT_SIGMAS), None));
        }
        let beginning = values.first().and_then(|values| beginning(values, facts));
        Ok((judge(&name, &values, facts), beginning))
    });
    let judged = judged.collect::<Result<Vec<_>, GoldenError>>()?;
    for ((_, variable), (item, beginning)) in parameters.iter().zip(judged) {
        let twin = beginning.and_then(|beginning| beginnings.insert(beginning, &variable.name));
        items.push(match twin {
            Some(other) => Item::wrong(item.name, format!("draws the same random numbers as {other}")),
            None => item,
        });
    }
    let missing = table.parameters.keys().filter(|name| graph.find_variable(name).is_none());
    items.extend(missing.map(|name| Item::wrong(format!("initialiser of {name}"), "the recipe has no such parameter")));
    for (n, variable) in graph.variables.iter().enumerate() {
        let Some(truth) = start(variable, manifest) else { continue };
        let numel = graph.ty(variable.value).shape.numel();
        let values = first_values(graph, VariableId(n), 0, numel.min(DRAWN.end))?;
        items.push(constant(&format!("start of {}", variable.name), &values, truth));
    }
    Ok(items)
}

/// PyTorch's initial value of a variable that is not a parameter: torch.nn.BatchNorm2d (`running_mean`,
/// `running_var`), and the states of torch.optim, which are zero unless the golden states otherwise. An average
/// starts at the value of its parameter.
fn start(variable: &Variable, manifest: &Manifest) -> Option<f64> {
    match variable.role {
        VariableRole::RunningMean => Some(0.0),
        VariableRole::RunningVar => Some(1.0),
        VariableRole::Slot { .. } => match manifest.init.get(&variable.name) {
            Some(Rule::Const { value }) => Some(*value),
            Some(Rule::Uniform { .. } | Rule::OnePlus { .. }) => None,
            None => Some(0.0),
        },
        VariableRole::Weight
        | VariableRole::Bias
        | VariableRole::NormWeight
        | VariableRole::NormBias
        | VariableRole::Average { .. } => None,
    }
}

/// The values of the filters that copy no channel, and whether the others do: `torch.nn.init.dirac_`.
fn without_copies(mut seeds: Vec<Vec<f32>>, shape: &[usize]) -> (Vec<Vec<f32>>, bool) {
    let &[_, channels, ref extents @ ..] = shape else { return (seeds, false) };
    let taps: usize = extents.iter().product();
    let centre = extents.iter().fold(0, |centre, extent| centre * extent + extent / 2);
    let mut right = true;
    for values in &mut seeds {
        let copies: Vec<f32> = values.drain(..values.len().min(channels * channels * taps)).collect();
        let expected = |i: usize| i / taps % channels == i / taps / channels && i % taps == centre;
        right &= copies.iter().enumerate().all(|(i, value)| *value == f32::from(u8::from(expected(i))));
    }
    (seeds, right)
}

/// The first values, in standard deviations and rounded; `None` for constants and if there are too few values.
fn beginning(values: &[f32], facts: &InitFacts) -> Option<[i64; BEGINNING]> {
    let first = values.first_chunk::<BEGINNING>().filter(|_| facts.std > 0.0)?;
    Some(first.map(|v| ((f64::from(v) - facts.mean) / facts.std * 1e3).round() as i64))
}

fn constant(item: &str, values: &[f32], truth: f64) -> Item {
    match values.iter().all(|v| *v == truth as f32) {
        true => Item::measured(item, 0.0, 1.0),
        false => Item::wrong(item, format!("not all {truth}")),
    }
}

/// Tests the values of several seeds: mean, deviation, bound, distribution, and independence of adjacent values.
fn judge(item: &str, seeds: &[Vec<f32>], facts: &InitFacts) -> Item {
    let values: Vec<f64> = seeds.iter().flatten().map(|v| f64::from(*v)).collect();
    if matches!(facts.kind, Kind::Constant) {
        return seeds
            .first()
            .map_or_else(|| Item::wrong(item, "no values"), |values| constant(item, values, facts.mean));
    }
    let n: f64 = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let std = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    let peak = values.iter().fold(0.0, |peak: f64, v| peak.max(v.abs()));
    // The bound is an f32 in the reference; values may round up to it.
    if facts.absmax_bound.is_some_and(|bound| peak > bound * (1.0 + 1e-6)) {
        return Item::wrong(item, format!("reaches {peak}, the reference stays within {:?}", facts.absmax_bound));
    }
    if distance(values, facts) > DISTANCE {
        return Item::wrong(item, "mean and deviation may be right, the kind of distribution is not");
    }
    let products: Vec<f64> = seeds
        .iter()
        .flat_map(|values| values.windows(2))
        .map(|pair| (f64::from(pair[0]) - facts.mean) * (f64::from(pair[1]) - facts.mean) / facts.std.powi(2))
        .collect();
    let neighbours = products.iter().sum::<f64>().abs() / (products.len().max(1) as f64).sqrt();
    if neighbours > INIT_SIGMAS {
        return Item::wrong(item, "each value depends on the one before");
    }
    // Standard errors of mean and deviation; a normal distribution's deviation has the larger one.
    let errors =
        [(mean - facts.mean).abs() / facts.std * n.sqrt(), (std / facts.std - 1.0).abs() * (2.0f64 * n).sqrt()];
    Item::measured(item, errors[0].max(errors[1]), INIT_SIGMAS)
}

/// Kolmogorov-Smirnov distance from the reference's distribution, multiplied by the square root of the number of
/// values.
fn distance(mut values: Vec<f64>, facts: &InitFacts) -> f64 {
    let below: Box<dyn Fn(f64) -> f64> = match facts.kind {
        Kind::Constant => return 0.0,
        Kind::Normal => match Normal::new(facts.mean, facts.std) {
            Ok(normal) => Box::new(move |x| normal.cdf(x)),
            Err(_) => return f64::INFINITY,
        },
        Kind::TruncatedNormal => match Normal::new(facts.mean, facts.absmax_bound.unwrap_or(f64::NAN) / 2.0) {
            Ok(whole) => {
                let end = facts.mean + facts.absmax_bound.unwrap_or(f64::NAN);
                let tail = 1.0 - whole.cdf(end);
                Box::new(move |x| (whole.cdf(x) - tail) / (1.0 - 2.0 * tail))
            }
            Err(_) => return f64::INFINITY,
        },
        Kind::Uniform | Kind::Dirac => {
            let half = facts.std * 3f64.sqrt();
            match Uniform::new(facts.mean - half, facts.mean + half) {
                Ok(uniform) => Box::new(move |x| uniform.cdf(x)),
                Err(_) => return f64::INFINITY,
            }
        }
    };
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len() as f64;
    let gap = |(i, x): (usize, &f64)| {
        let truth = below(*x);
        (truth - i as f64 / n).abs().max(((i + 1) as f64 / n - truth).abs())
    };
    let largest = values.iter().enumerate().map(gap).fold(0.0, f64::max);
    largest * n.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_datasets::Rng;

    fn uniform(seed: u64, len: usize, bound: f64) -> Vec<f32> {
        let mut rng = Rng::new(seed, 0, 0);
        (0..len).map(|_| ((rng.unit() * 2.0 - 1.0) * bound) as f32).collect()
    }

    fn normal(seed: u64, len: usize) -> Vec<f32> {
        let mut rng = Rng::new(seed, 1, 0);
        (0..len).map(|_| rng.normal()).collect()
    }

    fn facts(kind: Kind, std: f64) -> InitFacts {
        InitFacts { kind, mean: 0.0, std, absmax_bound: None }
    }

    fn passes(seeds: &[Vec<f32>], facts: &InitFacts) -> bool {
        judge("it", seeds, facts).ratio <= 1.0
    }

    #[test]
    fn draws_are_told_from_others_of_the_same_deviation() {
        let std = 1.0 / 3f64.sqrt();
        for seed in 0..20 {
            let (flat, bell) = (uniform(seed, 4096, 1.0), normal(seed, 4096));
            assert!(passes(std::slice::from_ref(&flat), &facts(Kind::Uniform, std)));
            assert!(passes(std::slice::from_ref(&bell), &facts(Kind::Normal, 1.0)));
            assert!(!passes(&[flat], &facts(Kind::Normal, std)));
            assert!(!passes(&[bell], &facts(Kind::Uniform, 1.0)));
        }
    }

    /// Values beyond two deviations are drawn again, which reduces the deviation to 0.8796.
    #[test]
    fn truncated_draws_are_told_from_whole_ones() {
        let cut = |seed| normal(seed, 6000).into_iter().filter(|x| x.abs() <= 2.0).collect::<Vec<f32>>();
        let facts = InitFacts { absmax_bound: Some(2.0), ..facts(Kind::TruncatedNormal, 0.879_626) };
        let whole = InitFacts { absmax_bound: None, kind: Kind::Normal, ..facts };
        for seed in 0..20 {
            assert!(passes(&[cut(seed)], &facts) && !passes(&[normal(seed, 6000)], &facts), "{seed}");
            assert!(!passes(&[cut(seed)], &InitFacts { std: 1.0, ..whole }), "{seed}");
        }
    }

    #[test]
    fn small_tensors_are_judged_over_many_seeds() {
        let std = 1.0 / 3f64.sqrt();
        let draws: Vec<Vec<f32>> = (0..4096).map(|seed| uniform(seed, 1, 1.0)).collect();
        assert!(passes(&draws, &facts(Kind::Uniform, std)));
        let narrower: Vec<Vec<f32>> = (0..4096).map(|seed| uniform(seed, 1, 0.9)).collect();
        assert!(!passes(&narrower, &facts(Kind::Uniform, std)));
        assert!(!passes(&vec![vec![0.0]; 4096], &facts(Kind::Uniform, std)));
    }

    #[test]
    fn values_that_come_twice_are_noticed() {
        let twice: Vec<f32> = normal(3, 2048).into_iter().flat_map(|v| [v, v]).collect();
        assert!(!passes(&[twice], &facts(Kind::Normal, 1.0)));
    }
}
