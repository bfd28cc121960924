//! Prepends a learned token.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};

zoo_settings::settings! {
    /// Prepends a learned token to `[T, E]` (the class token of vision transformers). Its name is the name of the
    /// parameter, `[1, 1, E]`.
    pub struct Prepend {
        /// Initialisation of the parameter.
        pub init: Init = Init::Constant(0.0),
    }
}

impl Word for Prepend {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.gives(Gives::Nothing);
        let [n, _, e] = at.tokens(x)?;
        let token = at.parameter("", VariableRole::Weight, &[1, 1, e], &self.init)?;
        let each = ops::Map::with_space(Formula::define(0, |[token]| [token]), [n, 1, e].into());
        let first = at.add_part("first", each, &[token])?;
        at.add_part("prepend", ops::Concat { axis: 1 }, &[first, x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let start = Code::call("torch.zeros", vec![Code::text("1"), Code::text("1"), Code::number(at.last())]);
        let token = at.parameter(start)?;
        let x = at.x();
        let mut pieces = token.pieces;
        let sizes = vec![Code::of(x, ".shape[0]"), Code::text("-1"), Code::text("-1")];
        pieces.extend([Piece::Text(".expand".into()), Piece::List("(", sizes, ")")]);
        let each = Code { pieces, binding: Binding::Tight };
        let arguments = vec![Code::list(vec![each, Code::value(x)]), Code::text("dim=1")];
        Ok(at.function(Code::call("torch.cat", arguments)))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Join, "prepend").into()
    }
}
