//! A learned factor of attention scores for each head.

use zoo_graph::formula::Formula;
use zoo_graph::{GraphError, Init, ValueId, VariableRole};

use super::resolve::Place;
use super::{Module, Word};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Makes a learned factor `[heads, 1, 1]` for the scores of cosine attention, e^min(x, ln(most)) of a parameter x
    /// of the same shape, and stores it as a tap for `cosine` of `dot_product_attention`; the current value does not
    /// change (arXiv 2111.09883, section 3.2). Its name is the name of the parameter, as in torchvision and timm.
    pub struct LogitScale {
        /// Number of attention heads.
        pub heads: Size,
        /// The largest factor.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub most: f64 = 100.0,
        /// Name of the tap for the factor.
        pub tap: String,
        /// Initialisation of the parameter; by default the factor is 10.
        pub init: Init = Init::Constant(std::f64::consts::LN_10),
    }
}

impl LogitScale {
    /// As the usual one of this many heads.
    pub fn of(heads: usize) -> Self {
        Self { heads: Size(heads), most: 100.0, tap: String::new(), init: Init::Constant(std::f64::consts::LN_10) }
    }
}

impl Word for LogitScale {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if !(self.most > 0.0 && self.most.is_finite()) {
            at.error("most", "expected a positive number");
            return None;
        }
        self.tap = at.new_tap(&self.tap)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.gives(Gives::Nothing);
        let logarithm = at.parameter("", VariableRole::Weight, &[self.heads.0, 1, 1], &self.init)?;
        let most = self.most.ln();
        // At the bound, the gradient passes, as in PyTorch's clamp.
        let factor = Formula::define(0, |[x]| [x.number(most).min(x).exp()]);
        let factor = at.unnamed_part("factor", factor, &[logarithm])?;
        at.keep(&self.tap, factor);
        Ok(x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let start = Code::text("torch.zeros");
        let shape = vec![Code::number(at.size("heads", self.heads.0)), Code::text("1"), Code::text("1")];
        let own =
            at.parameter(Code { pieces: [start.pieces, Code::tuple(shape).pieces].concat(), binding: Binding::Tight })?;
        let mut pieces = own.pieces;
        pieces.push(Piece::Text(".clamp(max=math.log(".into()));
        pieces.push(Piece::Number(at.real("most", self.most)));
        pieces.push(Piece::Text(")).exp()".into()));
        let factor = at.function(Code { pieces, binding: Binding::Tight });
        at.shaped(factor, &[self.heads.0, 1, 1]);
        at.keep(&self.tap, factor);
        Ok(at.x())
    }
}
