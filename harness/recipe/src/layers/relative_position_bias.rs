//! A learned bias of attention scores that depends on the relative position of two tokens.

use zoo_graph::ops::{Gather, Indices, Reshape};
use zoo_graph::{GraphError, Init, ValueId, VariableRole};

use super::resolve::Place;
use super::{Module, Word};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};
use crate::values::{Pair, Size};

zoo_settings::settings! {
    /// Makes a learned bias `[heads, T, T]` for the attention scores among the pixels of a window, and stores it as a
    /// tap for `bias` of `dot_product_attention`; the current value does not change (arXiv 2103.14030, section 3.2).
    /// Its name is the name of the parameter, `[(2h-1)*(2w-1), heads]`, with a row for each offset between two pixels,
    /// as in torchvision and timm; or, if `mirrored`, `[heads, h*w]`, with a column for each distance down and across
    /// (LeViT, arXiv 2104.01136).
    pub struct RelativePositionBias {
        /// Height and width of the window.
        pub size: Pair,
        /// Number of attention heads.
        pub heads: Size,
        /// Whether offsets in opposite directions have the same bias.
        pub mirrored: bool = false,
        /// Name of the tap for the bias.
        pub tap: String,
        /// Initialisation of the parameter.
        pub init: Init = Init::Constant(0.0),
    }
}

impl RelativePositionBias {
    /// By query and key, both pixels of a window of this height and width, row by row, the row of the table for their
    /// distance.
    pub fn rows([height, width]: [usize; 2]) -> Vec<u32> {
        let pixels: Vec<[usize; 2]> = (0..height).flat_map(|y| (0..width).map(move |x| [y, x])).collect();
        let row = |query: &[usize; 2], key: &[usize; 2]| {
            let [down, across] = [(0, height), (1, width)].map(|(axis, extent)| query[axis] + extent - 1 - key[axis]);
            (down * (2 * width - 1) + across) as u32
        };
        pixels.iter().flat_map(|query| pixels.iter().map(|key| row(query, key)).collect::<Vec<_>>()).collect()
    }
}

impl RelativePositionBias {
    /// The same, if the offsets of both directions are one: the column of the table for the distance.
    pub fn columns([height, width]: [usize; 2]) -> Vec<u32> {
        let pixels: Vec<[usize; 2]> = (0..height).flat_map(|y| (0..width).map(move |x| [y, x])).collect();
        let column = |query: &[usize; 2], key: &[usize; 2]| {
            (query[0].abs_diff(key[0]) * width + query[1].abs_diff(key[1])) as u32
        };
        pixels.iter().flat_map(|query| pixels.iter().map(|key| column(query, key)).collect::<Vec<_>>()).collect()
    }
}

/// In Python.
const MIRRORED: &str = r#"
def relative_distances(height: int, width: int) -> Tensor:
    """By query and key of a window, the column of a table with one column for each distance between two pixels."""
    rows, columns = torch.arange(height).repeat_interleave(width), torch.arange(width).repeat(height)
    return (rows[:, None] - rows[None, :]).abs() * width + (columns[:, None] - columns[None, :]).abs()
"#;

/// In Python.
pub(super) const RELATIVE: &str = r#"
def relative_positions(height: int, width: int) -> Tensor:
    """By query and key of a window, the row of a table with one row for each offset between two pixels."""
    rows, columns = torch.arange(height).repeat_interleave(width), torch.arange(width).repeat(height)
    down = rows[:, None] - rows[None, :] + height - 1
    return down * (2 * width - 1) + columns[:, None] - columns[None, :] + width - 1
"#;

impl Word for RelativePositionBias {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.tap = at.new_tap(&self.tap)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.gives(Gives::Nothing);
        let [height, width] = self.size.0;
        let (tokens, heads) = (height.saturating_mul(width), self.heads.0);
        if tokens > 4096 {
            return Err(at.refuse(format!("a window of {height}x{width} has more than 4096 tokens")));
        }
        let (table, rows) = match self.mirrored {
            true => {
                let table = at.parameter("", VariableRole::Weight, &[heads, tokens], &self.init)?;
                (at.transposed("by_distance", &[1, 0], table)?, Self::columns(self.size.0))
            }
            false => {
                let shape = [(2 * height - 1) * (2 * width - 1), heads];
                (at.parameter("", VariableRole::Weight, &shape, &self.init)?, Self::rows(self.size.0))
            }
        };
        let of_pairs = Gather { indices: Indices::Fixed(rows.into()), padding: None };
        let of_pairs = at.add_part("of_pairs", of_pairs, &[table])?;
        let by_query = at.add_part("by_query", Reshape { shape: [tokens, tokens, heads].into() }, &[of_pairs])?;
        let bias = at.transposed("by_head", &[2, 0, 1], by_query)?;
        at.keep(&self.tap, bias);
        Ok(x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let Pair([height, width]) = self.size;
        let heads = Code::number(at.size("heads", self.heads.0));
        let (shape, helper, part) = match self.mirrored {
            true => {
                let part = format!("[:, relative_distances({height}, {width})]");
                (vec![heads, Code::count(height * width)], MIRRORED, part)
            }
            false => {
                let rows = Code::count((2 * height - 1) * (2 * width - 1));
                (vec![rows, heads], RELATIVE, format!("[relative_positions({height}, {width})].permute(2, 0, 1)"))
            }
        };
        let table = at.parameter(Code::call("torch.zeros", shape))?;
        at.helper(helper);
        let mut pieces = table.pieces;
        pieces.push(Piece::Text(part));
        let bias = at.function(Code { pieces, binding: Binding::Tight });
        at.shaped(bias, &[self.heads.0, height * width, height * width]);
        at.keep(&self.tap, bias);
        Ok(at.x())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// torchvision's relative_position_index for a window of 2x3, its first and last query.
    #[test]
    fn rows_of_a_small_window() {
        let rows = RelativePositionBias::rows([2, 3]);
        assert_eq!(rows[..6], [7, 6, 5, 2, 1, 0]);
        assert_eq!(rows[30..], [14, 13, 12, 9, 8, 7]);
        let columns = RelativePositionBias::columns([2, 3]);
        assert_eq!(columns[..6], [0, 1, 2, 3, 4, 5]);
        assert_eq!(columns[30..], [5, 4, 3, 2, 1, 0]);
    }
}
