//! Formulas: arithmetic on tensors, element by element, with folds along rows.
//!
//! A [`Formula`] is a list of [`Term`]s over operands that broadcast. It is written in Rust like arithmetic
//! ([`Formula::define`]) or parsed from a text ([`parse`]), differentiated symbolically (`differentiate`), and
//! printed in readable form. The operator [`crate::ops::Map`] applies a formula to tensors. Activations,
//! normalisations, losses and the updates of optimizers are formulas.
//!
//! Equal terms become one term, and constants are folded while a formula is written. Nothing else is rearranged: a
//! kernel computes the formula as written, in this order.

mod differentiate;
mod display;
mod expression;
mod parse;

pub use differentiate::{Given, GradientFormula};
pub use expression::Expression;
pub use parse::{ParseError, names, parse};

/// Index of a [`Term`] in its formula. Terms only refer to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermId(pub usize);

/// One step of a formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Term {
    /// The n-th operand, broadcast.
    Operand(usize),
    /// A number.
    Constant(f64),
    /// A value of the current step, equal for all elements.
    Step(StepScalar),
    /// Number of elements of a row.
    RowSize,
    /// Index of the element along this axis, from 0.
    Coordinate(usize),
    /// A function of one term.
    Unary(Unary, TermId),
    /// A function of two terms.
    Binary(Binary, TermId, TermId),
    /// The second term if the first is not zero, otherwise the third. The other one has no effect, even if it is NaN.
    Select(TermId, TermId, TermId),
    /// The term folded along each row; equal for all elements of the row.
    Row(Fold, TermId),
    /// e^x divided by the sum of e^x over its row, without overflow.
    Softmax(TermId),
    /// The logarithm of that, with all digits of small differences between large numbers.
    LogSoftmax(TermId),
}

/// A number that changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepScalar {
    /// The learning rate of the schedule.
    LearningRate,
    /// Number of updates, including this one.
    Update,
    /// The weight decay of the updated parameter.
    WeightDecay,
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// -x
    Neg,
    /// |x|
    Abs,
    /// -1, 0 or 1.
    Sign,
    /// e^x
    Exp,
    /// e^x - 1, with all digits near 0.
    Expm1,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// 1 / sqrt(x)
    Rsqrt,
    /// Hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// log(1 + e^x), without overflow.
    Softplus,
    /// Error function.
    Erf,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Largest integer that is not above x.
    Floor,
    /// x, without a gradient.
    Detach,
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b
    Div,
    /// The larger one, or NaN if one is NaN. If both are equal, the gradient goes to `b`.
    Max,
    /// The smaller one, or NaN if one is NaN. If both are equal, the gradient goes to `b`.
    Min,
    /// a^b
    Pow,
    /// 1 if a > b, otherwise 0.
    Greater,
    /// 1 if a >= b, otherwise 0.
    AtLeast,
    /// 1 if a = b, otherwise 0.
    Equal,
}

/// How the elements of a row are reduced to one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// log(sum(e^x)), without overflow.
    LogSumExp,
}

/// A result of a formula.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The result.
    pub term: TermId,
    /// Axes over which it is summed. They remain, with one element.
    pub over: Vec<usize>,
    /// Whether it has a value for every element, even if all elements of a row are equal.
    pub whole: bool,
}

/// Arithmetic on tensors, element by element.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    operands: usize,
    rows: usize,
    terms: Vec<Term>,
    results: Vec<Outcome>,
}

/// The variables of an update formula.
pub struct UpdateOperands<'f> {
    /// The parameter.
    pub parameter: Expression<'f>,
    /// A slot of the parameter.
    pub slots: Vec<Expression<'f>>,
    /// Its gradient.
    pub gradient: Expression<'f>,
    /// See [`StepScalar::LearningRate`].
    pub learning_rate: Expression<'f>,
    /// See [`StepScalar::Update`].
    pub update: Expression<'f>,
    /// See [`StepScalar::WeightDecay`].
    pub weight_decay: Expression<'f>,
}

/// The range within which a term is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// Equal for all elements.
    Step,
    /// Equal for all elements of a row.
    Row,
    /// Different for each element.
    Element,
}

impl Formula {
    /// Writes a formula with `OPERANDS` operands, and one result per expression that `write` returns. A row consists
    /// of the last `rows` axes.
    pub fn define<const OPERANDS: usize, const RESULTS: usize>(
        rows: usize,
        write: impl for<'f> FnOnce([Expression<'f>; OPERANDS]) -> [Expression<'f>; RESULTS],
    ) -> Self {
        Self::of_many(rows, OPERANDS, |sheet| {
            write(std::array::from_fn(|n| sheet.operand(n))).map(Expression::id).to_vec()
        })
    }

    /// As [`Self::define`], with any number of operands and one result.
    pub fn over(rows: usize, operands: usize, write: impl for<'f> FnOnce(&[Expression<'f>]) -> Expression<'f>) -> Self {
        Self::of_many(rows, operands, |sheet| {
            let operands: Vec<Expression<'_>> = (0..operands).map(|n| sheet.operand(n)).collect();
            vec![write(&operands).id()]
        })
    }

    /// Writes an update: the next values of a parameter and its slots, from their current values and the gradient. A
    /// row is the whole tensor.
    pub fn update(slots: usize, write: impl for<'f> FnOnce(UpdateOperands<'f>) -> Vec<Expression<'f>>) -> Self {
        Self::of_many(1, slots + 2, |sheet| {
            let step = |scalar| sheet.write(Term::Step(scalar));
            let operands = UpdateOperands {
                parameter: sheet.operand(0),
                slots: (1..=slots).map(|n| sheet.operand(n)).collect(),
                gradient: sheet.operand(slots + 1),
                learning_rate: step(StepScalar::LearningRate),
                update: step(StepScalar::Update),
                weight_decay: step(StepScalar::WeightDecay),
            };
            write(operands).into_iter().map(Expression::id).collect()
        })
    }

    fn of_many(rows: usize, operands: usize, write: impl FnOnce(&expression::Sheet) -> Vec<TermId>) -> Self {
        let sheet = expression::Sheet::default();
        let results = write(&sheet);
        let results = results.into_iter().map(|term| Outcome { term, over: Vec::new(), whole: false }).collect();
        Self { operands, rows, terms: sheet.into_terms(), results }.pruned().with_rows(rows)
    }

    /// The formula with rows of the given number of axes, if it uses rows.
    fn with_rows(self, rows: usize) -> Self {
        let folds = self
            .terms
            .iter()
            .any(|term| matches!(term, Term::Row(..) | Term::Softmax(_) | Term::LogSoftmax(_) | Term::RowSize));
        Self { rows: if folds { rows } else { 0 }, ..self }
    }

    /// The formula with the first result summed over these axes.
    #[must_use]
    pub fn summed(mut self, over: Vec<usize>) -> Self {
        self.results[0].over = over;
        self
    }

    /// Sums each result over these axes.
    pub(crate) fn sum_results(&mut self, over: impl Iterator<Item = Vec<usize>>) {
        self.results.iter_mut().zip(over).for_each(|(result, over)| result.over = over);
    }

    /// The value of each term, if it follows from constants and the `known` terms.
    pub fn values(&self, known: impl Fn(&Term) -> Option<f64>) -> Vec<Option<f64>> {
        let mut values: Vec<Option<f64>> = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            let value = |id: &TermId| values[id.0];
            values.push(known(term).or_else(|| match term {
                Term::Constant(value) => Some(*value),
                Term::Unary(function, x) => value(x).map(|x| function.of(x)),
                Term::Binary(function, a, b) => value(a).zip(value(b)).map(|(a, b)| function.of(a, b)),
                Term::Select(condition, yes, no) => match (value(condition), value(yes), value(no)) {
                    (Some(condition), Some(yes), Some(no)) => Some(if condition != 0.0 { yes } else { no }),
                    _ => None,
                },
                Term::Operand(_) | Term::Step(_) | Term::RowSize | Term::Coordinate(_) | Term::Row(..) => None,
                Term::Softmax(_) | Term::LogSoftmax(_) => None,
            }));
        }
        values
    }

    /// Axes whose coordinates the formula reads.
    pub fn coordinates(&self) -> impl Iterator<Item = usize> {
        self.terms.iter().filter_map(|term| if let Term::Coordinate(axis) = term { Some(*axis) } else { None })
    }

    /// Number of operands.
    pub fn operands(&self) -> usize {
        self.operands
    }

    /// Number of the last axes that form a row; 0 if nothing is folded.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The terms, each after those to which it refers.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The results.
    pub fn results(&self) -> &[Outcome] {
        &self.results
    }

    /// The formula with further operands in place of the indices that it reads, and their axes, in order.
    pub(crate) fn with_positions(&self) -> (Self, Vec<usize>) {
        let mut axes: Vec<usize> = self.coordinates().collect();
        axes.sort_unstable();
        axes.dedup();
        let place = |axis: &usize| axes.iter().position(|known| known == axis);
        let operand = |term: &Term| {
            let place = if let Term::Coordinate(axis) = term { place(axis) } else { None };
            place.map_or(*term, |n| Term::Operand(self.operands + n))
        };
        let terms = self.terms.iter().map(operand).collect();
        (Self { operands: self.operands + axes.len(), terms, ..self.clone() }, axes)
    }

    /// The range within which each term is constant.
    pub fn extents(&self) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            let extent = match term {
                Term::Operand(_) | Term::Coordinate(_) | Term::Softmax(_) | Term::LogSoftmax(_) => Extent::Element,
                Term::Constant(_) | Term::Step(_) | Term::RowSize => Extent::Step,
                Term::Row(..) => Extent::Row,
                Term::Unary(..) | Term::Binary(..) | Term::Select(..) => {
                    term.arguments().map(|argument| extents[argument.0]).max().unwrap_or(Extent::Step)
                }
            };
            extents.push(extent);
        }
        extents
    }

    /// The formula with softmax, its logarithm and log-sum-exp expanded to sums and maxima of rows, for kernels.
    #[must_use]
    pub fn expanded(&self) -> Self {
        let sheet = expression::Sheet::default();
        let mut places: Vec<TermId> = Vec::with_capacity(self.terms.len());
        for term in &self.terms {
            let expression = |id: &TermId| sheet.at(places[id.0]);
            let shifted = |x: expression::Expression<'_>| {
                // If all elements of a row are -infinity, there is no finite number to subtract.
                let largest = x.row_max().max(f64::from(f32::MIN));
                (largest.id(), (x - largest).id())
            };
            let written = match term {
                Term::Softmax(x) => {
                    let (_, shifted) = shifted(expression(x));
                    let power = sheet.at(shifted).exp();
                    power / power.row_sum()
                }
                Term::LogSoftmax(x) => {
                    let (_, shifted) = shifted(expression(x));
                    let shifted = sheet.at(shifted);
                    shifted - shifted.exp().row_sum().log()
                }
                Term::Row(Fold::LogSumExp, x) => {
                    let (largest, shifted) = shifted(expression(x));
                    sheet.at(largest) + sheet.at(shifted).exp().row_sum().log()
                }
                Term::Operand(_)
                | Term::Constant(_)
                | Term::Step(_)
                | Term::RowSize
                | Term::Coordinate(_)
                | Term::Unary(..)
                | Term::Binary(..)
                | Term::Select(..)
                | Term::Row(Fold::Sum | Fold::Max, _) => sheet.write(term.mapped(|argument| places[argument.0])),
            };
            places.push(written.id());
        }
        let results = self.results.iter().map(|r| Outcome { term: places[r.term.0], ..r.clone() }).collect();
        Self { operands: self.operands, rows: self.rows, terms: sheet.into_terms(), results }.pruned()
    }

    /// Arithmetic operations per element. Functions of one number count as in `Unary::operations`.
    pub fn operations(&self) -> u64 {
        let extents = self.extents();
        let counted = self
            .terms
            .iter()
            .zip(extents)
            .filter(|(term, extent)| *extent == Extent::Element || matches!(term, Term::Row(..)));
        counted.map(|(term, _)| term.operations()).sum()
    }

    /// Removes terms that no result needs.
    fn pruned(self) -> Self {
        let mut needed = vec![false; self.terms.len()];
        self.results.iter().for_each(|result| needed[result.term.0] = true);
        for (n, term) in self.terms.iter().enumerate().rev() {
            if needed[n] {
                term.arguments().for_each(|argument| needed[argument.0] = true);
            }
        }
        let mut places = vec![TermId(0); self.terms.len()];
        let mut terms = Vec::new();
        for (n, term) in self.terms.iter().enumerate().filter(|(n, _)| needed[*n]) {
            places[n] = TermId(terms.len());
            terms.push(term.mapped(|argument| places[argument.0]));
        }
        let results = self.results.into_iter().map(|r| Outcome { term: places[r.term.0], ..r }).collect();
        Self { terms, results, ..self }
    }
}

impl Term {
    /// The terms to which it refers.
    pub fn arguments(&self) -> impl Iterator<Item = TermId> {
        let arguments = match *self {
            Self::Operand(_) | Self::Constant(_) | Self::Step(_) | Self::RowSize | Self::Coordinate(_) => [None; 3],
            Self::Unary(_, x) | Self::Row(_, x) | Self::Softmax(x) | Self::LogSoftmax(x) => [Some(x), None, None],
            Self::Binary(_, a, b) => [Some(a), Some(b), None],
            Self::Select(condition, yes, no) => [Some(condition), Some(yes), Some(no)],
        };
        arguments.into_iter().flatten()
    }

    /// The term with other arguments.
    fn mapped(&self, to: impl Fn(TermId) -> TermId) -> Self {
        match *self {
            Self::Operand(_) | Self::Constant(_) | Self::Step(_) | Self::RowSize | Self::Coordinate(_) => *self,
            Self::Unary(function, x) => Self::Unary(function, to(x)),
            Self::Row(fold, x) => Self::Row(fold, to(x)),
            Self::Softmax(x) => Self::Softmax(to(x)),
            Self::LogSoftmax(x) => Self::LogSoftmax(to(x)),
            Self::Binary(function, a, b) => Self::Binary(function, to(a), to(b)),
            Self::Select(condition, yes, no) => Self::Select(to(condition), to(yes), to(no)),
        }
    }

    /// Number of vector instructions of a straightforward implementation: functions without a dedicated instruction
    /// count as the polynomial or rational function that computes them.
    pub fn operations(&self) -> u64 {
        match self {
            Self::Operand(_) | Self::Constant(_) | Self::Step(_) | Self::RowSize | Self::Coordinate(_) => 0,
            Self::Unary(function, _) => match function {
                Unary::Detach => 0,
                Unary::Neg | Unary::Abs | Unary::Exp | Unary::Log | Unary::Sqrt | Unary::Rsqrt | Unary::Floor => 1,
                Unary::Sign | Unary::Expm1 => 2,
                Unary::Softplus => 3,
                Unary::Sigmoid => 4,
                Unary::Tanh => 6,
                Unary::Sin | Unary::Cos => 10,
                Unary::Erf => 15,
            },
            Self::Binary(function, ..) => match function {
                Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max | Binary::Min => 1,
                Binary::Greater | Binary::AtLeast | Binary::Equal => 1,
                Binary::Pow => 3,
            },
            Self::Select(..) | Self::Row(Fold::Sum | Fold::Max, _) => 1,
            Self::Row(Fold::LogSumExp, _) => 4,
            Self::Softmax(_) | Self::LogSoftmax(_) => 5,
        }
    }
}

impl Unary {
    /// Its value in f64.
    pub fn of(self, x: f64) -> f64 {
        match self {
            Self::Neg => -x,
            Self::Abs => x.abs(),
            Self::Sign if x == 0.0 || x.is_nan() => x,
            Self::Sign => x.signum(),
            Self::Exp => libm::exp(x),
            Self::Expm1 => libm::expm1(x),
            Self::Log => libm::log(x),
            Self::Sqrt => x.sqrt(),
            Self::Rsqrt => 1.0 / x.sqrt(),
            Self::Tanh => libm::tanh(x),
            Self::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
            Self::Softplus => x.max(0.0) + libm::log1p(libm::exp(-x.abs())),
            Self::Erf => libm::erf(x),
            Self::Sin => libm::sin(x),
            Self::Cos => libm::cos(x),
            Self::Floor => x.floor(),
            Self::Detach => x,
        }
    }
}

impl Binary {
    /// Its value in f64.
    #[inline]
    pub fn of(self, a: f64, b: f64) -> f64 {
        let truth = |truth: bool| f64::from(u8::from(truth));
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::Mul => a * b,
            Self::Div => a / b,
            Self::Max if a.is_nan() || a > b => a,
            Self::Max => b,
            Self::Min if a.is_nan() || a < b => a,
            Self::Min => b,
            Self::Pow => libm::pow(a, b),
            Self::Greater => truth(a > b),
            Self::AtLeast => truth(a >= b),
            Self::Equal => truth(a == b),
        }
    }
}

#[cfg(test)]
mod tests;
