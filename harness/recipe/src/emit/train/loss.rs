//! The loss.

use zoo_graph::{Graph, Shape};

use super::conditions::{condition, parameters};
use super::program::Program;
use super::real;
use crate::Recipe;
use crate::diagnostic::Diagnostic;
use crate::emit::code::{Binding, Code};
use crate::emit::{Dialect, mindspore};
use crate::losses::further_path;

/// What a term of the loss writes itself with.
pub(crate) struct Judged<'a> {
    dialect: Dialect,
    recipe: &'a Recipe,
    graph: &'a Graph,
    /// The term under way.
    path: String,
    texts: Vec<&'static str>,
    terms: Vec<(String, f64, Code)>,
    /// Whether a term reads the parameters.
    network: bool,
}

impl Judged<'_> {
    /// An error at the term.
    pub fn refuse(&self, message: impl Into<String>) -> Diagnostic {
        self.recipe.error_at(&self.path.as_str().into(), message)
    }

    /// An output of the network, and its shape with the batch.
    pub fn output(&self, name: &str) -> Result<(String, Shape), Diagnostic> {
        let found = self.graph.outputs.iter().find(|(output, _)| output == name);
        let (_, value) = found.ok_or_else(|| self.refuse(format!("the network has no output `{name}`")))?;
        let text = if self.graph.outputs.len() == 1 { "outputs".to_owned() } else { format!("outputs[\"{name}\"]") };
        Ok((text, self.graph.ty(*value).shape.clone()))
    }

    /// Whether images are mixed, and have a second class.
    pub fn mixed(&self) -> bool {
        self.recipe.preprocess.mix.is_some()
    }

    /// Adds a function that a term calls.
    pub fn function(&mut self, text: &'static str) {
        self.texts.push(text);
    }

    /// Adds the term.
    pub fn term(&mut self, name: &str, weight: f64, code: Code) {
        self.terms.push((name.to_owned(), weight, code));
    }

    /// Functions and terms since in the words of MindSpore.
    fn worded(&mut self, (texts, terms): (usize, usize)) -> Result<(), Diagnostic> {
        for place in texts..self.texts.len() {
            self.texts[place] = mindspore::helper(self.texts[place]).map_err(|reason| self.refuse(reason))?;
        }
        for place in terms..self.terms.len() {
            let (code, helpers) = mindspore::code(&self.terms[place].2).map_err(|reason| self.refuse(reason))?;
            self.texts.extend(helpers);
            self.terms[place].2 = code;
        }
        Ok(())
    }

    /// Writes a term in the words of the dialect.
    fn written(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Diagnostic>) -> Result<(), Diagnostic> {
        let before = (self.texts.len(), self.terms.len());
        write(self)?;
        match self.dialect {
            Dialect::PyTorch => Ok(()),
            Dialect::MindSpore => self.worded(before),
        }
    }

    /// Adds the term as a call of a function of it, on outputs, then inputs of the step, then numbers.
    pub fn call(
        &mut self,
        (name, weight): (&str, f64),
        text: &'static str,
        outputs: &[&str],
        inputs: &[&str],
        numbers: &[(&str, f64)],
    ) -> Result<(), Diagnostic> {
        self.function(text);
        let function = text.trim_start().strip_prefix("def ").and_then(|rest| rest.split('(').next());
        let mut arguments = Vec::new();
        for output in outputs {
            arguments.push(Code::text(self.output(output)?.0));
        }
        arguments.extend(inputs.iter().map(|input| Code::text(format!("batch[\"{input}\"]"))));
        arguments.extend(numbers.iter().map(|(key, value)| Code::named(key, Code::text(real(*value)))));
        self.term(name, weight, Code::call(function.unwrap_or_default(), arguments));
        Ok(())
    }

    /// Half the sum of squares of the parameters that the graph's loss sums over.
    pub fn squares(&mut self, of: &dyn Fn(&zoo_graph::VariableRole) -> bool) -> Code {
        self.network = true;
        let all = parameters(self.graph);
        let summed = |name: &str| self.graph.nodes.iter().any(|node| node.name == format!("loss/l2/{name}"));
        let frozen = |name: &str| !crate::schema::Training::of(&self.recipe.train.parts, name, 0).trained;
        let chosen: Vec<bool> = all.iter().map(|p| of(&p.role) && (frozen(&p.name) || summed(&p.name))).collect();
        let mut tests = Vec::new();
        if all.iter().any(|parameter| frozen(&parameter.name)) {
            tests.push("parameter.requires_grad".to_owned());
        }
        if chosen.iter().any(|chosen| !chosen) {
            tests.push(condition(&all, &chosen, &[]).flat());
        }
        let (names, of) = match tests.iter().any(|test| test.contains("name")) {
            true => ("name, parameter", self.dialect.named_parameters()),
            false => ("parameter", self.dialect.parameters()),
        };
        let test = if tests.is_empty() { String::new() } else { format!(" if {}", tests.join(" and ")) };
        let sum = format!("parameter.square().sum() / 2 for {names} in {of}{test}");
        Code::call("sum", vec![Code::text(sum)])
    }
}

/// Adds the loss.
pub(in crate::emit) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let recipe = program.recipe;
    let mut judged = Judged {
        dialect: program.dialect,
        recipe,
        graph: program.graph,
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
    for (name, term) in &recipe.loss.formulas {
        judged.path = format!("loss.formulas.{name}.formula");
        judged.written(|judged| term.emit(name, judged))?;
    }
    let Judged { texts, terms, network, .. } = judged;
    texts.into_iter().for_each(|text| program.add(text));
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
    if let Some(crate::emit::code::Piece::List(open, _, close)) = code.pieces.first_mut() {
        (*open, *close) = ("{", "}");
    }
    code
}
