//! Biases of scores by rows of a table: the distances of tokens (T5).

use zoo_recipe::Layer;
use zoo_recipe::layers::DistanceBias;
use zoo_recipe::schema::Size;

use crate::arguments::At;
use crate::operation::{Tensor, What};
use crate::reader::{Picked, Reader};
use crate::scores::{MOST_TOKENS, is_by_head};
use crate::word::Word;

/// Distances from which on all share a row: the usual one first. A trace of few tokens fits several.
const MOST: [usize; 8] = [128, 64, 256, 512, 1024, 2048, 4096, 32];

impl Reader<'_> {
    /// The bias that rows of a table are, if they are those of distances; the same for all attentions that use it.
    pub(crate) fn distance_bias(
        &mut self,
        at: &mut At<'_>,
        bias: &Picked,
        [heads, t, s]: [usize; 3],
    ) -> Option<Tensor> {
        let (name, [buckets, width]) = (bias.table.strip_suffix(".weight")?.to_owned(), self.trace.shape(&bias.table))
        else {
            return None;
        };
        let fits = t == s && t <= MOST_TOKENS && *width == heads && *buckets >= 4;
        if !fits || !is_by_head(&bias.rows, &bias.views, &bias.shape, [heads, t, s]) {
            return None;
        }
        let (heads, buckets, init) = (Size(heads), Size(*buckets), zoo_graph::Init::Constant(0.0));
        let ways = MOST.into_iter().filter(|most| *most > buckets.0 / 2).flat_map(|most| [(most, true), (most, false)]);
        let own = |(most, ahead)| {
            let (tap, init) = (String::new(), init.clone());
            DistanceBias { heads, buckets, most: Size(most), ahead, tap, init }
        };
        let is_own = |own: &DistanceBias| bias.rows.values().eq(own.rows(t).into_iter().map(f64::from));
        let layer = ways.map(own).find(is_own)?;
        if let Some((known, tensor)) = self.distances.get(&name) {
            return (*known == layer).then_some(*tensor);
        }
        let what = What::Layer(Word::of(&Layer::DistanceBias(layer.clone())));
        let tensor = self.beside(at, what, name.clone(), vec![heads.0, t, s]);
        self.distances.insert(name, (layer, tensor));
        Some(tensor)
    }
}
