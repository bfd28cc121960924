//! Names of taps.

use std::collections::HashMap;

use crate::operation::{Module, Operation, Tensor, Unit, What};
use crate::word::Kind;

/// What an operation of two tensors uses the second one as.
pub(super) fn second(what: &What) -> &'static str {
    match what {
        What::Layer(word) => match word.kind {
            Kind::Second { role, .. } => role,
            Kind::Formula
            | Kind::Wide
            | Kind::Parameter
            | Kind::First
            | Kind::Gate
            | Kind::Windows
            | Kind::Source
            | Kind::Beside(_)
            | Kind::Plain => word.tag,
        },
        What::Mul => "factor",
        What::Add | What::Subtract => "term",
        What::Concat(_) | What::Cut(_) | What::Join(_) | What::Segments(_) => "part",
    }
}

/// The names that an author would give to the tensors of a module: what attention uses them as, under which key the
/// module returns them, or what makes them.
pub(super) fn names(module: &Module, input: Tensor) -> HashMap<Tensor, String> {
    let mut names = HashMap::from([(input, "x".to_owned())]);
    for unit in &module.body {
        if let Unit::Operation(Operation { what: What::Layer(_), operands, .. }) = unit
            && let [query, key, value] = operands[..]
        {
            for (tensor, role) in [(query, "query"), (key, "key"), (value, "value")] {
                names.entry(tensor).or_insert_with(|| role.to_owned());
            }
        }
    }
    for (key, tensor) in &module.returns {
        if let Some(name) = last_word(key) {
            names.entry(*tensor).or_insert(name);
        }
    }
    for unit in &module.body {
        names.entry(unit.result()).or_insert_with(|| made_by(unit, module));
    }
    names
}

/// The name of what a unit of a module makes.
pub(super) fn made_by(unit: &Unit, module: &Module) -> String {
    match unit {
        Unit::Module(inner) => within(&inner.path, &module.path),
        Unit::Operation(Operation { name: Some(name), .. }) => within(name, &module.path),
        Unit::Operation(Operation { what, .. }) => result_of(what).to_owned(),
    }
}

/// What an operation without a name makes.
fn result_of(what: &What) -> &'static str {
    match what {
        What::Layer(word) if word.kind == Kind::Formula => "y",
        What::Layer(word) => word.tag,
        What::Add => "sum",
        What::Subtract => "difference",
        What::Mul => "product",
        What::Concat(_) => "joined",
        What::Cut(_) | What::Join(_) | What::Segments(_) => "windows",
    }
}

/// The last name of a path inside a module; with its number, if it is one of several: `stages.1` is `stages1`.
fn within(path: &str, module: &str) -> String {
    let inside = path.strip_prefix(module).unwrap_or(path).trim_start_matches('.');
    last_word(inside).unwrap_or_else(|| "y".to_owned())
}

/// The last word of a path, and the numbers behind it; of letters, digits and `_`.
fn last_word(path: &str) -> Option<String> {
    let names: Vec<&str> = path.split('.').collect();
    let is_word = |name: &&str| name.starts_with(|first: char| first.is_ascii_alphabetic());
    let last = names.iter().rposition(is_word)?;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    Some(format!("{}{}", names[last], names[last + 1..].join("_")).chars().map(plain).collect())
}
