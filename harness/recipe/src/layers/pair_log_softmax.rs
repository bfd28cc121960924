//! Log-softmax over pairs of channels.

use zoo_graph::{
    GraphError, ValueId,
    formula::Formula,
    ops::{DeviceName, Reshape, Transpose},
};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Logarithm of the softmax over pairs of channels: `[2A, H, W]`, which is `[2, A, H, W]`, to `[A, H, W, 2]`.
    pub struct PairLogSoftmax {}
}

impl Word for PairLogSoftmax {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([n, c, h, w]) = at.shape(x).nchw().filter(|[_, c, ..]| c.is_multiple_of(2)) else {
            return Err(at.refuse(format!("needs pairs of channels, [2A, H, W]; this value is {}", at.shape(x))));
        };
        let sides = at.add_part("sides", Reshape { shape: [n, 2, c / 2, h, w].into() }, &[x])?;
        let pairs = at.add_part("pairs", Transpose { permutation: vec![0, 2, 3, 4, 1] }, &[sides])?;
        let formula = Formula::define(1, |[x]| [x.log_softmax()]);
        at.formula(formula, DeviceName::new("LogSoftmaxV2", "LogSoftmaxGrad"), &[pairs])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let pairs = Code::of(at.x(), ".unflatten(1, (2, -1)).permute(0, 2, 3, 4, 1)");
        at.pure(Code::call("functional.log_softmax", vec![pairs, Code::text("dim=-1")]))
    }
}
