//! Recorded updates, and what other rules would give.

use super::{
    Judged,
    rules::{Clipping, Rule},
};
use crate::{
    GoldenError,
    compare::{F32_WORST, TENSOR_FLOOR},
    foreign::Quantity,
    items::slot_key,
    judge::{
        found::{Given, norm},
        given,
        targets::PARAMETER,
    },
    probe::to_f64,
};
use candle_core::{Device, Tensor};
use zoo_engine::{EngineError, reference};
use zoo_graph::{
    Op, Source, VariableRole,
    ops::{Assign, Group, Update},
};
use zoo_recipe::{Recipe, schema::Clip};

/// What PyTorch's `clip_grad_norm_` adds to the norm.
const NORM_EPS: f64 = 1e-6;

/// The update of a parameter.
pub(super) struct Case<'a> {
    pub name: &'a str,
    op: &'a Assign,
    pub group: Group,
    /// The parameter and its slots before the step.
    pub operands: Vec<Vec<f64>>,
    /// The recorded gradient, before clipping.
    pub gradient: Option<Vec<f64>>,
    recorded: Vec<Recorded>,
}

/// A recorded result of an update.
struct Recorded {
    /// Which one.
    result: usize,
    values: Vec<f64>,
    /// The error that counts as one floor.
    floor: f64,
    fails: bool,
}

impl Case<'_> {
    /// A recorded result: that of the parameter is 0, and its slots follow.
    pub fn recorded_result(&self, result: usize) -> Option<&[f64]> {
        self.recorded.iter().find(|recorded| recorded.result == result).map(|recorded| recorded.values.as_slice())
    }

    fn fails(&self) -> bool {
        self.recorded.iter().any(|recorded| recorded.fails)
    }
}

/// All recorded updates, those that fail first.
pub(super) struct Cases<'a> {
    pub list: Vec<Case<'a>>,
    judged: &'a Judged<'a>,
    /// The Euclidean norm of all gradients together, and their largest magnitude.
    norm: f64,
    largest: f64,
    /// What the recipe does to the gradients.
    own: Vec<Change>,
}

impl Judged<'_> {
    /// The recorded updates; none if those that fail cannot be computed again.
    pub(super) fn cases(&self) -> Result<Option<Cases<'_>>, GoldenError> {
        let mut list = Vec::new();
        for node in &self.graph.nodes {
            let (Some(optimized), Op::Assign(op)) = (self.graph.optimized(node), &node.op) else { continue };
            let parameter = self.graph.variable(optimized.parameter);
            let mut case = Case {
                name: &parameter.name,
                op,
                group: optimized.group,
                operands: Vec::new(),
                gradient: None,
                recorded: Vec::new(),
            };
            let results = node.inputs.len() - 1;
            for (result, value) in node.inputs.iter().take(results).enumerate() {
                let Source::Variable(id) = self.graph.value(*value).source else { return Ok(None) };
                let variable = self.graph.variable(id);
                let numel = self.graph.ty(*value).shape.numel();
                let kind = match variable.role {
                    VariableRole::Slot { slot, .. } => slot_key(slot),
                    VariableRole::Weight
                    | VariableRole::Bias
                    | VariableRole::NormWeight
                    | VariableRole::NormBias
                    | VariableRole::RunningMean
                    | VariableRole::RunningVar
                    | VariableRole::Average { .. } => PARAMETER,
                };
                let start = self.start.values(self.golden, &variable.name, numel);
                case.operands.push(start.unwrap_or_else(|| vec![0.0; numel]));
                let quantity = Quantity::After { kind: kind.to_owned(), name: parameter.name.clone() };
                case.recorded.extend(self.recorded(&quantity, result, numel)?);
            }
            let gradient = self.targets.find(&Quantity::Gradient(parameter.name.clone()));
            let entry = gradient.and_then(|place| self.matched.entries.get(&place));
            let elements = entry.map(|entry| given(entry, self.options.loss_scale)).transpose()?;
            if let Some(Given::Elements(array)) = elements
                && array.values.len() == case.operands[0].len()
            {
                case.gradient = Some(array.values);
            }
            list.push(case);
        }
        let clips = !self.recipe.gradients.clip.is_empty();
        let leaks = self.recipe.train.parts.iter().any(|part| part.leaks);
        let lacks = |case: &Case<'_>| case.gradient.is_none() && (clips || case.fails());
        if leaks || list.iter().any(lacks) || !list.iter().any(Case::fails) {
            return Ok(None);
        }
        list.sort_by_key(|case| !case.fails());
        let (norm, largest) = (norm_of(&list, &[]), list.iter().filter_map(|case| case.gradient.as_ref()).flatten());
        let largest = largest.fold(0.0, |largest: f64, x| x.abs().max(largest));
        let mut own = Vec::new();
        for clip in &self.recipe.gradients.clip {
            own.push(match clip {
                Clip::Norm(bound) => Change::to_norm(*bound, norm_of(&list, &own)),
                Clip::Value(bound) => Change::Clamp(*bound),
            });
        }
        Ok(Some(Cases { list, judged: self, norm, largest, own }))
    }

    fn recorded(&self, quantity: &Quantity, result: usize, numel: usize) -> Result<Option<Recorded>, GoldenError> {
        let Some(place) = self.targets.find(quantity) else { return Ok(None) };
        let (Some(entry), Some(found)) = (self.matched.entries.get(&place), &self.found[place]) else {
            return Ok(None);
        };
        let item = self.item(place, entry, found);
        let Some(array) = entry.array()?.filter(|array| array.values.len() == numel) else { return Ok(None) };
        // Tensors that are rounding errors, or not finite, say nothing about a rule.
        let speaks = item.counts && found.note.is_none();
        let recorded = Recorded { result, values: array.values, floor: item.floor, fails: item.ratio > F32_WORST };
        Ok(speaks.then_some(recorded))
    }
}

impl Cases<'_> {
    pub fn recipe(&self) -> &Recipe {
        self.judged.recipe
    }

    /// The first case that fails, with its first result that fails.
    pub fn failing(&self) -> Option<(&Case<'_>, usize)> {
        let result = |case: &Case<'_>| case.recorded.iter().filter(|r| r.fails).map(|r| r.result).max();
        self.list.iter().find_map(|case| Some((case, result(case)?)))
    }

    /// The learning rate of a case.
    pub fn rate_of(&self, case: &Case<'_>) -> f64 {
        self.judged.start.rate * case.group.lr_scale
    }

    /// The bound of the norm of all gradients that multiplies them by this.
    pub fn bound_of(&self, factor: f64) -> f64 {
        factor * (self.norm + NORM_EPS)
    }

    /// Whether a rule gives all recorded results.
    pub fn fit(&self, rule: &Rule) -> Result<bool, GoldenError> {
        for case in &self.list {
            if !self.fits(case, rule, None)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a rule gives the recorded results of a case, perhaps with another decay.
    pub fn fits(&self, case: &Case<'_>, rule: &Rule, decay: Option<f64>) -> Result<bool, GoldenError> {
        if case.gradient.is_none() {
            return Ok(true);
        }
        let results = self.results(case, rule, decay)?;
        Ok(case.recorded.iter().all(|recorded| {
            let result = &results[recorded.result];
            let of = |a: &[f64], b: &[f64]| norm(&mut a.iter().zip(b).map(|(a, b)| a - b));
            let whole = norm(&mut result.iter().copied());
            let (size, stored) = match recorded.result {
                // The change may be smaller than the recipe's, and the parameter is stored in f32 all the same.
                0 => (of(result, &case.operands[0]), TENSOR_FLOOR * whole),
                _ => (whole, 0.0),
            };
            of(&recorded.values, result) <= F32_WORST * recorded.floor * size + stored
        }))
    }

    /// The results of a rule.
    pub fn results(&self, case: &Case<'_>, rule: &Rule, decay: Option<f64>) -> Result<Vec<Vec<f64>>, GoldenError> {
        let Update::Optimizer { slots, group, decay: term, longest } = case.op.update else { return Ok(Vec::new()) };
        let decays = group.weight_decay > 0.0 || self.list.iter().all(|case| case.group.weight_decay == 0.0);
        let weight_decay = decay.or(rule.decay.filter(|_| decays)).unwrap_or(group.weight_decay);
        let update = Update::Optimizer { slots, group: Group { weight_decay, ..group }, decay: term, longest };
        let formula = rule.formula.clone().unwrap_or_else(|| case.op.formula.clone());
        let op = Op::Assign(Assign::new(formula, case.op.device, update));
        let gradient = case.gradient.as_deref().map(|gradient| self.clipped(rule, gradient)).unwrap_or_default();
        let tensor = |values: &[f64]| Tensor::from_slice(values, values.len(), &Device::Cpu).map_err(EngineError::from);
        let mut operands = case.operands.iter().map(|values| tensor(values)).collect::<Result<Vec<_>, _>>()?;
        operands.push(tensor(&gradient)?);
        let mut scalars = self.judged.start.scalars(1.0);
        scalars.learning_rate *= rule.rate;
        let results = reference::evaluate(case.name, &op, &operands, scalars)?;
        let results = results.iter().map(to_f64).collect::<Result<_, _>>();
        Ok(results.map_err(EngineError::from)?)
    }

    /// A gradient as the rule clips it.
    pub fn clipped(&self, rule: &Rule, gradient: &[f64]) -> Vec<f64> {
        let change = match rule.clipping {
            Clipping::Recipe => return changed(gradient, &self.own),
            Clipping::None => return gradient.to_vec(),
            Clipping::NormOfEach(bound) => Change::to_norm(bound, norm(&mut gradient.iter().copied())),
            Clipping::Norm(bound) => Change::to_norm(bound, self.norm),
            Clipping::Largest(bound) => Change::to_norm(bound, self.largest),
            Clipping::Elements(bound) => Change::Clamp(bound),
            Clipping::Factor(factor) => Change::Scale(factor),
        };
        changed(gradient, &[change])
    }
}

/// The norm of all gradients together, after these changes.
fn norm_of(list: &[Case<'_>], changes: &[Change]) -> f64 {
    let gradients = list.iter().filter_map(|case| case.gradient.as_ref());
    gradients.map(|gradient| norm(&mut changed(gradient, changes).into_iter()).powi(2)).sum::<f64>().sqrt()
}

fn changed(gradient: &[f64], changes: &[Change]) -> Vec<f64> {
    changes.iter().fold(gradient.to_vec(), |gradient, change| match *change {
        Change::Scale(factor) => gradient.into_iter().map(|x| x * factor).collect(),
        Change::Clamp(bound) => gradient.into_iter().map(|x| x.clamp(-bound, bound)).collect(),
    })
}

/// What clipping does to a gradient.
enum Change {
    Scale(f64),
    Clamp(f64),
}

impl Change {
    fn to_norm(bound: f64, norm: f64) -> Self {
        Self::Scale((bound / (norm + NORM_EPS)).min(1.0))
    }
}
