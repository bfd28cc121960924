//! Expressions of block arguments, which are allowed in place of every number or switch of a layer.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A product or quotient of block arguments and numbers, from left to right: `$width`, `$width*4`, `$width/$groups`.
///
/// `$classes` is the model's class count and known everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    first: Term,
    rest: Vec<(Operator, Term)>,
}

/// One factor of an [`Expression`].
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// An argument, without the `$`.
    Argument(String),
    /// A number.
    Number(f64),
}

/// What joins two factors of an [`Expression`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `*`
    Times,
    /// `/`
    Over,
}

impl Expression {
    /// Pattern of expressions for editors.
    const PATTERN: &'static str =
        r"^[0-9.*/ ]*\$[A-Za-z_][A-Za-z0-9_]*([ ]*[*/][ ]*([0-9.]+|\$[A-Za-z_][A-Za-z0-9_]*))*$";

    /// What editors know of expressions.
    pub(crate) fn schema() -> serde_json::Value {
        json!({
            "description": "An expression of block arguments: `$width`, `$width*4`.",
            "type": "string",
            "format": "expression",
            "pattern": Self::PATTERN,
        })
    }

    /// The factors: the first, then each with the operator before it.
    pub fn terms(&self) -> (&Term, &[(Operator, Term)]) {
        (&self.first, &self.rest)
    }

    /// The arguments this names, without the `$`.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.first).chain(self.rest.iter().map(|(_, term)| term)).filter_map(|term| match term {
            Term::Argument(name) => Some(name.as_str()),
            Term::Number(_) => None,
        })
    }
}

/// Why a text is no [`Expression`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an expression of block arguments: {why}")]
pub struct ExpressionError {
    text: String,
    why: &'static str,
}

impl TryFrom<&str> for Expression {
    type Error = ExpressionError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        let fail = |why| ExpressionError { text: text.to_owned(), why };
        let term = |text: &str| {
            let text = text.trim();
            if let Some(name) = text.strip_prefix('$') {
                let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                let valid = starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                return if valid {
                    Ok(Term::Argument(name.to_owned()))
                } else {
                    Err(fail("`$` needs a name after it"))
                };
            }
            let digits = text.starts_with(|c: char| c.is_ascii_digit());
            match text.parse::<f64>() {
                Ok(number) if digits && number.is_finite() => Ok(Term::Number(number)),
                _ => Err(fail("factors are `$name` or numbers, joined by `*` or `/`")),
            }
        };
        let mut rest = Vec::new();
        let mut tail = text;
        let mut first = None;
        let mut operator = Operator::Times;
        loop {
            let end = tail.find(['*', '/']).unwrap_or(tail.len());
            let factor = term(&tail[..end])?;
            match first {
                None => first = Some(factor),
                Some(_) => rest.push((operator, factor)),
            }
            match tail[end..].chars().next() {
                Some(sign) => operator = if sign == '*' { Operator::Times } else { Operator::Over },
                None => break,
            }
            tail = &tail[end + 1..];
        }
        let expression = match first {
            Some(first) => Self { first, rest },
            None => return Err(fail("it is empty")),
        };
        if expression.arguments().next().is_none() {
            return Err(fail("it contains no argument (`$name`)"));
        }
        Ok(expression)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(name) => write!(f, "${name}"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        for (operator, term) in &self.rest {
            let sign = if *operator == Operator::Times { '*' } else { '/' };
            write!(f, "{sign}{term}")?;
        }
        Ok(())
    }
}

/// Value of a block argument.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// A switch.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_read_and_print() {
        for text in ["$width", "$width*4", "2*$a/$b_2*0.5", "8/$g"] {
            assert_eq!(Expression::try_from(text).unwrap().to_string(), text);
        }
        assert_eq!(Expression::try_from(" $a * 4 ").unwrap().to_string(), "$a*4");
        for text in
            ["", "4", "4*2", "$", "$1", "$a*", "*$a", "$a**2", "$a+1", "-1*$a", "$a b", "inf*$a", "1e400*$a", "$ä"]
        {
            assert!(Expression::try_from(text).is_err(), "{text}");
        }
    }
}
