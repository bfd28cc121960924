//! Concatenation of branches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};

zoo_settings::settings! {
    /// Concatenates several branches of the same input along an axis, in order.
    pub struct Concat {
        /// The branches; an empty one is the identity.
        #[schemars(length(min = 1))]
        pub branches: Vec<Body>,
        /// The axis of concatenation.
        pub axis: Axis = Axis::default(),
    }
}

/// A dimension of `[C, H, W]`, or of `[T, E]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// C
    #[default]
    Channel,
    /// H
    Height,
    /// W
    Width,
    /// T
    Token,
}

impl Word for Concat {
    const MODULE: Module = Module::Container;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        for (index, branch) in self.branches.iter_mut().enumerate() {
            at.layers(&format!("branches[{index}]"), branch);
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let parts = self.branches.iter().map(|branch| branch.lower(at, x)).collect::<Result<Vec<_>, _>>()?;
        let axis = match self.axis {
            Axis::Channel | Axis::Token => 1,
            Axis::Height => 2,
            Axis::Width => 3,
        };
        at.add_part("concat", ops::Concat { axis }, &parts)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let axis = match self.axis {
            Axis::Channel | Axis::Token => 1,
            Axis::Height => 2,
            Axis::Width => 3,
        };
        at.inside(|inner, x| {
            let parts = self.branches.iter().map(|branch| branch.emit(inner, x)).collect::<Result<Vec<_>, _>>()?;
            Ok(inner.concatenated(&parts, axis))
        })
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let lanes = self.branches.iter().map(|branch| branch.layers.as_slice()).collect();
        Description::Branches { lanes, text: "concat", join: "concat" }
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        self.branches.iter_mut().collect()
    }
}
