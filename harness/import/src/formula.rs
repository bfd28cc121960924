//! Modules that compute element by element from one tensor, as one formula.

use std::collections::HashMap;

use zoo_recipe::Layer;
use zoo_recipe::layers::{Approximation, Gelu};

use crate::operation::{Module, Operation, Tensor, Unit, What};
use crate::word::{Kind, Setting, Word, number};

/// What GPT-2's module for it computes (NewGELUActivation in transformers/activations.py): [`Approximation::Tanh`].
const GELU_TANH: &str = "0.5 * x * (tanh(0.7978845608028654 * (x + 0.044715 * x^3)) + 1)";

/// Most operations of a module that become one formula, and most characters of the formula of each.
const MOST_OPERATIONS: usize = 256;
pub(crate) const MOST_TEXT: usize = 4096;

/// Replaces the operations of a module by one formula, if they are functions of each element of its only input and some
/// of them have several operands, which would need taps.
pub fn combine(module: &mut Module) {
    let [input] = module.inputs[..] else { return };
    if module.body.len() > MOST_OPERATIONS {
        return;
    }
    let mut texts = HashMap::from([(input, "x".to_owned())]);
    let mut joins = false;
    for unit in &module.body {
        let Unit::Operation(operation) = unit else { return };
        let Some(text) = text(operation, &texts).filter(|text| text.len() <= MOST_TEXT) else { return };
        joins |= operation.operands.len() > 1;
        texts.insert(operation.result, text);
    }
    let (Some(text), Some(at), true) = (texts.get(&module.output), module.body.last().map(Unit::at), joins) else {
        return;
    };
    // A formula may be too long for a recipe.
    if zoo_graph::formula::parse(text, &["x"], 1).is_err() {
        return;
    }
    let word = match text.as_str() {
        GELU_TANH => Word::of(&Layer::Gelu(Gelu { approximate: Approximation::Tanh })),
        text => Word::formula(text.to_owned()),
    };
    let (what, at) = (What::Layer(word), at.to_owned());
    let only = Operation { what, operands: vec![input], result: module.output, name: None, at };
    module.body = vec![Unit::Operation(only)];
}

/// The formula of an operation in those of its operands.
fn text(operation: &Operation, texts: &HashMap<Tensor, String>) -> Option<String> {
    let operands: Vec<&str> =
        operation.operands.iter().map(|operand| texts.get(operand).map(String::as_str)).collect::<Option<_>>()?;
    if operation.name.is_some() {
        return None;
    }
    match (&operation.what, &operands[..]) {
        (What::Add, [a, b]) => Some(format!("{a} + {}", within(b, Binds::Product))),
        (What::Subtract, [a, b]) => Some(format!("{a} - {}", within(b, Binds::Product))),
        (What::Mul, [a, b]) => Some(format!("{} * {}", within(a, Binds::Product), within(b, Binds::Power))),
        (What::Layer(word), [x]) => match (word.kind, word.tag) {
            (Kind::Formula, _) => match &word.settings.get("")?.value {
                Setting::Text(formula) => Some(put(formula, x)),
                Setting::Bool(_)
                | Setting::Int(_)
                | Setting::Float(_)
                | Setting::List(_)
                | Setting::Sides(_)
                | Setting::Group(_) => None,
            },
            (_, "scale") => match &word.settings.get("by")?.value {
                Setting::Int(by) => Some(format!("{by} * {}", within(x, Binds::Power))),
                Setting::Float(by) => Some(format!("{} * {}", number(*by), within(x, Binds::Power))),
                Setting::Bool(_) | Setting::Text(_) | Setting::List(_) | Setting::Sides(_) | Setting::Group(_) => None,
            },
            (_, function @ ("tanh" | "sigmoid")) => Some(format!("{function}({x})")),
            _ => None,
        },
        _ => None,
    }
}

/// How tightly the loosest operator outside of brackets binds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binds {
    Sum,
    Product,
    Power,
    Whole,
}

fn binds(text: &str) -> Binds {
    let (mut depth, mut loosest) = (0usize, Binds::Whole);
    for (index, c) in text.char_indices() {
        let own = match c {
            '(' => {
                depth += 1;
                continue;
            }
            ')' => {
                depth = depth.saturating_sub(1);
                continue;
            }
            // A sign, or the sign of an exponent, stands before a digit.
            '+' | '-' if text[index + 1..].starts_with(' ') || index == 0 => Binds::Sum,
            '*' | '/' => Binds::Product,
            '^' => Binds::Power,
            _ => continue,
        };
        if depth == 0 {
            loosest = loosest.min(own);
        }
    }
    loosest
}

/// In brackets, if it binds less tightly.
pub(crate) fn within(text: &str, least: Binds) -> String {
    if binds(text) < least { format!("({text})") } else { text.to_owned() }
}

/// A formula of `x` with something else in its place.
pub(crate) fn put(formula: &str, x: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = formula;
    while let Some(place) = rest.find('x') {
        let (before, after) = (&rest[..place], &rest[place + 1..]);
        let alone = !before.ends_with(is_name) && !after.starts_with(is_name);
        out += before;
        let argument = before.ends_with('(') && after.starts_with(')') || formula == "x";
        match alone {
            true if argument => out += x,
            true => out += &within(x, Binds::Whole),
            false => out.push('x'),
        }
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_stand_where_they_are_needed() {
        assert_eq!(put("exp(x)", "a + b"), "exp(a + b)");
        assert_eq!(put("max(0, x)", "2 * x"), "max(0, (2 * x))");
        assert_eq!(put("x + 1", "tanh(x)"), "tanh(x) + 1");
        assert_eq!(put("x^3", "x + 1"), "(x + 1)^3");
        assert_eq!(within("1e-5 * x", Binds::Product), "1e-5 * x");
        assert_eq!(within("x - 2", Binds::Product), "(x - 2)");
        assert_eq!(within("-2 * x", Binds::Power), "(-2 * x)");
    }
}
