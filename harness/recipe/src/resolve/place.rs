//! The context in which a layer is resolved.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::expand::{Expander, Scope};
use super::{ResolvedLayer, blocks::Given};
use crate::diagnostic::{Diagnostic, suggest_or};
use crate::layers::{Body, Layer, Module};
use crate::span::ConfigPath;
use crate::values::{InitDefaults, Scalar};

/// The place of one layer.
pub(crate) struct Place<'p, 'a> {
    expander: &'p mut Expander<'a>,
    scope: &'p Scope,
    /// Of the layer.
    path: &'p ConfigPath,
    /// Of its content.
    inner: ConfigPath,
    /// Full name of the module.
    name: Option<String>,
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

    /// Resolves the layers of a list in the value of `key`.
    pub(crate) fn layers(&mut self, key: &str, body: &mut Body) {
        self.list(key, body, self.scope.inside(self.name.as_deref(), false));
    }

    /// As [`Self::layers`], where layers without a name are named by their index.
    pub(crate) fn indexed_layers(&mut self, key: &str, body: &mut Body) {
        self.list(key, body, self.scope.inside(self.name.as_deref(), true));
    }

    /// As [`Self::layers`], with a name before theirs that is not a module.
    pub(crate) fn layers_within(&mut self, name: &str, key: &str, body: &mut Body) {
        let Some(full) = self.expander.full_name(name, &self.inner, self.scope) else { return };
        self.expander.register(Module::None, Some(&full), &self.inner, self.path);
        self.list(key, body, self.scope.inside(Some(&full), false));
    }

    fn list(&mut self, key: &str, body: &mut Body, scope: Scope) {
        *body = self.expander.layers(body.written(), &self.at(key), &scope);
    }

    /// The layers of a block, with arguments from the values of these keys, of which earlier ones win. With `use_`, in
    /// a module of that name inside this one.
    pub(crate) fn block(
        &mut self,
        key: &str,
        block: &str,
        args: &[(&str, &IndexMap<String, Scalar>)],
        use_: Option<&str>,
    ) -> Option<Body> {
        let given: Vec<Given<'_>> = args.iter().map(|(key, args)| Given { args, path: self.at(key) }).collect();
        let name = match use_ {
            Some(item) => Some(self.part_name(item)?),
            None => self.name.clone(),
        };
        self.expander.inline(block, &given, name.as_deref(), &self.at(key), self.scope)
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

    fn part_name(&mut self, item: &str) -> Option<String> {
        self.expander.name_within(item, &self.inner, &self.scope.inside(self.name.as_deref(), true))
    }

    /// Declares the inner taps that the module returns.
    pub(crate) fn returns(&mut self, names: &IndexMap<String, String>) {
        let inside = self.scope.inside(self.name.as_deref(), true);
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
        if !self.expander.taps.insert(full.clone()) {
            self.error("", format!("a tap or input `{tap}` already exists"));
        }
        Some(full)
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

    fn at(&self, key: &str) -> ConfigPath {
        if key.is_empty() { self.inner.clone() } else { self.inner.key(key) }
    }
}
