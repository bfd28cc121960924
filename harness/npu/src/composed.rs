//! Formulas without their own operator: each term is a kernel that reads its operands and writes its result.
//!
//! This is how optimizers run that a framework writes in its own language (MindSpore's `AdamWeightDecay`), and
//! activations that it builds from other operators (TensorFlow's hard swish).

use zoo_graph::{
    DType, Graph, Node, Op, ValueId,
    formula::{Extent, Fold, Formula, Term, TermId},
};

/// Cost of a formula whose terms are separate kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Composed {
    /// Number of kernels.
    pub kernels: u64,
    /// Bytes that they read.
    pub read: u64,
    /// Bytes that they write.
    pub written: u64,
    /// Size of one complete operand.
    pub operand: u64,
}

/// The kernels of a node whose operator the software composes (it is in `names`), if there are several.
pub fn composed(graph: &Graph, node: &Node, names: &[String]) -> Option<Composed> {
    if !names.iter().any(|name| name == node.op.name()) {
        return None;
    }
    let formula = formula(&node.op)?;
    let widest = |values: &[ValueId]| values.iter().map(|v| graph.ty(*v)).max_by_key(|ty| ty.stored_numel());
    let whole = widest(&node.inputs).into_iter().chain(widest(&node.outputs)).max_by_key(|ty| ty.stored_numel())?;
    let floats = node.inputs.iter().map(|v| graph.ty(*v).dtype).filter(|dtype| dtype.is_float());
    let width = floats.map(DType::bytes).max()?.0;
    let elements = whole.stored_numel() as u64;
    let extents = formula.extents();
    let bytes = |term: &TermId| match (&formula.terms()[term.0], extents[term.0]) {
        (Term::Operand(n), Extent::Element) => graph.ty(node.inputs[*n]).bytes().0,
        (_, Extent::Element) => elements * width,
        (_, Extent::Row | Extent::Step) => 0,
    };
    let mut found = Composed { operand: elements * width, ..Composed::default() };
    for (n, term) in formula.terms().iter().enumerate() {
        let per_element = extents[n] == Extent::Element && is_arithmetic(term);
        if per_element || matches!(term, Term::Row(Fold::Sum | Fold::Max | Fold::LogSumExp, _)) {
            found.kernels += 1;
            found.read += term.arguments().map(|argument| bytes(&argument)).sum::<u64>();
            found.written += bytes(&TermId(n));
        }
    }
    (found.kernels > 1).then_some(found)
}

/// The formula of an operator.
pub fn formula(op: &Op) -> Option<&Formula> {
    if let Op::Map(map) = op {
        return Some(&map.formula);
    }
    if let Op::Assign(update) = op { Some(&update.formula) } else { None }
}

/// Whether a term computes anything.
fn is_arithmetic(term: &Term) -> bool {
    match term {
        Term::Unary(..) | Term::Binary(..) | Term::Select(..) => true,
        Term::Softmax(_) | Term::LogSoftmax(_) | Term::Row(..) => true,
        Term::Operand(_) | Term::Constant(_) | Term::Step(_) | Term::RowSize | Term::Coordinate(_) => false,
    }
}
