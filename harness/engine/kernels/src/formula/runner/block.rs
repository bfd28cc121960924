//! Runs the instructions of a formula on a block of its space.

use super::{Piece, Runner};
use crate::AlignedBuf;
use crate::formula::access::Run;
use crate::formula::instruction::{self, Instruction, Value};
use crate::formula::plan::{Blocks, Kept};
use crate::formula::{Data, OutputKind, Place};

/// What instructions have computed of a block.
pub(super) struct Registers {
    /// One number per element.
    elements: Vec<AlignedBuf>,
    /// One number per row, by instruction.
    rows: Vec<Vec<f32>>,
}

/// A block: where it begins in the space, and what is known of it.
#[derive(Clone, Copy)]
pub(super) struct Block<'b> {
    pub at: usize,
    pub len: usize,
    /// The results, or parts of them.
    pub results: &'b [&'b mut [f32]],
    /// Where in them the block begins.
    pub within: usize,
    /// By instruction, the folds of the row that the block is a part of, if they are known.
    pub folds: Option<&'b [f32]>,
}

impl<'b> Block<'b> {
    fn of_result(self, result: usize) -> &'b [f32] {
        &self.results[result][self.within..][..self.len]
    }
}

impl Runner<'_> {
    /// Registers for blocks of at most so many elements.
    pub(super) fn registers(&self, len: usize) -> Registers {
        let rows = self.rows_in(len);
        let of_rows = self.plan.kept.iter().map(|kept| match kept {
            Kept::Rows(_) => vec![0.0; rows],
            Kept::Number(_) | Kept::Stored(_) | Kept::Before(_) | Kept::Result(_) | Kept::Elements(_) => Vec::new(),
        });
        Registers { elements: vec![AlignedBuf::zeroed(len); self.plan.registers], rows: of_rows.collect() }
    }

    /// Rows of a block of so many elements.
    fn rows_in(&self, len: usize) -> usize {
        if self.blocks == Blocks::Several { len / self.row } else { 1 }
    }

    /// Computes an instruction that has registers.
    pub(super) fn compute(&self, n: Place, block: Block<'_>, registers: &mut Registers) {
        match self.plan.kept[n] {
            Kept::Number(_) | Kept::Stored(_) | Kept::Before(_) | Kept::Result(_) => {}
            Kept::Rows(spread) => {
                let mut rows = std::mem::take(&mut registers.rows[n]);
                let y = &mut rows[..self.rows_in(block.len)];
                self.run_instruction(n, true, block, registers, y);
                if let Some(register) = spread {
                    instruction::spread(self.isa, self.row, y, &mut registers.elements[register][..block.len]);
                }
                registers.rows[n] = rows;
            }
            Kept::Elements(register) => {
                let mut elements = std::mem::take(&mut registers.elements[register]);
                self.run_instruction(n, false, block, registers, &mut elements[..block.len]);
                registers.elements[register] = elements;
            }
        }
    }

    /// Runs an instruction, to give a number per row, or one per element.
    pub(super) fn run_instruction(
        &self,
        n: Place,
        by_row: bool,
        block: Block<'_>,
        registers: &Registers,
        y: &mut [f32],
    ) {
        let (isa, rows) = (self.isa, self.rows_in(block.len));
        let value = |place: Place| match self.plan.kept[place] {
            Kept::Rows(_) if by_row => Value::Elements(&registers.rows[place][..rows]),
            Kept::Number(_)
            | Kept::Stored(_)
            | Kept::Before(_)
            | Kept::Result(_)
            | Kept::Rows(_)
            | Kept::Elements(_) => self.value(place, block, registers),
        };
        let fold = |x: Place, y: &mut [f32], of: &dyn Fn(Value<'_>, &mut [f32])| match self.plan.kept[x] {
            Kept::Rows(_) => y.chunks_mut(1).zip(&registers.rows[x]).for_each(|(y, x)| of(Value::Number(*x), y)),
            Kept::Number(_) | Kept::Stored(_) | Kept::Before(_) | Kept::Result(_) | Kept::Elements(_) => {
                of(value(x), y)
            }
        };
        match (self.formula.instructions[n], block.folds) {
            (Instruction::RowSum(_) | Instruction::RowMax(_), Some(folds)) => y.fill(folds[n]),
            (Instruction::RowSum(x), None) => fold(x, y, &|x, y| instruction::row_sums(isa, self.row, x, y)),
            (Instruction::RowMax(x), None) => fold(x, y, &|x, y| instruction::row_maxima(isa, self.row, x, y)),
            (Instruction::Operand(operand), _) => self.gather(operand, by_row, block, y),
            (Instruction::Constant(number), _) => y.fill(number),
            (Instruction::Coordinate { inner, extent }, _) => instruction::coordinates(isa, inner, extent, block.at, y),
            (Instruction::Unary(function, x), _) => instruction::unary(isa, function, value(x), y),
            (Instruction::Binary(function, a, b), _) => instruction::binary(isa, function, value(a), value(b), y),
            (Instruction::Select(condition, yes, no), _) => {
                instruction::select(isa, value(condition), value(yes), value(no), y);
            }
        }
    }

    /// The value of an instruction that was computed, element by element.
    pub(super) fn value<'v>(&'v self, place: Place, block: Block<'v>, registers: &'v Registers) -> Value<'v> {
        match self.plan.kept[place] {
            Kept::Number(number) => Value::Number(number),
            Kept::Stored(values) => Value::Elements(&values[block.at..][..block.len]),
            Kept::Before(result) | Kept::Result(result) => Value::Elements(block.of_result(result)),
            Kept::Rows(None) => Value::Number(registers.rows[place][0]),
            Kept::Rows(Some(register)) | Kept::Elements(register) => {
                Value::Elements(&registers.elements[register][..block.len])
            }
        }
    }

    /// Elements of an operand: those of the block, or the first one of each of its rows.
    fn gather(&self, operand: usize, by_row: bool, block: Block<'_>, y: &mut [f32]) {
        let access = &self.accesses[operand];
        match self.operands[operand].data {
            Data::Result(result) => y.copy_from_slice(block.of_result(result)),
            Data::Float(values) if by_row => {
                let rows = (block.at..).step_by(self.row).flat_map(|start| access.runs(start, 1));
                y.iter_mut().zip(rows).for_each(|(y, run)| *y = values[run.at]);
            }
            Data::Float(values) if access.is_whole() => y.copy_from_slice(&values[block.at..][..block.len]),
            Data::Float(values) => {
                let mut rest = y;
                for run in access.runs(block.at, block.len) {
                    let Some(part) = rest.split_off_mut(..run.elements()) else { return };
                    match run.stride {
                        0 => part.fill(values[run.at]),
                        1 => instruction::repeat(self.isa, &values[run.at..run.at + run.len], part),
                        _ => part.iter_mut().zip(run.places()).for_each(|(y, place)| *y = values[place]),
                    }
                }
            }
            Data::Index(values) => {
                let places = access.runs(block.at, block.len).flat_map(Run::places);
                y.iter_mut().zip(places).for_each(|(y, place)| *y = values[place] as f32);
            }
        }
    }

    /// Brings a block into the results.
    pub(super) fn give(&self, at: usize, len: usize, piece: &mut Piece<'_>, registers: &Registers) {
        let within = at - piece.start;
        for (n, output) in self.formula.outputs.iter().enumerate() {
            let kept = self.plan.kept[output.place];
            let result = std::mem::take(&mut piece.results[n]);
            let block = Block { at, len, results: &piece.results, within, folds: None };
            let value = || self.value(output.place, block, registers);
            let in_row = |row: usize| match (kept, value()) {
                (Kept::Rows(_), _) => registers.rows[output.place][row],
                (_, Value::Number(number)) => number,
                (_, Value::Elements(elements)) => elements[row * self.row],
            };
            let sums = &mut piece.sums[n];
            match (&output.kind, &self.sums[n]) {
                (OutputKind::Elements, _) if matches!(kept, Kept::Before(_) | Kept::Result(_)) => {}
                (OutputKind::Elements, _) => match value() {
                    Value::Elements(elements) => result[within..][..len].copy_from_slice(elements),
                    Value::Number(number) => result[within..][..len].fill(number),
                },
                (OutputKind::Rows, _) => {
                    let rows = result.iter_mut().skip(within / self.row).zip(0..self.rows_in(len));
                    rows.for_each(|(result, row)| *result = in_row(row));
                }
                (OutputKind::Sums { rows: true, .. }, Some(access)) => {
                    for start in (at.next_multiple_of(self.row)..at + len).step_by(self.row) {
                        access
                            .runs(start, 1)
                            .for_each(|run| sums[run.at] += f64::from(in_row((start - at) / self.row)));
                    }
                }
                (OutputKind::Sums { rows: false, .. }, Some(access)) => {
                    let spread;
                    let mut elements = match value() {
                        Value::Elements(elements) => elements,
                        Value::Number(number) => {
                            spread = vec![number; len];
                            &spread
                        }
                    };
                    for run in access.runs(at, len) {
                        let (part, rest) = elements.split_at(run.elements());
                        elements = rest;
                        match run.stride {
                            0 => part.chunks(run.len).for_each(|row| sums[run.at] += instruction::sum(self.isa, row)),
                            1 => instruction::accumulate(self.isa, part, &mut sums[run.at..run.at + run.len]),
                            _ => run.places().zip(part).for_each(|(place, x)| sums[place] += f64::from(*x)),
                        }
                    }
                }
                (OutputKind::Sums { .. }, None) => {}
            }
            piece.results[n] = result;
        }
    }
}
