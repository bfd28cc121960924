//! From maps to features.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// `[C, H, W]` to `[C*H*W]`, row-major.
    pub struct Flatten {}
}

impl Word for Flatten {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let shape = at.shape(x);
        let n = shape.first().copied().unwrap_or(1);
        let shape = [n, shape.iter().skip(1).product()].into();
        at.add(ops::Reshape { shape }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.Flatten()"), Code::of(at.x(), ".flatten(1)"))
    }
}
