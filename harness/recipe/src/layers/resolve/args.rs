//! Arguments of blocks, and the substitution of expressions.

use std::collections::BTreeMap;

use crate::diagnostic::suggest;
use crate::shape::{NumberShape, Shape, ShapeId, Shapes, TextShape};
use crate::span::ConfigPath;
use crate::tree::{Node, Value};
use crate::values::{Expression, Operator, Scalar, Term};

/// Arguments by name.
pub(super) type Args = BTreeMap<String, Scalar>;

/// Why an expression has no value of the kind that is wanted: a message and a hint.
pub(super) struct ArgError {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl ArgError {
    fn new(message: String) -> Self {
        Self { message, hint: None }
    }
}

/// Replaces all expressions in `node`, which is at `path` and has the shape `id`; layers inside it are not changed,
/// because they may be disabled. Reports every expression: as it was, or why it has no value.
pub(super) fn substitute(
    node: &mut Node,
    id: ShapeId,
    path: &ConfigPath,
    (shapes, args): (&Shapes, &Args),
    report: &mut dyn FnMut(&ConfigPath, Result<Expression, ArgError>),
) {
    let Some(chosen) = shapes.choose(id, node) else { return };
    match (shapes.shape(chosen), &mut node.value) {
        (Shape::Text(TextShape::Expression), Value::Text(text)) => match evaluate(text, id, (shapes, args)) {
            Ok((expression, value)) => {
                node.value = value;
                report(path, Ok(expression));
            }
            Err(error) => report(path, Err(error)),
        },
        (Shape::Struct(_) | Shape::Dict(_) | Shape::Union { .. }, Value::Map(map)) if !shapes.is_layer(chosen) => {
            for (key, entry) in map {
                if let Some(shape) = shapes.key(chosen, key) {
                    substitute(&mut entry.node, shape, &path.key(key), (shapes, args), report);
                }
            }
        }
        (Shape::List { item, .. }, Value::List(list)) => {
            for (index, element) in list.iter_mut().enumerate() {
                substitute(element, *item, &path.index(index), (shapes, args), report);
            }
        }
        _ => {}
    }
}

/// The value of an expression in place of a value of shape `id`.
fn evaluate(text: &str, id: ShapeId, (shapes, args): (&Shapes, &Args)) -> Result<(Expression, Value), ArgError> {
    let expression = Expression::try_from(text).map_err(|error| ArgError::new(error.to_string()))?;
    let value = compute(&expression, args)?;
    let mut options = shapes.options(id);
    let fitting = options.find_map(|shape| fit(value, shape)).ok_or_else(|| {
        let given = expression.arguments().filter_map(|name| args.get(name).map(|value| format!("{name} = {value}")));
        let given: Vec<_> = given.collect();
        let wanted: Vec<_> = shapes.options(id).filter_map(wanted).collect();
        let wanted = wanted.join(", or ");
        ArgError::new(format!("`{expression}` is {value} ({}), expected {wanted}", given.join(", ")))
    })?;
    Ok((expression, fitting))
}

/// A value as one of this shape.
fn fit(value: Scalar, shape: &Shape) -> Option<Value> {
    match (shape, value) {
        (Shape::Bool, Scalar::Bool(value)) => Some(Value::Bool(value)),
        (Shape::Number(shape), Scalar::Int(value)) => {
            shape.contains(value as f64).then_some(Value::Int(i128::from(value)))
        }
        (Shape::Number(shape), Scalar::Float(value)) if !shape.integer => {
            shape.contains(value).then_some(Value::Float(value))
        }
        (Shape::Number(shape), Scalar::Float(value)) => {
            let whole = value.fract() == 0.0 && value.abs() < 1e15 && shape.contains(value);
            whole.then_some(Value::Int(value as i128))
        }
        _ => None,
    }
}

/// A description of allowed values.
fn wanted(shape: &Shape) -> Option<String> {
    match shape {
        Shape::Bool => Some("`true` or `false`".to_owned()),
        Shape::Number(shape) => {
            let kind = if shape.integer { "a whole number" } else { "a number" };
            let NumberShape { min, max, above, below, .. } = *shape;
            if let (Some(min), Some(max)) = (min, max) {
                return Some(format!("{kind} from {min} to {max}"));
            }
            let bounds = [(min, "of at least"), (above, "above"), (max, "of at most"), (below, "below")];
            let bounds: Vec<_> =
                bounds.iter().filter_map(|(bound, word)| Some(format!("{word} {}", (*bound)?))).collect();
            Some(format!("{kind} {}", bounds.join(" and ")).trim_end().to_owned())
        }
        _ => None,
    }
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
