//! Symbolic differentiation of formulas.

use super::{Binary, Expression, Extent, Fold, Formula, Outcome, Term, TermId, Unary, expression::Sheet};

/// The source of an operand of a gradient formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// The n-th operand of the formula.
    Operand(usize),
    /// The n-th result of the formula.
    Result(usize),
    /// The gradient of the n-th result.
    ResultGradient(usize),
}

/// The gradient formula for some operands of a formula.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientFormula {
    /// Its operands.
    pub operands: Vec<Given>,
    /// One result for each requested operand on which the results depend, not yet summed over broadcast axes.
    pub formula: Formula,
    /// The operands of the original formula to which the results belong.
    pub of: Vec<usize>,
}

impl Formula {
    /// The gradients of the operands in `wanted`, from the gradients of the results in `given`.
    ///
    /// The gradient reads the formula's own results instead of its operands if it then needs no operands (sigmoid,
    /// tanh, softmax), so that these need not be kept.
    pub fn gradient(&self, given: &[usize], wanted: &[usize]) -> GradientFormula {
        let sheet = Sheet::of(self.terms.clone());
        let extents = self.extents();
        let mut adjoints: Vec<Option<TermId>> = vec![None; self.terms.len()];
        for &n in given {
            add(&sheet, &mut adjoints, self.results[n].term, sheet.operand(self.operands + n));
        }
        for (n, term) in self.terms.iter().enumerate().rev() {
            let Some(d) = adjoints[n].map(|d| sheet.at(d)) else { continue };
            let y = sheet.at(TermId(n));
            for (argument, part) in parts(&sheet, term, y, d) {
                // A value shared by all elements of a row gets the sum of their gradients; a fold reads it once per
                // element.
                let by_element = extents[n] == Extent::Element || matches!(term, Term::Row(..));
                match extents[argument.0] {
                    Extent::Step => {}
                    Extent::Row if by_element => add(&sheet, &mut adjoints, argument, part.row_sum()),
                    Extent::Row | Extent::Element => add(&sheet, &mut adjoints, argument, part),
                }
            }
        }
        let of_operand = |operand: &usize| {
            let place = self.terms.iter().position(|term| *term == Term::Operand(*operand))?;
            Some((*operand, adjoints[place]?))
        };
        let (of, results): (Vec<usize>, Vec<TermId>) = wanted.iter().filter_map(of_operand).unzip();
        let results: Vec<Outcome> =
            results.into_iter().map(|term| Outcome { term, over: Vec::new(), whole: true }).collect();
        let all = self.operands + self.results.len();
        let gradient = Self { operands: all, rows: self.rows, terms: sheet.into_terms(), results };
        let by_results = gradient.reading_results(self).pruned();
        let by_operands = gradient.pruned();
        let reads = |formula: &Self| formula.terms.iter().any(|t| matches!(t, Term::Operand(n) if *n < self.operands));
        let formula = if reads(&by_results) { by_operands } else { by_results };
        formula.with_givens(self, of)
    }

    /// The formula with results of `original` as additional operands, after all others: `original.operands +
    /// original.results + n`.
    fn reading_results(&self, original: &Self) -> Self {
        let mut formula = self.clone();
        for (n, result) in original.results.iter().enumerate().filter(|(_, result)| result.over.is_empty()) {
            if !matches!(formula.terms[result.term.0], Term::Constant(_) | Term::Operand(_)) {
                formula.terms[result.term.0] = Term::Operand(original.operands + original.results.len() + n);
            }
        }
        formula.operands += original.results.len();
        formula
    }

    /// Numbers the used operands from 0, and returns their sources.
    fn with_givens(mut self, original: &Self, of: Vec<usize>) -> GradientFormula {
        let given = |n: usize| match n.checked_sub(original.operands) {
            None => Given::Operand(n),
            Some(n) => match n.checked_sub(original.results.len()) {
                None => Given::ResultGradient(n),
                Some(n) => Given::Result(n),
            },
        };
        let mut operands = Vec::new();
        for term in &mut self.terms {
            if let Term::Operand(n) = term {
                let what = given(*n);
                let place = operands.iter().position(|known| *known == what).unwrap_or_else(|| {
                    operands.push(what);
                    operands.len() - 1
                });
                *term = Term::Operand(place);
            }
        }
        self.operands = operands.len();
        GradientFormula { operands, formula: self, of }
    }
}

/// Adds a part of the gradient of a term.
fn add<'f>(sheet: &'f Sheet, adjoints: &mut [Option<TermId>], to: TermId, part: Expression<'f>) {
    let sum = match adjoints[to.0] {
        Some(known) => sheet.at(known) + part,
        None => part,
    };
    adjoints[to.0] = Some(sum.id());
}

/// The gradients of the arguments of a term, from the gradient `d` of its value `y`. For powers, they are 0 where
/// PyTorch's are, although the formulas give 0 * infinity: by the base of a^0, and by the exponent of 0^b with b >= 0.
fn parts<'f>(sheet: &'f Sheet, term: &Term, y: Expression<'f>, d: Expression<'f>) -> Vec<(TermId, Expression<'f>)> {
    match *term {
        Term::Operand(_) | Term::Constant(_) | Term::Step(_) | Term::RowSize | Term::Coordinate(_) => Vec::new(),
        Term::Unary(function, argument) => {
            let x = sheet.at(argument);
            let part = match function {
                Unary::Neg => -d,
                Unary::Abs => d * x.sign(),
                Unary::Sign | Unary::Floor | Unary::Detach => return Vec::new(),
                Unary::Exp => d * y,
                // Not y + 1, which has no digits where e^x is small.
                Unary::Expm1 => d * x.exp(),
                Unary::Log => d / x,
                Unary::Sqrt => d * 0.5 / y,
                Unary::Rsqrt => d * -0.5 * y / x,
                Unary::Tanh => d * (1.0 - y * y),
                Unary::Sigmoid => d * (y * (1.0 - y)),
                Unary::Softplus => d * x.sigmoid(),
                Unary::Erf => d * (std::f64::consts::FRAC_2_SQRT_PI * (-(x * x)).exp()),
                Unary::Sin => d * x.cos(),
                Unary::Cos => -(d * x.sin()),
            };
            vec![(argument, part)]
        }
        Term::Binary(function, left, right) => {
            let (a, b) = (sheet.at(left), sheet.at(right));
            let split = |first: Expression<'f>| vec![(left, first.select(d, 0.0)), (right, first.select(0.0, d))];
            match function {
                Binary::Add => vec![(left, d), (right, d)],
                Binary::Sub => vec![(left, d), (right, -d)],
                Binary::Mul => vec![(left, d * b), (right, d * a)],
                Binary::Div => vec![(left, d / b), (right, -(d * y / b))],
                Binary::Max => split(a.greater(b)),
                Binary::Min => split(b.greater(a)),
                Binary::Pow => {
                    let base = b.equal(0.0).select(0.0, d * (b * a.pow(b - 1.0)));
                    let exponent = d * (y * a.log());
                    let exponent = a.equal(0.0).select(b.at_least(0.0).select(0.0, exponent), exponent);
                    vec![(left, base), (right, exponent)]
                }
                Binary::Greater | Binary::AtLeast | Binary::Equal => Vec::new(),
            }
        }
        Term::Select(condition, yes, no) => {
            let condition = sheet.at(condition);
            vec![(yes, condition.select(d, 0.0)), (no, condition.select(0.0, d))]
        }
        Term::Softmax(argument) => vec![(argument, y * (d - (d * y).row_sum()))],
        Term::LogSoftmax(argument) => vec![(argument, d - y.exp() * d.row_sum())],
        Term::Row(Fold::Sum, argument) => vec![(argument, d)],
        Term::Row(Fold::LogSumExp, argument) => vec![(argument, d * (sheet.at(argument) - y).exp())],
        Term::Row(Fold::Max, argument) => {
            let largest = sheet.at(argument).at_least(y);
            vec![(argument, largest.select(d / largest.row_sum(), 0.0))]
        }
    }
}
