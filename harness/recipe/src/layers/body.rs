//! Lists of layers: as written, under a name, and resolved.

use std::borrow::Cow;
use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zoo_graph::{GraphError, ValueId};

use super::Layer;
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{Emitter, Var};
use crate::site::Site;
use crate::span::{ConfigPath, Span};
use crate::tree::Node;
use crate::values::{Expression, InitDefaults, Scalar};

/// A list of layers: as written, with expressions, until it is resolved; then the resolved layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Body {
    written: Vec<Node>,
    /// The layers that are switched on; none before the list is resolved.
    pub layers: Vec<ResolvedLayer>,
    /// Modules that arguments of the block switch off.
    pub(crate) off: Vec<Off>,
}

zoo_settings::settings! {
    /// A part of a network with arguments.
    pub struct Block {
        /// Arguments and their defaults; `~` makes an argument required. Layers of the body refer to them as `$name`.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub args: IndexMap<String, Option<Scalar>> = IndexMap::new(),
        /// Initialisation of parameters inside whose layer has none; overrides `model.init`.
        #[serde(skip_serializing_if = "InitDefaults::is_empty")]
        pub init: InitDefaults = InitDefaults::default(),
        /// The layers.
        #[schemars(length(min = 1))]
        pub body: Body,
    }
}

/// One layer that is switched on.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedLayer {
    /// Full name of the module, as in state_dict (`layer1.0.conv1`); `None` for a plain function.
    /// Layers with parameters always have one, and it is theirs alone.
    pub name: Option<String>,
    /// Whether its output is the output of the module `name`. It is not for a layer called `.`, which only owns the
    /// parameters of the enclosing module.
    pub is_module: bool,
    /// Its path in the recipe, for example `model.blocks.bottleneck.body[0].residual.main[3]`.
    pub path: ConfigPath,
    /// Where that was written.
    pub span: Span,
    /// What it does.
    pub kind: Layer,
    /// Taps that it returns to its caller, by key, if it returns more than its last value.
    pub returns: IndexMap<String, String>,
    /// The expressions of block arguments in it, by the keys that lead there (`out`, `args.width`).
    pub expressions: BTreeMap<String, Expression>,
}

/// A module that an argument of its block switches off.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Off {
    /// The number of layers before it that are switched on.
    pub before: usize,
    /// Its full name.
    pub name: String,
    /// What switches it.
    pub when: Expression,
}

impl ResolvedLayer {
    /// What is known of it, whatever it does.
    pub(crate) fn site(&self) -> Site<'_> {
        let Self { name, is_module, path, span, kind: _, returns, expressions } = self;
        Site { name: name.as_deref(), is_module: *is_module, path, span, returns, expressions }
    }

    /// Adds its nodes, from the value `x`.
    pub(crate) fn lower(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.layer(self.site(), x, |at| self.kind.build(at, x))
    }

    /// Writes it as PyTorch, from the value `x`; returns its result.
    pub(crate) fn emit(&self, emitter: &mut Emitter<'_>, x: Var) -> Result<Var, Diagnostic> {
        emitter.layer(self.site(), x, |at| self.kind.emit(at))
    }
}

impl Body {
    /// Adds the nodes of its layers, from the value `x`.
    pub(crate) fn lower(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        self.layers.iter().try_fold(x, |x, layer| layer.lower(at, x))
    }

    /// Writes its layers as PyTorch, from the value `x`; returns the result of the last.
    pub(crate) fn emit(&self, emitter: &mut Emitter<'_>, mut x: Var) -> Result<Var, Diagnostic> {
        let off = |emitter: &mut Emitter<'_>, before: usize, x: Var| {
            self.off.iter().filter(|off| off.before == before).fold(x, |x, off| emitter.off(&off.name, &off.when, x))
        };
        for (index, layer) in self.layers.iter().enumerate() {
            x = off(emitter, index, x);
            x = layer.emit(emitter, x)?;
        }
        Ok(off(emitter, self.layers.len(), x))
    }

    /// Layers with everything decided.
    pub fn resolved(layers: Vec<ResolvedLayer>) -> Self {
        Self { written: Vec::new(), layers, off: Vec::new() }
    }

    /// The layers as written.
    pub(crate) fn written(&self) -> &[Node] {
        &self.written
    }

    /// Number of layers: as written, or switched on once it is resolved.
    pub fn len(&self) -> usize {
        self.written.len().max(self.layers.len())
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Vec::<serde_yaml::Value>::deserialize(deserializer)?;
        Ok(Self { written: written.into_iter().map(Node::from_yaml).collect(), layers: Vec::new(), off: Vec::new() })
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.written.iter().map(Node::to_yaml))
    }
}

impl JsonSchema for Body {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Body".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<Layer>::json_schema(generator)
    }
}
