//! Part of an axis.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};
use crate::values::{Count, Size};

zoo_settings::settings! {
    /// A range of an axis: `- slice: {from: 16, size: 48}` gives channels 16 to 63 of maps (PyTorch's `x[:, 16:64]`).
    pub struct Slice {
        /// The axis, from 0, without the batch.
        pub axis: Count = Count::default(),
        /// The first index, from 0.
        pub from: Count = Count::default(),
        /// How many.
        pub size: Size,
    }
}

impl Word for Slice {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let (axis, from, count) = (self.axis.0 + 1, self.from.0, self.size.0);
        let mut size = at.shape(x).to_vec();
        if size.get(axis).is_none_or(|extent| from.checked_add(count).is_none_or(|end| end > *extent)) {
            let shape = at.shape(x);
            return Err(at.refuse(format!("there are no {count} from {from} on axis {} of {shape}", self.axis.0)));
        }
        let mut start = vec![0; size.len()];
        (start[axis], size[axis]) = (from, count);
        at.add(ops::Slice { start, size }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let (from, size) = (at.size("from", self.from.0), at.size("size", self.size.0));
        let end = from.plus(&size);
        let axes = ":, ".repeat(self.axis.0 + 1);
        let start = if self.from.0 == 0 && from.is_literal() { Code::text("") } else { Code::number(from) };
        let mut pieces = vec![Piece::Value(at.x(), Binding::Tight), Piece::Text(format!("[{axes}"))];
        pieces.extend(start.pieces);
        pieces.push(Piece::Text(":".into()));
        pieces.push(Piece::Number(end));
        pieces.push(Piece::Text("]".into()));
        at.pure(Code { pieces, binding: Binding::Tight })
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, format!("slice {}+{}", self.from.0, self.size.0)).into()
    }
}
