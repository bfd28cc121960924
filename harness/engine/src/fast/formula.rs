//! Formulas in the layouts of their operands.

use super::call::{Call, Operand, extent};
use crate::{KernelError, formula::Prepared};
use zoo_graph::{
    Layout, Shape, TensorType,
    formula::{Binary, Extent, Fold, Outcome, Term, TermId, Unary},
    ops::{Assign, Map},
};
use zoo_kernels::{
    C0,
    formula::{self as kernel, Data, Instruction, Output, OutputKind},
};

/// Computes a formula over broadcast tensors.
pub(super) fn map(op: &Map, mut call: Call<'_>) -> Result<(), KernelError> {
    let blocked = call.operand_types.iter().any(|ty| ty.layout == Layout::Nc1hwc0);
    let prepared = Prepared::map(op);
    let strides = |types: &[&TensorType]| types.iter().map(|ty| strides(&prepared, blocked, ty)).collect::<Vec<_>>();
    let strides = [strides(&call.operand_types), strides(&call.result_types)];
    run(&prepared, blocked, &strides, &mut call)?;
    for (ty, result) in call.result_types.iter().zip(&mut call.results) {
        if let (Layout::Nc1hwc0, Some(map)) = (ty.layout, extent(ty)) {
            map.clear_filling(result);
        }
    }
    Ok(())
}

/// Computes an update over the stored elements.
pub(super) fn assign(op: &Assign, mut call: Call<'_>) -> Result<(), KernelError> {
    let elements = call.results.first().map_or(0, |result| result.len());
    let prepared = Prepared::assign(op, elements, call.scalars);
    let strides = [vec![vec![1]; call.operands.len()], vec![vec![1]; call.results.len()]];
    run(&prepared, false, &strides, &mut call)
}

/// Runs a formula on operands and results with these strides.
fn run(
    prepared: &Prepared,
    blocked: bool,
    [operand_strides, result_strides]: &[Vec<Vec<usize>>; 2],
    call: &mut Call<'_>,
) -> Result<(), KernelError> {
    let Prepared { formula, numbers, space } = prepared;
    let stored = match space[..] {
        [n, c, h, w] if blocked => vec![n, c.div_ceil(C0), h, w, C0],
        _ => space.to_vec(),
    };
    let instruction = |(term, number): (&Term, &Option<f64>)| instruction(space, blocked, term, *number);
    let instructions = formula.terms().iter().zip(numbers).map(instruction).collect::<Result<Vec<_>, _>>()?;
    let extents = formula.extents();
    let output = |(result, strides): (&Outcome, &Vec<usize>)| {
        let by_row = extents[result.term.0] == Extent::Row && !result.whole;
        let kind = if !result.over.is_empty() {
            OutputKind::Sums { strides: strides.clone(), rows: by_row }
        } else if by_row {
            OutputKind::Rows
        } else {
            OutputKind::Elements
        };
        Output { place: result.term.0, kind }
    };
    let outputs = formula.results().iter().zip(result_strides).map(output).collect();
    let mut operands = Vec::with_capacity(operand_strides.len());
    for (operand, strides) in call.operands.iter().zip(operand_strides) {
        let data = match *operand {
            Operand::Float(values) => Data::Float(values),
            Operand::Index(values) => Data::Index(values),
            Operand::Overwritten { result } => Data::Result(result),
        };
        operands.push(kernel::Operand { data, strides });
    }
    let rows = formula.rows();
    kernel::Formula { space: stored, rows, instructions, outputs }.run(call.isa, &operands, &mut call.results);
    Ok(())
}

/// Stride of a stored tensor along each axis of the space.
fn strides(prepared: &Prepared, blocked: bool, ty: &TensorType) -> Vec<usize> {
    match ty.shape[..] {
        [n, c, h, w] if ty.layout == Layout::Nc1hwc0 => {
            let blocks = c.div_ceil(C0);
            let along = |extent: usize, stride: usize| if extent == 1 { 0 } else { stride };
            vec![along(n, blocks * h * w * C0), along(blocks, h * w * C0), along(h, w * C0), along(w, C0), 1]
        }
        _ => {
            let mut strides = prepared.strides(&ty.shape);
            // In a blocked space, row-major tensors are equal for all channels: for all blocks, and all lanes of
            // each.
            if blocked {
                strides.push(0);
            }
            strides
        }
    }
}

fn instruction(space: &Shape, blocked: bool, term: &Term, number: Option<f64>) -> Result<Instruction, KernelError> {
    let place = |id: &TermId| id.0;
    Ok(match (number, term) {
        (Some(number), _) => Instruction::Constant(number as f32),
        (None, Term::Operand(n)) => Instruction::Operand(*n),
        (None, Term::Coordinate(axis)) => {
            let extent = |(axis, extent): (usize, &usize)| match axis {
                1 if blocked => extent.div_ceil(C0) * C0,
                _ => *extent,
            };
            let inner = space.iter().enumerate().skip(axis + 1).map(extent).product::<usize>();
            let inner = if blocked && *axis > 1 { inner * C0 } else { inner };
            Instruction::Coordinate { inner, extent: space[*axis] }
        }
        (None, Term::Unary(function, x)) => Instruction::Unary(unary(*function), place(x)),
        (None, Term::Binary(function, a, b)) => Instruction::Binary(binary(*function), place(a), place(b)),
        (None, Term::Select(condition, yes, no)) => Instruction::Select(place(condition), place(yes), place(no)),
        (None, Term::Row(Fold::Sum, x)) => Instruction::RowSum(place(x)),
        (None, Term::Row(Fold::Max, x)) => Instruction::RowMax(place(x)),
        (None, Term::Constant(_) | Term::Step(_) | Term::RowSize | Term::Softmax(_) | Term::LogSoftmax(_))
        | (None, Term::Row(Fold::LogSumExp, _)) => {
            return Err(KernelError::Unexpanded);
        }
    })
}

fn unary(function: Unary) -> kernel::Unary {
    match function {
        Unary::Neg => kernel::Unary::Neg,
        Unary::Abs => kernel::Unary::Abs,
        Unary::Sign => kernel::Unary::Sign,
        Unary::Exp => kernel::Unary::Exp,
        Unary::Expm1 => kernel::Unary::Expm1,
        Unary::Log => kernel::Unary::Log,
        Unary::Sqrt => kernel::Unary::Sqrt,
        Unary::Rsqrt => kernel::Unary::Rsqrt,
        Unary::Tanh => kernel::Unary::Tanh,
        Unary::Sigmoid => kernel::Unary::Sigmoid,
        Unary::Softplus => kernel::Unary::Softplus,
        Unary::Erf => kernel::Unary::Erf,
        Unary::Sin => kernel::Unary::Sin,
        Unary::Cos => kernel::Unary::Cos,
        Unary::Floor => kernel::Unary::Floor,
        Unary::Detach => kernel::Unary::Same,
    }
}

fn binary(function: Binary) -> kernel::Binary {
    match function {
        Binary::Add => kernel::Binary::Add,
        Binary::Sub => kernel::Binary::Sub,
        Binary::Mul => kernel::Binary::Mul,
        Binary::Div => kernel::Binary::Div,
        Binary::Max => kernel::Binary::Max,
        Binary::Min => kernel::Binary::Min,
        Binary::Pow => kernel::Binary::Pow,
        Binary::Greater => kernel::Binary::Greater,
        Binary::AtLeast => kernel::Binary::AtLeast,
        Binary::Equal => kernel::Binary::Equal,
    }
}
