//! A repeated block.

use indexmap::IndexMap;
use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Body, Description, Layer, Module, Sequential, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Given, Var};
use crate::values::{Repeat, Scalar};

zoo_settings::settings! {
    /// A block repeated several times, as modules `name.0`, `name.1`, ..., or with other names by `item`.
    pub struct Stack {
        /// Name of a block in `model.blocks`.
        pub block: String,
        /// Number of repetitions.
        pub repeat: Repeat,
        /// Prefix of the number in the name of each repetition (`encoder_layer_`).
        #[serde(skip_serializing_if = "String::is_empty")]
        pub item: String = String::new(),
        /// Arguments of every repetition.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub args: IndexMap<String, Scalar> = IndexMap::new(),
        /// Arguments of the first repetition; they override all others.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub first: IndexMap<String, Scalar> = IndexMap::new(),
        /// Arguments that alternate between repetitions and override `args`: with two entries, the first is for even
        /// numbers and the second for odd ones.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub turns: Vec<IndexMap<String, Scalar>> = Vec::new(),
        /// Arguments that count repetitions, with their first value: `{depth: 4}` gives 4, 5, 6, ...
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub count: IndexMap<String, u16> = IndexMap::new(),
        /// The uses.
        #[serde(skip)]
        pub uses: Body,
    }
}

impl Word for Stack {
    const MODULE: Module = Module::Container;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        let none = IndexMap::new();
        for index in 0..self.repeat.0 {
            let first = if index == 0 { &self.first } else { &none };
            let turn = self.turns.get(index % self.turns.len().max(1)).unwrap_or(&none);
            let count =
                self.count.iter().map(|(name, first)| (name.clone(), Scalar::Int(i64::from(*first) + index as i64)));
            let (turn, count) = (("turns", turn), ("count", &count.collect::<IndexMap<_, _>>()));
            let sources = [("first", first), turn, count, ("args", &self.args)];
            let item = format!("{}{index}", self.item);
            let body = at.block("block", &self.block, &sources, Some(&item))?;
            let use_ = Sequential { body, returns: IndexMap::new() };
            self.uses.layers.push(at.part(&item, Layer::Sequential(use_))?);
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        self.uses.lower(at, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut items = Vec::new();
        for (index, item) in self.uses.layers.iter().enumerate() {
            let Layer::Sequential(use_) = &item.kind else { continue };
            let mut given = Given::new();
            let mut give = |args: &IndexMap<String, Scalar>, key: &str| {
                args.iter().for_each(|(name, value)| _ = given.insert(name.clone(), (*value, key.to_owned())));
            };
            give(&self.args, "args");
            let counted =
                self.count.iter().map(|(name, first)| (name.clone(), Scalar::Int(i64::from(*first) + index as i64)));
            give(&counted.collect(), "");
            let turn = index % self.turns.len().max(1);
            self.turns.get(turn).into_iter().for_each(|args| give(args, &format!("turns[{turn}]")));
            if index == 0 {
                give(&self.first, "first");
            }
            items.push((item.site(), given, &use_.body));
        }
        at.stack(&self.block, &items, |body, emitter, x| body.emit(emitter, x))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Row(&self.uses.layers)
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        vec![&mut self.uses]
    }
}
