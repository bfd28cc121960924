//! What a term of the loss says of itself when it is written.

use std::borrow::Cow;

use zoo_graph::{Graph, Shape};

use super::code::Code;
use super::conditions::{condition, parameters};
use super::dialect::Dialect;
use super::mindspore;
use super::number::real;
use crate::builder::LOGITS;
use crate::diagnostic::Diagnostic;
use crate::span::{ConfigPath, SpanTable};
use crate::values::{Part, Training};

/// What a term of the loss writes itself with.
pub(crate) struct Judged<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) graph: &'a Graph,
    pub(crate) spans: &'a SpanTable,
    /// What is trained differently from the rest.
    pub(crate) parts: &'a [Part],
    /// Whether images are mixed, and have a second class.
    pub(crate) mixed: bool,
    /// The term under way.
    pub(crate) path: String,
    /// The functions that terms call.
    pub(crate) texts: Vec<Cow<'static, str>>,
    pub(crate) terms: Vec<(String, f64, Code)>,
    /// Whether a term reads the parameters.
    pub(crate) network: bool,
}

impl Judged<'_> {
    /// An error at the term.
    pub fn refuse(&self, message: impl Into<String>) -> Diagnostic {
        let path = ConfigPath::from(self.path.as_str());
        Diagnostic::error(self.spans.get(&path), path, message).with_excerpt(self.spans.sources())
    }

    /// An output of the network, and its shape with the batch.
    pub fn output(&self, name: &str) -> Result<(String, Shape), Diagnostic> {
        let found = self.graph.outputs.iter().find(|(output, _)| output == name);
        let (_, value) = found.ok_or_else(|| self.refuse(format!("the network has no output `{name}`")))?;
        let text = if self.graph.outputs.len() == 1 { "outputs".to_owned() } else { format!("outputs[\"{name}\"]") };
        Ok((text, self.graph.ty(*value).shape.clone()))
    }

    /// The extents of an input of the step, with the batch.
    pub fn input(&self, name: &str) -> Result<Shape, Diagnostic> {
        let found = self.graph.inputs.iter().find(|input| input.name == name);
        let input = found.ok_or_else(|| self.refuse(format!("the step has no input `{name}`")))?;
        Ok(self.graph.ty(input.value).shape.clone())
    }

    /// The number of samples of a step, and that of the graph.
    pub fn samples(&self) -> (String, usize) {
        let first = self.graph.inputs.first();
        let batch = first.and_then(|input| self.graph.ty(input.value).shape.first().copied());
        (format!("len(batch[\"{}\"])", first.map_or("", |input| &input.name)), batch.unwrap_or(1))
    }

    /// Adds a function that a term calls.
    pub fn function(&mut self, text: &'static str) {
        self.texts.push(Cow::Borrowed(text));
    }

    /// Adds the term.
    pub fn term(&mut self, name: &str, weight: f64, code: Code) {
        self.terms.push((name.to_owned(), weight, code));
    }

    /// Functions and terms since in the words of MindSpore.
    fn worded(&mut self, (texts, terms): (usize, usize)) -> Result<(), Diagnostic> {
        for place in texts..self.texts.len() {
            // A function of a formula was written in them.
            if let Cow::Borrowed(text) = self.texts[place] {
                self.texts[place] = Cow::Borrowed(mindspore::helper(text).map_err(|reason| self.refuse(reason))?);
            }
        }
        for place in terms..self.terms.len() {
            let (code, helpers) = mindspore::code(&self.terms[place].2).map_err(|reason| self.refuse(reason))?;
            self.texts.extend(helpers.into_iter().map(Cow::Borrowed));
            self.terms[place].2 = code;
        }
        Ok(())
    }

    /// Writes a term in the words of the dialect.
    pub(crate) fn written(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
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

    /// An output and an input in its shape.
    pub fn compared(&self, prediction: Option<&str>, target: &str) -> Result<Vec<Code>, Diagnostic> {
        let (output, _) = self.output(prediction.unwrap_or(LOGITS))?;
        Ok(vec![Code::text(output), Code::text(format!("batch[\"{target}\"]"))])
    }

    /// Half the sum of squares of the parameters that the graph's loss sums over.
    pub fn squares(&mut self, of: &dyn Fn(&zoo_graph::VariableRole) -> bool) -> Code {
        self.network = true;
        let all = parameters(self.graph);
        let summed = |name: &str| self.graph.nodes.iter().any(|node| node.name == format!("loss/l2/{name}"));
        let frozen = |name: &str| !Training::of(self.parts, name, 0).trained;
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
