//! Formulas in the layouts in which their operands lie.

use super::call::{Call, Operand, extent};
use crate::{
    KernelError,
    formula::{Prepared, plain_strides},
};
use zoo_graph::{
    Layout, TensorType,
    formula::{Binary, Extent, Fold, Outcome, Term, TermId, Unary},
    ops::Map,
};
use zoo_kernels::{
    C0,
    formula::{self as kernel, Data, Instruction, Output, OutputKind},
};

/// Computes the formula.
pub(super) fn map(op: &Map, mut call: Call<'_>) -> Result<(), KernelError> {
    let blocked = call.operand_types.iter().any(|ty| ty.layout == Layout::Nc1hwc0);
    let space = match op.space[..] {
        [n, c, h, w] if blocked => vec![n, c.div_ceil(C0), h, w, C0],
        _ => op.space.to_vec(),
    };
    let Prepared { formula, numbers } = Prepared::new(op, call.scalars);
    let instruction = |(term, number): (&Term, &Option<f64>)| instruction(op, blocked, term, *number);
    let instructions = formula.terms().iter().zip(&numbers).map(instruction).collect::<Result<Vec<_>, _>>()?;
    let extents = formula.extents();
    let output = |(result, ty): (&Outcome, &&TensorType)| {
        let by_row = extents[result.term.0] == Extent::Row && !result.whole;
        let kind = if !result.over.is_empty() {
            OutputKind::Sums { strides: strides(op, blocked, ty), rows: by_row }
        } else if by_row {
            OutputKind::Rows
        } else {
            OutputKind::Elements
        };
        Output { place: result.term.0, kind }
    };
    let outputs = formula.results().iter().zip(&call.result_types).map(output).collect();
    let strides: Vec<Vec<usize>> = call.operand_types.iter().map(|ty| strides(op, blocked, ty)).collect();
    let mut operands = Vec::with_capacity(strides.len());
    for (operand, strides) in call.operands.iter().zip(&strides) {
        let data = match *operand {
            Operand::Float(values) => Data::Float(values),
            Operand::Index(values) => Data::Index(values),
            Operand::Overwritten { result } => Data::Result(result),
        };
        operands.push(kernel::Operand { data, strides });
    }
    kernel::Formula { space, rows: op.formula.rows(), instructions, outputs }.run(
        call.isa,
        &operands,
        &mut call.results,
    );
    for (ty, result) in call.result_types.iter().zip(&mut call.results) {
        if let (Layout::Nc1hwc0, Some(map)) = (ty.layout, extent(ty)) {
            map.clear_filling(result);
        }
    }
    Ok(())
}

/// Distance between neighbours of a tensor along each axis of the space as it is stored.
fn strides(op: &Map, blocked: bool, ty: &TensorType) -> Vec<usize> {
    match ty.shape[..] {
        [n, c, h, w] if ty.layout == Layout::Nc1hwc0 => {
            let blocks = c.div_ceil(C0);
            let along = |extent: usize, stride: usize| if extent == 1 { 0 } else { stride };
            vec![along(n, blocks * h * w * C0), along(blocks, h * w * C0), along(h, w * C0), along(w, C0), 1]
        }
        _ => {
            let mut strides = plain_strides(op, &ty.shape);
            // Beside blocks, what lies row-major is the same for all channels: for all blocks, and all lanes of each.
            if blocked {
                strides.push(0);
            }
            strides
        }
    }
}

fn instruction(op: &Map, blocked: bool, term: &Term, number: Option<f64>) -> Result<Instruction, KernelError> {
    let place = |id: &TermId| id.0;
    Ok(match (number, term) {
        (Some(number), _) => Instruction::Constant(number as f32),
        (None, Term::Operand(n)) => Instruction::Operand(*n),
        (None, Term::Coordinate(axis)) => {
            let extent = |(axis, extent): (usize, &usize)| match axis {
                1 if blocked => extent.div_ceil(C0) * C0,
                _ => *extent,
            };
            let inner = op.space.iter().enumerate().skip(axis + 1).map(extent).product::<usize>();
            let inner = if blocked && *axis > 1 { inner * C0 } else { inner };
            Instruction::Coordinate { inner, extent: op.space[*axis] }
        }
        (None, Term::Unary(function, x)) => Instruction::Unary(unary(*function), place(x)),
        (None, Term::Binary(function, a, b)) => Instruction::Binary(binary(*function), place(a), place(b)),
        (None, Term::Select(condition, yes, no)) => Instruction::Select(place(condition), place(yes), place(no)),
        (None, Term::Row(Fold::Sum, x)) => Instruction::RowSum(place(x)),
        (None, Term::Row(Fold::Max, x)) => Instruction::RowMax(place(x)),
        (None, Term::Constant(_) | Term::Step(_) | Term::RowSize | Term::Softmax(_))
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
