//! Scores for the rows of an embedding's table: a dense layer that shares its weight, or a function of it.

use zoo_recipe::Layer;
use zoo_recipe::layers::Unembed;

use crate::Refusal;
use crate::arguments::At;
use crate::reader::Reader;
use crate::trace::Argument;

impl Reader<'_> {
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
