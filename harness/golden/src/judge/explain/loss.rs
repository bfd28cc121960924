//! Losses with another formula: summed, smoothed otherwise, over other parameters.

use super::{Explanation, Judged, as_if, gradient::L2, line_of, rules::short};
use crate::{
    GoldenError,
    compare::{F32_WORST, LOSS_FLOOR},
    judge::{forced::Given, given, targets::Target},
    report::Stage,
    weights,
};
use candle_core::{Device, Tensor};
use zoo_engine::{EngineError, Scalars, reference};
use zoo_graph::{
    Node, Op, ValueId, VariableRole,
    ops::{SmoothingOver, SoftmaxCrossEntropy},
};

/// Amounts of label smoothing that ports have.
const SMOOTHINGS: [f64; 4] = [0.0, 0.1, 0.2, 0.05];

/// A term of the total loss.
struct Term<'a> {
    node: &'a Node,
    weight: f64,
    /// Its exact value.
    value: f64,
}

/// Another value of a term, and what gives it.
struct Alternative {
    text: String,
    node: String,
    value: f64,
}

impl Judged<'_> {
    /// What was computed in place of a loss: the total, or a term that is recorded by itself.
    pub(super) fn explain_loss(&self, place: usize) -> Result<Explanation, GoldenError> {
        let none = Explanation::default();
        let (Some(entry), Some(exact)) = (self.matched.entries.get(&place), self.losses.get(&place)) else {
            return Ok(none);
        };
        let Some(recorded) = entry.array()?.and_then(|array| array.values.first().copied()) else { return Ok(none) };
        let floor = self.found[place].as_ref().map_or(LOSS_FLOOR, |found| self.item(place, entry, found).floor);
        let same = |value: f64| (recorded - value).abs() <= F32_WORST * floor * value.abs();
        let mut found: Vec<Alternative> = Vec::new();
        for term in self.terms(place, *exact) {
            let total = |value: f64| exact + term.weight * (value - term.value);
            let alternatives = self.alternatives(&term)?.into_iter();
            found.extend(alternatives.filter(|other| same(total(other.value))));
        }
        if self.targets.list[place].name == "loss" {
            found.extend(self.with_decay(*exact).into_iter().filter(|other| same(other.value)));
        }
        // The same sum in other words is no alternative.
        found.dedup_by(|later, first| (later.value - first.value).abs() <= LOSS_FLOOR * first.value.abs());
        let texts: Vec<String> = found.iter().map(|other| other.text.clone()).collect();
        let one_node = found.first().filter(|first| found.iter().all(|other| other.node == first.node));
        let line = one_node.and_then(|one| line_of(self.graph, &one.node));
        Ok(Explanation { hints: as_if(&texts).into_iter().collect(), line })
    }

    /// The terms of a loss.
    fn terms(&self, place: usize, loss: f64) -> Vec<Term<'_>> {
        let node = |value: ValueId| self.graph.producer(value);
        let Target { value, name, .. } = &self.targets.list[place];
        let several = name == "loss" && self.graph.losses.len() > 1;
        let Some(Node { op: Op::WeightedSum(op), inputs, .. }) = node(*value).filter(|_| several) else {
            return node(*value).map(|node| Term { node, weight: 1.0, value: loss }).into_iter().collect();
        };
        let exact = |value: ValueId| {
            let place = self.targets.list.iter().position(|t| t.stage == Stage::Loss && t.value == value)?;
            self.losses.get(&place).copied()
        };
        let term = |(value, weight): (&ValueId, &f64)| {
            Some(Term { node: node(*value)?, weight: *weight, value: exact(*value)? })
        };
        inputs.iter().zip(&op.weights).filter_map(term).collect()
    }

    /// Other values that a term has in ports.
    fn alternatives(&self, term: &Term<'_>) -> Result<Vec<Alternative>, GoldenError> {
        let name = term.node.name.trim_start_matches("loss/").to_owned();
        let other = |text: String, value: f64| Alternative { text, node: term.node.name.clone(), value };
        let mut all = Vec::new();
        if term.node.name == L2 {
            all.extend(self.other_sums(&other));
            return Ok(all);
        }
        let shape = term.node.inputs.first().map(|value| self.graph.ty(*value).shape.to_vec()).unwrap_or_default();
        let [batch, .., classes] = shape[..] else { return Ok(all) };
        let rows = shape.iter().product::<usize>() / classes.max(1);
        if batch > 1 {
            all.push(other(
                format!("`{name}` were summed over the {batch} samples, not averaged"),
                term.value * batch as f64,
            ));
        }
        if rows > batch {
            all.push(other(
                format!("`{name}` were summed over its {rows} rows, not averaged"),
                term.value * rows as f64,
            ));
        }
        if let Op::SoftmaxCrossEntropy(op) = &term.node.op {
            all.push(other(format!("`{name}` were averaged over the classes too"), term.value / classes as f64));
            let definitions = [SmoothingOver::AllClasses, SmoothingOver::OtherClasses];
            let amounts = SMOOTHINGS.into_iter().filter(|smoothing| *smoothing != op.smoothing).chain([op.smoothing]);
            for (smoothing, over) in amounts.flat_map(|smoothing| definitions.map(|over| (smoothing, over))) {
                let is_own = smoothing == op.smoothing && over == op.over;
                if is_own || (smoothing == 0.0 && over != op.over) {
                    continue;
                }
                let changed = SoftmaxCrossEntropy { smoothing, over, ..op.clone() };
                if let Some(value) = self.cross_entropy(term.node, changed)? {
                    all.push(other(format!("labels were smoothed {}", smoothed(smoothing, over)), value));
                }
            }
        }
        if term.value != 0.0 {
            all.push(other(format!("there were no `{name}` in the loss"), 0.0));
        }
        Ok(all)
    }

    /// The L2 term over other parameters.
    fn other_sums(&self, other: &dyn Fn(String, f64) -> Alternative) -> Vec<Alternative> {
        let Some((weight, own)) = self.regularised() else { return Vec::new() };
        let of = |takes: &dyn Fn(&VariableRole) -> bool| weight * self.half_squares(takes);
        let weights = |role: &VariableRole| *role == VariableRole::Weight;
        let biases = |role: &VariableRole| matches!(role, VariableRole::Bias | VariableRole::NormBias);
        let sums = [
            ("all parameters", of(&VariableRole::is_parameter)),
            ("weights, and no biases or normalisations", of(&weights)),
            ("weights and biases, and no normalisations", of(&|role| weights(role) || *role == VariableRole::Bias)),
            ("all parameters but biases", of(&|role| role.is_parameter() && !biases(role))),
        ];
        let whole = of(&|role| role.is_parameter() && !own.is_empty());
        let mut all: Vec<Alternative> =
            sums.into_iter().map(|(over, value)| other(format!("`l2` summed over {over}"), value)).collect();
        all.push(other("there were no `l2` in the loss".to_owned(), 0.0));
        all.push(other("`l2` were not halved".to_owned(), 2.0 * whole));
        all
    }

    /// Half the sum of the squares of some variables at the start.
    fn half_squares(&self, takes: &dyn Fn(&VariableRole) -> bool) -> f64 {
        let variables = self.graph.variables.iter().filter(|variable| takes(&variable.role));
        let values = variables.filter_map(|variable| {
            self.start.values(self.golden, &variable.name, self.graph.ty(variable.value).shape.numel())
        });
        values.map(|values| values.iter().map(|x| x * x).sum::<f64>() / 2.0).sum()
    }

    /// The total loss with the weight decay of the update in it.
    fn with_decay(&self, exact: f64) -> Vec<Alternative> {
        let updates = self.graph.nodes.iter().filter_map(|node| self.graph.optimized(node));
        let decay = updates.map(|update| update.group.weight_decay).fold(0.0, f64::max);
        let all = ("all parameters", self.half_squares(&VariableRole::is_parameter));
        let weights = ("weights", self.half_squares(&|role| *role == VariableRole::Weight));
        let each = [all, weights].into_iter().filter(|_| decay > 0.0).map(|(over, squares)| Alternative {
            text: format!("the weight decay of {} were in the loss, over {over}", short(decay)),
            node: String::new(),
            value: exact + decay * squares,
        });
        each.collect()
    }

    /// A cross entropy of the recorded logits.
    fn cross_entropy(&self, node: &Node, op: SoftmaxCrossEntropy) -> Result<Option<f64>, GoldenError> {
        let [logits, labels] = node.inputs[..] else { return Ok(None) };
        let recorded = self.matched.entries.iter().find(|(place, _)| self.targets.list[**place].value == logits);
        let Some(Given::Elements(array)) = recorded.map(|(_, entry)| given(entry, 1.0)).transpose()? else {
            return Ok(None);
        };
        let input = self.graph.inputs.iter().find(|input| input.value == labels);
        let Some(input) = input.filter(|_| array.values.len() == self.graph.ty(logits).shape.numel()) else {
            return Ok(None);
        };
        let classes: Vec<u32> = weights::input(self.golden, &input.name)?.into_iter().map(|x| x as u32).collect();
        let logits = Tensor::from_vec(array.values, self.graph.ty(logits).shape.to_vec(), &Device::Cpu);
        let labels = Tensor::from_vec(classes, self.graph.ty(labels).shape.to_vec(), &Device::Cpu);
        let operands = [logits.map_err(EngineError::from)?, labels.map_err(EngineError::from)?];
        let results = reference::evaluate(&node.name, &Op::SoftmaxCrossEntropy(op), &operands, Scalars::default())?;
        Ok(results.first().and_then(|loss| loss.to_scalar::<f64>().ok()))
    }
}

/// A definition of label smoothing in words.
fn smoothed(smoothing: f64, over: SmoothingOver) -> String {
    match (smoothing, over) {
        (0.0, _) => "not at all".to_owned(),
        (_, SmoothingOver::AllClasses) => format!("by {smoothing} over all classes"),
        (_, SmoothingOver::OtherClasses) => format!("by {smoothing} over the other classes"),
    }
}
