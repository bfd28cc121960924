//! Formulas as expressions of PyTorch.
//!
//! Comparisons and whole numbers have types of their own there, and what is computed from them and from numbers of
//! Python has 32 bits whatever the type of the values. So they become numbers in the type of an operand before that.

use zoo_graph::formula::{Binary, Fold, Formula, Term, TermId, Unary};

use super::at::At;
use super::classes::tight;
use super::code::{Binding, Code, Piece, Var};
use super::number::{Kind, plain};
use crate::diagnostic::Diagnostic;

/// A value that a formula reads.
pub(super) struct Operand {
    pub(super) var: Var,
    /// Its extents.
    pub(super) shape: Vec<usize>,
    /// Whether it has whole numbers, as labels.
    pub(super) whole: bool,
}

/// What the value of a term is in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// A number of Python.
    Plain,
    /// A tensor of truth values.
    Truth,
    /// A tensor of whole numbers.
    Whole,
    /// A tensor in the type of the operands.
    Real,
}

/// A term that is written: its expression, and the extents of its value.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) code: Code,
    pub(super) shape: Vec<usize>,
    is: Type,
}

/// Writes a formula term by term; `keep` makes an expression a value, which can be used several times.
struct Writer<'w> {
    operands: &'w [Operand],
    /// Number of the last axes that form a row.
    rows: usize,
    /// Extents of all operands together.
    space: Vec<usize>,
    keep: &'w mut dyn FnMut(Code) -> Var,
}

impl At<'_, '_> {
    /// The first result of a formula of these values. What is used several times becomes a value of its own.
    pub fn formula(&mut self, formula: &Formula, operands: &[Var]) -> Result<Var, Diagnostic> {
        let operand = |var: &Var| Operand { var: *var, shape: self.dims(*var), whole: false };
        let operands: Vec<Operand> = operands.iter().map(operand).collect();
        let part = written(formula, &operands, &mut |code| self.function(code));
        Ok(self.function(part.map_err(|reason| self.refuse(reason))?.code))
    }
}

/// The first result of a formula, as a tensor.
pub(super) fn written(
    formula: &Formula,
    operands: &[Operand],
    keep: &mut dyn FnMut(Code) -> Var,
) -> Result<Part, &'static str> {
    let mut counts = vec![0usize; formula.terms().len()];
    formula.terms().iter().flat_map(Term::arguments).for_each(|argument| counts[argument.0] += 1);
    let space = operands.iter().fold(Vec::new(), |space, operand| broadcast(&space, &operand.shape));
    let mut writer = Writer { operands, rows: formula.rows(), space, keep };
    let mut parts: Vec<Part> = Vec::new();
    for (term, count) in formula.terms().iter().zip(counts) {
        let part = writer.part(term, &parts)?;
        parts.push(if count > 1 { writer.kept(part) } else { part });
    }
    let result = formula.results().first().map_or(0, |result| result.term.0);
    Ok(writer.real(parts[result].clone()))
}

impl Writer<'_> {
    fn part(&mut self, term: &Term, parts: &[Part]) -> Result<Part, &'static str> {
        let of = |id: &TermId| parts[id.0].clone();
        Ok(match term {
            Term::Operand(n) => {
                let Operand { var, shape, whole } = &self.operands[*n];
                let is = if *whole { Type::Whole } else { Type::Real };
                Part { code: Code::value(*var), shape: shape.clone(), is }
            }
            Term::Constant(value) => {
                let binding = if *value < 0.0 { Binding::Product } else { Binding::Tight };
                Part::plain(Code { binding, ..Code::text(plain(*value, Kind::Real)) })
            }
            Term::Step(_) => return Err("it has values of the step"),
            Term::RowSize => {
                let extents = (1..=self.rows).map(|behind| Code::of(self.along(behind), format!(".shape[-{behind}]")));
                let product = extents.reduce(|a, b| joined(a, " * ", b, Binding::Product));
                Part::plain(product.unwrap_or_else(|| Code::text("1")))
            }
            Term::Coordinate(axis) => self.coordinate(self.space.len() - 1 - axis),
            Term::Unary(function, x) => self.unary(*function, of(x)),
            Term::Binary(function, a, b) => self.binary(*function, of(a), of(b)),
            Term::Select(condition, yes, no) => {
                let test = match of(condition) {
                    condition if condition.is == Type::Truth => condition,
                    condition => compared(self.real(condition), " != ", Part::plain(Code::text("0"))),
                };
                let [yes, no] = self.numbers([of(yes), of(no)], false);
                let yes = if (yes.is, no.is) == (Type::Plain, Type::Plain) { self.real(yes) } else { yes };
                choice(test, yes, no)
            }
            Term::Row(fold, x) => {
                let name = match fold {
                    Fold::Sum => "torch.sum",
                    Fold::Max => "torch.amax",
                    Fold::LogSumExp => "torch.logsumexp",
                };
                let mut row = self.along_rows(name, of(x), vec![Code::text("keepdim=True")]);
                row.shape.iter_mut().rev().take(self.rows).for_each(|extent| *extent = 1);
                row
            }
            Term::Softmax(x) => self.along_rows("functional.softmax", of(x), Vec::new()),
            Term::LogSoftmax(x) => self.along_rows("functional.log_softmax", of(x), Vec::new()),
        })
    }

    /// As a value, unless it is one, or a number of Python.
    fn kept(&mut self, part: Part) -> Part {
        match part.code.pieces[..] {
            [Piece::Value(..)] => part,
            _ if part.is == Type::Plain => part,
            _ => Part { code: Code::value((self.keep)(part.code)), ..part },
        }
    }

    /// An operand that is as long as all operands together, along the axis in this place from the end.
    fn along(&self, behind: usize) -> Var {
        let long = |operand: &&Operand| extent(&operand.shape, behind) == extent(&self.space, behind);
        self.operands.iter().find(long).unwrap_or(&self.operands[0]).var
    }

    /// An operand in the type of the results.
    fn typed(&self) -> &Operand {
        self.operands.iter().find(|operand| !operand.whole).unwrap_or(&self.operands[0])
    }

    /// As a tensor in the type of the operands.
    fn real(&self, part: Part) -> Part {
        let typed = self.typed();
        let like = Code::value(typed.var);
        match part.is {
            Type::Real => part,
            Type::Truth | Type::Whole => {
                let mut pieces = part.code.within(Binding::Tight).pieces;
                pieces.extend([Piece::Text(".type_as".to_owned()), Piece::List("(", vec![like], ")")]);
                Part { code: tight(pieces), is: Type::Real, ..part }
            }
            Type::Plain => {
                let code = Code::call("torch.full_like", vec![like, part.code]);
                Part { code, shape: typed.shape.clone(), is: Type::Real }
            }
        }
    }

    /// Two numbers that can be computed with each other. Truth values are numbers as they are where they are `factors`.
    fn numbers(&self, [a, b]: [Part; 2], factors: bool) -> [Part; 2] {
        let number = |part: Part, other: Type| match part.is {
            Type::Plain | Type::Real => part,
            Type::Truth if factors && other == Type::Real => part,
            Type::Truth | Type::Whole => self.real(part),
        };
        let types = [b.is, a.is];
        [number(a, types[0]), number(b, types[1])]
    }

    fn coordinate(&self, behind: usize) -> Part {
        let operand = self.along(behind + 1);
        let view = if behind == 0 { String::new() } else { format!("[:{}]", ", None".repeat(behind)) };
        let size = Code::of(operand, format!(".shape[-{}]", behind + 1));
        let device = Code::named("device", Code::of(operand, ".device"));
        let mut code = Code::call("torch.arange", vec![size, device]);
        code.pieces.extend((behind > 0).then_some(Piece::Text(view)));
        let mut shape = vec![1; behind + 1];
        shape[0] = extent(&self.space, behind + 1).unwrap_or(1);
        Part { code, shape, is: Type::Whole }
    }

    /// A function of rows, which are as long as those of all operands together.
    fn along_rows(&self, name: &str, x: Part, more: Vec<Code>) -> Part {
        let mut x = self.real(x);
        for behind in 1..=self.rows {
            let size = extent(&self.space, behind);
            if extent(&x.shape, behind) != size {
                let zeros = Code::call("torch.zeros_like", vec![Code::value(self.along(behind))]);
                let mut shape = vec![1; behind];
                shape[0] = size.unwrap_or(1);
                x = Part { code: joined(x.code, " + ", zeros, Binding::Sum), shape: broadcast(&x.shape, &shape), ..x };
            }
        }
        let axes = match self.rows {
            1 => "dim=-1".to_owned(),
            rows => format!("dim={:?}", (1..=rows).map(|axis| -(axis as i64)).collect::<Vec<_>>()),
        };
        let arguments = [x.code, Code::text(axes)].into_iter().chain(more).collect();
        Part { code: Code::call(name, arguments), ..x }
    }

    fn unary(&self, function: Unary, x: Part) -> Part {
        if x.is == Type::Plain && function == Unary::Neg {
            return Part::plain(negative(x.code));
        }
        let x = self.real(x);
        let call = |name: &str, code: Code| Code::call(name, vec![code]);
        let called = |name: &str| call(name, x.code.clone());
        let code = match function {
            Unary::Neg => negative(x.code),
            Unary::Abs => called("torch.abs"),
            Unary::Sign => called("torch.sign"),
            Unary::Expm1 => called("torch.expm1"),
            Unary::Exp => called("torch.exp"),
            Unary::Log => called("torch.log"),
            Unary::Sqrt => called("torch.sqrt"),
            Unary::Rsqrt => called("torch.rsqrt"),
            Unary::Tanh => called("torch.tanh"),
            Unary::Sigmoid => called("torch.sigmoid"),
            // PyTorch's own is the identity above a threshold.
            Unary::Softplus => negative(call("functional.logsigmoid", negative(x.code))),
            Unary::Erf => called("torch.erf"),
            Unary::Sin => called("torch.sin"),
            Unary::Cos => called("torch.cos"),
            Unary::Floor => called("torch.floor"),
            Unary::Detach => called("torch.detach"),
        };
        Part { code, shape: x.shape, is: x.is }
    }

    fn binary(&mut self, function: Binary, a: Part, b: Part) -> Part {
        let (operator, binding) = match function {
            Binary::Add => (" + ", Binding::Sum),
            Binary::Sub => (" - ", Binding::Sum),
            Binary::Mul => (" * ", Binding::Product),
            Binary::Div => (" / ", Binding::Product),
            Binary::Pow => ("**", Binding::Tight),
            // At a tie, the gradient goes to the second.
            Binary::Max => return self.extreme(a, (" > ", "max"), b),
            Binary::Min => return self.extreme(a, (" < ", "min"), b),
            Binary::Greater => return self.comparison(a, " > ", b),
            Binary::AtLeast => return self.comparison(a, " >= ", b),
            Binary::Equal => return self.comparison(a, " == ", b),
        };
        let [a, b] = self.numbers([a, b], function == Binary::Mul);
        let is = if (a.is, b.is) == (Type::Plain, Type::Plain) { Type::Plain } else { Type::Real };
        let mut code = joined(a.code, operator, b.code, binding);
        code.binding = binding.min(Binding::Product);
        Part { code, shape: broadcast(&a.shape, &b.shape), is }
    }

    fn extreme(&mut self, a: Part, (operator, function): (&str, &str), b: Part) -> Part {
        let [a, b] = self.numbers([a, b], false).map(|part| self.kept(part));
        match (a.is, b.is) {
            (Type::Plain, Type::Plain) => Part::plain(Code::call(function, vec![a.code, b.code])),
            _ => choice(compared(a.clone(), operator, b.clone()), a, b),
        }
    }

    fn comparison(&self, a: Part, operator: &str, b: Part) -> Part {
        let number = |part: Part| if part.is == Type::Truth { self.real(part) } else { part };
        compared(number(a), operator, number(b))
    }
}

impl Part {
    /// A number of Python.
    fn plain(code: Code) -> Self {
        Self { code, shape: Vec::new(), is: Type::Plain }
    }
}

fn compared(a: Part, operator: &str, b: Part) -> Part {
    let is = if (a.is, b.is) == (Type::Plain, Type::Plain) { Type::Plain } else { Type::Truth };
    Part { code: joined(a.code, operator, b.code, Binding::Loose), shape: broadcast(&a.shape, &b.shape), is }
}

fn choice(test: Part, yes: Part, no: Part) -> Part {
    let shape = broadcast(&test.shape, &broadcast(&yes.shape, &no.shape));
    Part { code: Code::call("torch.where", vec![test.code, yes.code, no.code]), shape, is: Type::Real }
}

fn negative(code: Code) -> Code {
    joined(Code::text("-"), "", code, Binding::Product)
}

/// The extents of two values together, as in NumPy.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let size = |behind| extent(a, behind).unwrap_or(1).max(extent(b, behind).unwrap_or(1));
    (1..=a.len().max(b.len())).rev().map(size).collect()
}

/// The extent of the axis in this place from the end.
fn extent(shape: &[usize], behind: usize) -> Option<usize> {
    shape.len().checked_sub(behind).map(|axis| shape[axis])
}

/// `a operator b`, with brackets where they are needed.
fn joined(a: Code, operator: &str, b: Code, binding: Binding) -> Code {
    let left = if binding == Binding::Loose { Binding::Sum } else { binding };
    let right = match binding {
        Binding::Loose => Binding::Sum,
        Binding::Sum => Binding::Product,
        Binding::Product | Binding::Tight => Binding::Tight,
    };
    let mut pieces = a.within(left).pieces;
    pieces.push(Piece::Text(operator.to_owned()));
    pieces.extend(b.within(right).pieces);
    Code { pieces, binding }
}

impl Code {
    /// In brackets if it binds looser than this; a value gets them where it is replaced by an expression.
    pub(super) fn within(self, needed: Binding) -> Self {
        match self.pieces[..] {
            [Piece::Value(var, _)] => tight(vec![Piece::Value(var, needed)]),
            _ if self.binding < needed => self.around("(", ")", Binding::Tight),
            _ => self,
        }
    }
}
