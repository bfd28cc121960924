//! Blocks: what they declare, what a use passes them, and their layers in the place of the use.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::ResolvedLayer;
use super::args::Args;
use super::expand::{Expander, Scope};
use crate::diagnostic::suggest;
use crate::schema::{Block, Expression, Param, Scalar};
use crate::span::ConfigPath;

impl<'a> Expander<'a> {
    /// Checks what blocks declare: `classes` is taken, and an argument that no layer uses is a mistake.
    pub(super) fn declarations(&mut self) {
        for (name, block) in &self.model.blocks {
            let path = ConfigPath::from("model").key("blocks").key(name).key("args");
            let body = serde_yaml::to_value(&block.body).unwrap_or_default();
            let mut used = HashSet::new();
            arguments_in(&body, &mut used);
            for argument in block.args.keys() {
                if argument == "classes" {
                    self.error(&path.key(argument), "`classes` is the model's class count everywhere");
                } else if !used.contains(argument) {
                    self.error(&path.key(argument), format!("no layer of `{name}` uses the argument `{argument}`"))
                        .hint = Some(format!("layers say `${argument}`"));
                }
            }
        }
    }

    /// The layers of a block with arguments from `sources`, of which earlier ones win.
    pub(super) fn inline(
        &mut self,
        block_name: &'a str,
        sources: Vec<(&'a IndexMap<String, Param<Scalar>>, ConfigPath)>,
        name: Option<&str>,
        path: &ConfigPath,
        scope: &Scope,
    ) -> Option<Vec<ResolvedLayer>> {
        let model = self.model;
        let Some(block) = model.blocks.get(block_name) else {
            let hint = suggest(block_name, model.blocks.keys().map(String::as_str));
            self.error(path, format!("there is no block `{block_name}` in model.blocks")).hint = Some(hint);
            return None;
        };
        if self.inside.contains(&block_name) {
            let chain = self.inside.iter().copied().chain([block_name]).collect::<Vec<_>>().join(" -> ");
            self.error(path, format!("blocks use each other in a circle: {chain}"));
            return None;
        }
        let args = self.arguments(block, block_name, &sources, path, scope)?;
        let inside = Scope { prefix: scope.inside(name, false).prefix, args, indexed: false };
        self.inside.push(block_name);
        let body = ConfigPath::from("model").key("blocks").key(block_name).key("body");
        let layers = self.layers(&block.body, &body, &inside);
        self.inside.pop();
        Some(layers)
    }

    fn arguments(
        &mut self,
        block: &Block,
        block_name: &str,
        sources: &[(&IndexMap<String, Param<Scalar>>, ConfigPath)],
        path: &ConfigPath,
        scope: &Scope,
    ) -> Option<Args> {
        let mut complete = true;
        for (given, path) in sources {
            for name in given.keys().filter(|name| !block.args.contains_key(*name)) {
                complete = false;
                let hint = suggest(name, block.args.keys().map(String::as_str));
                self.error(&path.key(name), format!("the block `{block_name}` has no argument `{name}`")).hint =
                    Some(hint);
            }
        }
        let mut args = Args::new();
        for (name, default) in &block.args {
            let given = sources.iter().find_map(|(given, path)| given.get(name).map(|param| (param, path.key(name))));
            let value = match (given, default) {
                (Some((param, path)), _) => self.value(param, &path, scope),
                (None, Some(default)) => Some(*default),
                (None, None) => {
                    self.error(path, format!("the block `{block_name}` needs the argument `{name}`")).hint =
                        Some(format!("args: {{{name}: ...}}"));
                    None
                }
            };
            match value {
                Some(value) => {
                    args.insert(name.clone(), value);
                }
                None => complete = false,
            }
        }
        complete.then(|| self.with_classes(args))
    }
}

/// Names of the arguments that expressions in `value` use.
fn arguments_in(value: &serde_yaml::Value, out: &mut HashSet<String>) {
    match value {
        serde_yaml::Value::String(text) => {
            if let Ok(expression) = Expression::try_from(text.as_str()) {
                out.extend(expression.arguments().map(str::to_owned));
            }
        }
        serde_yaml::Value::Sequence(list) => list.iter().for_each(|value| arguments_in(value, out)),
        serde_yaml::Value::Mapping(map) => map.values().for_each(|value| arguments_in(value, out)),
        serde_yaml::Value::Tagged(tagged) => arguments_in(&tagged.value, out),
        _ => {}
    }
}
