//! Which parameters a setting is for, as conditions in Python on `name` and `parameter`.

use zoo_graph::{Graph, VariableRole};

use super::code::Code;
use crate::values::matches;

/// A parameter of the network.
#[derive(Clone)]
pub(crate) struct Parameter {
    /// Its name in the state_dict.
    pub name: String,
    /// Its role.
    pub role: VariableRole,
    /// Its number of axes.
    pub axes: usize,
}

/// All parameters of a graph.
pub(crate) fn parameters(graph: &Graph) -> Vec<Parameter> {
    let of = |variable: &zoo_graph::Variable| Parameter {
        name: variable.name.clone(),
        role: variable.role.clone(),
        axes: graph.ty(variable.value).shape.len(),
    };
    graph.parameters().map(|(_, variable)| of(variable)).collect()
}

/// A condition, and the parameters for which it holds.
struct Condition {
    text: String,
    holds: Vec<bool>,
}

/// A condition that holds for exactly the `chosen` ones of these parameters: the simplest of those that the number of
/// axes, the kind of parameter, and `patterns` give; otherwise a list of names.
pub(crate) fn condition(of: &[Parameter], chosen: &[bool], patterns: &[&[String]]) -> Code {
    let mut known: Vec<Condition> = Vec::new();
    let mut add = |text: &str, holds: &dyn Fn(&Parameter) -> bool| {
        known.push(Condition { text: text.to_owned(), holds: of.iter().map(holds).collect() });
    };
    for patterns in patterns {
        let tests: Vec<String> = patterns.iter().map(|pattern| format!("fnmatchcase(name, \"{pattern}\")")).collect();
        // What means something else to fnmatch is no part of a name.
        if !patterns.iter().any(|pattern| pattern.contains(['?', '[', '"', '\\'])) {
            add(&tests.join(" or "), &|p| patterns.iter().any(|pattern| matches(pattern, &p.name)));
        }
    }
    add("parameter.ndim < 2", &|p| p.axes < 2);
    add("parameter.ndim > 1", &|p| p.axes > 1);
    add("name.endswith(\"bias\")", &|p| p.name.ends_with("bias"));
    add("not name.endswith(\"bias\")", &|p| !p.name.ends_with("bias"));
    if let Some(simple) = known.iter().find(|condition| condition.holds == chosen) {
        return Code::text(&simple.text);
    }
    for (n, a) in known.iter().enumerate() {
        for b in &known[n + 1..] {
            if a.holds.iter().zip(&b.holds).map(|(a, b)| *a && *b).eq(chosen.iter().copied()) {
                let [a, b] =
                    [a, b].map(|c| if c.text.contains(" or ") { format!("({})", c.text) } else { c.text.clone() });
                return Code::text(format!("{a} and {b}"));
            }
        }
    }
    let names = of.iter().zip(chosen).filter(|(_, chosen)| **chosen);
    let names = names.map(|(parameter, _)| Code::text(format!("\"{}\"", parameter.name))).collect();
    let mut code = Code::text("name in ");
    code.pieces.extend(Code::list(names).pieces);
    code
}
