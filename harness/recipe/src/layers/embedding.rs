//! Looks up rows of a table by index.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, init::NormalInit, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Number, Var};
use crate::values::{Count, Size};

zoo_settings::settings! {
    /// A learned row for each index: `[T]` token ids to `[T, size]` (PyTorch's Embedding). Parameter `weight`, `[rows,
    /// size]`.
    pub struct Embedding {
        /// Number of rows: the size of the vocabulary.
        pub rows: Size,
        /// Width of a row.
        pub size: Size,
        /// Full name of the module that the table belongs to, which several embeddings may share (encoder and decoder
        /// of BART and T5); by default this one.
        pub table?: String,
        /// Takes one index of each sample alone, the one at this place: a column of a table of data. `[T]` to `[size]`.
        pub column?: Count,
        /// Index of a row that gets no gradient from this layer, for padding tokens (`padding_idx` of PyTorch, where
        /// this row starts at 0).
        pub padding?: Count,
        /// Initialisation of the parameter.
        pub init: Init = Init::Normal(NormalInit { std: 1.0 }),
    }
}

impl Word for Embedding {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if let Some(table) = &self.table {
            at.owner("table", table)?;
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let shape = [self.rows.0, self.size.0];
        let table = match &self.table {
            Some(owner) => {
                let name = format!("{owner}.weight");
                match at.graph().find_variable(&name) {
                    Some(known) => at.graph().variable(known).value,
                    None => at.parameter_called(name, VariableRole::Weight, &shape, &self.init)?,
                }
            }
            None => at.parameter("weight", VariableRole::Weight, &shape, &self.init)?,
        };
        if at.shape(table)[..] != shape {
            return Err(at.refuse(format!("the shared table is {}, and not {shape:?}", at.shape(table))));
        }
        let padding = match self.padding.map(|Count(row)| u32::try_from(row).ok().filter(|_| row < self.rows.0)) {
            None => None,
            Some(Some(row)) => Some(row),
            Some(None) => return Err(at.refuse(format!("`padding` is not below {}, the number of rows", self.rows.0))),
        };
        let indices = self.column.map_or(ops::Indices::Operand, |Count(place)| ops::Indices::Column(place));
        at.add(ops::Gather { indices, padding }, &[table, x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        if let Some(owner) = &self.table {
            return self.emit_shared(owner, at);
        }
        let (rows, size) = (at.size("rows", self.rows.0), at.size("size", self.size.0));
        let mut arguments = vec![Code::number(rows.clone()), Code::number(size.clone())];
        if let Some(row) = self.padding {
            arguments.push(Code::named("padding_idx", Code::number(at.size("padding", row.0))));
        }
        at.gives(size);
        at.table(rows);
        let embedding = Code::call("nn.Embedding", arguments);
        self.emit_call(embedding, at)
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Dense, "embedding").into()
    }
}

impl Embedding {
    /// An embedding with the table of another module, which is there even if it is never called.
    fn emit_shared(&self, owner: &str, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut arguments = vec![Code::count(self.rows.0), Code::count(self.size.0)];
        at.module_beside(owner, Code::call("nn.Embedding", arguments.clone()))?;
        if let Some(name) = at.name().map(str::to_owned) {
            at.tie(format!("{name}.weight"), format!("{owner}.weight"));
        }
        arguments.extend(self.padding.map(|row| Code::named("padding_idx", Code::count(row.0))));
        at.gives(Number::count(self.size.0));
        self.emit_call(Code::call("nn.Embedding", arguments), at)
    }

    fn emit_call(&self, embedding: Code, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        match self.column {
            None => at.module(embedding),
            Some(Count(place)) => {
                let arguments = vec![Code::text("1"), Code::number(at.size("column", place))];
                let column = at.function(Code::method(at.x(), "select", arguments));
                at.module_on(column, embedding)
            }
        }
    }
}
