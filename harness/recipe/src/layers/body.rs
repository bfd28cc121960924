//! Lists of layers.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Layer;
use crate::resolve::ResolvedLayer;
use crate::tree::Node;
use crate::values::Expression;

/// A list of layers: as written, with expressions, until it is resolved; then the resolved layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Body {
    written: Vec<Node>,
    /// The layers that are switched on; none before the list is resolved.
    pub layers: Vec<ResolvedLayer>,
    /// Modules that arguments of the block switch off.
    pub(crate) off: Vec<Off>,
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

impl Body {
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
