//! Where the values of a formula's instructions are kept while a block is computed.
//!
//! Folds of rows, and what is computed of nothing else, are the same all along a row: there is one number of them per
//! row. Constants are read as they are, and operands where they are stored.

use super::{Formula, Instruction, OutputKind, Place};

/// Where the value of an instruction is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept<'a> {
    /// In the instruction: the same number everywhere.
    Number(f32),
    /// In memory, for the whole space.
    Stored(&'a [f32]),
    /// In this result, until it is computed.
    Result(usize),
    /// One number per row of the block, and in this register one per element, if a block has several rows and elements
    /// are asked for.
    Rows(Option<usize>),
    /// In this register.
    Elements(usize),
}

/// Where all values are.
pub(super) struct Plan<'a> {
    /// By instruction.
    pub kept: Vec<Kept<'a>>,
    /// Registers with one number per element.
    pub registers: usize,
}

/// What is known of an operand beforehand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// It has these elements of the space in their order.
    Whole(&'a [f32]),
    /// It is this result before it is computed.
    Result(usize),
    /// It is the same all along a row, or everywhere if there are no rows.
    SameInRow,
    /// Its elements have to be gathered.
    Scattered,
}

impl<'a> Plan<'a> {
    /// The plan for a formula with these operands, whose blocks have one row, or several.
    pub fn new(formula: &Formula, sources: &[Source<'a>], one_row: bool) -> Self {
        let instructions = &formula.instructions;
        let is_output = |n: Place| formula.outputs.iter().any(|output| output.place == n);
        let mut kept: Vec<Kept<'a>> = Vec::with_capacity(instructions.len());
        for (n, instruction) in instructions.iter().enumerate() {
            kept.push(match instruction {
                Instruction::Constant(value) => Kept::Number(*value),
                Instruction::Operand(operand) => match sources[*operand] {
                    Source::SameInRow => Kept::Rows(None),
                    Source::Whole(values) => Kept::Stored(values),
                    Source::Result(result) if !is_output(n) => Kept::Result(result),
                    Source::Result(_) | Source::Scattered => Kept::Elements(0),
                },
                Instruction::RowSum(_) | Instruction::RowMax(_) => Kept::Rows(None),
                Instruction::Coordinate { .. } => Kept::Elements(0),
                Instruction::Unary(..) | Instruction::Binary(..) | Instruction::Select(..) => {
                    let in_row = |argument: Place| matches!(kept[argument], Kept::Number(_) | Kept::Rows(_));
                    if instruction.arguments().all(in_row) { Kept::Rows(None) } else { Kept::Elements(0) }
                }
            });
        }
        // The last reader of each value, and whether it is read by element.
        let mut last: Vec<Place> = (0..kept.len()).collect();
        let mut by_element: Vec<bool> = kept.iter().map(|kept| matches!(kept, Kept::Elements(_))).collect();
        for (n, instruction) in instructions.iter().enumerate() {
            for argument in instruction.arguments() {
                last[argument] = n;
                by_element[argument] |= !one_row && matches!(kept[n], Kept::Elements(_));
            }
        }
        for output in &formula.outputs {
            last[output.place] = usize::MAX;
            by_element[output.place] |= match output.kind {
                OutputKind::Elements | OutputKind::Sums { rows: false, .. } => !one_row,
                OutputKind::Rows | OutputKind::Sums { rows: true, .. } => false,
            };
        }
        let (mut registers, mut free) = (0, Vec::new());
        for (n, instruction) in instructions.iter().enumerate() {
            if by_element[n] {
                let mut register = || {
                    free.pop().unwrap_or_else(|| {
                        registers += 1;
                        registers - 1
                    })
                };
                kept[n] = match kept[n] {
                    Kept::Elements(_) => Kept::Elements(register()),
                    Kept::Rows(_) => Kept::Rows(Some(register())),
                    Kept::Number(_) | Kept::Stored(_) | Kept::Result(_) => kept[n],
                };
            }
            // One is free again once the last reader has run.
            let mut read: Vec<Place> = instruction.arguments().chain([n]).collect();
            read.sort_unstable();
            read.dedup();
            free.extend(read.into_iter().filter(|read| last[*read] == n).filter_map(|read| match kept[read] {
                Kept::Elements(register) | Kept::Rows(Some(register)) => Some(register),
                Kept::Number(_) | Kept::Stored(_) | Kept::Result(_) | Kept::Rows(None) => None,
            }));
        }
        Self { kept, registers }
    }
}
