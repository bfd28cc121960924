//! Where the values of a formula's instructions are kept while a block is computed.
//!
//! Folds of rows, and what is computed of nothing else, are the same all along a row: there is one number of them per
//! row. Constants are read as they are, and operands where they are stored.

use super::{Formula, Instruction, OutputKind, Place};

/// What the blocks of a formula are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    /// Parts of rows whose folds are computed first.
    Parts,
    /// A row each, or any elements of a formula without rows.
    Rows,
    /// Several rows.
    Several,
}

/// Where the value of an instruction is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept<'a> {
    /// In the instruction: the same number everywhere.
    Number(f32),
    /// In memory, for the whole space.
    Stored(&'a [f32]),
    /// In this result, until that is computed.
    Before(usize),
    /// In this result: no later instruction reads what it had before.
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
    /// The plan for a formula with these operands.
    pub fn new(formula: &Formula, sources: &[Source<'a>], blocks: Blocks) -> Self {
        let mut kept = kept(formula, sources);
        if blocks != Blocks::Parts {
            compute_results_in_place(formula, sources, &mut kept);
        }
        let registers = choose_registers(formula, blocks, &mut kept);
        Self { kept, registers }
    }
}

/// Where values are, with registers still to be chosen.
fn kept<'a>(formula: &Formula, sources: &[Source<'a>]) -> Vec<Kept<'a>> {
    let is_output = |n: Place| formula.outputs.iter().any(|output| output.place == n);
    let mut kept: Vec<Kept<'a>> = Vec::with_capacity(formula.instructions.len());
    for (n, instruction) in formula.instructions.iter().enumerate() {
        kept.push(match instruction {
            Instruction::Constant(value) => Kept::Number(*value),
            Instruction::Operand(operand) => match sources[*operand] {
                Source::SameInRow => Kept::Rows(None),
                Source::Whole(values) => Kept::Stored(values),
                Source::Result(result) if !is_output(n) || given(formula, n) == Some(result) => Kept::Before(result),
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
    kept
}

/// The one result that has the elements of an instruction, if there are no others but sums.
fn given(formula: &Formula, n: Place) -> Option<usize> {
    let outputs = formula.outputs.iter().enumerate().filter(|(_, output)| output.place == n);
    let mut results = outputs.filter_map(|(result, output)| match output.kind {
        OutputKind::Elements => Some(Some(result)),
        OutputKind::Rows => Some(None),
        OutputKind::Sums { .. } => None,
    });
    results.next().flatten().filter(|_| results.next().is_none())
}

/// Lets an instruction write its elements to the result directly, if no later one reads what the result had before.
fn compute_results_in_place(formula: &Formula, sources: &[Source<'_>], kept: &mut [Kept<'_>]) {
    let instructions = &formula.instructions;
    let reads = |n: Place, result: usize| {
        let is_it = |place: Place| matches!(kept[place], Kept::Before(it) if it == result);
        let gathers = matches!(instructions[n], Instruction::Operand(operand)
            if matches!(sources[operand], Source::Result(it) if it == result));
        gathers || instructions[n].arguments().any(is_it)
    };
    let in_place = |n: Place| {
        let result = given(formula, n).filter(|_| matches!(kept[n], Kept::Elements(_)))?;
        (n..instructions.len()).all(|later| !reads(later, result)).then_some((n, result))
    };
    let found: Vec<(Place, usize)> = (0..instructions.len()).filter_map(in_place).collect();
    found.into_iter().for_each(|(n, result)| kept[n] = Kept::Result(result));
}

/// Chooses registers, and says how many there are: one is free again once the last reader has run.
fn choose_registers(formula: &Formula, blocks: Blocks, kept: &mut [Kept<'_>]) -> usize {
    let instructions = &formula.instructions;
    let several = blocks == Blocks::Several;
    let mut last: Vec<Place> = (0..kept.len()).collect();
    let mut by_element: Vec<bool> = kept.iter().map(|kept| matches!(kept, Kept::Elements(_))).collect();
    for (n, instruction) in instructions.iter().enumerate() {
        for argument in instruction.arguments() {
            last[argument] = n;
            by_element[argument] |= several && matches!(kept[n], Kept::Elements(_) | Kept::Result(_));
        }
    }
    for output in &formula.outputs {
        last[output.place] = usize::MAX;
        by_element[output.place] |= match output.kind {
            OutputKind::Elements | OutputKind::Sums { rows: false, .. } => several,
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
                Kept::Number(_) | Kept::Stored(_) | Kept::Before(_) | Kept::Result(_) => kept[n],
            };
        }
        let mut read: Vec<Place> = instruction.arguments().chain([n]).collect();
        read.sort_unstable();
        read.dedup();
        free.extend(read.into_iter().filter(|read| last[*read] == n).filter_map(|read| match kept[read] {
            Kept::Elements(register) | Kept::Rows(Some(register)) => Some(register),
            Kept::Number(_) | Kept::Stored(_) | Kept::Before(_) | Kept::Result(_) | Kept::Rows(None) => None,
        }));
    }
    registers
}
