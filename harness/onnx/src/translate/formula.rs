//! Translates formulas term by term.

use super::{Batch, OnnxError, Translation, free, refuse};
use crate::message::Attribute;
use zoo_graph::formula::{Binary, Extent, Fold, Term, TermId, Unary};
use zoo_graph::ops::Map;
use zoo_graph::{Node, ValueId};

/// Element types of ONNX (`TensorProto.DataType`).
const FLOAT: usize = 1;
const BOOL: usize = 9;

impl Translation<'_> {
    /// Writes a node per term; the last one has the name of the result.
    pub(super) fn formula(&mut self, node: &Node, map: &Map) -> Result<(), OnnxError> {
        let [result] = map.formula.results() else {
            return Err(refuse(node, "a formula with several results belongs to training"));
        };
        // ONNX's softmax supports one axis.
        let formula = if map.formula.rows() > 1 { map.formula.expanded() } else { map.formula.clone() };
        let rank = map.space.len();
        let last_axis = || vec![Attribute::int("axis", rank - 1)];
        let row: Vec<i64> = (rank - formula.rows()..rank).map(|axis| axis as i64).collect();
        let before = self.nodes.len();
        let mut names: Vec<String> = Vec::with_capacity(formula.terms().len());
        for term in formula.terms() {
            let name = |id: &TermId| names[id.0].clone();
            let written = match term {
                Term::Operand(n) => self.names[node.inputs[*n].0].clone(),
                Term::Constant(value) => self.floats(node, "number", &[], &[*value as f32]),
                Term::RowSize => {
                    let size: usize = map.space[rank - formula.rows()..].iter().product();
                    self.floats(node, "number", &[], &[size as f32])
                }
                Term::Step(_) => return Err(refuse(node, "it reads values that exist only in a training step")),
                Term::Coordinate(0) if self.batch == Batch::Any => {
                    return Err(refuse(node, "it reads the positions of samples in the batch"));
                }
                Term::Coordinate(axis) => {
                    let places: Vec<f32> = (0..map.space[*axis]).map(|place| place as f32).collect();
                    let extents = [&[places.len()], &vec![1; rank - axis - 1][..]].concat();
                    self.floats(node, "places", &extents, &places)
                }
                Term::Unary(function, x) => self.unary(node, *function, name(x)),
                Term::Binary(function, a, b) => {
                    let operands = vec![name(a), name(b)];
                    match function {
                        Binary::Add => self.part(node, "add", "Add", operands, vec![]),
                        Binary::Sub => self.part(node, "sub", "Sub", operands, vec![]),
                        Binary::Mul => self.part(node, "mul", "Mul", operands, vec![]),
                        Binary::Div => self.part(node, "div", "Div", operands, vec![]),
                        Binary::Max => self.part(node, "max", "Max", operands, vec![]),
                        Binary::Min => self.part(node, "min", "Min", operands, vec![]),
                        Binary::Pow => self.part(node, "pow", "Pow", operands, vec![]),
                        Binary::Greater => self.truth(node, "Greater", operands),
                        Binary::AtLeast => self.truth(node, "GreaterOrEqual", operands),
                        Binary::Equal => self.truth(node, "Equal", operands),
                    }
                }
                Term::Select(condition, yes, no) => {
                    let to = vec![Attribute::int("to", BOOL)];
                    let condition = self.part(node, "condition", "Cast", vec![name(condition)], to);
                    self.part(node, "select", "Where", vec![condition, name(yes), name(no)], vec![])
                }
                Term::Softmax(x) => self.part(node, "softmax", "Softmax", vec![name(x)], last_axis()),
                Term::LogSoftmax(x) => self.part(node, "log_softmax", "LogSoftmax", vec![name(x)], last_axis()),
                Term::Row(fold, x) => {
                    let operator = match fold {
                        Fold::Sum => "ReduceSum",
                        Fold::Max => "ReduceMax",
                        Fold::LogSumExp => "ReduceLogSumExp",
                    };
                    let axes = self.integers(node, "axes", &row);
                    self.part(node, "row", operator, vec![name(x), axes], vec![])
                }
            };
            names.push(written);
        }
        let mut value = names[result.term.0].clone();
        if !result.over.is_empty() {
            let axes: Vec<i64> = result.over.iter().map(|axis| *axis as i64).collect();
            let axes = self.integers(node, "axes", &axes);
            value = self.part(node, "sum", "ReduceSum", vec![value, axes], vec![]);
        }
        // If no operand has all elements of the space, ONNX needs the shape explicitly. Only values computed from
        // samples have as many as there are: an extent of a parameter is fixed.
        let samples = |axis: usize| {
            axis == 0 && self.batch == Batch::Any && {
                let mut shapes = self.graph.inputs.iter().map(|input| &self.graph.ty(input.value).shape);
                shapes.next().and_then(|shape| shape.first()) == Some(&map.space[0])
            }
        };
        let reached = |axis: usize| {
            if samples(axis) {
                let whole = |v: &ValueId| self.of_samples[v.0] && self.graph.ty(*v).shape.len() == rank;
                return node.inputs.iter().any(whole);
            }
            map.space[axis] == 1
                || node.inputs.iter().any(|v| map.extent_along(&self.graph.ty(*v).shape, axis) == map.space[axis])
        };
        if result.over.is_empty() && !(0..rank).all(reached) {
            let space = self.extents(node, &map.space);
            value = self.part(node, "expand", "Expand", vec![value, space], vec![]);
        }
        let smaller = formula.extents()[result.term.0] != Extent::Element && result.whole;
        if smaller {
            return Err(refuse(node, "its result is the same for all elements of a row"));
        }
        let result = self.result(node);
        match self.nodes[before..].last_mut().filter(|last| last.output == [value.as_str()]) {
            Some(last) => {
                last.output = vec![result];
                last.name = free(&mut self.called, &node.name);
            }
            None => self.push("Identity", &node.name, vec![value], result, vec![]),
        }
        Ok(())
    }

    fn unary(&mut self, node: &Node, function: Unary, x: String) -> String {
        let operator = match function {
            Unary::Rsqrt => {
                let root = self.part(node, "sqrt", "Sqrt", vec![x], vec![]);
                return self.part(node, "rsqrt", "Reciprocal", vec![root], vec![]);
            }
            // tanh(x/2) (e^x + 1), for e^x - 1 loses digits near 0.
            Unary::Expm1 => {
                let [half, one] = [0.5, 1.0].map(|number| self.floats(node, "number", &[], &[number]));
                let half = self.part(node, "half", "Mul", vec![x.clone(), half], vec![]);
                let tanh = self.part(node, "tanh", "Tanh", vec![half], vec![]);
                let exp = self.part(node, "exp", "Exp", vec![x], vec![]);
                let sum = self.part(node, "add", "Add", vec![exp, one], vec![]);
                return self.part(node, "expm1", "Mul", vec![tanh, sum], vec![]);
            }
            Unary::Neg => "Neg",
            Unary::Abs => "Abs",
            Unary::Sign => "Sign",
            Unary::Exp => "Exp",
            Unary::Log => "Log",
            Unary::Sqrt => "Sqrt",
            Unary::Tanh => "Tanh",
            Unary::Sigmoid => "Sigmoid",
            Unary::Softplus => "Softplus",
            Unary::Erf => "Erf",
            Unary::Sin => "Sin",
            Unary::Cos => "Cos",
            Unary::Floor => "Floor",
            Unary::Detach => "Identity",
        };
        self.part(node, function.name(), operator, vec![x], vec![])
    }

    /// A shape as a list of integers; if the batch size is variable, it is read from the first input.
    fn extents(&mut self, node: &Node, shape: &[usize]) -> String {
        let fixed = |extents: &[usize]| extents.iter().map(|extent| *extent as i64).collect::<Vec<_>>();
        match (self.batch, self.graph.inputs.first()) {
            (Batch::Any, Some(input)) => {
                let input = self.names[input.value.0].clone();
                let first = [("start", 0), ("end", 1)].map(|(name, value)| Attribute::int(name, value));
                let batch = self.part(node, "batch", "Shape", vec![input], first.to_vec());
                let rest = self.integers(node, "rest", &fixed(&shape[1..]));
                self.part(node, "extents", "Concat", vec![batch, rest], vec![Attribute::int("axis", 0)])
            }
            (Batch::Any | Batch::Fixed, _) => self.integers(node, "extents", &fixed(shape)),
        }
    }

    /// A comparison as 1 or 0.
    fn truth(&mut self, node: &Node, operator: &str, operands: Vec<String>) -> String {
        let truth = self.part(node, "compare", operator, operands, vec![]);
        self.part(node, "truth", "Cast", vec![truth], vec![Attribute::int("to", FLOAT)])
    }
}
