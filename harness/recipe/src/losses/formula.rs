//! A loss term written as a formula.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{
    GraphError, Shape, TensorType, ValueId,
    formula::{Extent, Formula, names, parse},
    ops::{DeviceName, Fill, Gather, Map, Reshape, Scale},
};

use super::{Diagnostic, Judged, Terms};
use crate::builder::LABEL;

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
        Err(at.refuse(format!("the term `{name}` is a formula, which is not written in PyTorch yet")))
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
        let by_row = formula.extents()[formula.results()[0].term.0] == Extent::Row;
        let (folded, axes) = (formula.rows(), whole.len());
        let counted = if by_row { axes - folded } else { axes };
        let map = Map::over(formula.summed((0..axes).collect()), &at.types(&operands));
        let map = map.map_err(|error| at.refuse(error.to_string()))?;
        let elements: usize = map.space.iter().take(counted).product();
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
    let own = at.shape(value).clone();
    let mut rest = own.iter().copied().peekable();
    let missing = whole.len() - own.len();
    let mut added = 0;
    let shape: Vec<usize> = whole
        .iter()
        .map(|extent| match rest.peek() {
            Some(next) if next == extent || added == missing => rest.next().unwrap_or(1),
            _ => {
                added += 1;
                1
            }
        })
        .collect();
    at.add(format!("loss/{term}/{name}"), Reshape { shape: shape.into() }, &[value])
}
