//! The context in which a layer is resolved.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::expander::{Expander, Scope};
use crate::diagnostic::{Diagnostic, suggest_or};
use crate::layers::{Layer, ResolvedLayer};
use crate::span::ConfigPath;
use crate::values::InitDefaults;

/// The place of one layer.
pub(crate) struct Place<'p, 'a> {
    pub(super) expander: &'p mut Expander<'a>,
    pub(super) scope: &'p Scope,
    /// Of the layer.
    pub(super) path: &'p ConfigPath,
    /// Of its content.
    pub(super) inner: ConfigPath,
    /// Full name of the module.
    pub(super) name: Option<String>,
    returns: IndexMap<String, String>,
}

impl<'p, 'a> Place<'p, 'a> {
    pub(super) fn new(
        expander: &'p mut Expander<'a>,
        scope: &'p Scope,
        path: &'p ConfigPath,
        inner: ConfigPath,
        name: Option<String>,
    ) -> Self {
        Self { expander, scope, path, inner, name, returns: IndexMap::new() }
    }

    /// Name of the module, and the taps that it returns.
    pub(super) fn into_parts(self) -> (Option<String>, IndexMap<String, String>) {
        (self.name, self.returns)
    }

    /// Reports a mistake in the value of a key, or in the content itself if `key` is empty.
    pub(crate) fn error(&mut self, key: &str, message: impl Into<String>) -> &mut Diagnostic {
        let path = self.at(key);
        self.expander.error(&path, message)
    }

    /// Reports a mistake at this character of the text that the layer's content is.
    pub(crate) fn error_in_text(&mut self, text: &str, at: usize, message: impl Into<String>) {
        let span = self.expander.spans.within(&self.inner, text, at);
        self.error("", message).span = span;
    }

    /// Initialisation of parameters whose layer has none.
    pub(crate) fn init(&self) -> &InitDefaults {
        &self.scope.init
    }

    /// A module inside this one.
    pub(crate) fn part(&mut self, item: &str, kind: Layer) -> Option<ResolvedLayer> {
        Some(ResolvedLayer {
            name: Some(self.part_name(item)?),
            is_module: true,
            path: self.path.clone(),
            span: self.expander.spans.get(self.path),
            kind,
            returns: IndexMap::new(),
            expressions: BTreeMap::new(),
        })
    }

    pub(super) fn part_name(&mut self, item: &str) -> Option<String> {
        self.expander.name_within(item, &self.inner, &self.scope.inside(self.name.as_deref(), true))
    }

    /// Declares the inner taps that the module returns.
    pub(crate) fn returns(&mut self, names: &IndexMap<String, String>) {
        let inside = self.inside();
        self.returns = self.expander.named_taps(names, &self.at("returns"), &inside);
    }

    /// The full name of a tap or input that the value of `key` names.
    pub(crate) fn tap(&mut self, key: &str, tap: &str) -> Option<String> {
        let path = self.at(key);
        self.expander.find_tap(tap, &path, self.scope)
    }

    /// The full name of a tap or input of this name, if there is one.
    pub(crate) fn known_tap(&mut self, tap: &str) -> Option<String> {
        self.expander.known_tap(tap, self.scope)
    }

    /// Declares a tap; returns its full name.
    pub(crate) fn new_tap(&mut self, tap: &str) -> Option<String> {
        let full = self.expander.name_within(tap, &self.inner, self.scope)?;
        if self.expander.lent.contains_key(&full) || !self.expander.taps.insert(full.clone()) {
            self.error("", format!("a tap or input `{tap}` already exists"));
        }
        Some(full)
    }

    /// Gives taps to the layers inside this one, under their names there: all, or none if one is a mistake.
    pub(crate) fn lend(&mut self, inputs: &IndexMap<String, String>) -> Option<()> {
        let mut lent = Vec::new();
        for (name, tap) in inputs {
            let path = self.at("inputs").key(name);
            let outer = self.expander.find_tap(tap, &path, self.scope)?;
            let full = self.expander.name_within(name, &path, &self.inside())?;
            if self.expander.taps.contains(&full) || self.expander.lent.contains_key(&full) {
                let hint = "choose another name, here and in the block, or read that one without `inputs`";
                self.error("inputs", format!("a tap or input `{name}` already exists")).hint = Some(hint.to_owned());
                return None;
            }
            lent.push((full, (outer, false)));
        }
        self.expander.lent.extend(lent);
        Some(())
    }

    /// Takes them back; the names that no layer has read.
    pub(crate) fn end_of_loan(&mut self, inputs: &IndexMap<String, String>) -> Vec<String> {
        let prefix = self.inside().prefix;
        let mut is_unread =
            |name: &&String| matches!(self.expander.lent.remove(&format!("{prefix}{name}")), Some((_, false)));
        inputs.keys().filter(&mut is_unread).cloned().collect()
    }

    /// The scope of the layers inside this one.
    fn inside(&self) -> Scope {
        self.scope.inside(self.name.as_deref(), true)
    }

    /// The full name of a sibling of this layer.
    pub(crate) fn beside(&self, name: &str) -> String {
        format!("{}{name}", self.scope.prefix)
    }

    /// The full name of an earlier module given by `key`: relative to the enclosing module, or in full.
    pub(crate) fn module_name(&mut self, key: &str, name: &str) -> Option<String> {
        self.expander.refuse_long(name, &self.at(key))?;
        let modules = &self.expander.modules;
        let full = [self.beside(name), name.to_owned()];
        let known = full.into_iter().find(|name| modules.contains_key(name));
        if known.is_none() {
            let hint = suggest_or(name, modules.keys().map(String::as_str), "no layer above has a name");
            self.error(key, format!("there is no earlier module `{name}`")).hint = Some(hint);
        }
        known
    }

    /// Declares the module of this full name, to which parameters belong.
    pub(crate) fn owner(&mut self, key: &str, name: &str) -> Option<()> {
        self.expander.refuse_long(name, &self.at(key))?;
        self.expander.declare(name, self.path);
        Some(())
    }

    /// A module above with layers or parameters in it, to call it again.
    pub(crate) fn module(&mut self, name: &str) -> Option<ResolvedLayer> {
        self.expander.refuse_long(name, &self.inner)?;
        let callable = &self.expander.callable;
        let Some(full) = [self.beside(name), name.to_owned()].into_iter().find(|name| callable.contains_key(name))
        else {
            let hint = suggest_or(name, callable.keys().map(String::as_str), "there are none above");
            self.error("", format!("there is no earlier module `{name}` with layers or parameters")).hint = Some(hint);
            return None;
        };
        self.expander.count_again(&full, &self.inner)?;
        self.expander.callable.get(&full).cloned()
    }

    pub(super) fn at(&self, key: &str) -> ConfigPath {
        if key.is_empty() { self.inner.clone() } else { self.inner.key(key) }
    }
}
