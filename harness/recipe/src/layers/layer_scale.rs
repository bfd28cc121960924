//! A learned factor per channel.

use zoo_graph::{
    GraphError, Init, ValueId, VariableRole,
    formula::Formula,
    ops::{self, DeviceName},
};

use super::{Module, Word};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};

zoo_settings::settings! {
    /// Multiplies each channel of `[C, H, W]`, or each element of the last axis of other shapes, by a learned factor
    /// (arXiv 2103.17239). Its name is the name of the parameter, `[C, 1, 1]` or `[E]`; with `flat`, it is `[C]` for
    /// maps too.
    pub struct LayerScale {
        /// Initial value of every factor.
        pub start: f64 = 1e-6,
        /// Whether the parameter has one axis for maps too, as in timm.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub flat: bool = false,
    }
}

impl Word for LayerScale {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.gives(Gives::Nothing);
        let seen = match at.shape(x)[..] {
            [_, c, _, _] => vec![c, 1, 1],
            ref other => other.iter().rev().take(1).copied().collect(),
        };
        let kept = if self.flat { seen[..1].to_vec() } else { seen.clone() };
        let factor = at.parameter("", VariableRole::Weight, &kept, &Init::Constant(self.start))?;
        let factor =
            if kept == seen { factor } else { at.add_part("factor", ops::Reshape { shape: seen.into() }, &[factor])? };
        let name = DeviceName::new("Mul", "MulGrad");
        at.formula(Formula::define(0, |[x, factor]| [x * factor]), name, &[x, factor])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let maps = at.input().len() == 4;
        let channels = Code::number(if maps { at.extent(1) } else { at.last() });
        let one = || Code::text("1");
        let shape = if maps && !self.flat { vec![channels, one(), one()] } else { vec![channels] };
        let start = Code::number(at.real("start", self.start));
        let full = Code::call("torch.full", vec![Code::tuple(shape), start]);
        let own = at.parameter(full)?;
        let mut pieces = vec![Piece::Value(at.x(), Binding::Product), Piece::Text(" * ".into())];
        pieces.extend(own.pieces);
        if maps && self.flat {
            pieces.push(Piece::Text("[:, None, None]".into()));
        }
        Ok(at.function(Code { pieces, binding: Binding::Product }))
    }
}
