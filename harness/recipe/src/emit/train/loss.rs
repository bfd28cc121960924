//! The loss.

use super::program::Program;
use super::real;
use crate::diagnostic::Diagnostic;
use crate::losses::{comparison_path, further_path};
use crate::python::{Binding, Code, Judged, Piece};

/// Adds the loss.
pub(in crate::emit) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let recipe = program.recipe;
    let mut judged = Judged {
        dialect: program.dialect,
        graph: program.graph,
        spans: &recipe.spans,
        parts: &recipe.train.parts,
        mixed: recipe.preprocess.mix.is_some(),
        path: "loss".to_owned(),
        texts: Vec::new(),
        terms: Vec::new(),
        network: false,
    };
    for (tag, term) in recipe.loss.terms() {
        judged.path = format!("loss.{tag}");
        judged.written(|judged| term.emit(judged))?;
    }
    for (name, term) in &recipe.loss.cross_entropies {
        judged.path = further_path(name);
        judged.written(|judged| term.emit_as(name, judged))?;
    }
    for (name, term) in &recipe.loss.comparisons {
        judged.path = comparison_path(name);
        judged.written(|judged| term.emit_as(name, judged))?;
    }
    for (name, term) in &recipe.loss.formulas {
        judged.path = format!("loss.formulas.{name}.formula");
        judged.written(|judged| term.emit(name, judged))?;
    }
    let Judged { texts, terms, network, .. } = judged;
    texts.iter().for_each(|text| program.add(text));
    let kind = if program.graph.outputs.len() == 1 { "Tensor" } else { "dict[str, Tensor]" };
    let mut arguments = vec![Code::text(format!("outputs: {kind}")), Code::text("batch: dict[str, Tensor]")];
    arguments.extend(network.then(|| Code::text(format!("network: {}", program.dialect.frame().module))));
    let mut lines = Vec::new();
    Code::call("def loss", arguments).lines(0, "", " -> dict[str, Tensor]:", &mut lines);
    match &terms[..] {
        [(_, 1.0, only)] => {
            lines.push("    \"\"\"The loss of a batch.\"\"\"".to_owned());
            let entry = only.clone().around("\"loss\": ", "", Binding::Loose);
            braced(vec![entry]).lines(4, "return ", "", &mut lines);
        }
        _ => {
            lines.push("    \"\"\"The loss of a batch, and its terms without their weights.\"\"\"".to_owned());
            let entry = |(name, _, code): &(String, f64, Code)| {
                code.clone().around(&format!("\"{name}\": "), "", Binding::Loose)
            };
            braced(terms.iter().map(entry).collect()).lines(4, "terms = ", "", &mut lines);
            let weighted = |(name, weight, _): &(String, f64, Code)| match weight {
                1.0 => format!("terms[\"{name}\"]"),
                weight => format!("{} * terms[\"{name}\"]", real(*weight)),
            };
            let sum: Vec<String> = terms.iter().map(weighted).collect();
            lines.push(format!("    return {{\"loss\": {}, **terms}}", sum.join(" + ")));
        }
    }
    program.add(&lines.join("\n"));
    Ok(())
}

fn braced(entries: Vec<Code>) -> Code {
    let mut code = Code::list(entries);
    if let Some(Piece::List(open, _, close)) = code.pieces.first_mut() {
        (*open, *close) = ("{", "}");
    }
    code
}
