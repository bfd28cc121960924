//! One index of an axis.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};
use crate::values::Count;

zoo_settings::settings! {
    /// Selects one index of an axis and removes the axis: `- take: {index: 0}` gives the first token of `[T, E]`.
    pub struct Take {
        /// The axis, from 0, without the batch.
        pub axis: Count = Count::default(),
        /// The index, from 0.
        pub index: Count,
    }
}

impl Word for Take {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let (axis, index) = (self.axis.0 + 1, self.index.0);
        let mut size = at.shape(x).to_vec();
        if size.get(axis).is_none_or(|extent| index >= *extent) {
            return Err(at.refuse(format!("there is no index {index} of axis {} in {}", self.axis.0, at.shape(x))));
        }
        let mut start = vec![0; size.len()];
        (start[axis], size[axis]) = (index, 1);
        let cut = at.add_part("cut", ops::Slice { start, size: size.clone() }, &[x])?;
        size.remove(axis);
        at.add_part("take", ops::Reshape { shape: size.into() }, &[cut])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let axes = ":, ".repeat(self.axis.0 + 1);
        let mut pieces = vec![Piece::Value(at.x(), Binding::Tight), Piece::Text(format!("[{axes}"))];
        pieces.push(Piece::Number(at.size("index", self.index.0)));
        pieces.push(Piece::Text("]".into()));
        at.pure(Code { pieces, binding: Binding::Tight })
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, format!("take {}", self.index.0)).into()
    }
}
