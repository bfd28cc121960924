//! Formulas: a list of instructions over operands that broadcast, run block by block so that what is between them
//! stays in the cache.
//!
//! An instruction is one loop over the elements of a block, or over its rows where all elements of a row are the same,
//! compiled for every level of instructions. Rows that fit a block are folded in it, as many as it holds; longer ones
//! are folded first, once per fold, and computed then. Sums are kept in f64, within pieces that depend on the shape
//! alone, and added in their order: results have the same bits for any number of threads.

mod access;
mod instruction;
mod plan;
mod runner;

pub use instruction::{Binary, Instruction, Place, Unary};

use crate::Isa;
use runner::Runner;

/// Elements of a block: what a few instructions read and write stays in the first-level cache.
const BLOCK: usize = 1024;

/// Longest row that is one block.
const LONGEST_ROW: usize = 8 * 1024;

/// An operand: its elements, and its strides along the axes of the space.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// The elements as stored.
    pub data: Data<'a>,
    /// Distance between neighbours along each axis of the space; 0 where it is broadcast.
    pub strides: &'a [usize],
}

/// Elements of an operand.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Numbers.
    Float(&'a [f32]),
    /// Class indices, read as numbers.
    Index(&'a [u32]),
    /// What is in the result of this index before, element by element.
    Result(usize),
}

/// A result of a formula.
#[derive(Clone, Debug)]
pub struct Output {
    /// The instruction whose value it is.
    pub place: Place,
    /// Which of its elements.
    pub kind: OutputKind,
}

/// Which elements of a value are given.
#[derive(Clone, Debug)]
pub enum OutputKind {
    /// All of them.
    Elements,
    /// One per row.
    Rows,
    /// Sums.
    Sums {
        /// Strides of the result along the axes of the space, 0 where it is summed.
        strides: Vec<usize>,
        /// Whether the elements of a row, which are all the same, count once.
        rows: bool,
    },
}

/// A formula over a space.
#[derive(Clone, Debug)]
pub struct Formula {
    /// Extents of the space as stored, outermost axis first.
    pub space: Vec<usize>,
    /// Axes, the last ones, that make a row; 0: nothing is folded.
    pub rows: usize,
    /// What is computed.
    pub instructions: Vec<Instruction>,
    /// What is given.
    pub outputs: Vec<Output>,
}

impl Formula {
    /// Computes the results from the operands.
    ///
    /// # Panics
    /// If a result has another number of elements than its kind says, or an operand fewer than its strides reach.
    pub fn run(&self, isa: Isa, operands: &[Operand<'_>], results: &mut [&mut [f32]]) {
        let total: usize = self.space.iter().product();
        let row: usize = self.space[self.space.len() - self.rows..].iter().product();
        if total == 0 {
            results.iter_mut().for_each(|result| result.fill(0.0));
            return;
        }
        for (output, result) in self.outputs.iter().zip(results.iter()) {
            match output.kind {
                OutputKind::Elements => assert_eq!(result.len(), total, "elements of a result"),
                OutputKind::Rows => assert_eq!(result.len(), total / row, "rows of a result"),
                OutputKind::Sums { .. } => {}
            }
        }
        Runner::new(isa, self, operands).run(results);
    }
}

#[cfg(test)]
mod tests;
