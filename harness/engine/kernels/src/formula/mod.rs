//! Formulas: a list of instructions over operands that broadcast, run block by block so that what is between them
//! stays in the cache.
//!
//! An instruction is one loop over the elements of a block, compiled for every level of instructions. Rows that fit a
//! block are folded in it, as many as it holds; longer ones are folded first, once per fold, and computed then. Sums
//! are kept in f64, within pieces that depend on the shape alone, and added in their order: results have the same bits
//! for any number of threads.

mod access;
mod instruction;

pub use instruction::{Binary, Instruction, Place, Unary};

use crate::{AlignedBuf, Isa, planes::TASK_LEN};
use access::{Access, Run};
use rayon::prelude::*;

/// Elements of a block: what a few instructions read and write stays in the first-level cache.
const BLOCK: usize = 1024;

/// Longest row that is one block.
const LONGEST_ROW: usize = 8 * 1024;

/// Most pieces whose sums are kept apart before they are added.
const MOST_PIECES: usize = 32;

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
        let accesses = operands.iter().map(|operand| Access::new(&self.space, operand.strides)).collect();
        let sums = self.outputs.iter().map(|output| match &output.kind {
            OutputKind::Sums { strides, .. } => Some(Access::new(&self.space, strides)),
            OutputKind::Elements | OutputKind::Rows => None,
        });
        let runner =
            Runner { isa, formula: self, slots: self.slots(), operands, accesses, sums: sums.collect(), total, row };
        for (output, result) in self.outputs.iter().zip(results.iter()) {
            match output.kind {
                OutputKind::Elements => assert_eq!(result.len(), total, "elements of a result"),
                OutputKind::Rows => assert_eq!(result.len(), total / row, "rows of a result"),
                OutputKind::Sums { .. } => {}
            }
        }
        if self.rows == 0 || row <= LONGEST_ROW {
            runner.run_blocks(results);
        } else {
            runner.run_long_rows(results);
        }
    }

    /// The register of each instruction: one is free again once the last reader has run. Constants keep theirs.
    fn slots(&self) -> Slots {
        let mut last = vec![0; self.instructions.len()];
        for (n, instruction) in self.instructions.iter().enumerate() {
            last[n] = n;
            instruction.arguments().for_each(|argument| last[argument] = n);
        }
        let constant = |n: usize| matches!(self.instructions[n], Instruction::Constant(_));
        (0..last.len()).filter(|n| constant(*n)).for_each(|n| last[n] = usize::MAX);
        self.outputs.iter().for_each(|output| last[output.place] = usize::MAX);
        // Constants are written before anything else, so no register of theirs is one that was free before.
        let mut count = 0;
        let mut of = vec![0; last.len()];
        for n in (0..last.len()).filter(|n| constant(*n)) {
            of[n] = count;
            count += 1;
        }
        let mut free = Vec::new();
        for (n, instruction) in self.instructions.iter().enumerate().filter(|(n, _)| !constant(*n)) {
            of[n] = free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            });
            let mut read: Vec<Place> = instruction.arguments().chain([n]).collect();
            read.sort_unstable();
            read.dedup();
            free.extend(read.into_iter().filter(|read| last[*read] == n).map(|read| of[read]));
        }
        Slots { of, count }
    }
}

/// Registers.
struct Slots {
    /// By instruction.
    of: Vec<usize>,
    count: usize,
}

struct Runner<'a> {
    isa: Isa,
    formula: &'a Formula,
    slots: Slots,
    operands: &'a [Operand<'a>],
    accesses: Vec<Access>,
    /// By output, where it is summed.
    sums: Vec<Option<Access>>,
    total: usize,
    row: usize,
}

/// Consecutive elements of the space, and the parts of the results that belong to them.
struct Piece<'r> {
    start: usize,
    len: usize,
    results: Vec<&'r mut [f32]>,
    /// By result, what the piece adds to it where it is a sum.
    sums: Vec<Vec<f64>>,
}

/// What instructions have computed of a block.
struct Registers {
    slots: Vec<AlignedBuf>,
    len: usize,
}

impl Runner<'_> {
    /// Blocks that are independent of each other: no rows, or whole ones.
    fn run_blocks(&self, results: &mut [&mut [f32]]) {
        let unit = if self.formula.rows == 0 { BLOCK } else { (BLOCK / self.row).max(1) * self.row };
        let everything: Vec<bool> = vec![true; self.formula.instructions.len()];
        self.in_pieces(0, self.total, unit, results, &|piece, registers| {
            let (mut at, end) = (piece.start, piece.start + piece.len);
            while at < end {
                let len = unit.min(end - at);
                self.block(&everything, None, at, len, piece, registers);
                self.give(at, len, piece, registers);
                at += len;
            }
        });
    }

    /// Rows longer than a block: every fold is a pass over the row, and so are the results.
    fn run_long_rows(&self, results: &mut [&mut [f32]]) {
        let instructions = &self.formula.instructions;
        for row in 0..self.total / self.row {
            let start = row * self.row;
            let mut folds: Vec<f32> = vec![0.0; instructions.len()];
            for (n, instruction) in instructions.iter().enumerate() {
                folds[n] = match instruction {
                    Instruction::RowSum(x) => {
                        let parts = self.fold(*x, start, &folds, results, |block| instruction::sum(self.isa, block));
                        parts.into_iter().sum::<f64>() as f32
                    }
                    Instruction::RowMax(x) => {
                        let largest = |block: &[f32]| f64::from(instruction::largest(self.isa, block));
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
            self.in_pieces(start, self.row, BLOCK, results, &|piece, registers| {
                let (mut at, end) = (piece.start, piece.start + piece.len);
                while at < end {
                    let len = BLOCK.min(end - at);
                    self.block(&needed, Some(&folds), at, len, piece, registers);
                    self.give(at, len, piece, registers);
                    at += len;
                }
            });
        }
    }

    /// A fold of each block of a row, in order.
    fn fold(
        &self,
        place: Place,
        start: usize,
        folds: &[f32],
        results: &[&mut [f32]],
        of: impl Fn(&[f32]) -> f64 + Sync,
    ) -> Vec<f64> {
        let needed = self.needed(&[place]);
        let blocks = self.row.div_ceil(BLOCK);
        let per_task = TASK_LEN / BLOCK;
        let task = |task: usize| {
            let mut registers = self.registers(BLOCK);
            let blocks = task * per_task..((task + 1) * per_task).min(blocks);
            let block = |block: usize| {
                let at = start + block * BLOCK;
                let len = BLOCK.min(start + self.row - at);
                let read = |result: usize| &results[result][at..at + len];
                self.compute(&needed, Some(folds), at, len, &read, &mut registers);
                of(self.value(place, at, len, &read, &registers))
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

    fn registers(&self, len: usize) -> Registers {
        let mut slots = vec![AlignedBuf::zeroed(len); self.slots.count];
        for (n, instruction) in self.formula.instructions.iter().enumerate() {
            if let Instruction::Constant(value) = instruction {
                slots[self.slots.of[n]].fill(*value);
            }
        }
        Registers { slots, len }
    }

    /// Runs `task` on pieces of whole units, in parallel, and adds what they have summed in the order of the pieces.
    /// Registers, with room for a unit, serve many pieces: those of each piece would take the allocator's one lock.
    fn in_pieces(
        &self,
        start: usize,
        len: usize,
        unit: usize,
        results: &mut [&mut [f32]],
        task: &(dyn Fn(&mut Piece<'_>, &mut Registers) + Sync),
    ) {
        let units = len.div_ceil(unit);
        let mut per_piece = (TASK_LEN / unit).max(1);
        if self.sums.iter().any(Option::is_some) {
            per_piece = per_piece.max(units.div_ceil(MOST_PIECES));
        }
        let sizes: Vec<usize> = results.iter().map(|result| result.len()).collect();
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
            let from = first * unit;
            let piece_len = (per_piece * unit).min(len - from);
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
        let sums =
            self.sums.iter().zip(&sizes).map(|(access, size)| vec![0.0; if access.is_some() { *size } else { 0 }]);
        let zero: Vec<Vec<f64>> = sums.collect();
        let found: Vec<Vec<Vec<f64>>> = pieces
            .into_par_iter()
            .map_init(
                || self.registers(unit),
                |registers, mut piece| {
                    piece.sums.clone_from(&zero);
                    task(&mut piece, registers);
                    piece.sums
                },
            )
            .collect();
        for (n, result) in results.iter_mut().enumerate().filter(|(n, _)| self.sums[*n].is_some()) {
            let mut total = zero[n].clone();
            for piece in &found {
                total.iter_mut().zip(&piece[n]).for_each(|(total, part)| *total += part);
            }
            // A space of several long rows comes here once per row.
            let before = start > 0;
            for (result, total) in result.iter_mut().zip(total) {
                *result = if before { (f64::from(*result) + total) as f32 } else { total as f32 };
            }
        }
    }

    /// Computes a block of a piece.
    fn block(
        &self,
        needed: &[bool],
        folds: Option<&[f32]>,
        at: usize,
        len: usize,
        piece: &Piece<'_>,
        registers: &mut Registers,
    ) {
        let within = at - piece.start;
        self.compute(needed, folds, at, len, &|result| &piece.results[result][within..within + len], registers);
    }

    /// Runs the instructions that are needed on `len` elements from `at`; `folds` has the folds of rows, if they are
    /// known.
    fn compute<'r>(
        &self,
        needed: &[bool],
        folds: Option<&[f32]>,
        at: usize,
        len: usize,
        result: &dyn Fn(usize) -> &'r [f32],
        registers: &mut Registers,
    ) {
        debug_assert!(len <= registers.len);
        let instructions = self.formula.instructions.iter().enumerate().filter(|(n, _)| needed[*n]);
        for (n, instruction) in instructions {
            if matches!(instruction, Instruction::Constant(_)) || self.in_memory(n, at, len, result).is_some() {
                continue;
            }
            let mut block = std::mem::take(&mut registers.slots[self.slots.of[n]]);
            let y = &mut block[..len];
            let value = |place: &Place| self.value(*place, at, len, result, registers);
            match (instruction, folds) {
                (Instruction::RowSum(_) | Instruction::RowMax(_), Some(folds)) => y.fill(folds[n]),
                (Instruction::RowSum(x), None) => instruction::row_sums(self.isa, self.row, value(x), y),
                (Instruction::RowMax(x), None) => instruction::row_maxima(self.isa, self.row, value(x), y),
                (Instruction::Operand(operand), _) => self.gather(*operand, at, result, y),
                (Instruction::Constant(_), _) => {}
                (Instruction::Coordinate { inner, extent }, _) => coordinates(*inner, *extent, at, y),
                (Instruction::Unary(function, x), _) => instruction::unary(self.isa, *function, value(x), y),
                (Instruction::Binary(function, a, b), _) => {
                    instruction::binary(self.isa, *function, value(a), value(b), y);
                }
                (Instruction::Select(condition, yes, no), _) => {
                    instruction::select(self.isa, value(condition), value(yes), value(no), y);
                }
            }
            registers.slots[self.slots.of[n]] = block;
        }
    }

    /// The value of an instruction that was computed.
    fn value<'v, 'r: 'v>(
        &'v self,
        place: Place,
        at: usize,
        len: usize,
        result: &dyn Fn(usize) -> &'r [f32],
        registers: &'v Registers,
    ) -> &'v [f32] {
        let register = || &registers.slots[self.slots.of[place]][..len];
        self.in_memory(place, at, len, result).unwrap_or_else(register)
    }

    /// The elements of an operand as stored, which need no register unless they are a result.
    fn in_memory<'v, 'r: 'v>(
        &'v self,
        n: Place,
        at: usize,
        len: usize,
        result: &dyn Fn(usize) -> &'r [f32],
    ) -> Option<&'v [f32]> {
        let Instruction::Operand(operand) = self.formula.instructions[n] else { return None };
        if self.formula.outputs.iter().any(|output| output.place == n) {
            return None;
        }
        match self.operands[operand].data {
            Data::Result(r) => Some(result(r)),
            Data::Float(values) if self.accesses[operand].is_whole() => Some(&values[at..at + len]),
            Data::Float(_) | Data::Index(_) => None,
        }
    }

    /// Elements of an operand from `at` on.
    fn gather<'r>(&self, operand: usize, at: usize, result: &dyn Fn(usize) -> &'r [f32], y: &mut [f32]) {
        let (access, len) = (&self.accesses[operand], y.len());
        match self.operands[operand].data {
            Data::Result(r) => y.copy_from_slice(result(r)),
            Data::Float(values) if access.is_whole() => y.copy_from_slice(&values[at..at + len]),
            Data::Float(values) => {
                let mut rest = y;
                for run in access.runs(at, len) {
                    let Some(part) = rest.split_off_mut(..run.elements()) else { return };
                    match run.stride {
                        0 => part.fill(values[run.at]),
                        1 => instruction::repeat(self.isa, &values[run.at..run.at + run.len], part),
                        _ => part.iter_mut().zip(run.places()).for_each(|(y, place)| *y = values[place]),
                    }
                }
            }
            Data::Index(values) => {
                let places = access.runs(at, len).flat_map(Run::places);
                y.iter_mut().zip(places).for_each(|(y, place)| *y = values[place] as f32);
            }
        }
    }

    /// Brings a block into the results.
    fn give(&self, at: usize, len: usize, piece: &mut Piece<'_>, registers: &Registers) {
        let within = at - piece.start;
        for (n, output) in self.formula.outputs.iter().enumerate() {
            let block = &registers.slots[self.slots.of[output.place]][..len];
            let (result, sums) = (&mut piece.results[n], &mut piece.sums[n]);
            match (&output.kind, &self.sums[n]) {
                (OutputKind::Elements, _) => result[within..within + len].copy_from_slice(block),
                (OutputKind::Rows, _) => {
                    let rows = result.iter_mut().skip(within / self.row);
                    rows.zip(block.iter().step_by(self.row)).for_each(|(result, value)| *result = *value);
                }
                (OutputKind::Sums { rows: true, .. }, Some(access)) => {
                    for start in (at.next_multiple_of(self.row)..at + len).step_by(self.row) {
                        access.runs(start, 1).for_each(|run| sums[run.at] += f64::from(block[start - at]));
                    }
                }
                (OutputKind::Sums { rows: false, .. }, Some(access)) => {
                    let mut block = block;
                    for run in access.runs(at, len) {
                        let (part, rest) = block.split_at(run.elements());
                        block = rest;
                        match run.stride {
                            0 => part.chunks(run.len).for_each(|row| sums[run.at] += instruction::sum(self.isa, row)),
                            1 => instruction::accumulate(self.isa, part, &mut sums[run.at..run.at + run.len]),
                            _ => run.places().zip(part).for_each(|(place, x)| sums[place] += f64::from(*x)),
                        }
                    }
                }
                (OutputKind::Sums { .. }, None) => {}
            }
        }
    }
}

/// Places along an axis of `extent`, with `inner` elements behind each place, of the elements from `at` on.
fn coordinates(inner: usize, extent: usize, at: usize, y: &mut [f32]) {
    let (mut rest, mut next) = (y, at);
    while !rest.is_empty() {
        let place = next / inner % extent;
        let len = if inner == 1 { extent - place } else { inner - next % inner }.min(rest.len());
        let Some(part) = rest.split_off_mut(..len) else { return };
        match inner {
            1 => part.iter_mut().zip(place as u32..).for_each(|(y, place)| *y = place as f32),
            _ => part.fill(place as f32),
        }
        next += len;
    }
}

#[cfg(test)]
mod tests;
