//! The differences between two recipes, including defaults, and the line of each value.

use crate::console::{Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::numbers::counted;
use crate::options::{Change, RecipeArgs};
use crate::table::{fitted_after, screen_width};
use crate::{Exit, Failure};
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use zoo_recipe::{ConfigPath, Recipe};

/// A value that differs.
#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    /// Its path in the first recipe, or in the second if only that has it.
    path: String,
    a: Side,
    b: Side,
}

/// A value in one recipe.
#[derive(Debug, PartialEq, Serialize)]
struct Side {
    /// Null if the recipe has no value there.
    value: Option<Value>,
    /// `file:line` where it is set; null for a default.
    from: Option<String>,
}

#[derive(Serialize)]
struct Report {
    a: String,
    b: String,
    differences: Vec<Difference>,
}

/// Lists the differences.
pub(super) fn show(recipe: &RecipeArgs, other: Option<&str>, context: &mut Context) -> Result<Exit, Failure> {
    let Change { profile, sets } = &recipe.change;
    let (first, change) = match other {
        Some(_) => (context.load(&recipe.recipe, &recipe.change)?, &recipe.change),
        None if profile.is_none() && sets.is_empty() => {
            let usage = "--diff needs another recipe, or --profile or --set";
            return Err(Failure::Usage(usage.to_owned()));
        }
        None => (context.load(&recipe.recipe, &Change::default())?, &recipe.change),
    };
    let second = context.load(other.unwrap_or(&recipe.recipe), change)?;
    let (a, b) = (first.recipe, second.recipe);
    let named = |name: &str, change: &Change| {
        let profile = change.profile.iter().map(|profile| format!(" --profile {profile}"));
        let sets = change.sets.iter().map(|set| format!(" --set {set}"));
        std::iter::once(name.to_owned()).chain(profile).chain(sets).collect::<String>()
    };
    let plain = Change::default();
    let report = Report {
        a: named(&a.name, if other.is_some() { change } else { &plain }),
        b: named(&b.name, change),
        differences: differences(&a, &b)?,
    };
    context.show(&report, |out| print(&report, out))
}

fn print(report: &Report, out: &mut Console) -> Result<(), Failure> {
    let count = match report.differences.len() {
        0 => "the same".to_owned(),
        n => counted(n as u64, "difference"),
    };
    writeln!(out, "{} against {}: {count}", paint(HEADING, &report.a), paint(HEADING, &report.b))?;
    for Difference { path, a, b } in &report.differences {
        writeln!(out, "\n{path}")?;
        for (mark, side) in [("-", a), ("+", b)] {
            let from = side.from.as_deref().unwrap_or(if side.value.is_some() { "default" } else { "" });
            let value = shown(side.value.as_ref());
            let is_narrow =
                screen_width().is_some_and(|width| value.chars().count() + from.chars().count() + 6 > width);
            let gap = if is_narrow { "\n    " } else { "  " };
            writeln!(out, "  {mark} {}{gap}{}", fitted_after(&value, 4), paint(DIM, from))?;
        }
    }
    Ok(())
}

/// A value in one line, truncated if it is long.
fn shown(value: Option<&Value>) -> String {
    const LONGEST: usize = 90;
    let text = value.map_or("(absent)".to_owned(), Value::to_string);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn differences(a: &Recipe, b: &Recipe) -> Result<Vec<Difference>, Failure> {
    let written = |recipe: &Recipe| {
        let value = serde_json::to_value(recipe);
        value.map_err(|error| Failure::Usage(format!("this recipe cannot be written: {error}")))
    };
    let mut comparison = Comparison { a, b, found: Vec::new() };
    let root = ConfigPath::default();
    comparison.compare((&root, Some(&written(a)?)), (&root, Some(&written(b)?)));
    Ok(comparison.found)
}

type At<'a> = (&'a ConfigPath, Option<&'a Value>);

struct Comparison<'a> {
    a: &'a Recipe,
    b: &'a Recipe,
    found: Vec<Difference>,
}

impl Comparison<'_> {
    fn compare(&mut self, (path_a, a): At<'_>, (path_b, b): At<'_>) {
        match (a, b) {
            _ if a == b => {}
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                let added = b.keys().filter(|key| !a.contains_key(*key));
                for key in a.keys().chain(added) {
                    self.compare((&path_a.key(key), a.get(key)), (&path_b.key(key), b.get(key)));
                }
            }
            // Lists of numbers and words are compared as values.
            (Some(Value::Array(a)), Some(Value::Array(b))) if a.iter().chain(b).any(Value::is_object) => {
                for (i, j) in aligned(a, b) {
                    let path_of = |path: &ConfigPath, index: Option<usize>| path.index(index.unwrap_or_default());
                    let (at_a, at_b) = (path_of(path_a, i.or(j)), path_of(path_b, j.or(i)));
                    self.compare((&at_a, i.and_then(|i| a.get(i))), (&at_b, j.and_then(|j| b.get(j))));
                }
            }
            _ => {
                let side = |recipe: &Recipe, path: &ConfigPath, value: Option<&Value>| Side {
                    from: value.and_then(|_| origin(recipe, path)),
                    value: value.cloned(),
                };
                let path = if a.is_some() { path_a } else { path_b }.to_string();
                let (a, b) = (side(self.a, path_a, a), side(self.b, path_b, b));
                self.found.push(Difference { path, a, b });
            }
        }
    }
}

/// `file:line` of the value at exactly this path.
fn origin(recipe: &Recipe, path: &ConfigPath) -> Option<String> {
    let span = recipe.spans.contains(path).then(|| recipe.span_of(path))?;
    Some(format!("{}:{}", span.file, span.line))
}

/// The identity of a list element, independent of its values: kind and name for a layer, otherwise the element itself.
fn identity(value: &Value) -> String {
    let layer = value.as_object().filter(|map| map.len() == 1).and_then(|map| map.iter().next());
    match layer {
        Some((kind, inner)) => format!("{kind} {}", inner.get("name").unwrap_or(&Value::Null)),
        None => value.to_string(),
    }
}

/// Aligns the elements of two lists by a longest common subsequence of their identities.
fn aligned(a: &[Value], b: &[Value]) -> Vec<(Option<usize>, Option<usize>)> {
    let (left, right): (Vec<String>, Vec<String>) =
        (a.iter().map(identity).collect(), b.iter().map(identity).collect());
    // Lengths of the longest common subsequences of the remaining elements.
    let mut common = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            common[i][j] = match left[i] == right[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < left.len() || j < right.len() {
        if i < left.len() && j < right.len() && left[i] == right[j] {
            pairs.push((Some(i), Some(j)));
            (i, j) = (i + 1, j + 1);
        } else if j == right.len() || (i < left.len() && common[i + 1][j] >= common[i][j + 1]) {
            pairs.push((Some(i), None));
            i += 1;
        } else {
            pairs.push((None, Some(j)));
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_layer_that_is_put_in_moves_no_other() {
        let list = |value: Value| value.as_array().unwrap().clone();
        let a = list(json!([{"conv": {"name": "a", "out": 1}}, {"relu": {}}, {"conv": {"name": "b"}}]));
        let b = list(
            json!([{"conv": {"name": "a", "out": 2}}, {"bn": {"name": "n"}}, {"relu": {}}, {"conv": {"name": "b"}}]),
        );
        assert_eq!(aligned(&a, &b), [(Some(0), Some(0)), (None, Some(1)), (Some(1), Some(2)), (Some(2), Some(3))]);
        assert_eq!(aligned(&a, &[]), [(Some(0), None), (Some(1), None), (Some(2), None)]);
    }
}
