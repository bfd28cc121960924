//! Blocks: their arguments, the values of a use, and the expansion of their layers.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::args::Args;
use super::expander::{Expander, Scope};
use super::place::Place;
use crate::diagnostic::suggest_or;
use crate::layers::{Block, Body};
use crate::span::ConfigPath;
use crate::tree::{Node, Value};
use crate::values::{Expression, Scalar};

/// Arguments of a use, and their positions.
struct Given<'g> {
    args: &'g IndexMap<String, Scalar>,
    path: ConfigPath,
}

impl Expander<'_> {
    /// Checks what blocks declare: `classes` is taken, and an argument that no layer uses is a mistake.
    pub(crate) fn declarations(&mut self) {
        for (name, block) in self.blocks {
            let path = ConfigPath::from("model").key("blocks").key(name).key("args");
            let mut used = HashSet::new();
            block.body.written().iter().for_each(|layer| arguments_in(layer, &mut used));
            for argument in block.args.keys() {
                if argument == "classes" {
                    self.error(&path.key(argument), "`classes` always means the number of classes of the model");
                } else if !used.contains(argument) {
                    self.error(&path.key(argument), format!("no layer of `{name}` uses the argument `{argument}`"))
                        .hint = Some(format!("layers say `${argument}`"));
                }
            }
        }
    }

    /// The layers of a block with `given` arguments, of which earlier ones win.
    fn inline(
        &mut self,
        block_name: &str,
        given: &[Given<'_>],
        name: Option<&str>,
        path: &ConfigPath,
        scope: &Scope,
    ) -> Option<Body> {
        let blocks = self.blocks;
        let Some(block) = blocks.get(block_name) else {
            let known = blocks.keys().map(String::as_str);
            let hint = suggest_or(block_name, known, "`model.blocks` is empty");
            self.error(path, format!("there is no block `{block_name}` in model.blocks")).hint = Some(hint);
            return None;
        };
        if self.inside.iter().any(|outer| outer == block_name) {
            let chain = self.inside.iter().map(String::as_str).chain([block_name]).collect::<Vec<_>>().join(" -> ");
            self.error(path, format!("blocks use each other in a cycle: {chain}"));
            return None;
        }
        let args = self.arguments(block, block_name, given, path)?;
        let init = block.init.or(&scope.init);
        let inside = Scope { args, init, ..scope.inside(name, false) };
        self.inside.push(block_name.to_owned());
        let body = ConfigPath::from("model").key("blocks").key(block_name).key("body");
        let layers = self.layers(block.body.written(), &body, &inside);
        self.inside.pop();
        Some(layers)
    }

    fn arguments(&mut self, block: &Block, block_name: &str, given: &[Given<'_>], path: &ConfigPath) -> Option<Args> {
        let mut complete = true;
        for Given { args, path } in given {
            for name in args.keys().filter(|name| !block.args.contains_key(*name)) {
                complete = false;
                let hint = suggest_or(name, block.args.keys().map(String::as_str), "it has no arguments");
                self.error(&path.key(name), format!("the block `{block_name}` has no argument `{name}`")).hint =
                    Some(hint);
            }
        }
        let mut args = Args::new();
        for (name, default) in &block.args {
            let own = given.iter().find_map(|given| given.args.get(name));
            if let Some(value) = own.copied().or(*default) {
                args.insert(name.clone(), value);
                continue;
            }
            complete = false;
            self.error(path, format!("the block `{block_name}` needs the argument `{name}`")).hint =
                Some(format!("args: {{{name}: ...}}"));
        }
        complete.then(|| self.with_classes(args))
    }
}

impl Place<'_, '_> {
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
}

/// Names of the arguments that expressions in `node` use.
fn arguments_in(node: &Node, out: &mut HashSet<String>) {
    match &node.value {
        Value::Text(text) => {
            if let Ok(expression) = Expression::try_from(text.as_str()) {
                out.extend(expression.arguments().map(str::to_owned));
            }
        }
        Value::List(list) => list.iter().for_each(|node| arguments_in(node, out)),
        Value::Map(map) => map.values().for_each(|entry| arguments_in(&entry.node, out)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {}
    }
}
