//! One use of a block.

use indexmap::IndexMap;
use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};
use crate::values::Scalar;

zoo_settings::settings! {
    /// A block used once, as one module.
    pub struct UseBlock {
        /// Name of a block in `model.blocks`.
        #[serde(rename = "use")]
        pub block: String,
        /// Its arguments.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub args: IndexMap<String, Scalar> = IndexMap::new(),
        /// Taps and inputs that its layers read under other names: with `{skip: stage2}`, `from: skip` inside the block
        /// continues from `stage2`.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub inputs: IndexMap<String, String> = IndexMap::new(),
        /// Its return values, if there are several: taps inside it, by key.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub returns: IndexMap<String, String> = IndexMap::new(),
        /// The layers of the block, with these arguments.
        #[serde(skip)]
        pub body: Body,
    }
}

impl Word for UseBlock {
    const MODULE: Module = Module::Container;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        at.lend(&self.inputs)?;
        let body = at.block("use", &self.block, &[("args", &self.args)], None);
        let unread = at.end_of_loan(&self.inputs);
        self.body = body?;
        for name in unread {
            at.error("inputs", format!("no layer of the block `{}` reads `{name}`", self.block));
        }
        at.returns(&self.returns);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        self.body.lower(at, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let given = self.args.iter().map(|(name, value)| (name.clone(), (*value, "args".to_owned()))).collect();
        at.block(&self.block, &given, |emitter, x| self.body.emit(emitter, x))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Row(&self.body.layers)
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        vec![&mut self.body]
    }
}
