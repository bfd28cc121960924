//! Arguments of blocks and the values of expressions.

use std::collections::BTreeMap;

use crate::diagnostic::suggest;
use crate::schema::{Count, Expression, Operator, Param, Repeat, Scalar, Size, Term};

/// Arguments by name.
pub(super) type Args = BTreeMap<String, Scalar>;

/// Why an expression has no value of the type that is wanted: a message and a hint.
pub(super) struct ArgError {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl ArgError {
    fn new(message: String) -> Self {
        Self { message, hint: None }
    }
}

/// What an expression may stand for.
pub(super) trait FromScalar: Sized {
    /// What is wanted, in words.
    const WANTED: &'static str;

    /// The value, if it is one of this type.
    fn from_scalar(value: Scalar) -> Option<Self>;
}

fn whole(value: Scalar) -> Option<usize> {
    match value {
        Scalar::Int(value) => usize::try_from(value).ok(),
        Scalar::Float(value) if value.fract() == 0.0 && (0.0..1e15).contains(&value) => Some(value as usize),
        _ => None,
    }
}

impl FromScalar for Size {
    const WANTED: &'static str = "a whole number from 1 to 16777216";

    fn from_scalar(value: Scalar) -> Option<Self> {
        whole(value).filter(|size| (1..=1 << 24).contains(size)).map(Self)
    }
}

impl FromScalar for Count {
    const WANTED: &'static str = "a whole number from 0 to 65536";

    fn from_scalar(value: Scalar) -> Option<Self> {
        whole(value).filter(|count| *count <= 1 << 16).map(Self)
    }
}

impl FromScalar for Repeat {
    const WANTED: &'static str = "a whole number from 1 to 1024";

    fn from_scalar(value: Scalar) -> Option<Self> {
        whole(value).filter(|count| (1..=1024).contains(count)).map(Self)
    }
}

impl FromScalar for bool {
    const WANTED: &'static str = "`true` or `false`";

    fn from_scalar(value: Scalar) -> Option<Self> {
        if let Scalar::Bool(value) = value { Some(value) } else { None }
    }
}

impl FromScalar for Scalar {
    const WANTED: &'static str = "a number, `true` or `false`";

    fn from_scalar(value: Scalar) -> Option<Self> {
        Some(value)
    }
}

/// The value of a parameter with these arguments.
pub(super) fn evaluate<T: FromScalar + Copy>(param: &Param<T>, args: &Args) -> Result<T, ArgError> {
    let expression = match param {
        Param::Value(value) => return Ok(*value),
        Param::Expression(expression) => expression,
    };
    let value = compute(expression, args)?;
    T::from_scalar(value).ok_or_else(|| {
        let given = expression.arguments().filter_map(|name| args.get(name).map(|value| format!("{name} = {value}")));
        let given: Vec<_> = given.collect();
        ArgError::new(format!("`{expression}` is {value} ({}), expected {}", given.join(", "), T::WANTED))
    })
}

fn compute(expression: &Expression, args: &Args) -> Result<Scalar, ArgError> {
    let term = |term: &Term| match term {
        Term::Number(number) => Ok(Scalar::Float(*number)),
        Term::Argument(name) => args.get(name).copied().ok_or_else(|| ArgError {
            message: format!("there is no argument `{name}` here"),
            hint: Some(suggest(name, args.keys().map(String::as_str))),
        }),
    };
    let number = |value: Scalar| match value {
        Scalar::Int(value) => Ok(value as f64),
        Scalar::Float(value) => Ok(value),
        Scalar::Bool(_) => Err(ArgError::new(format!("`{expression}` multiplies or divides `true` or `false`"))),
    };
    let (first, rest) = expression.terms();
    let first = term(first)?;
    if rest.is_empty() {
        return Ok(first);
    }
    let product = rest.iter().try_fold(number(first)?, |product, (operator, factor)| {
        let factor = number(term(factor)?)?;
        Ok(if *operator == Operator::Times { product * factor } else { product / factor })
    })?;
    Ok(Scalar::Float(product))
}
