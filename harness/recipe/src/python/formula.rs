//! Formulas as expressions of PyTorch.

use zoo_graph::formula::{Binary, Fold, Formula, Term, TermId, Unary};

use super::at::At;
use super::code::{Binding, Code, Piece, Var};
use super::number::{Kind, plain};
use crate::diagnostic::Diagnostic;

impl At<'_, '_> {
    /// The first result of a formula of these values. What is used several times becomes a value of its own.
    pub fn formula(&mut self, formula: &Formula, operands: &[Var]) -> Result<Var, Diagnostic> {
        let mut counts = vec![0usize; formula.terms().len()];
        formula.terms().iter().flat_map(Term::arguments).for_each(|argument| counts[argument.0] += 1);
        let ranks: Vec<usize> = operands.iter().map(|operand| self.dims(*operand).len()).collect();
        let rank = ranks.into_iter().max().unwrap_or(0);
        let mut codes: Vec<Code> = Vec::new();
        for (index, term) in formula.terms().iter().enumerate() {
            let code = self.term(term, &codes, formula.rows(), rank, operands)?;
            let simple = matches!(term, Term::Operand(_) | Term::Constant(_) | Term::RowSize);
            let several = counts[index] > 1 && !simple;
            codes.push(if several { Code::value(self.function(code)) } else { code });
        }
        let result = formula.results().first().map_or(0, |result| result.term.0);
        Ok(self.function(codes[result].clone()))
    }

    fn term(
        &self,
        term: &Term,
        codes: &[Code],
        rows: usize,
        rank: usize,
        operands: &[Var],
    ) -> Result<Code, Diagnostic> {
        let of = |id: &TermId| codes[id.0].clone();
        let call = |name: &str, arguments: Vec<Code>| Code::call(name, arguments);
        let axes = || match rows {
            1 => Code::text("dim=-1"),
            _ => Code::text(format!("dim={:?}", (1..=rows).map(|axis| -(axis as i64)).collect::<Vec<_>>())),
        };
        Ok(match term {
            Term::Operand(n) => Code::value(operands[*n]),
            Term::Constant(value) => Code::text(plain(*value, Kind::Real)),
            Term::Step(_) => return Err(self.refuse("a formula of a layer has no values of the step")),
            Term::RowSize => {
                let extents = (1..=rows).map(|axis| format!("{{}}.shape[-{axis}]")).collect::<Vec<_>>().join(" * ");
                let mut pieces = Vec::new();
                for (index, text) in extents.split("{}").enumerate() {
                    if index > 0 {
                        pieces.push(Piece::Value(operands[0], Binding::Tight));
                    }
                    pieces.push(Piece::Text(text.to_owned()));
                }
                Code { pieces, binding: Binding::Product }
            }
            Term::Coordinate(axis) => {
                let behind = rank - 1 - axis;
                let view = if behind == 0 { String::new() } else { format!("[:{}]", ", None".repeat(behind)) };
                let mut pieces = vec![Piece::Text("torch.arange(".into()), Piece::Value(operands[0], Binding::Tight)];
                pieces.push(Piece::Text(format!(".shape[{axis}], device=")));
                pieces.push(Piece::Value(operands[0], Binding::Tight));
                pieces.push(Piece::Text(format!(".device){view}")));
                Code { pieces, binding: Binding::Tight }
            }
            Term::Unary(function, x) => {
                let x = of(x);
                match function {
                    Unary::Neg => joined(Code::text("-"), "", x, Binding::Product),
                    Unary::Abs => call("torch.abs", vec![x]),
                    Unary::Sign => call("torch.sign", vec![x]),
                    Unary::Expm1 => call("torch.expm1", vec![x]),
                    Unary::Exp => call("torch.exp", vec![x]),
                    Unary::Log => call("torch.log", vec![x]),
                    Unary::Sqrt => call("torch.sqrt", vec![x]),
                    Unary::Rsqrt => call("torch.rsqrt", vec![x]),
                    Unary::Tanh => call("torch.tanh", vec![x]),
                    Unary::Sigmoid => call("torch.sigmoid", vec![x]),
                    // PyTorch's own is the identity above a threshold.
                    Unary::Softplus => {
                        let negative = joined(Code::text("-"), "", x, Binding::Product);
                        let softplus = call("functional.logsigmoid", vec![negative]);
                        joined(Code::text("-"), "", softplus, Binding::Product)
                    }
                    Unary::Erf => call("torch.erf", vec![x]),
                    Unary::Sin => call("torch.sin", vec![x]),
                    Unary::Cos => call("torch.cos", vec![x]),
                    Unary::Floor => call("torch.floor", vec![x]),
                    Unary::Detach => call("torch.detach", vec![x]),
                }
            }
            Term::Binary(function, a, b) => {
                let (a, b) = (of(a), of(b));
                match function {
                    Binary::Add => joined(a, " + ", b, Binding::Sum),
                    Binary::Sub => joined(a, " - ", b, Binding::Sum),
                    Binary::Mul => joined(a, " * ", b, Binding::Product),
                    Binary::Div => joined(a, " / ", b, Binding::Product),
                    Binary::Pow => joined(a.tightly(), "**", b.tightly(), Binding::Product),
                    // At a tie, the gradient goes to the second.
                    Binary::Max => call("torch.where", vec![joined(a.clone(), " > ", b.clone(), Binding::Loose), a, b]),
                    Binary::Min => call("torch.where", vec![joined(a.clone(), " < ", b.clone(), Binding::Loose), a, b]),
                    Binary::Greater => joined(a, " > ", b, Binding::Loose),
                    Binary::AtLeast => joined(a, " >= ", b, Binding::Loose),
                    Binary::Equal => joined(a, " == ", b, Binding::Loose),
                }
            }
            Term::Select(condition, yes, no) => {
                let condition = of(condition);
                let test = match condition.binding {
                    Binding::Loose => condition,
                    Binding::Sum | Binding::Product | Binding::Tight => {
                        joined(condition, " != ", Code::text("0"), Binding::Loose)
                    }
                };
                call("torch.where", vec![test, of(yes), of(no)])
            }
            Term::Row(fold, x) => {
                let name = match fold {
                    Fold::Sum => "torch.sum",
                    Fold::Max => "torch.amax",
                    Fold::LogSumExp => "torch.logsumexp",
                };
                call(name, vec![of(x), axes(), Code::text("keepdim=True")])
            }
            Term::Softmax(x) => call("functional.softmax", vec![of(x), axes()]),
            Term::LogSoftmax(x) => call("functional.log_softmax", vec![of(x), axes()]),
        })
    }
}

/// `a operator b`, with brackets where they are needed. A comparison counts as a number where one is wanted.
fn joined(a: Code, operator: &str, b: Code, binding: Binding) -> Code {
    let left = if binding == Binding::Loose { Binding::Sum } else { binding };
    let right = match binding {
        Binding::Loose => Binding::Sum,
        Binding::Sum => Binding::Product,
        Binding::Product | Binding::Tight => Binding::Tight,
    };
    let mut pieces = bracketed(a, left).pieces;
    pieces.push(Piece::Text(operator.to_owned()));
    pieces.extend(bracketed(b, right).pieces);
    Code { pieces, binding }
}

fn bracketed(code: Code, needed: Binding) -> Code {
    if code.binding < needed { code.around("(", ")", Binding::Tight) } else { code }
}

impl Code {
    fn tightly(self) -> Self {
        bracketed(self, Binding::Tight)
    }
}
