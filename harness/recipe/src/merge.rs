//! Merges one tree into another, for `extends` and profiles.

use crate::schema::Recipe;
use crate::shape::{Shape, ShapeId};
use crate::tree::{Map, Node, Value};

/// What `~` over an inherited key leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Nothing: the key is gone.
    Final,
    /// `~`, as the result is a fragment that will be put over something itself.
    Kept,
}

/// `over` on top of `under`, both of shape `id`.
///
/// Maps are merged key by key; `~` removes a key; lists and scalars are replaced. If the shape is a choice with one key
/// (an optimizer, a schedule), another choice replaces the inherited one. Every value keeps its source position.
pub(crate) fn merge(under: Node, over: Node, id: ShapeId, removal: Removal) -> Node {
    let shapes = Recipe::shapes();
    let id = shapes.choose(id, &over).unwrap_or(id);
    let is_choice = matches!(shapes.shape(id), Shape::Union { .. });
    let value = match (under.value, over.value) {
        (Value::Map(below), Value::Map(above)) if !is_choice || below.keys().eq(above.keys()) => {
            Value::Map(merge_maps(below, above, id, removal))
        }
        (_, value) => value,
    };
    Node { span: over.span, value }
}

fn merge_maps(mut below: Map, above: Map, id: ShapeId, removal: Removal) -> Map {
    let shapes = Recipe::shapes();
    for (key, mut entry) in above {
        let shape = shapes.key(id, &key);
        let null_is_a_value =
            matches!((shapes.shape(id), shape), (Shape::Dict(_), Some(shape)) if shapes.nullable(shape));
        if entry.node.value == Value::Null && !null_is_a_value && removal == Removal::Final {
            below.shift_remove(&key);
            continue;
        }
        if let (Some(shape), Some(inherited)) = (shape, below.get_mut(&key)) {
            let placeholder = Node { span: entry.key_span.clone(), value: Value::Null };
            entry.node = merge(std::mem::replace(&mut inherited.node, placeholder), entry.node, shape, removal);
        }
        below.insert(key, entry);
    }
    below
}
