//! Formulas of the loss as functions of the program.

use std::borrow::Cow;
use std::collections::HashSet;

use zoo_graph::formula::Formula;

use super::code::{Binding, Code};
use super::dialect::Dialect;
use super::formula::{Operand, Part, written};
use super::forward::forward;
use super::judged::Judged;
use super::mindspore;
use super::names::{defined, identifier};
use super::print::docstring;
use super::usage::{ROOT, Usage, Value};
use crate::diagnostic::Diagnostic;

/// What a formula of the loss reads.
pub(crate) struct Read {
    /// Its name in the formula.
    pub(crate) name: String,
    /// What it is in the loss.
    pub(crate) given: Code,
    /// Its extents.
    pub(crate) shape: Vec<usize>,
    /// Whether it has whole numbers.
    pub(crate) whole: bool,
}

impl Judged<'_> {
    /// The call of a function that computes a formula and the sum of its `elements`, or else their mean: if that is
    /// wanted, or if PyTorch has fewer elements because some are the same. Returns whether it is the mean.
    pub fn written_formula(
        &mut self,
        (name, about): (&str, &str),
        formula: &Formula,
        reads: Vec<Read>,
        (elements, mean): (usize, bool),
    ) -> Result<(Code, bool), Diagnostic> {
        let mut usage = Usage::new(ROOT, "", "");
        let mut operands = Vec::new();
        for Read { name, shape, whole, .. } in &reads {
            let var = usage.value(Value { dims: Vec::new(), hint: Some(name.clone()) });
            usage.inputs.push((name.clone(), var));
            operands.push(Operand { var, shape: shape.clone(), whole: *whole });
        }
        let part = written(formula, &operands, &mut |code| usage.assigned(code));
        let Part { code, shape, .. } = part.map_err(|reason| self.refuse(reason))?;
        let mean = mean || shape.iter().product::<usize>() != elements;
        let folded = code.within(Binding::Tight).around("", if mean { ".mean()" } else { ".sum()" }, Binding::Tight);
        let mut result = folded;
        let codes = usage.statements.iter_mut().map(|statement| &mut statement.code).chain([&mut result]);
        for code in codes.filter(|_| self.dialect == Dialect::MindSpore) {
            let (worded, helpers) = mindspore::code(code).map_err(|reason| self.refuse(reason))?;
            *code = worded;
            self.texts.extend(helpers.into_iter().map(Cow::Borrowed));
        }
        let function = self.free(&format!("{}_term", identifier(name)));
        let body = forward(&usage, &|_| String::new(), result, false, &HashSet::new());
        let arguments = body.arguments.iter().map(|name| Code::text(format!("{name}: Tensor"))).collect();
        let mut lines = Vec::new();
        Code::call(format!("def {function}"), arguments).lines(0, "", " -> Tensor:", &mut lines);
        docstring(&format!("`{about}`"), 4, &mut lines);
        body.statements.iter().for_each(|(start, code, _)| code.lines(4, start, "", &mut lines));
        self.texts.push(Cow::Owned(lines.join("\n")));
        Ok((Code::call(function, reads.into_iter().map(|read| read.given).collect()), mean))
    }

    /// A name that no function of a term has.
    fn free(&self, wish: &str) -> String {
        let known: HashSet<String> = self.texts.iter().flat_map(|text| defined(text)).collect();
        let mut names = std::iter::once(wish.to_owned()).chain((2..).map(|n| format!("{wish}{n}")));
        names.find(|name| !known.contains(name)).unwrap_or_default()
    }
}
