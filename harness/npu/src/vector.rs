//! Time of the Vector units: the instructions that each operator declares ([`zoo_graph::ops::Work`]), as bytes that
//! pass through the units and instruction starts that are not hidden.

use crate::{composed::formula, device::Device, matrix::is_depthwise};
use zoo_graph::{
    C0, DType, Graph, Layout, Node, Op, Phase, TensorType,
    formula::{Binary, Extent, Formula, Term, Unary},
    ops::Work,
};

/// Instructions of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VectorWork {
    /// Bytes of operands that pass through the Vector units.
    pub bytes: f64,
    /// Number of instructions whose start is not hidden.
    pub starts: f64,
}

impl VectorWork {
    /// `instructions` per element of a stream.
    fn stream(elements: u64, instructions: u64, width: u64) -> Self {
        Self { bytes: (elements * instructions * width) as f64, starts: 0.0 }
    }

    /// `instructions` per row of a map.
    fn rows(ty: &TensorType, instructions: u64) -> Self {
        let Some([n, c, h, _]) = ty.shape.nchw() else { return Self::default() };
        let channels = if ty.layout == Layout::Nc1hwc0 { c.div_ceil(C0) } else { c };
        let starts = ((n * channels * h) as u64 * instructions) as f64;
        Self { bytes: ty.bytes().0 as f64 * instructions as f64, starts }
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, starts: self.starts + other.starts }
    }
}

/// The work of one node.
pub fn work(graph: &Graph, node: &Node, device: &Device) -> VectorWork {
    let [inputs, outputs] = [&node.inputs, &node.outputs].map(|values| graph.types(values));
    match node.op.rules().work(&inputs, &outputs) {
        Work::Nothing | Work::Moves { .. } | Work::Views { .. } => VectorWork::default(),
        Work::Stream { elements, instructions, width } => {
            let functions = formula(&node.op).map_or(0, functions) as f64;
            let more = functions * (device.vector.function_instructions.value - 1.0).max(0.0);
            let random = if draws(node, device) { PHILOX * DType::F32.bytes().0 as f64 } else { 0.0 };
            let bytes = elements as f64 * (more * width as f64 + random);
            VectorWork::stream(elements, instructions, width).plus(VectorWork { bytes, starts: 0.0 })
        }
        Work::Rows { map, instructions } => VectorWork::rows(&map, instructions),
        Work::Product { instructions, .. } => {
            let elements = outputs.first().map_or(0, |result| result.stored_numel());
            let epilogue = VectorWork::stream(elements as u64, instructions, DType::F32.bytes().0);
            match &device.vector.depthwise_instructions {
                Some(instructions) if is_depthwise(graph, node) => {
                    let taps = node.op.cost(&inputs, &outputs).flop.0 / 2;
                    // Two numbers of half the width are processed like one.
                    let width = inputs.first().map_or(DType::F32, |ty| ty.dtype).bytes().0;
                    let bytes = taps as f64 * instructions.value * width as f64;
                    epilogue.plus(VectorWork { bytes, starts: 0.0 })
                }
                Some(_) | None => epilogue,
            }
        }
    }
}

/// Instructions for a random number of 32 bits. Four of them take ten rounds of two products with high and low
/// halves, four exclusive ors and two sums (Philox4x32-10, Salmon et al., SC 2011). The libraries of NVIDIA's and
/// Habana's devices use this generator.
const PHILOX: f64 = 25.0;

/// Whether an operator draws random numbers. The gradient of a dropout reads those of the forward pass.
fn draws(node: &Node, device: &Device) -> bool {
    let dropout = matches!(&node.op, Op::Dropout(dropout) if dropout.rate > 0.0);
    dropout && node.phase == Phase::Forward && device.control.mask_elements_per_us.is_none()
}

/// Functions per element in a formula that no single instruction computes. The operator's cost counts each as one
/// operation.
fn functions(formula: &Formula) -> u64 {
    let extents = formula.extents();
    let of_elements = formula.terms().iter().zip(extents).filter(|(_, extent)| *extent == Extent::Element);
    let count = |term: &Term| match term {
        Term::Unary(function, _) => match function {
            Unary::Exp | Unary::Expm1 | Unary::Log | Unary::Sqrt | Unary::Rsqrt => 1,
            // An exponential, and a quotient or logarithm.
            Unary::Tanh | Unary::Sigmoid | Unary::Softplus | Unary::Erf => 2,
            Unary::Neg | Unary::Abs | Unary::Sign | Unary::Sin | Unary::Cos | Unary::Floor | Unary::Detach => 0,
        },
        Term::Binary(function, ..) => match function {
            Binary::Div => 1,
            Binary::Pow => 2,
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::Max
            | Binary::Min
            | Binary::Greater
            | Binary::AtLeast
            | Binary::Equal => 0,
        },
        Term::Softmax(_) | Term::LogSoftmax(_) => 2,
        Term::Operand(_)
        | Term::Constant(_)
        | Term::Step(_)
        | Term::RowSize
        | Term::Coordinate(_)
        | Term::Select(..)
        | Term::Row(..) => 0,
    };
    of_elements.map(|(term, _)| count(term)).sum()
}
