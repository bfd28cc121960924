//! The walk over the layers of a network that resolves them.

use std::collections::BTreeMap;

use serde_yaml::with::singleton_map_recursive;

use super::args::substitute;
use super::expander::{Expander, MAX_CALLABLE, Scope};
use super::place::Place;
use crate::layers::body::Off;
use crate::layers::{Body, Description, Layer, Module, ResolvedLayer};
use crate::shape::ShapeId;
use crate::span::{ConfigPath, Span};
use crate::tree::{Entry, Map, Node, Value};
use crate::values::Expression;

/// The name of a layer whose parameters are those of the module around it.
const OWN: &str = ".";

/// A layer of a list.
enum Present {
    On(Box<ResolvedLayer>),
    /// A module that an argument of its block switches off: its full name, and the expression.
    Off(String, Expression),
}

impl Expander<'_> {
    /// The layers of a list, resolved.
    pub(crate) fn layers(&mut self, written: &[Node], path: &ConfigPath, scope: &Scope) -> Body {
        let mut body = Body::default();
        if self.refuse_nesting(1, path).is_none() {
            return body;
        }
        self.nested += 1;
        for (index, node) in written.iter().enumerate() {
            match self.layer(node, index, &path.index(index), scope) {
                Some(Present::On(layer)) => body.layers.push(*layer),
                Some(Present::Off(name, when)) => body.off.push(Off { before: body.layers.len(), name, when }),
                None => {}
            }
        }
        self.nested -= 1;
        body
    }

    /// One layer; `None` if it is switched off for good or wrong.
    fn layer(&mut self, written: &Node, index: usize, path: &ConfigPath, scope: &Scope) -> Option<Present> {
        let before = self.count;
        self.count(1, path)?;
        let (tag, mut content) = written.as_map()?.first().map(|(tag, entry)| (tag.as_str(), entry.node.clone()))?;
        let (module, shape) = (Layer::module(tag)?, self.shapes.layer(tag)?);
        let inner = path.key(tag);
        let [name, enabled] = match &mut content.value {
            Value::Map(keys) if module != Module::None => ["name", "enabled"].map(|key| keys.shift_remove(key)),
            _ => [None, None],
        };
        let [name, enabled] = [name, enabled].map(|entry| entry.map(|entry| entry.node));
        let own = match name.as_ref().and_then(Node::as_text) {
            Some(name) => Some(name.to_owned()),
            None if scope.indexed && module != Module::None => Some(index.to_string()),
            None => None,
        };
        let mut expressions = BTreeMap::new();
        if let Some(mut enabled) = enabled {
            let shape = self.shapes.key(shape, "enabled")?;
            self.substitute(&mut enabled, shape, &inner, "enabled", scope, &mut expressions)?;
            if enabled.value == Value::Bool(false) {
                let name = format!("{}{}", scope.prefix, own?);
                return Some(Present::Off(name, expressions.remove("enabled")?));
            }
        }
        let is_module = own.as_deref() != Some(OWN);
        let full = match own {
            Some(own) if is_module => Some(self.full_name(&own, &inner, scope)?),
            Some(_) => Some(self.name_around(module, &inner, scope)?),
            None => None,
        };
        if is_module {
            self.register(module, full.as_deref(), &inner, path);
        }
        self.substitute(&mut content, shape, &inner, "", scope, &mut expressions)?;
        let mut kind = self.read(tag, content, path)?;
        let mut place = Place::new(self, scope, path, inner, full);
        kind.resolve(&mut place)?;
        let (name, returns) = place.into_parts();
        let (path, span) = (path.clone(), self.spans.get(path));
        let resolved = ResolvedLayer { name, is_module, path, span, kind, returns, expressions };
        let computes = matches!(Layer::module(tag), Some(Module::Parameters | Module::Function));
        let again = computes || matches!(resolved.kind.describe(), Description::Row(_));
        if let Some(name) = resolved.name.as_ref().filter(|_| again) {
            self.kept += self.count - before;
            if self.kept > MAX_CALLABLE {
                self.error(&resolved.path, format!("more than {MAX_CALLABLE} layers in modules inside each other"));
                return None;
            }
            self.callable.insert(name.clone(), resolved.clone());
        }
        Some(Present::On(Box::new(resolved)))
    }

    /// Values for expressions, except those of layers inside. The node is at `key` of the layer whose content is at
    /// `inner`; adds the expressions by the keys that lead to them.
    fn substitute(
        &mut self,
        node: &mut Node,
        shape: ShapeId,
        inner: &ConfigPath,
        key: &str,
        scope: &Scope,
        expressions: &mut BTreeMap<String, Expression>,
    ) -> Option<()> {
        let before = self.errors.len();
        let path = if key.is_empty() { inner.clone() } else { inner.key(key) };
        substitute(node, shape, &path, (self.shapes, &scope.args), &mut |path, found| match found {
            Ok(expression) => {
                let keys = path.as_str().strip_prefix(inner.as_str()).unwrap_or_default();
                expressions.insert(keys.trim_start_matches('.').to_owned(), expression);
            }
            Err(error) => self.error(path, error.message).hint = error.hint,
        });
        (self.errors.len() == before).then_some(())
    }

    /// A layer without expressions as its type. What is wrong with it has been said by the validation.
    fn read(&mut self, tag: &str, content: Node, path: &ConfigPath) -> Option<Layer> {
        let entry = Entry { key_span: Span::default(), node: content };
        let whole = Node { span: Span::default(), value: Value::Map(Map::from([(tag.to_owned(), entry)])) };
        let read: Result<Layer, serde_yaml::Error> = singleton_map_recursive::deserialize(whole.to_yaml());
        read.inspect_err(|error| {
            self.error(path, error.to_string());
        })
        .ok()
    }
}

impl Place<'_, '_> {
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
}
