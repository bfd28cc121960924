//! Blocks that are written elsewhere: `blocks: {bottleneck: {from: resnet50}}` takes a block of another recipe, with
//! the blocks that it uses, and `from: blocks/NAME` one of a file of blocks.
//!
//! This works on the spanned tree, before deserialisation: a shared block keeps its source positions, and is inserted
//! as if it had been written in the recipe.

use std::path::Path;
use std::rc::Rc;

use super::{Loading, identity};
use crate::diagnostic::{Diagnostic, suggest, suggest_or};
use crate::layers::shapes_of;
use crate::merge::{Removal, merge};
use crate::schema::{BlockFile, Recipe};
use crate::shape::ShapeId;
use crate::source;
use crate::span::ConfigPath;
use crate::tree::{self, Entry, Map, Node, Value};
use crate::validate::{Completeness, validate};

/// The key of a block with its source.
const FROM: &str = "from";
/// The prefix of the name of a block file, and the folder next to recipes that contains such files.
pub(super) const FOLDER: &str = "blocks";

/// `over` on top of `under`, both recipes or fragments of recipes, as [`merge`] does; a block that is taken from
/// elsewhere replaces an inherited one whole.
pub(super) fn merge_recipes(mut under: Node, over: Node, removal: Removal) -> Node {
    let taken: Vec<&String> = blocks_of(&over).into_iter().flatten().filter(is_taken).map(|(name, _)| name).collect();
    if let Some(inherited) = blocks_of_mut(&mut under) {
        for name in taken {
            inherited.shift_remove(name);
        }
    }
    merge(under, over, Recipe::shapes().root, removal)
}

/// The blocks of a recipe.
fn blocks_of(recipe: &Node) -> Option<&Map> {
    recipe.get("model")?.get("blocks")?.as_map()
}

fn blocks_of_mut(recipe: &mut Node) -> Option<&mut Map> {
    recipe.get_mut("model")?.get_mut("blocks")?.as_map_mut()
}

fn is_taken((_, block): &(&String, &Entry)) -> bool {
    block.node.get(FROM).is_some()
}

/// The fragment of a recipe as the schema knows it: without the keys `from` of its blocks.
pub(super) fn without_sources(mut fragment: Node) -> Node {
    for block in blocks_of_mut(&mut fragment).into_iter().flat_map(Map::values_mut) {
        if let Some(block) = block.node.as_map_mut() {
            block.shift_remove(FROM);
        }
    }
    fragment
}

/// What takes a block from elsewhere, as written.
struct Import {
    /// The name of the block, here and there.
    block: String,
    /// The value of `from`.
    value: Node,
    path: ConfigPath,
}

impl Import {
    fn name(&self) -> &str {
        self.value.as_text().unwrap_or_default()
    }

    fn error(&self, message: String) -> Diagnostic {
        Diagnostic::error(self.value.span.clone(), self.path.clone(), message)
    }
}

impl Loading<'_> {
    /// Puts the blocks of a recipe that are written elsewhere into their places.
    ///
    /// # Errors
    /// The first block that cannot be taken.
    pub(super) fn take_blocks(&mut self, recipe: &mut Node) -> Result<(), Diagnostic> {
        match blocks_of_mut(recipe) {
            Some(blocks) => self.take_into(blocks, &ConfigPath::from("model").key("blocks")),
            None => Ok(()),
        }
    }

    fn take_into(&mut self, blocks: &mut Map, path: &ConfigPath) -> Result<(), Diagnostic> {
        let mut used = Vec::new();
        for (name, entry) in blocks.iter_mut() {
            let Some(changes) = entry.node.as_map_mut() else { continue };
            let Some(value) = changes.shift_remove(FROM).map(|entry| entry.node) else { continue };
            let import = Import { block: name.clone(), value, path: path.key(name).key(FROM) };
            if let Some(body) = changes.get("body") {
                let message = format!("the block `{name}` has both a body and `from`");
                let error = Diagnostic::error(body.key_span.clone(), path.key(name).key("body"), message);
                let hint = format!("remove one; `set: {{model.blocks.{name}.LAYER.KEY: ...}}` changes a single layer");
                return Err(error.with_hint(hint));
            }
            let theirs = self.blocks_at(&import)?;
            let Some(block) = theirs.get(name) else {
                let error = import.error(format!("`{}` has no block `{name}`", import.name()));
                let known = theirs.keys().map(String::as_str);
                return Err(error.with_hint(suggest_or(name, known, "it has no blocks")));
            };
            let changes = std::mem::replace(&mut entry.node, Node::empty_map(import.value.span.clone()));
            entry.node = merge(block.node.clone(), changes, block_shape(), Removal::Final);
            used.push((import, theirs));
        }
        used.into_iter().try_for_each(|(import, theirs)| take_used(blocks, &import, &theirs))
    }

    /// All blocks of the recipe or file that `import` names.
    fn blocks_at(&mut self, import: &Import) -> Result<Rc<Map>, Diagnostic> {
        let Some(name) = import.value.as_text() else {
            let what = import.value.describe();
            return Err(import.error(format!("expected the name of a recipe, or `{FOLDER}/NAME`, found {what}")));
        };
        let from = Path::new(&*import.value.span.file);
        let shared = name.strip_prefix(FOLDER).and_then(|name| name.strip_prefix('/'));
        let path = match shared {
            Some(shared) => self.library.find_blocks(shared, from).ok_or_else(|| {
                let known = self.library.block_files(from);
                let error = import.error(format!("there is no block file `{name}`"));
                error.with_hint(match known.is_empty() {
                    true => format!("there are no files in the folder `{FOLDER}` next to the recipes"),
                    false => suggest(shared, known.iter().map(|(name, _)| name.as_str())),
                })
            })?,
            None => self.library.find(name, Some(from)).ok_or_else(|| {
                let error = import.error(format!("there is no recipe `{name}`"));
                error.with_hint(self.not_found(name).hint.unwrap_or_default())
            })?,
        };
        if let Some(refusal) = self.refusal(&path, "take blocks from") {
            let hint = format!("define the block in one of them, or in a file in the folder `{FOLDER}` that both use");
            return Err(import.error(refusal).with_hint(hint));
        }
        let key = identity(&path);
        if let Some(blocks) = self.blocks.get(&key) {
            return Ok(blocks.clone());
        }
        let blocks = Rc::new(match shared {
            Some(_) => self.within(&path, |loading| loading.block_file(&path))?,
            None => blocks_of(&self.join(&path)?.base).cloned().unwrap_or_default(),
        });
        self.blocks.insert(key, blocks.clone());
        Ok(blocks)
    }

    fn block_file(&mut self, path: &Path) -> Result<Map, Diagnostic> {
        let (name, text) = source::read(path)?;
        self.sources.insert(name.clone(), text.clone());
        let mut root = tree::parse(&text, &name)?;
        if let Some(blocks) = root.get_mut("blocks").and_then(Node::as_map_mut) {
            self.take_into(blocks, &ConfigPath::from("blocks"))?;
        }
        let shapes = shapes_of::<BlockFile>(&[]);
        let mut errors = validate(&mut root.clone(), &shapes, &ConfigPath::default(), Completeness::Whole);
        if let Some(last) = errors.pop() {
            self.found.extend(errors);
            return Err(last);
        }
        Ok(root.get("blocks").and_then(Node::as_map).cloned().unwrap_or_default())
    }
}

/// The shape of a block; that of the whole recipe if the schema had none.
fn block_shape() -> ShapeId {
    let shapes = Recipe::shapes();
    let step = |shape, key| shapes.key(shape, key).unwrap_or(shape);
    ["model", "blocks", "any"].into_iter().fold(shapes.root, step)
}

/// Adds the blocks that the block of `import` uses, and those that they use.
fn take_used(blocks: &mut Map, import: &Import, theirs: &Map) -> Result<(), Diagnostic> {
    let mut open = vec![import.block.clone()];
    let mut known = open.clone();
    while let Some(user) = open.pop() {
        let mut names = Vec::new();
        if let Some(block) = theirs.get(&user) {
            uses(&block.node, &mut names);
        }
        for name in names {
            let Some(their) = theirs.get(name).filter(|_| !known.iter().any(|known| known == name)) else { continue };
            known.push(name.to_owned());
            open.push(name.to_owned());
            match blocks.get(name) {
                None => {
                    blocks.insert(name.to_owned(), their.clone());
                }
                Some(own) if own.node == their.node => {}
                Some(own) => {
                    let (block, file) = (&import.block, import.name());
                    let message = format!(
                        "the block `{block}` of `{file}` uses a block `{name}`, but `{name}` is a different \
                                 block here"
                    );
                    let hint = format!("rename the block at {}; the other one is at {}", own.key_span, their.key_span);
                    return Err(import.error(message).with_hint(hint));
                }
            }
        }
    }
    Ok(())
}

/// The names of blocks that layers at or below `node` use.
fn uses<'a>(node: &'a Node, out: &mut Vec<&'a str>) {
    match &node.value {
        Value::List(list) => list.iter().for_each(|node| uses(node, out)),
        Value::Map(map) => {
            for (key, entry) in map {
                let name = match key.as_str() {
                    "block" => entry.node.get("use"),
                    "stack" => entry.node.get("block"),
                    _ => None,
                };
                out.extend(name.and_then(Node::as_text));
                uses(&entry.node, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {}
    }
}
