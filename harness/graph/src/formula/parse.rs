//! Formulas as text: `x * sigmoid(1.702 * x)`.
//!
//! Syntax: numbers, names of operands, `+ - * / ^`, brackets, comparisons (`>`, `>=`, `<`, `<=`, `==`, with the
//! result 1 or 0), the functions of [`super::Unary`], `max(a, b)`, `min(a, b)` and `select(condition, yes, no)`; for
//! the last axis `row_sum`, `row_mean`, `row_max`, `row_log_sum_exp`, `softmax`, `log_softmax`, and the index of an
//! element, `row_index`.

use super::{Expression, Formula, Outcome, Term, Unary, expression::Sheet};
use crate::did_you_mean;
use thiserror::Error;

/// An error in a formula, with its position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ParseError {
    /// Position in characters, from 0.
    pub at: usize,
    /// The error, with a suggestion.
    pub message: String,
}

/// Functions of a row, which is the last axis.
const ROWS: [&str; 6] = ["row_sum", "row_mean", "row_max", "row_log_sum_exp", "softmax", "log_softmax"];

/// Index of an element in its row.
const ROW_INDEX: &str = "row_index";

/// Number of elements of a row.
const ROW_SIZE: &str = "row_size";

/// Deepest nesting of brackets, calls and signs.
const MOST_NESTED: usize = 100;

/// Most numbers, names and signs of a formula.
const MOST_TOKENS: usize = 1000;

/// Parses a formula with these operands over the given number of axes. The last axis is the row.
///
/// # Errors
/// The first error in the text.
pub fn parse(text: &str, operands: &[&str], rank: usize) -> Result<Formula, ParseError> {
    let sheet = Sheet::default();
    // Operands that the formula does not use still count.
    let operand_values: Vec<Expression<'_>> = (0..operands.len()).map(|n| sheet.operand(n)).collect();
    let tokens = tokens(text)?;
    let end = text.chars().count();
    let mut parser = Parser {
        sheet: &sheet,
        tokens: &tokens,
        next: 0,
        end,
        names: operands,
        values: &operand_values,
        rank,
        depth: 0,
    };
    let result = parser.comparison()?;
    if let Some((at, token)) = parser.tokens.get(parser.next) {
        return Err(ParseError { at: *at, message: format!("{} after the end of the formula", token.describe()) });
    }
    let results = vec![Outcome { term: result.id(), over: Vec::new(), whole: false }];
    let formula = Formula { operands: operands.len(), rows: 0, terms: sheet.into_terms(), results }.pruned();
    Ok(formula.with_rows(1))
}

/// The names that a text uses as operands, each once, in order. Empty if the text is not a formula.
pub fn names(text: &str) -> Vec<String> {
    let tokens = tokens(text).unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for (n, (_, token)) in tokens.iter().enumerate() {
        let is_call = matches!(tokens.get(n + 1), Some((_, Token::Sign("("))));
        if let Token::Name(name) = token
            && !is_call
            && ![ROW_INDEX, ROW_SIZE].contains(&name.as_str())
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    }
    names
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Name(String),
    Sign(&'static str),
}

impl Token {
    fn describe(&self) -> String {
        match self {
            Self::Number(value) => format!("`{value}`"),
            Self::Name(name) => format!("`{name}`"),
            Self::Sign(sign) => format!("`{sign}`"),
        }
    }
}

/// Longer signs come before their prefixes.
const SIGNS: [&str; 13] = [">=", "<=", "==", ">", "<", "+", "-", "*", "/", "^", "(", ")", ","];

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ParseError> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        if tokens.len() > MOST_TOKENS {
            return Err(ParseError { at, message: format!("more than {MOST_TOKENS} numbers, names and signs") });
        }
        let rest = &characters[at..];
        let c = rest[0];
        let length = |belongs: &dyn Fn(usize, char) -> bool| {
            rest.iter().enumerate().take_while(|(n, c)| belongs(*n, **c)).count()
        };
        if c.is_whitespace() {
            at += 1;
        } else if c.is_ascii_digit() || c == '.' {
            let count = length(&|n, c| {
                let exponent_sign = n > 0 && matches!(c, '+' | '-') && matches!(rest[n - 1], 'e' | 'E');
                c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E') || exponent_sign
            });
            let number: String = rest[..count].iter().collect();
            let value = number.parse().ok().filter(|value: &f64| value.is_finite());
            let wrong = || ParseError { at, message: format!("`{number}` is not a number") };
            tokens.push((at, Token::Number(value.ok_or_else(wrong)?)));
            at += count;
        } else if c.is_ascii_alphabetic() || c == '_' {
            let count = length(&|_, c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
            tokens.push((at, Token::Name(rest[..count].iter().collect())));
            at += count;
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.iter().take(sign.len()).collect::<String>() == **sign);
            let Some(sign) = sign else {
                return Err(ParseError { at, message: format!("unexpected `{c}` in a formula") });
            };
            tokens.push((at, Token::Sign(sign)));
            at += sign.len();
        }
    }
    Ok(tokens)
}

struct Parser<'f, 't> {
    sheet: &'f Sheet,
    tokens: &'t [(usize, Token)],
    next: usize,
    /// Length of the text in characters.
    end: usize,
    names: &'t [&'t str],
    values: &'t [Expression<'f>],
    /// Number of axes.
    rank: usize,
    depth: usize,
}

impl<'f> Parser<'f, '_> {
    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { at: self.at(), message: message.into() })
    }

    /// Consumes one of these signs, if it is next.
    fn sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        let found = match self.tokens.get(self.next) {
            Some((_, Token::Sign(sign))) if signs.contains(sign) => *sign,
            _ => return None,
        };
        self.next += 1;
        Some(found)
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ParseError> {
        if self.sign(&[sign]).is_some() {
            return Ok(());
        }
        match self.tokens.get(self.next) {
            Some((_, token)) => self.error(format!("expected `{sign}`, found {}", token.describe())),
            None => self.error(format!("expected `{sign}` at the end")),
        }
    }

    fn comparison(&mut self) -> Result<Expression<'f>, ParseError> {
        let a = self.sum()?;
        let Some(sign) = self.sign(&[">=", "<=", "==", ">", "<"]) else { return Ok(a) };
        let b = self.sum()?;
        Ok(match sign {
            ">" => a.greater(b),
            ">=" => a.at_least(b),
            "<" => b.greater(a),
            "<=" => b.at_least(a),
            _ => a.equal(b),
        })
    }

    fn sum(&mut self) -> Result<Expression<'f>, ParseError> {
        let mut value = self.product()?;
        while let Some(sign) = self.sign(&["+", "-"]) {
            let other = self.product()?;
            value = if sign == "+" { value + other } else { value - other };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<Expression<'f>, ParseError> {
        let mut value = self.signed()?;
        while let Some(sign) = self.sign(&["*", "/"]) {
            let other = self.signed()?;
            value = if sign == "*" { value * other } else { value / other };
        }
        Ok(value)
    }

    fn signed(&mut self) -> Result<Expression<'f>, ParseError> {
        self.deeper(|parser| match parser.sign(&["+", "-"]) {
            Some("-") => Ok(-parser.signed()?),
            Some(_) => parser.signed(),
            None => parser.power(),
        })
    }

    fn power(&mut self) -> Result<Expression<'f>, ParseError> {
        let base = self.whole()?;
        match self.sign(&["^"]) {
            Some(_) => Ok(base.pow(self.signed()?)),
            None => Ok(base),
        }
    }

    fn whole(&mut self) -> Result<Expression<'f>, ParseError> {
        if self.sign(&["("]).is_some() {
            let value = self.deeper(Self::comparison)?;
            self.expect(")")?;
            return Ok(value);
        }
        match self.tokens.get(self.next).map(|(_, token)| token) {
            Some(Token::Number(value)) => {
                self.next += 1;
                Ok(self.sheet.number(*value))
            }
            Some(Token::Name(name)) => self.named(name),
            Some(token @ Token::Sign(_)) => {
                self.error(format!("expected a number, an operand or `(`, found {}", token.describe()))
            }
            None => self.error("unexpected end of the formula: expected a number, an operand or `(`"),
        }
    }

    fn named(&mut self, name: &str) -> Result<Expression<'f>, ParseError> {
        let is_call = matches!(self.tokens.get(self.next + 1), Some((_, Token::Sign("("))));
        if is_call {
            return self.call(name);
        }
        if name == ROW_INDEX {
            self.next += 1;
            return Ok(self.sheet.write(Term::Coordinate(self.rank.saturating_sub(1))));
        }
        if name == ROW_SIZE {
            self.next += 1;
            return Ok(self.sheet.write(Term::RowSize));
        }
        if let Some(place) = self.names.iter().position(|known| *known == name) {
            self.next += 1;
            return Ok(self.values[place]);
        }
        let hint = did_you_mean(name, self.names.iter().copied());
        let known: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let hint =
            hint.map_or_else(|| format!("known here: {}", known.join(", ")), |name| format!("did you mean `{name}`?"));
        self.error(format!("there is no operand `{name}`; {hint}"))
    }

    fn call(&mut self, name: &str) -> Result<Expression<'f>, ParseError> {
        let functions = Unary::NAMED.map(Unary::name);
        let count = match name {
            "max" | "min" => 2,
            "select" => 3,
            _ if functions.contains(&name) || ROWS.contains(&name) => 1,
            _ => {
                let all: Vec<&str> = functions.into_iter().chain(["max", "min", "select"]).chain(ROWS).collect();
                let hint = did_you_mean(name, all.iter().copied());
                let hint =
                    hint.map_or_else(|| format!("known: {}", all.join(", ")), |name| format!("did you mean `{name}`?"));
                return self.error(format!("there is no function `{name}`; {hint}"));
            }
        };
        let at = self.at();
        self.next += 2;
        let mut arguments = vec![self.deeper(Self::comparison)?];
        while self.sign(&[","]).is_some() {
            arguments.push(self.deeper(Self::comparison)?);
        }
        self.expect(")")?;
        match (name, arguments.as_slice()) {
            ("max", [a, b]) => Ok(a.max(*b)),
            ("min", [a, b]) => Ok(a.min(*b)),
            ("select", [condition, yes, no]) => Ok(condition.select(*yes, *no)),
            ("row_sum", [x]) => Ok(x.row_sum()),
            ("row_mean", [x]) => Ok(x.row_mean()),
            ("row_max", [x]) => Ok(x.row_max()),
            ("row_log_sum_exp", [x]) => Ok(x.row_log_sum_exp()),
            ("softmax", [x]) => Ok(x.softmax()),
            ("log_softmax", [x]) => Ok(x.log_softmax()),
            (_, [x]) if count == 1 => match Unary::NAMED.into_iter().find(|function| function.name() == name) {
                Some(function) => Ok(x.unary(function)),
                None => self.error(format!("there is no function `{name}`")),
            },
            (_, arguments) => {
                let plural = if count == 1 { "" } else { "s" };
                let message = format!("`{name}` takes {count} value{plural}, not {}", arguments.len());
                Err(ParseError { at, message })
            }
        }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth == MOST_NESTED {
            return self.error(format!("brackets and signs are nested deeper than {MOST_NESTED} levels"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }
}
