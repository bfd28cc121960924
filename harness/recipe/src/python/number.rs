//! Numbers of an emitted program: their value, and how they are written in terms of the arguments of the class.

use std::fmt;

use crate::values::{Expression, Operator, Scalar, Term};

/// A number, and the expression of class arguments that gives it.
///
/// The value is that of one use of the class; the expression is the same for all uses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Number {
    /// Its value in this use.
    pub value: f64,
    /// What it is in Python.
    pub kind: Kind,
    /// What an argument for it is called.
    pub hint: &'static str,
    /// What is added up.
    terms: Vec<Product>,
}

/// Types of numbers in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `int`
    Whole,
    /// `float`
    Real,
    /// `bool`
    Switch,
}

impl Kind {
    /// Of what is computed from two numbers.
    fn with(self, other: Self) -> Self {
        if self == Self::Real || other == Self::Real { Self::Real } else { Self::Whole }
    }
}

/// `names * factor / under`.
#[derive(Clone, Debug, PartialEq)]
struct Product {
    factor: f64,
    names: Vec<String>,
    under: Vec<String>,
}

impl Product {
    fn of(factor: f64) -> Self {
        Self { factor, names: Vec::new(), under: Vec::new() }
    }

    fn times(&self, other: &Self) -> Self {
        let joined = |a: &[String], b: &[String]| [a, b].concat();
        Self {
            factor: self.factor * other.factor,
            names: joined(&self.names, &other.names),
            under: joined(&self.under, &other.under),
        }
    }
}

impl Number {
    /// A whole number as it is.
    pub fn count(value: usize) -> Self {
        Self::of(value as f64, Kind::Whole)
    }

    /// A number as it is.
    pub fn real(value: f64) -> Self {
        Self::of(value, Kind::Real)
    }

    /// A value of a block argument.
    pub fn scalar(value: Scalar) -> Self {
        match value {
            Scalar::Bool(value) => Self::of(f64::from(u8::from(value)), Kind::Switch),
            Scalar::Int(value) => Self::of(value as f64, Kind::Whole),
            Scalar::Float(value) => Self::real(value),
        }
    }

    /// A number as it is.
    pub fn of(value: f64, kind: Kind) -> Self {
        Self { value, kind, hint: "", terms: vec![Product::of(value)] }
    }

    /// An argument of the class with this value.
    pub fn argument(name: &str, value: f64, kind: Kind) -> Self {
        let product = Product { factor: 1.0, names: vec![name.to_owned()], under: Vec::new() };
        Self { value, kind, hint: "", terms: vec![product] }
    }

    /// An expression of the recipe, where `argument` gives its arguments; `value` is what it computes.
    pub fn written(
        expression: &Expression,
        value: f64,
        kind: Kind,
        argument: impl Fn(&str) -> Option<Self>,
    ) -> Option<Self> {
        let (first, rest) = expression.terms();
        let term = |term: &Term| match term {
            Term::Number(number) => Some(Self::real(*number)),
            Term::Argument(name) => argument(name),
        };
        let product = rest.iter().try_fold(term(first)?, |product, (operator, next)| {
            let next = term(next)?;
            match operator {
                Operator::Times => product.times(&next),
                Operator::Over => product.over(&next),
            }
        })?;
        Some(Self { value, kind, ..product })
    }

    /// Whether it is the same in every use of the class.
    pub fn is_literal(&self) -> bool {
        self.names().next().is_none()
    }

    /// The arguments in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().flat_map(|product| product.names.iter().chain(&product.under)).map(String::as_str)
    }

    /// With other names for its arguments.
    pub fn renamed(&mut self, name: &impl Fn(&str) -> String) {
        let names = self.terms.iter_mut().flat_map(|product| product.names.iter_mut().chain(&mut product.under));
        names.for_each(|known| *known = name(known));
    }

    /// As a whole number.
    pub fn whole(self) -> Self {
        Self { kind: Kind::Whole, ..self }
    }

    /// Without the expression.
    pub fn literal(&self) -> Self {
        Self { terms: vec![Product::of(self.value)], ..self.clone() }
    }

    /// The sum.
    pub fn plus(&self, other: &Self) -> Self {
        let mut terms = self.terms.clone();
        for product in &other.terms {
            match terms.iter_mut().find(|known| known.names == product.names && known.under == product.under) {
                Some(known) => known.factor += product.factor,
                None => terms.push(product.clone()),
            }
        }
        Self { value: self.value + other.value, kind: self.kind.with(other.kind), hint: "", terms }
    }

    /// What must be added to give the other, if they differ in nothing else.
    pub fn step_to(&self, other: &Self) -> Option<f64> {
        let varies = |number: &Self| -> Vec<Product> {
            number
                .terms
                .iter()
                .filter(|product| !product.names.is_empty() || !product.under.is_empty())
                .cloned()
                .collect()
        };
        (self.kind == other.kind && varies(self) == varies(other)).then_some(other.value - self.value)
    }

    /// The product; `None` if it has no simple form.
    pub fn times(&self, other: &Self) -> Option<Self> {
        let terms: Vec<Product> = self.terms.iter().flat_map(|a| other.terms.iter().map(|b| a.times(b))).collect();
        let value = self.value * other.value;
        (terms.len() < 3).then_some(Self { value, kind: self.kind.with(other.kind), hint: "", terms })
    }

    /// The quotient; `None` if it has no simple form.
    fn over(&self, other: &Self) -> Option<Self> {
        let [divisor] = &other.terms[..] else { return None };
        if !divisor.under.is_empty() {
            return None;
        }
        let over = |product: &Product| Product {
            factor: product.factor / divisor.factor,
            names: product.names.clone(),
            under: [product.under.as_slice(), &divisor.names].concat(),
        };
        let terms = self.terms.iter().map(over).collect();
        Some(Self { value: self.value / other.value, kind: self.kind.with(other.kind), hint: "", terms })
    }

    /// With other expressions for its arguments: those of the class around.
    pub fn replaced(&self, argument: &impl Fn(&str) -> Option<Self>) -> Option<Self> {
        let mut sum: Option<Self> = None;
        for product in &self.terms {
            let start = Self::real(product.factor);
            let up = product.names.iter().try_fold(start, |all, name| all.times(&argument(name)?))?;
            let all = product.under.iter().try_fold(up, |all, name| all.over(&argument(name)?))?;
            sum = Some(match sum {
                None => all,
                Some(sum) => sum.plus(&all),
            });
        }
        Some(Self { value: self.value, kind: self.kind, ..sum? })
    }

    /// Whether brackets are needed around it in a product.
    pub fn is_sum(&self) -> bool {
        self.terms.len() > 1
    }
}

/// As Python.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.terms.iter().map(|product| text(product, self.kind)).collect();
        f.write_str(&texts.join(" + ").replace("+ -", "- "))
    }
}

/// A product as Python; divisions come last, so that those of whole numbers are exact.
fn text(product: &Product, kind: Kind) -> String {
    let mut factors = product.names.clone();
    let (numerator, denominator) = fraction(product.factor, !product.names.is_empty());
    if numerator != 1.0 || factors.is_empty() {
        factors.push(plain(numerator, kind));
    }
    let mut text = factors.join(" * ");
    let under = product.under.iter().cloned().chain((denominator != 1.0).then(|| plain(denominator, kind)));
    let divide = if kind == Kind::Real { " / " } else { " // " };
    for divisor in under {
        text += divide;
        text += &divisor;
    }
    text
}

/// A factor as a quotient of small whole numbers, if it is one and that is wanted.
fn fraction(factor: f64, wanted: bool) -> (f64, f64) {
    let exact = |under: &u32| (factor * f64::from(*under)).fract() == 0.0;
    match (2..=4096).find(exact).filter(|_| wanted && factor.fract() != 0.0) {
        Some(under) => (factor * f64::from(under), f64::from(under)),
        None => (factor, 1.0),
    }
}

/// A number as Python.
pub(crate) fn plain(value: f64, kind: Kind) -> String {
    match kind {
        Kind::Switch => (if value == 0.0 { "False" } else { "True" }).to_owned(),
        Kind::Whole | Kind::Real if !value.is_finite() => format!("float(\"{value}\")"),
        Kind::Whole if value.fract() == 0.0 => format!("{value:.0}"),
        Kind::Whole | Kind::Real => format!("{value:?}"),
    }
}

/// A real number as Python.
pub(crate) fn real(value: f64) -> String {
    plain(value, Kind::Real)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(name: &str) -> Option<Number> {
        match name {
            "width" => Some(Number::argument("width", 64.0, Kind::Whole)),
            "groups" => Some(Number::argument("groups", 2.0, Kind::Whole)),
            _ => None,
        }
    }

    fn written(text: &str, value: f64) -> String {
        let expression = Expression::try_from(text).expect("an expression");
        Number::written(&expression, value, Kind::Whole, argument).expect("known arguments").to_string()
    }

    #[test]
    fn expressions_divide_last() {
        assert_eq!(written("$width*4", 256.0), "width * 4");
        assert_eq!(written("$width/64*$groups", 2.0), "width * groups // 64");
        assert_eq!(written("3*$width/$groups", 96.0), "width * 3 // groups");
    }

    #[test]
    fn sums_join_equal_products() {
        let width = argument("width").expect("known");
        let sum = width.plus(&Number::count(32)).plus(&width);
        assert_eq!((sum.to_string().as_str(), sum.value), ("width * 2 + 32", 160.0));
        let outside = sum.replaced(&|_| Some(Number::count(8))).expect("simple");
        assert_eq!(outside.to_string(), "48");
        assert_eq!(plain(1e-5, Kind::Real), "1e-5");
    }
}
