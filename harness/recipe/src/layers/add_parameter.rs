//! Adds a learned value to each element.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula};

use super::{Module, Word};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};

zoo_settings::settings! {
    /// Adds a learned value to each element, the same for all samples (the positions of vision transformers). Its name
    /// is the name of the parameter, which has the shape of a sample with a leading axis of one element.
    pub struct AddParameter {
        /// Initialisation of the parameter.
        pub init: Init = Init::Constant(0.0),
    }
}

impl Word for AddParameter {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.gives(Gives::Nothing);
        let shape: Vec<usize> = std::iter::once(1).chain(at.shape(x).iter().skip(1).copied()).collect();
        let own = at.parameter("", VariableRole::Weight, &shape, &self.init)?;
        at.unnamed(Formula::define(0, |[x, own]| [x + own]), &[x, own])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let extents: Vec<Code> = std::iter::once(Code::text("1"))
            .chain((1..at.input().len()).map(|axis| Code::number(at.extent(axis))).collect::<Vec<_>>())
            .collect();
        let own = at.parameter(Code::call("torch.zeros", extents))?;
        let mut pieces = vec![Piece::Value(at.x(), Binding::Sum), Piece::Text(" + ".into())];
        pieces.extend(own.pieces);
        Ok(at.function(Code { pieces, binding: Binding::Sum }))
    }
}
