//! Modules with others inside: containers, blocks, stacks of blocks.

use std::collections::BTreeMap;

use super::at::{At, Given};
use super::code::{Holder, Var};
use super::emitter::Emitter;
use super::number::Number;
use super::usage::Usage;
use crate::diagnostic::Diagnostic;
use crate::site::Site;

impl At<'_, '_> {
    /// What is inside a module, if the layer has a name: a class of its own, unless it is modules in a row.
    pub fn inside(
        &mut self,
        write: impl FnOnce(&mut Emitter<'_>, Var) -> Result<Var, Diagnostic>,
    ) -> Result<Var, Diagnostic> {
        let x = self.x;
        if self.layer.name.is_none() {
            return write(self.emitter, x);
        }
        let path = self.own_path()?;
        let when = self.when();
        let mut usage =
            Usage::new(self.layer.path.as_str(), label(&path), &format!("{}{path}.", self.emitter.frame().prefix));
        usage.own = false;
        usage.around = self.emitter.frame().symbols();
        usage.names = self.emitter.frame().own_names();
        let inner = self.emitter.enter(usage, x);
        let y = write(self.emitter, inner)?;
        let left = self.emitter.leave(&path, x, y, when, self.layer.returns);
        left.ok_or_else(|| self.refuse("a module without a place"))
    }

    /// A use of a block, with these values of its arguments.
    pub fn block(
        &mut self,
        block: &str,
        given: &Given,
        write: impl FnOnce(&mut Emitter<'_>, Var) -> Result<Var, Diagnostic>,
    ) -> Result<Var, Diagnostic> {
        let arguments = self.arguments(block, given);
        let (x, path, when) = (self.x, self.path(), self.when());
        let Some(path) = path.filter(|_| self.layer.name.is_some()) else {
            // Its modules are those of the class around it.
            let before = self.emitter.frame().blocks(arguments);
            let y = write(self.emitter, x)?;
            self.emitter.frame().inlined = before;
            return Ok(y);
        };
        self.use_block((block, &path), arguments, when, write)
    }

    fn use_block(
        &mut self,
        (block, path): (&str, &str),
        arguments: BTreeMap<String, Number>,
        when: Option<String>,
        write: impl FnOnce(&mut Emitter<'_>, Var) -> Result<Var, Diagnostic>,
    ) -> Result<Var, Diagnostic> {
        let x = self.x;
        let usage = self.usage(block, path, arguments);
        let inner = self.emitter.enter(usage, x);
        let y = write(self.emitter, inner)?;
        let left = self.emitter.leave(path, x, y, when, self.layer.returns);
        left.ok_or_else(|| self.refuse("a module without a place"))
    }

    fn usage(&mut self, block: &str, path: &str, arguments: BTreeMap<String, Number>) -> Usage {
        let prefix = format!("{}{path}.", self.emitter.frame().prefix);
        let mut usage = Usage::new(block, block, &prefix);
        for (name, default) in self.emitter.blocks.get(block).copied().into_iter().flatten() {
            if let Some(number) = arguments.get(name) {
                usage.arguments.insert(name.clone(), (number.clone(), *default));
            }
        }
        if let Some(classes) = arguments.get("classes") {
            usage.arguments.insert("num_classes".into(), (classes.clone(), None));
        }
        usage
    }

    /// Arguments of a block as numbers of the class around it.
    fn arguments(&mut self, block: &str, given: &Given) -> BTreeMap<String, Number> {
        let mut arguments = BTreeMap::new();
        for (name, default) in self.emitter.blocks.get(block).copied().into_iter().flatten() {
            let Some(value) = given.get(name).map(|(value, _)| *value).or(*default) else { continue };
            let number = Number::scalar(value);
            let written = given.get(name).and_then(|(_, key)| self.layer.expressions.get(&format!("{key}.{name}")));
            let written = written.cloned().and_then(|text| self.expression(&text, number.value, number.kind));
            arguments.insert(name.clone(), written.unwrap_or(number));
        }
        if let Some(classes) = self.emitter.frame().symbols().get("classes") {
            arguments.insert("classes".into(), classes.clone());
        }
        arguments
    }

    /// A block several times in a row; each item comes with its arguments and what `write` writes.
    pub fn stack<B>(
        &mut self,
        block: &str,
        items: &[(Site<'_>, Given, B)],
        write: impl Fn(&B, &mut Emitter<'_>, Var) -> Result<Var, Diagnostic>,
    ) -> Result<Var, Diagnostic> {
        let names: Vec<String> =
            items.iter().filter_map(|(item, ..)| item.name?.rsplit('.').next().map(str::to_owned)).collect();
        let first = items.first().and_then(|(item, ..)| item.name).unwrap_or_default();
        let full = first.rsplit_once('.').map_or("", |(before, _)| before);
        let prefix = self.emitter.frame().prefix.clone();
        let Some(path) =
            format!("{full}.").strip_prefix(prefix.as_str()).map(|path| path.trim_end_matches('.').to_owned())
        else {
            return Err(self.refuse("a stack of another class"));
        };
        let x = self.x;
        let before = (self.emitter.frame().children.len(), self.emitter.frame().statements.len());
        let mut y = x;
        for ((item, given, body), name) in items.iter().zip(&names) {
            let [input, output] = self.emitter.shape();
            let arguments = self.arguments(block, given);
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let mut at = At { emitter: &mut *self.emitter, layer: *item, x: y, input, output, out: None };
            y = at.use_block((block, &path), arguments, None, |emitter, x| write(body, emitter, x))?;
        }
        // A scope around the stack is no module that could call it.
        let holder = if self.layer.name.is_some() { Holder::Sequential } else { Holder::List };
        self.emitter.frame().join_row(&path, holder, before, x, y);
        Ok(y)
    }
}

/// The name of a class after the last part of a path.
fn label(path: &str) -> &str {
    path.rsplit('.').find(|part| part.starts_with(|c: char| c.is_ascii_alphabetic())).unwrap_or("part")
}
