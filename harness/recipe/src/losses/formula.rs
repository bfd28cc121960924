//! A loss term written as a formula.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{
    GraphError, Shape, TensorType, ValueId,
    formula::{Extent, Formula, names, parse},
    ops::{DeviceName, Fill, Gather, Map, Reshape, Scale},
};

use super::{Binding, Code, Diagnostic, Judged, Terms, real};
use crate::builder::LABEL;
use crate::python::{Read, broadcast};

zoo_settings::settings! {
    /// A term written as a formula over outputs of the model and inputs of the step: `"abs(probability - gt) * mask"`.
    ///
    /// Names are outputs of the model (`logits` if the model has one output) or inputs of the step. `label` is the
    /// class of each row of the first output, or the number that other terms ignore; rows with this number count,
    /// unless the formula leaves them out. Other inputs have the shape of the first output. Missing axes have one
    /// element. In addition to the functions of `map`, there are functions of a row, the last axis: `row_sum`,
    /// `row_mean`, `row_max`, `row_log_sum_exp`, `softmax`, `log_softmax`, and `row_index`, the position of an element
    /// in its row. Cross entropy is `"-row_sum(select(row_index == label, log_softmax(logits), 0))"`.
    pub struct FormulaTerm {
        /// The formula.
        pub formula: String,
        /// How its elements are reduced to one number.
        pub reduction: Reduction = Reduction::default(),
        /// Factor in the total.
        #[schemars(range(min = 0))]
        pub weight: f64 = 1.0,
    }
}

/// How the elements of a formula are reduced to one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Their mean; the mean over rows if the elements of a row are equal.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Their sum divided by the number of samples.
    BatchMean,
}

impl FormulaTerm {
    /// How it is written in PyTorch, under its name.
    pub(crate) fn emit(&self, name: &str, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let names = names(&self.formula);
        let first = names.iter().find_map(|name| at.output(name).ok());
        let whole = first.map(|(_, shape)| shape).ok_or_else(|| at.refuse("it uses no output of the network"))?;
        let mut reads = Vec::new();
        for name in &names {
            let (text, own, labels) = match at.output(name) {
                Ok((text, shape)) => (text, shape, false),
                Err(_) => (format!("batch[\"{name}\"]"), at.input(name)?, name == LABEL),
            };
            let axes = alignment(&own, &whole);
            let given = Code::text(format!("{text}{}", index(&axes)));
            let shape = axes.iter().map(|extent| extent.unwrap_or(1)).collect();
            reads.push(Read { name: name.clone(), given, shape, whole: labels });
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let formula = parse(&self.formula, &names, whole.len()).map_err(|error| at.refuse(error.to_string()))?;
        let space = reads.iter().fold(Vec::new(), |space, read| broadcast(&space, &read.shape));
        let elements = elements(&formula, &space, whole.len());
        let mean = self.reduction == Reduction::Mean;
        let (code, mean) = at.written_formula((name, &self.formula), &formula, reads, (elements, mean))?;
        let (samples, batch) = at.samples();
        let code = match (self.reduction, mean) {
            (Reduction::Mean, _) | (Reduction::Sum, false) => code,
            (Reduction::BatchMean, false) => code.around("", &format!(" / {samples}"), Binding::Product),
            (Reduction::BatchMean, true) => {
                code.around("", &format!(" * {}", real(elements as f64 / batch as f64)), Binding::Product)
            }
            (Reduction::Sum, true) => {
                let each = real(elements as f64 / batch as f64);
                code.around("", &format!(" * {each} * {samples}"), Binding::Product)
            }
        };
        at.term(name, self.weight, code);
        Ok(())
    }

    /// Adds the term under its name.
    pub(crate) fn build(&self, name: &str, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let names = names(&self.formula);
        let Some(whole) = names.iter().find_map(|name| at.output(name)).map(|value| at.shape(value).clone()) else {
            return Err(at.refuse(format!("`{}` uses no output of the network", self.formula)));
        };
        let mut operands = Vec::new();
        for operand in &names {
            let value = match at.output(operand) {
                Some(output) => output,
                None if operand == LABEL => class_numbers(at, name, &whole, at.ignored())?,
                None => at.input(operand, whole.clone())?,
            };
            let value =
                if at.shape(value).len() < whole.len() { aligned(at, (name, operand), value, &whole)? } else { value };
            operands.push(value);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let formula = parse(&self.formula, &names, whole.len()).map_err(|error| at.refuse(error.to_string()))?;
        let map = Map::over(formula.summed((0..whole.len()).collect()), &at.types(&operands));
        let map = map.map_err(|error| at.refuse(error.to_string()))?;
        let elements = elements(&map.formula, &map.space, whole.len());
        let map = map.named(DeviceName::new("LossFormula", "LossFormulaGrad"));
        let sum = at.add(format!("loss/{name}/sum"), map, &operands)?;
        let sum = at.add(format!("loss/{name}/scalar"), Reshape { shape: Shape::scalar() }, &[sum])?;
        let factor = match self.reduction {
            Reduction::Mean => 1.0 / elements as f64,
            Reduction::Sum => 1.0,
            Reduction::BatchMean => 1.0 / at.batch() as f64,
        };
        at.term((name, self.weight), Scale { factor }, &[sum])?;
        Ok(())
    }
}

/// Labels that can be numbers: classes of any vocabulary, and a label of 16 bits.
const MOST_PLACES: usize = 1 << 20;

/// The class of each row as a number, `[rows.., 1]`: the row of that place of a table of places, which includes the
/// place of an `ignored` label. Indices themselves take no other shape.
pub(super) fn class_numbers(
    at: &mut Terms<'_>,
    term: &str,
    whole: &Shape,
    ignored: Option<u32>,
) -> Result<ValueId, GraphError> {
    let places = at.classes.max(ignored.map_or(0, |label| label as usize + 1));
    let labels = at.labels(LABEL, whole, (at.classes, ignored))?;
    if places > MOST_PLACES {
        let message = format!("labels as numbers are below {MOST_PLACES}, but {} is ignored", places - 1);
        return Err(at.refuse(message));
    }
    let ty = TensorType::plain([places, 1], at.dtype());
    let zeros = at.add(format!("loss/{term}/zeros"), Fill { value: 0.0, ty }, &[])?;
    let places = Map::with_space(Formula::define(0, |[x]| [x + x.coordinate(0)]), at.shape(zeros).clone());
    let places = at.add(format!("loss/{term}/places"), places, &[zeros])?;
    at.add(format!("loss/{term}/label"), Gather::BY_OPERAND, &[places, labels])
}

/// Adds axes of one element to a value until it has the axes of `whole`.
fn aligned(
    at: &mut Terms<'_>,
    (term, name): (&str, &str),
    value: ValueId,
    whole: &Shape,
) -> Result<ValueId, GraphError> {
    let shape: Vec<usize> = alignment(at.shape(value), whole).into_iter().map(|extent| extent.unwrap_or(1)).collect();
    at.add(format!("loss/{term}/{name}"), Reshape { shape: shape.into() }, &[value])
}

/// The extents of a value in the axes of `whole`; `None` is an axis that is added.
fn alignment(own: &[usize], whole: &[usize]) -> Vec<Option<usize>> {
    let mut missing = whole.len().saturating_sub(own.len());
    let mut rest = own.iter().copied().peekable();
    let mut axes = Vec::new();
    for extent in whole {
        let fits = missing == 0 || rest.peek() == Some(extent);
        missing -= usize::from(!fits);
        axes.push(if fits { rest.next() } else { None });
    }
    axes.extend(rest.map(Some));
    axes
}

/// The index that adds axes.
fn index(axes: &[Option<usize>]) -> String {
    let is_added = |axis: &Option<usize>| axis.is_none();
    let Some(last) = axes.iter().rposition(is_added) else { return String::new() };
    let own = axes.iter().flatten().count();
    if axes[..own].iter().all(Option::is_some) {
        return format!("[...{}]", ", None".repeat(axes.len() - own));
    }
    let written: Vec<&str> = axes[..=last].iter().map(|axis| if is_added(axis) { "None" } else { ":" }).collect();
    format!("[{}]", written.join(", "))
}

/// How many elements of a formula over `space` count: one of each row if all of a row are equal.
fn elements(formula: &Formula, space: &[usize], axes: usize) -> usize {
    let by_row = formula.extents()[formula.results()[0].term.0] == Extent::Row;
    let counted = if by_row { axes - formula.rows() } else { axes };
    space.iter().take(counted).product()
}
