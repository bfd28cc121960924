//! The part of formulas shared by reference and fast kernels: values that are equal for all elements of a step.

mod evaluate;

use crate::Scalars;
pub(crate) use evaluate::{Evaluation, Number, Values};
use zoo_graph::{
    Shape,
    formula::{Formula, Term},
    ops::{Assign, Map},
};

/// A formula over a space.
pub(crate) struct Prepared {
    /// [`Formula::expanded`].
    pub formula: Formula,
    /// The value of each term, if it is the same for all elements.
    pub numbers: Vec<Option<f64>>,
    /// The elements for which it is computed.
    pub space: Shape,
}

impl Prepared {
    /// A formula over broadcast tensors.
    pub fn map(op: &Map) -> Self {
        let formula = op.formula.expanded();
        let first = op.space.len() - formula.rows();
        let row: usize = op.space[first..].iter().product();
        let numbers = formula.values(|term| matches!(term, Term::RowSize).then_some(row as f64));
        Self { formula, numbers, space: op.space.clone() }
    }

    /// An update of the given number of elements.
    pub fn assign(op: &Assign, elements: usize, scalars: Scalars) -> Self {
        let formula = op.formula.expanded();
        let update = (scalars.step - scalars.skipped) as f64 + 1.0;
        let numbers = formula.values(|term| match term {
            Term::Step(scalar) => Some(op.step(*scalar, scalars.learning_rate, update)),
            Term::Operand(_) | Term::Constant(_) | Term::RowSize | Term::Coordinate(_) | Term::Unary(..) => None,
            Term::Binary(..) | Term::Select(..) | Term::Row(..) => None,
            Term::Softmax(_) | Term::LogSoftmax(_) => None,
        });
        Self { formula, numbers, space: [elements].into() }
    }

    /// Strides of a row-major tensor along each axis of the space to which it is broadcast.
    pub fn strides(&self, shape: &Shape) -> Vec<usize> {
        let mut strides = vec![0; self.space.len()];
        let mut numel = 1;
        for axis in (0..self.space.len()).rev() {
            let own = (axis + shape.len()).checked_sub(self.space.len());
            let extent = own.map_or(1, |own| shape[own]);
            if extent != 1 {
                strides[axis] = numel;
            }
            numel *= extent;
        }
        strides
    }
}
