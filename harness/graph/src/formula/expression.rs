//! Formulas written as Rust expressions.

use super::{Binary, Fold, StepScalar, Term, TermId, Unary};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The terms of a formula that is being written.
#[derive(Default)]
pub struct Sheet(RefCell<Written>);

/// Terms in order, and the first place of each.
#[derive(Default)]
struct Written {
    terms: Vec<Term>,
    places: HashMap<Key, usize>,
}

impl Sheet {
    /// A sheet that starts with these terms.
    pub(super) fn of(terms: Vec<Term>) -> Self {
        let mut places = HashMap::with_capacity(terms.len());
        for (place, term) in terms.iter().enumerate() {
            places.entry(Key(*term)).or_insert(place);
        }
        Self(RefCell::new(Written { terms, places }))
    }

    pub(super) fn into_terms(self) -> Vec<Term> {
        self.0.into_inner().terms
    }

    pub(super) fn operand(&self, n: usize) -> Expression<'_> {
        self.write(Term::Operand(n))
    }

    pub(super) fn number(&self, value: f64) -> Expression<'_> {
        self.write(Term::Constant(value))
    }

    pub(super) fn at(&self, term: TermId) -> Expression<'_> {
        Expression { sheet: self, id: term }
    }

    pub(super) fn term(&self, id: TermId) -> Term {
        self.0.borrow().terms[id.0]
    }

    /// Adds a term, or returns an existing equal one.
    pub(super) fn write(&self, term: Term) -> Expression<'_> {
        let mut written = self.0.borrow_mut();
        let Written { terms, places } = &mut *written;
        let id = *places.entry(Key(term)).or_insert_with(|| {
            terms.push(term);
            terms.len() - 1
        });
        Expression { sheet: self, id: TermId(id) }
    }
}

/// A term whose constants are compared by their bits.
struct Key(Term);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Term::Constant(a), Term::Constant(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        }
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0).hash(state);
        match self.0 {
            Term::Operand(n) | Term::Coordinate(n) => n.hash(state),
            Term::Constant(value) => value.to_bits().hash(state),
            Term::Step(scalar) => scalar.hash(state),
            Term::RowSize => {}
            Term::Unary(function, x) => (function, x).hash(state),
            Term::Binary(function, a, b) => (function, a, b).hash(state),
            Term::Select(condition, yes, no) => (condition, yes, no).hash(state),
            Term::Row(fold, x) => (fold, x).hash(state),
            Term::Softmax(x) | Term::LogSoftmax(x) => x.hash(state),
        }
    }
}

/// A value of a formula that is being written.
#[derive(Clone, Copy)]
pub struct Expression<'f> {
    sheet: &'f Sheet,
    id: TermId,
}

impl<'f> Expression<'f> {
    pub(super) fn id(self) -> TermId {
        self.id
    }

    pub(super) fn constant(self) -> Option<f64> {
        if let Term::Constant(value) = self.sheet.term(self.id) { Some(value) } else { None }
    }

    pub(super) fn unary(self, function: Unary) -> Self {
        match self.constant() {
            Some(x) => self.sheet.number(function.of(x)),
            None => self.sheet.write(Term::Unary(function, self.id)),
        }
    }

    /// A function of two values. Folds constants and identities (`x + 0`, `x * 1`, `x ^ 0`, ...).
    pub(super) fn binary(self, function: Binary, other: Self) -> Self {
        let (a, b) = (self.constant(), other.constant());
        match (function, a, b) {
            (_, Some(a), Some(b)) => self.sheet.number(function.of(a, b)),
            (Binary::Add, Some(0.0), _) | (Binary::Mul, Some(1.0), _) => other,
            (Binary::Add | Binary::Sub, _, Some(0.0)) | (Binary::Mul | Binary::Div | Binary::Pow, _, Some(1.0)) => self,
            (Binary::Pow, _, Some(0.0)) => self.sheet.number(1.0),
            (Binary::Mul, Some(-1.0), _) => -other,
            (Binary::Mul, _, Some(-1.0)) => -self,
            _ => self.sheet.write(Term::Binary(function, self.id, other.id)),
        }
    }

    fn with(self, function: Binary, other: impl Operand<'f>) -> Self {
        self.binary(function, other.on(self.sheet))
    }

    /// A constant in the same sheet as this value.
    pub fn number(self, value: f64) -> Self {
        self.sheet.number(value)
    }

    /// A value of the current step, in the same sheet as this value.
    pub fn step(self, scalar: StepScalar) -> Self {
        self.sheet.write(Term::Step(scalar))
    }

    /// The index of each element along an axis, from 0, in the same sheet as this value.
    pub fn coordinate(self, axis: usize) -> Self {
        self.sheet.write(Term::Coordinate(axis))
    }

    /// |x|
    pub fn abs(self) -> Self {
        self.unary(Unary::Abs)
    }

    /// -1, 0 or 1; without a gradient.
    pub fn sign(self) -> Self {
        self.unary(Unary::Sign)
    }

    /// e^x
    pub fn exp(self) -> Self {
        self.unary(Unary::Exp)
    }

    /// e^x - 1, with all digits near 0.
    pub fn expm1(self) -> Self {
        self.unary(Unary::Expm1)
    }

    /// Natural logarithm.
    pub fn log(self) -> Self {
        self.unary(Unary::Log)
    }

    /// Square root.
    pub fn sqrt(self) -> Self {
        self.unary(Unary::Sqrt)
    }

    /// 1 / sqrt(x)
    pub fn rsqrt(self) -> Self {
        self.unary(Unary::Rsqrt)
    }

    /// Hyperbolic tangent.
    pub fn tanh(self) -> Self {
        self.unary(Unary::Tanh)
    }

    /// 1 / (1 + e^-x)
    pub fn sigmoid(self) -> Self {
        self.unary(Unary::Sigmoid)
    }

    /// log(1 + e^x)
    pub fn softplus(self) -> Self {
        self.unary(Unary::Softplus)
    }

    /// Sine.
    pub fn sin(self) -> Self {
        self.unary(Unary::Sin)
    }

    /// Cosine.
    pub fn cos(self) -> Self {
        self.unary(Unary::Cos)
    }

    /// The largest whole number that is not larger; without a gradient.
    pub fn floor(self) -> Self {
        self.unary(Unary::Floor)
    }

    /// Error function.
    pub fn erf(self) -> Self {
        self.unary(Unary::Erf)
    }

    /// x * x
    pub fn square(self) -> Self {
        self * self
    }

    /// The larger one. If both are equal, the gradient goes to `other`.
    pub fn max(self, other: impl Operand<'f>) -> Self {
        self.with(Binary::Max, other)
    }

    /// The smaller one. If both are equal, the gradient goes to `other`.
    pub fn min(self, other: impl Operand<'f>) -> Self {
        self.with(Binary::Min, other)
    }

    /// x^y
    pub fn pow(self, exponent: impl Operand<'f>) -> Self {
        self.with(Binary::Pow, exponent)
    }

    /// 1 if it is larger, otherwise 0.
    pub fn greater(self, other: impl Operand<'f>) -> Self {
        self.with(Binary::Greater, other)
    }

    /// 1 if it is larger or equal, otherwise 0.
    pub fn at_least(self, other: impl Operand<'f>) -> Self {
        self.with(Binary::AtLeast, other)
    }

    /// 1 if both are equal, otherwise 0.
    pub fn equal(self, other: impl Operand<'f>) -> Self {
        self.with(Binary::Equal, other)
    }

    /// `yes` if this is not zero, otherwise `no`.
    pub fn select(self, yes: impl Operand<'f>, no: impl Operand<'f>) -> Self {
        let (yes, no) = (yes.on(self.sheet), no.on(self.sheet));
        match self.constant() {
            Some(condition) => {
                if condition != 0.0 {
                    yes
                } else {
                    no
                }
            }
            None if yes.id == no.id => yes,
            None => self.sheet.write(Term::Select(self.id, yes.id, no.id)),
        }
    }

    /// The sum of the elements of each row.
    pub fn row_sum(self) -> Self {
        self.sheet.write(Term::Row(Fold::Sum, self.id))
    }

    /// The largest element of each row. Equal elements share the gradient.
    pub fn row_max(self) -> Self {
        self.sheet.write(Term::Row(Fold::Max, self.id))
    }

    /// e^x divided by the sum of e^x over its row.
    pub fn softmax(self) -> Self {
        self.sheet.write(Term::Softmax(self.id))
    }

    /// The logarithm of [`Self::softmax`].
    pub fn log_softmax(self) -> Self {
        self.sheet.write(Term::LogSoftmax(self.id))
    }

    /// log(sum(e^x)) of the elements of each row.
    pub fn row_log_sum_exp(self) -> Self {
        self.sheet.write(Term::Row(Fold::LogSumExp, self.id))
    }

    /// The mean of the elements of each row.
    pub fn row_mean(self) -> Self {
        self.row_sum() / self.row_size()
    }

    /// Number of elements of a row.
    pub fn row_size(self) -> Self {
        self.sheet.write(Term::RowSize)
    }
}

/// An operand of an arithmetic operator: a value or a number.
pub trait Operand<'f> {
    #[doc(hidden)]
    fn on(self, sheet: &'f Sheet) -> Expression<'f>;
}

impl<'f> Operand<'f> for Expression<'f> {
    fn on(self, _: &'f Sheet) -> Expression<'f> {
        self
    }
}

impl<'f> Operand<'f> for f64 {
    fn on(self, sheet: &'f Sheet) -> Expression<'f> {
        sheet.number(self)
    }
}

impl<'f> Neg for Expression<'f> {
    type Output = Self;
    fn neg(self) -> Self {
        if let Term::Unary(Unary::Neg, x) = self.sheet.term(self.id) {
            self.sheet.at(x)
        } else {
            self.unary(Unary::Neg)
        }
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl<'f, O: Operand<'f>> $trait<O> for Expression<'f> {
            type Output = Self;
            fn $method(self, other: O) -> Self {
                self.with(Binary::$trait, other)
            }
        }

        impl<'f> $trait<Expression<'f>> for f64 {
            type Output = Expression<'f>;
            fn $method(self, other: Expression<'f>) -> Expression<'f> {
                self.on(other.sheet).binary(Binary::$trait, other)
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);
