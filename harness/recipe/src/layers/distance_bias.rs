//! A learned bias of attention scores that depends on the distance of two tokens.

use zoo_graph::ops::{Gather, Indices, Reshape};
use zoo_graph::{GraphError, Init, ValueId, VariableRole, init::NormalInit};

use super::resolve::Place;
use super::{Module, Word};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Makes a learned bias `[heads, T, T]` for the attention scores of `[T, E]`, and stores it as a tap for `bias` of
    /// `dot_product_attention`; the current value does not change (T5, arXiv 1910.10683, section 2.1). It is an
    /// Embedding of distances, which is the module in goldens: small ones have a row each, larger ones share rows, the
    /// more the larger they are. Parameter `weight`, `[buckets, heads]`.
    pub struct DistanceBias {
        /// Number of attention heads.
        pub heads: Size,
        /// Number of rows.
        pub buckets: Size = Size(32),
        /// The distance from which on all share one row.
        pub most: Size = Size(128),
        /// Whether later keys have rows of their own; otherwise they share that of distance 0 (decoders, which do not
        /// see them).
        pub ahead: bool = true,
        /// Name of the tap for the bias.
        pub tap: String,
        /// Initialisation of the parameter.
        pub init: Init = Init::Normal(NormalInit { std: 1.0 }),
    }
}

const ROWS: &str = r#"
def distance_rows(x: Tensor, buckets: int, most: int, ahead: bool) -> Tensor:
    """The row of a table by the distance of each key from each query (arXiv 1910.10683, section 2.1)."""
    rows = buckets // 2 if ahead else buckets
    exact = rows // 2

    def row(offset: int) -> int:
        first = rows if ahead and offset > 0 else 0
        distance = abs(offset) if ahead else max(-offset, 0)
        if distance < exact:
            return first + distance
        shared = math.log(distance / exact) / math.log(most / exact)
        return first + min(exact + int(shared * (rows - exact)), rows - 1)

    tokens = range(x.shape[-2])
    return torch.tensor([[row(key - query) for key in tokens] for query in tokens], device=x.device)
"#;

impl DistanceBias {
    /// The row of a key that is so far behind the query, or before it if negative.
    pub fn row(&self, offset: i64) -> usize {
        let (rows, first) = match self.ahead {
            true => (self.buckets.0 / 2, if offset > 0 { self.buckets.0 / 2 } else { 0 }),
            false => (self.buckets.0, 0),
        };
        let distance = if self.ahead { offset.unsigned_abs() } else { (-offset).max(0).unsigned_abs() } as usize;
        let exact = rows / 2;
        if distance < exact || exact == 0 {
            return first + distance.min(rows.saturating_sub(1));
        }
        let shared = (distance as f64 / exact as f64).ln() / (self.most.0 as f64 / exact as f64).ln();
        let place = exact + (shared * (rows - exact) as f64) as usize;
        first + place.min(rows - 1)
    }

    /// The rows of all pairs of so many queries and keys.
    pub fn rows(&self, tokens: usize) -> Vec<u32> {
        let rows = (0..tokens as i64).flat_map(|query| (0..tokens as i64).map(move |key| self.row(key - query) as u32));
        rows.collect()
    }
}

impl Word for DistanceBias {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if self.buckets.0 < 4 || self.most.0 <= self.buckets.0 / 2 {
            at.error("most", "expected at least 4 buckets, and a distance larger than half of them");
            return None;
        }
        self.tap = at.new_tap(&self.tap)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [_, t, _] = at.tokens(x)?;
        let heads = self.heads.0;
        let table = at.parameter("weight", VariableRole::Weight, &[self.buckets.0, heads], &self.init)?;
        let of_pairs = Gather { indices: Indices::Fixed(self.rows(t).into()), padding: None };
        let of_pairs = at.add_part("of_pairs", of_pairs, &[table])?;
        let by_query = at.add_part("by_query", Reshape { shape: [t, t, heads].into() }, &[of_pairs])?;
        let bias = at.transposed("by_head", &[2, 0, 1], by_query)?;
        at.gives(Gives::Value(by_query));
        at.keep(&self.tap, bias);
        Ok(x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let [buckets, heads, most] =
            [("buckets", self.buckets), ("heads", self.heads), ("most", self.most)].map(|(key, n)| at.size(key, n.0));
        at.helper(ROWS);
        let arguments = vec![Code::number(buckets.clone()), Code::number(most), Code::switch(self.ahead)];
        let rows = at.function(Code::applied("distance_rows", at.x(), arguments));
        let tokens = at.input()[1];
        at.shaped(rows, &[tokens, tokens]);
        let by_query =
            at.module_on(rows, Code::call("nn.Embedding", vec![Code::number(buckets), Code::number(heads)]))?;
        let order = ["2", "0", "1"].map(Code::text).to_vec();
        let bias = at.function(Code::method(by_query, "permute", order));
        at.shaped(bias, &[self.heads.0, tokens, tokens]);
        at.keep(&self.tap, bias);
        Ok(at.x())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// transformers' T5Attention._relative_position_bucket, for both kinds of stacks.
    #[test]
    fn rows_of_distances() {
        let both = DistanceBias {
            heads: Size(2),
            buckets: Size(32),
            most: Size(128),
            ahead: true,
            tap: String::new(),
            init: Init::Constant(0.0),
        };
        let offsets = [0, -1, -7, -8, -12, -127, -1000, 1, 8, 20, 300];
        assert_eq!(offsets.map(|offset| both.row(offset)), [0, 1, 7, 8, 9, 15, 15, 17, 24, 26, 31]);
        let before = DistanceBias { ahead: false, ..both };
        assert_eq!(offsets.map(|offset| before.row(offset)), [0, 1, 7, 8, 12, 31, 31, 0, 0, 0, 0]);
    }
}
