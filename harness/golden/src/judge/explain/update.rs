//! Faults of the update: the rule that gives the recorded parameters and slots from the recorded gradients.

use super::{
    Explanation, Judged, as_if,
    cases::{Case, Cases},
    listed,
    rules::{Rule, candidates, short},
};
use crate::GoldenError;
use zoo_recipe::schema::{Adam, AdamW, Optimizer, Sgd};

/// A factor this close to 1 is none.
const ONE: f64 = 1e-3;
/// Most alternatives in a report.
const MOST: usize = 3;

impl Judged<'_> {
    /// What was computed in place of the recipe's update.
    pub(in super::super) fn explain_update(&self) -> Result<Explanation, GoldenError> {
        let Some(cases) = self.cases()? else { return Ok(Explanation::default()) };
        let mut rules = candidates(self.recipe);
        rules.extend(estimates(&cases)?);
        let mut found: Vec<String> = Vec::new();
        for rule in rules {
            if found.len() < MOST && !found.contains(&rule.text) && cases.fit(&rule)? {
                found.push(rule.text);
            }
        }
        if found.is_empty() {
            found.extend(decayed_otherwise(&cases)?);
        }
        Ok(Explanation { hints: as_if(&found).into_iter().collect(), line: None })
    }
}

/// Rules with a setting that the recorded values give.
fn estimates(cases: &Cases<'_>) -> Result<Vec<Rule>, GoldenError> {
    let Some((case, result)) = cases.failing() else { return Ok(Vec::new()) };
    let mut rules = betas(cases, case);
    let recorded = case.recorded_result(result).unwrap_or_default();
    let base = cases.results(case, &Rule::recipe(), None)?;
    if let Some(decay) = decay(cases, case, result, recorded)? {
        rules.push(Rule::with_decay(decay));
    }
    let idle = cases.results(case, &Rule::with_factor(0.0), None)?;
    let active = cases.results(case, &Rule::with_factor(1.0), None)?;
    if let Some(factor) = slope(recorded, &idle[result], &active[result]).filter(|factor| (factor - 1.0).abs() > ONE) {
        let bound = short(cases.bound_of(factor)).parse().ok();
        rules.extend(bound.filter(|bound| *bound > 0.0).map(Rule::with_norm));
        rules.push(Rule::with_factor(factor));
    }
    if let Some(parameter) = case.recorded_result(0)
        && let Some(factor) = slope(parameter, &case.operands[0], &base[0])
        && (factor - 1.0).abs() > ONE
    {
        rules.push(Rule::with_rate(factor, factor * cases.rate_of(case)));
    }
    Ok(rules)
}

/// The share of the way from `none` to `whole` that `recorded` has gone, by least squares.
fn slope(recorded: &[f64], none: &[f64], whole: &[f64]) -> Option<f64> {
    let (mut along, mut size) = (0.0, 0.0);
    for ((recorded, none), whole) in recorded.iter().zip(none).zip(whole) {
        along += (recorded - none) * (whole - none);
        size += (whole - none).powi(2);
    }
    (size > 0.0 && (along / size).is_finite()).then_some(along / size)
}

/// The weight decay of the group of a parameter.
fn decay(cases: &Cases<'_>, case: &Case<'_>, result: usize, recorded: &[f64]) -> Result<Option<f64>, GoldenError> {
    const UNIT: f64 = 1e-4;
    let none = cases.results(case, &Rule::recipe(), Some(0.0))?;
    let unit = cases.results(case, &Rule::recipe(), Some(UNIT))?;
    let rounded = |decay: f64| short(UNIT * decay).parse::<f64>().ok();
    Ok(slope(recorded, &none[result], &unit[result]).and_then(rounded).filter(|decay| *decay > 0.0))
}

/// The recipe's optimizer with the decay rates of its slots that the recorded ones give.
fn betas(cases: &Cases<'_>, case: &Case<'_>) -> Vec<Rule> {
    let Some(gradient) = &case.gradient else { return Vec::new() };
    let optimizer = &cases.recipe().optimizer;
    let in_gradient = match optimizer {
        Optimizer::Adam(_) | Optimizer::Sgd(_) => case.group.weight_decay,
        Optimizer::AdamW(_)
        | Optimizer::RmsProp(_)
        | Optimizer::Adagrad(_)
        | Optimizer::Lion(_)
        | Optimizer::Lars(_)
        | Optimizer::Lamb(_) => 0.0,
    };
    let clipped = cases.clipped(&Rule::recipe(), gradient);
    let d: Vec<f64> = clipped.iter().zip(&case.operands[0]).map(|(g, p)| g + in_gradient * p).collect();
    let square: Vec<f64> = d.iter().map(|d| d * d).collect();
    // A slot that is `beta` of itself and `1 - beta` of something has gone `1 - beta` of the way there.
    let rate = |slot: usize, fresh: &[f64]| {
        let way = slope(case.recorded_result(slot)?, case.operands.get(slot)?, fresh)?;
        let rounded: f64 = format!("{way:.2e}").parse().ok()?;
        let beta = (0.0..=1.0).contains(&rounded).then_some(1.0 - rounded).map(|beta| (beta * 1e6).round() / 1e6);
        // A slot that keeps all of itself has no bias correction.
        beta.filter(|beta| *beta < 1.0)
    };
    let (first, second) = (rate(1, &d), rate(2, &square));
    let mut rules = Vec::new();
    let mut add = |name: &str, own: f64, estimate: Option<f64>, with: &dyn Fn(f64) -> Optimizer| {
        if let Some(beta) = estimate.filter(|beta| *beta != own) {
            rules.push(Rule::with(format!("{name} were {beta}, not {own}"), &with(beta)));
        }
    };
    match optimizer {
        Optimizer::Adam(own) => {
            add("beta1", own.beta1, first, &|beta1| Optimizer::Adam(Adam { beta1, ..own.clone() }));
            add("beta2", own.beta2, second, &|beta2| Optimizer::Adam(Adam { beta2, ..own.clone() }));
        }
        Optimizer::AdamW(own) => {
            add("beta1", own.beta1, first, &|beta1| Optimizer::AdamW(AdamW { beta1, ..own.clone() }));
            add("beta2", own.beta2, second, &|beta2| Optimizer::AdamW(AdamW { beta2, ..own.clone() }));
        }
        Optimizer::Sgd(own) => {
            // What the slot has in addition to the new gradient is `momentum` of itself.
            let with: Option<Vec<f64>> =
                case.operands.get(1).map(|slot| d.iter().zip(slot).map(|(d, slot)| d + slot).collect());
            let kept = case.recorded_result(1).zip(with).and_then(|(now, with)| slope(now, &d, &with));
            let kept = kept.and_then(|kept| short(kept).parse::<f64>().ok());
            add("the momentum", own.momentum, kept, &|momentum| Optimizer::Sgd(Sgd { momentum, ..own.clone() }));
        }
        Optimizer::RmsProp(_)
        | Optimizer::Adagrad(_)
        | Optimizer::Lion(_)
        | Optimizer::Lars(_)
        | Optimizer::Lamb(_) => {}
    }
    rules
}

/// The parameters that were decayed although they should not be, or the other way round.
fn decayed_otherwise(cases: &Cases<'_>) -> Result<Vec<String>, GoldenError> {
    let base = cases.list.iter().map(|case| case.group.weight_decay).fold(0.0, f64::max);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for case in &cases.list {
        if cases.fits(case, &Rule::recipe(), None)? {
            continue;
        }
        if case.group.weight_decay > 0.0 && cases.fits(case, &Rule::recipe(), Some(0.0))? {
            without.push(case.name.to_owned());
        } else if case.group.weight_decay == 0.0 && base > 0.0 && cases.fits(case, &Rule::recipe(), Some(base))? {
            with.push(case.name.to_owned());
        } else {
            return Ok(Vec::new());
        }
    }
    let decay = short(base);
    Ok(match (with.as_slice(), without.as_slice()) {
        ([], []) => Vec::new(),
        (with, []) => vec![format!("the weight decay of {decay} were also for {}", listed(with))],
        ([], without) => vec![format!("there were no weight decay for {}", listed(without))],
        (with, without) => {
            vec![format!("the weight decay of {decay} were for {}, and none for {}", listed(with), listed(without))]
        }
    })
}
