//! Display of formulas: `a * sigmoid(1.702 * a)`.

use super::{Binary, Fold, Formula, StepScalar, Term, TermId, Unary};
use std::fmt::{self, Write as _};

/// The precedence of an expression: one with lower precedence inside one with higher precedence needs brackets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Comparison,
    Sum,
    Product,
    Power,
    Whole,
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, result) in self.results.iter().enumerate() {
            if n > 0 {
                f.write_str("; ")?;
            }
            let text = self.text(result.term).0;
            match result.over.as_slice() {
                [] => f.write_str(&text)?,
                axes => {
                    let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
                    write!(f, "sum over axis {} of {text}", axes.join(", "))?;
                }
            }
        }
        Ok(())
    }
}

/// Operands are named by letters.
pub(super) fn operand_name(n: usize) -> String {
    match u8::try_from(n) {
        Ok(n) if n < 26 => char::from(b'a' + n).to_string(),
        _ => format!("x{n}"),
    }
}

impl Formula {
    fn text(&self, id: TermId) -> (String, Binding) {
        let inner = |id: TermId, at_least: Binding| {
            let (text, binding) = self.text(id);
            if binding < at_least { format!("({text})") } else { text }
        };
        let call = |name: &str, arguments: &[TermId]| {
            let arguments: Vec<String> = arguments.iter().map(|id| self.text(*id).0).collect();
            (format!("{name}({})", arguments.join(", ")), Binding::Whole)
        };
        let infix = |sign: &str, a: TermId, b: TermId, left: Binding, right: Binding| {
            (format!("{} {sign} {}", inner(a, left), inner(b, right)), left)
        };
        match self.terms[id.0] {
            Term::Operand(n) => (operand_name(n), Binding::Whole),
            Term::Constant(value) => {
                let mut text = String::new();
                // Writing to a string cannot fail.
                let _ = write!(text, "{value}");
                (text, if value < 0.0 { Binding::Sum } else { Binding::Whole })
            }
            Term::Step(StepScalar::LearningRate) => ("lr".into(), Binding::Whole),
            Term::Step(StepScalar::Update) => ("t".into(), Binding::Whole),
            Term::Step(StepScalar::WeightDecay) => ("decay".into(), Binding::Whole),
            Term::RowSize => ("row_size".into(), Binding::Whole),
            Term::Coordinate(axis) => (format!("coordinate({axis})"), Binding::Whole),
            Term::Unary(Unary::Neg, x) => (format!("-{}", inner(x, Binding::Power)), Binding::Sum),
            Term::Unary(function, x) => call(function.name(), &[x]),
            Term::Binary(function, a, b) => match function {
                Binary::Add => infix("+", a, b, Binding::Sum, Binding::Sum),
                Binary::Sub => infix("-", a, b, Binding::Sum, Binding::Product),
                Binary::Mul => infix("*", a, b, Binding::Product, Binding::Product),
                Binary::Div => infix("/", a, b, Binding::Product, Binding::Power),
                Binary::Pow => infix("^", a, b, Binding::Whole, Binding::Whole),
                Binary::Max => call("max", &[a, b]),
                Binary::Min => call("min", &[a, b]),
                Binary::Greater => infix(">", a, b, Binding::Comparison, Binding::Sum),
                Binary::AtLeast => infix(">=", a, b, Binding::Comparison, Binding::Sum),
                Binary::Equal => infix("==", a, b, Binding::Comparison, Binding::Sum),
            },
            Term::Select(condition, yes, no) => call("select", &[condition, yes, no]),
            Term::Softmax(x) => call("softmax", &[x]),
            Term::LogSoftmax(x) => call("log_softmax", &[x]),
            Term::Row(Fold::Sum, x) => call("row_sum", &[x]),
            Term::Row(Fold::Max, x) => call("row_max", &[x]),
            Term::Row(Fold::LogSumExp, x) => call("row_log_sum_exp", &[x]),
        }
    }
}

impl Unary {
    /// All functions except negation, which is written as a sign.
    pub(super) const NAMED: [Self; 15] = [
        Self::Abs,
        Self::Sign,
        Self::Exp,
        Self::Expm1,
        Self::Log,
        Self::Sqrt,
        Self::Rsqrt,
        Self::Tanh,
        Self::Sigmoid,
        Self::Softplus,
        Self::Erf,
        Self::Sin,
        Self::Cos,
        Self::Floor,
        Self::Detach,
    ];

    /// Its name in formulas.
    pub fn name(self) -> &'static str {
        match self {
            Self::Neg => "neg",
            Self::Abs => "abs",
            Self::Sign => "sign",
            Self::Exp => "exp",
            Self::Expm1 => "expm1",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Rsqrt => "rsqrt",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
            Self::Softplus => "softplus",
            Self::Erf => "erf",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Floor => "floor",
            Self::Detach => "detach",
        }
    }
}
