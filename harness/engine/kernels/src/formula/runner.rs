//! Cuts the work of a formula into pieces and blocks, for several threads, and adds the sums of the pieces.

mod block;

use super::access::Access;
use super::instruction::Value;
use super::plan::{Blocks, Kept, Plan, Source};
use super::{BLOCK, Data, Formula, Instruction, LONGEST_ROW, Operand, OutputKind, Place, instruction};
use crate::{Isa, planes::TASK_LEN, prefetch};
use block::{Block, Registers};
use rayon::prelude::*;

/// Most pieces whose sums are kept apart before they are added.
const MOST_PIECES: usize = 32;

/// A formula that is run on operands.
pub(super) struct Runner<'a> {
    pub isa: Isa,
    pub formula: &'a Formula,
    pub plan: Plan<'a>,
    pub operands: &'a [Operand<'a>],
    pub accesses: Vec<Access>,
    /// By output, where it is summed.
    pub sums: Vec<Option<Access>>,
    total: usize,
    /// Elements of a row.
    pub row: usize,
    /// Elements of a block: some whole rows, or part of the one row.
    unit: usize,
    pub blocks: Blocks,
}

/// Consecutive elements of the space, and the parts of the results that belong to them.
pub(super) struct Piece<'r> {
    pub start: usize,
    len: usize,
    pub results: Vec<&'r mut [f32]>,
    /// By result, what the piece adds to it where it is a sum.
    pub sums: Vec<Vec<f64>>,
}

impl<'a> Runner<'a> {
    pub fn new(isa: Isa, formula: &'a Formula, operands: &'a [Operand<'a>]) -> Self {
        let row: usize = formula.space[formula.space.len() - formula.rows..].iter().product();
        let (blocks, unit) = match BLOCK / row {
            _ if formula.rows == 0 => (Blocks::Rows, BLOCK),
            _ if row > LONGEST_ROW => (Blocks::Parts, BLOCK),
            0 | 1 => (Blocks::Rows, row),
            rows => (Blocks::Several, rows * row),
        };
        let accesses: Vec<Access> =
            operands.iter().map(|operand| Access::new(&formula.space, operand.strides)).collect();
        let source = |(operand, access): (&Operand<'a>, &Access)| {
            let along = if formula.rows == 0 { 0 } else { operand.strides.len() - formula.rows };
            match operand.data {
                Data::Result(result) => Source::Result(result),
                Data::Float(values) if access.is_whole() => Source::Whole(values),
                Data::Float(_) if operand.strides[along..].iter().all(|stride| *stride == 0) => Source::SameInRow,
                Data::Float(_) | Data::Index(_) => Source::Scattered,
            }
        };
        let sources: Vec<Source<'_>> = operands.iter().zip(&accesses).map(source).collect();
        let sums = formula.outputs.iter().map(|output| match &output.kind {
            OutputKind::Sums { strides, .. } => Some(Access::new(&formula.space, strides)),
            OutputKind::Elements | OutputKind::Rows => None,
        });
        Self {
            isa,
            formula,
            plan: Plan::new(formula, &sources, blocks),
            operands,
            accesses,
            sums: sums.collect(),
            total: formula.space.iter().product(),
            row,
            unit,
            blocks,
        }
    }

    pub fn run(&self, results: &mut [&mut [f32]]) {
        match self.blocks {
            Blocks::Rows | Blocks::Several => self.run_blocks(results),
            Blocks::Parts => self.run_long_rows(results),
        }
    }

    /// Blocks that are independent of each other: no rows, or whole ones.
    fn run_blocks(&self, results: &mut [&mut [f32]]) {
        let everything: Vec<bool> = vec![true; self.formula.instructions.len()];
        let mut totals = self.zeros(results);
        self.in_pieces(0, self.total, results, &everything, None, &mut totals);
        self.give_sums(&totals, results);
    }

    /// By result, the sums of nothing where it is a sum.
    fn zeros(&self, results: &[&mut [f32]]) -> Vec<Vec<f64>> {
        let len = |(sums, result): (&Option<Access>, &&mut [f32])| if sums.is_some() { result.len() } else { 0 };
        self.sums.iter().zip(results).map(|both| vec![0.0; len(both)]).collect()
    }

    /// Rounds the sums of all pieces to the results.
    fn give_sums(&self, totals: &[Vec<f64>], results: &mut [&mut [f32]]) {
        for (totals, result) in totals.iter().zip(results) {
            result.iter_mut().zip(totals).for_each(|(result, total)| *result = *total as f32);
        }
    }

    /// Rows longer than a block: every fold is a pass over the row, and so are the results.
    fn run_long_rows(&self, results: &mut [&mut [f32]]) {
        let instructions = &self.formula.instructions;
        let mut totals = self.zeros(results);
        for row in 0..self.total / self.row {
            let start = row * self.row;
            let mut folds: Vec<f32> = vec![0.0; instructions.len()];
            for (n, instruction) in instructions.iter().enumerate() {
                folds[n] = match instruction {
                    Instruction::RowSum(x) => {
                        let sum = |block: Value<'_>, len| match block {
                            Value::Elements(block) => instruction::sum(self.isa, block),
                            Value::Number(x) => f64::from(x) * len as f64,
                        };
                        let parts = self.fold(*x, start, &folds, results, sum);
                        parts.into_iter().sum::<f64>() as f32
                    }
                    Instruction::RowMax(x) => {
                        let largest = |block: Value<'_>, _| match block {
                            Value::Elements(block) => f64::from(instruction::largest(self.isa, block)),
                            Value::Number(x) => f64::from(x),
                        };
                        let parts = self.fold(*x, start, &folds, results, largest);
                        parts.into_iter().fold(f64::NEG_INFINITY, |all, x| if x > all || x.is_nan() { x } else { all })
                            as f32
                    }
                    Instruction::Operand(_)
                    | Instruction::Constant(_)
                    | Instruction::Coordinate { .. }
                    | Instruction::Unary(..)
                    | Instruction::Binary(..)
                    | Instruction::Select(..) => continue,
                };
            }
            let outputs: Vec<Place> = self.formula.outputs.iter().map(|output| output.place).collect();
            let needed = self.needed(&outputs);
            self.in_pieces(start, self.row, results, &needed, Some(&folds), &mut totals);
        }
        self.give_sums(&totals, results);
    }

    /// A fold of each block of a row, in order.
    fn fold(
        &self,
        place: Place,
        start: usize,
        folds: &[f32],
        results: &[&mut [f32]],
        of: impl Fn(Value<'_>, usize) -> f64 + Sync,
    ) -> Vec<f64> {
        let needed = self.needed(&[place]);
        let blocks = self.row.div_ceil(BLOCK);
        let per_task = TASK_LEN / BLOCK;
        let task = |task: usize| {
            let mut registers = self.registers(self.unit);
            let blocks = task * per_task..((task + 1) * per_task).min(blocks);
            let block = |block: usize| {
                let at = start + block * BLOCK;
                let len = BLOCK.min(start + self.row - at);
                let block = Block { at, len, results, within: at, folds: Some(folds) };
                (0..needed.len()).filter(|n| needed[*n]).for_each(|n| self.compute(n, block, &mut registers));
                of(self.value(place, block, &registers), len)
            };
            blocks.map(block).collect::<Vec<f64>>()
        };
        (0..blocks.div_ceil(per_task)).into_par_iter().flat_map_iter(task).collect()
    }

    /// The instructions that these need, folds of rows apart.
    fn needed(&self, places: &[Place]) -> Vec<bool> {
        let instructions = &self.formula.instructions;
        let mut needed = vec![false; instructions.len()];
        places.iter().for_each(|place| needed[*place] = true);
        for (n, instruction) in instructions.iter().enumerate().rev() {
            let folded = matches!(instruction, Instruction::RowSum(_) | Instruction::RowMax(_));
            if needed[n] && !folded {
                instruction.arguments().for_each(|argument| needed[argument] = true);
            }
        }
        needed
    }

    /// Computes `len` elements from `start` in pieces of whole units, in parallel, and adds their sums to the totals in
    /// order. Registers, with room for a unit, serve many pieces: those of each piece would take the allocator's one
    /// lock.
    fn in_pieces(
        &self,
        start: usize,
        len: usize,
        results: &mut [&mut [f32]],
        needed: &[bool],
        folds: Option<&[f32]>,
        totals: &mut [Vec<f64>],
    ) {
        let units = len.div_ceil(self.unit);
        let mut per_piece = (TASK_LEN / self.unit).max(1);
        if self.sums.iter().any(Option::is_some) {
            per_piece = per_piece.max(units.div_ceil(MOST_PIECES));
        }
        let mut rest: Vec<&mut [f32]> = Vec::new();
        for (output, result) in self.formula.outputs.iter().zip(results.iter_mut()) {
            rest.push(match output.kind {
                OutputKind::Elements => &mut result[start..start + len],
                OutputKind::Rows => {
                    let rows = (len / self.row).max(1);
                    &mut result[start / self.row..start / self.row + rows]
                }
                OutputKind::Sums { .. } => &mut [],
            });
        }
        let mut pieces = Vec::new();
        for first in (0..units).step_by(per_piece) {
            let from = first * self.unit;
            let piece_len = (per_piece * self.unit).min(len - from);
            let parts = rest.iter_mut().zip(&self.formula.outputs).map(|(rest, output)| {
                let own = match output.kind {
                    OutputKind::Elements => piece_len,
                    // The pieces of a long row share its one number: the first piece gives it.
                    OutputKind::Rows => (piece_len / self.row).max(1).min(rest.len()),
                    OutputKind::Sums { .. } => 0,
                };
                rest.split_off_mut(..own).unwrap_or_default()
            });
            pieces.push(Piece { start: start + from, len: piece_len, results: parts.collect(), sums: Vec::new() });
        }
        let zero: Vec<Vec<f64>> = totals.iter().map(|totals| vec![0.0; totals.len()]).collect();
        let found: Vec<Vec<Vec<f64>>> = pieces
            .into_par_iter()
            .map_init(
                || self.registers(self.unit),
                |registers, mut piece| {
                    piece.sums.clone_from(&zero);
                    let end = piece.start + piece.len;
                    for at in (piece.start..end).step_by(self.unit) {
                        self.block(needed, folds, at, self.unit.min(end - at), &mut piece, registers);
                    }
                    piece.sums
                },
            )
            .collect();
        for piece in found {
            for (totals, parts) in totals.iter_mut().zip(piece) {
                totals.iter_mut().zip(parts).for_each(|(total, part)| *total += part);
            }
        }
    }

    /// Computes a block of a piece, and brings it into the results.
    fn block(
        &self,
        needed: &[bool],
        folds: Option<&[f32]>,
        at: usize,
        len: usize,
        piece: &mut Piece<'_>,
        registers: &mut Registers,
    ) {
        let within = at - piece.start;
        self.prefetch(at + len, within + len, len, piece);
        for n in (0..needed.len()).filter(|n| needed[*n]) {
            match self.plan.kept[n] {
                Kept::Result(r) => {
                    let result = std::mem::take(&mut piece.results[r]);
                    let block = Block { at, len, results: &piece.results, within, folds };
                    self.run_instruction(n, false, block, registers, &mut result[within..][..len]);
                    piece.results[r] = result;
                }
                Kept::Number(_) | Kept::Stored(_) | Kept::Before(_) | Kept::Rows(_) | Kept::Elements(_) => {
                    let block = Block { at, len, results: &piece.results, within, folds };
                    self.compute(n, block, registers);
                }
            }
        }
        self.give(at, len, piece, registers);
    }

    /// Asks for the operands and results of the block from `at`, which comes next.
    fn prefetch(&self, at: usize, within: usize, len: usize, piece: &Piece<'_>) {
        let ask =
            |values: &[f32], at: usize| prefetch::soon(&values[at.min(values.len())..(at + len).min(values.len())]);
        for kept in &self.plan.kept {
            match kept {
                Kept::Stored(values) => ask(values, at),
                Kept::Before(result) | Kept::Result(result) => ask(piece.results[*result], within),
                Kept::Number(_) | Kept::Rows(_) | Kept::Elements(_) => {}
            }
        }
    }
}
