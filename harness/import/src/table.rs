//! Tables of embeddings: their rows, and scores for them by a dense layer that shares its weight, or a function of it.

use zoo_recipe::Layer;
use zoo_recipe::layers::{self as zoo, Unembed};
use zoo_recipe::schema::{Count, Size};

use crate::Refusal;
use crate::arguments::{At, wrapped};
use crate::operation::{Tensor, What};
use crate::reader::{Picked, Reader, Seen};
use crate::trace::Argument;
use crate::view::View;
use crate::word::Word;

impl Reader<'_> {
    pub(crate) fn embedding(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (name, shape) = self.weight(at, 1)?;
        let [rows, size] = shape[..] else { return Err(at.unknown_form("weight")) };
        let padding = match at.argument(2, &["padding_idx"]) {
            None => None,
            // -1 is the last row.
            Some(row) => {
                let row = row.int().and_then(|row| wrapped(row, rows));
                Some(Count(row.ok_or_else(|| at.unknown_form("padding_idx"))?))
            }
        };
        if at.argument(3, &["max_norm"]).is_some() {
            return Err(
                at.refuse("it bounds the norm of its rows (`max_norm`)", "`embedding` does not change its rows")
            );
        }
        // The kind of norm only matters for `max_norm`.
        at.argument(4, &["norm_type"]);
        let by_frequency = at.flag(5, "scale_grad_by_freq", false)?;
        at.only("scale_grad_by_freq", by_frequency, false)?;
        let is_sparse = at.flag(6, "sparse", false)?;
        at.only("sparse", is_sparse, false)?;
        let input = at.input();
        if let Some(numbers) = input.and_then(|input| self.trace.constant(input)) {
            let (rows, made) = (numbers.clone(), at.made()?);
            let is_padding = |Count(row): Count| rows.values().any(|number| number == row as f64);
            if padding.is_some_and(is_padding) || [&rows.shape[..], &[size]].concat() != made.shape {
                return Err(at.unknown_form("input"));
            }
            let (table, shape) = (format!("{name}.weight"), made.shape.clone());
            self.is(made.value, Seen::Picked(Picked { table, rows, views: Vec::new(), shape }));
            return Ok(());
        }
        self.tables.insert(name.clone());
        // A table that others share may start as theirs: a head has small numbers.
        let spread = self.trace.parameters.get(&format!("{name}.weight")).and_then(|own| own.spread);
        let init = zoo_graph::Init::Normal(zoo_graph::init::NormalInit { std: spread.unwrap_or(1.0) });
        // The same tensor is the weight of this module too.
        let own = self.trace.parameters.get(&format!("{}.weight", at.module));
        let is_shared = own.is_some_and(|own| own.same_as.as_ref() == Some(&format!("{name}.weight")));
        let (name, table) = if is_shared { (at.module.to_owned(), Some(name)) } else { (name, None) };
        let (rows, size_of, column) = (Size(rows), Size(size), None);
        let embedding = zoo::Embedding { rows, size: size_of, table, column, padding, init };
        if let Some((x, place)) = self.column(input) {
            let layer = Layer::Embedding(zoo::Embedding { column: Some(Count(place)), ..embedding });
            return self.layer(at, layer, x, Some(name));
        }
        let layer = Layer::Embedding(embedding);
        if let Some([n]) = input.and_then(|input| self.shape(input.value()?)).as_deref() {
            // One index for each sample.
            let x = self.operand_viewed(at, input, &[View::Reshape(vec![*n, 1])])?;
            let (what, views) = (What::Layer(Word::of(&layer)), vec![View::Reshape(vec![*n, size])]);
            return self.gives_viewed(at, what, vec![x], Some(name), vec![*n, 1, size], views);
        }
        let swapped = [View::Permute(vec![1, 0])];
        if let Some(Seen::Of(x, views)) = self.given(input)
            && views[..] == swapped
            && let [n, t] = *self.shape_of(*x)
        {
            // Tokens are the first axis, and samples the second.
            let (x, what, views) = (*x, What::Layer(Word::of(&layer)), vec![View::Permute(vec![1, 0, 2])]);
            return self.gives_viewed(at, what, vec![x], Some(name), vec![n, t, size], views);
        }
        let x = self.operand(at, input)?;
        self.layer(at, layer, x, Some(name))
    }

    /// The input of indices of which an argument is one column, and its place.
    fn column(&self, argument: Option<&Argument>) -> Option<(Tensor, usize)> {
        match self.given(argument)? {
            Seen::Of(base, views) => Some((*base, self.place_of_column(*base, views)?)),
            _ => None,
        }
    }

    /// Whether these views of a tensor are indices that an embedding takes as they are: a column, or tokens first.
    pub(crate) fn is_of_table(&self, base: Tensor, views: &[View]) -> bool {
        let swapped = views[..] == [View::Permute(vec![1, 0])];
        self.place_of_column(base, views).is_some() || swapped && self.made(base).is_some_and(|made| !made.is_real())
    }

    /// The place of the column, if these views of a tensor are one of an input of indices.
    fn place_of_column(&self, base: Tensor, views: &[View]) -> Option<usize> {
        let is_table = self.made(base).is_some_and(|made| !made.is_real() && made.shape.len() == 2);
        match views {
            [View::Select(1, place)] if is_table => Some(*place),
            _ => None,
        }
    }

    /// The layer that a dense one with the weight of `owner` is, and its name, if that weight is a table. Called as a
    /// function, it has no name.
    pub(crate) fn unembed(&mut self, at: &mut At<'_>, owner: &str) -> Result<Option<(Layer, Option<String>)>, Refusal> {
        let shared = self.trace.parameters.get(&format!("{}.weight", at.module)).and_then(|own| own.same_as.as_ref());
        let (table, name, around) = match shared.and_then(|shared| shared.strip_suffix(".weight")) {
            _ if owner == at.module => return Ok(None),
            // The bias is its own, or belongs to the module around, as in BERT.
            Some(table) => {
                (table, Some(at.module.to_owned()), at.module.rsplit_once('.').map_or("", |(around, _)| around))
            }
            None if self.tables.contains(owner) => (owner, None, at.module),
            None => return Ok(None),
        };
        let own = name.as_ref().map(|name| format!("{name}.bias"));
        let beside =
            |name: &String| name.rsplit_once('.').map_or("", |(path, _)| path) == around || own.as_ref() == Some(name);
        let bias = match at.argument(2, &["bias"]) {
            None => None,
            Some(Argument::Parameter(name)) if beside(name) => Some(name.clone()),
            Some(_) => {
                return Err(at.refuse(
                    "the bias of a table is not beside it",
                    "`unembed` has a bias of its own, or one that belongs to the module around it",
                ));
            }
        };
        Ok(Some((Layer::Unembed(Unembed { table: table.to_owned(), bias }), name)))
    }
}
