//! What reference and fast kernels share of a formula: what is the same for all elements of a step.

use crate::Scalars;
use zoo_graph::{
    formula::{Formula, StepScalar, Term},
    ops::Map,
};

/// A formula of operands, rows' folds and numbers: [`Formula::expanded`], and by term its value, if it is the same for all
/// elements.
pub(crate) struct Prepared {
    pub formula: Formula,
    pub numbers: Vec<Option<f64>>,
}

impl Prepared {
    pub fn new(op: &Map, scalars: Scalars) -> Self {
        let formula = op.formula.expanded();
        let first = op.space.len() - formula.rows();
        let row: usize = op.space[first..].iter().product();
        let mut numbers: Vec<Option<f64>> = Vec::with_capacity(formula.terms().len());
        for term in formula.terms() {
            let number = |id: &zoo_graph::formula::TermId| numbers[id.0];
            let value = match term {
                Term::Operand(_) | Term::Coordinate(_) | Term::Row(..) | Term::Softmax(_) => None,
                Term::Constant(value) => Some(*value),
                Term::Step(StepScalar::LearningRate) => Some(scalars.learning_rate),
                Term::Step(StepScalar::Update) => Some((scalars.step - scalars.skipped) as f64 + 1.0),
                Term::RowSize => Some(row as f64),
                Term::Unary(function, x) => number(x).map(|x| function.of(x)),
                Term::Binary(function, a, b) => number(a).zip(number(b)).map(|(a, b)| function.of(a, b)),
                Term::Select(condition, yes, no) => match (number(condition), number(yes), number(no)) {
                    (Some(condition), Some(yes), Some(no)) => Some(if condition != 0.0 { yes } else { no }),
                    _ => None,
                },
            };
            numbers.push(value);
        }
        Self { formula, numbers }
    }
}

/// Distance between neighbours of a row-major tensor along each axis of the space that it is broadcast to.
pub(crate) fn plain_strides(op: &Map, shape: &zoo_graph::Shape) -> Vec<usize> {
    let mut strides = vec![0; op.space.len()];
    let mut numel = 1;
    for axis in (0..op.space.len()).rev() {
        let extent = op.extent_along(shape, axis);
        if extent != 1 {
            strides[axis] = numel;
        }
        numel *= extent;
    }
    strides
}
