//! Learned positions.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, init::NormalInit, ops};

use super::{Module, Word};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};
use crate::values::{Count, Size};

zoo_settings::settings! {
    /// Adds a learned row to each token of `[T, E]` by its position: an Embedding of the positions 0, 1, ..., which is
    /// the module in goldens. Parameter `weight`, `[rows, E]`.
    pub struct Positions {
        /// Number of rows: the largest number of tokens of a sample.
        pub rows: Size,
        /// The row of the first token (2 in OPT and BART).
        pub from: Count = Count(0),
        /// By how many rows the next token is further on; with 0, all tokens get one row (the first type of tokens in
        /// BERT).
        pub step: Count = Count(1),
        /// Initialisation of the parameter.
        pub init: Init = Init::Normal(NormalInit { std: 1.0 }),
    }
}

impl Word for Positions {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [_, t, e] = at.tokens(x)?;
        let (from, step) = (self.from.0, self.step.0);
        let last = t.saturating_sub(1).saturating_mul(step).saturating_add(from);
        if last >= self.rows.0 {
            let first = if from > 0 { format!(" from row {from} on") } else { String::new() };
            return Err(at.refuse(format!("{t} tokens{first}, but only {} positions: increase `rows`", self.rows.0)));
        }
        let table = at.parameter("weight", VariableRole::Weight, &[self.rows.0, e], &self.init)?;
        let rows = match step {
            1 if t == self.rows.0 => table,
            1 => at.add_part("rows", ops::Slice { start: vec![from, 0], size: vec![t, e] }, &[table])?,
            _ => {
                let places: Vec<u32> = (0..t).filter_map(|token| u32::try_from(from + token * step).ok()).collect();
                let rows = ops::Gather { indices: ops::Indices::Fixed(places.into()), padding: None };
                at.add_part("rows", rows, &[table])?
            }
        };
        at.gives(Gives::Value(rows));
        at.unnamed(Formula::define(0, |[x, rows]| [x + rows]), &[x, rows])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let rows = at.size("rows", self.rows.0);
        let arguments = vec![Code::number(rows), Code::number(at.last())];
        let child = at.registered(Code::call("nn.Embedding", arguments))?;
        let x = at.x();
        let mut pieces = vec![Piece::Value(x, Binding::Sum), Piece::Text(" + ".into())];
        pieces.extend(child.pieces);
        let arguments = vec![Code::of(x, ".shape[1]"), Code::named("device", Code::of(x, ".device"))];
        let mut places = Code::call("torch.arange", arguments);
        if self.step.0 != 1 {
            places.pieces.extend(Code::number(at.size("step", self.step.0)).around(" * ", "", Binding::Product).pieces);
            places.binding = Binding::Product;
        }
        if self.from.0 > 0 {
            places.pieces.extend(Code::number(at.size("from", self.from.0)).around(" + ", "", Binding::Sum).pieces);
            places.binding = Binding::Sum;
        }
        pieces.push(Piece::List("(", vec![places], ")"));
        Ok(at.function(Code { pieces, binding: Binding::Sum }))
    }
}
