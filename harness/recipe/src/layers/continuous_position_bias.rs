//! A bias of attention scores that a small network computes from the relative position of two tokens.

use zoo_graph::formula::{Expression, Formula};
use zoo_graph::ops::{self, Gather, Indices, MatMul, Reshape};
use zoo_graph::{GraphError, TensorType, ValueId, VariableRole};

use super::resolve::Place;
use super::{Module, RelativePositionBias, Word, relative_position_bias};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Pair, Size, WeightInit};

zoo_settings::settings! {
    /// Makes a bias `[heads, T, T]` for the attention scores among the pixels of a window, and stores it as a tap for
    /// `bias` of `dot_product_attention`; the current value does not change. The bias is 16 sigmoid(y), and y is
    /// computed by a dense layer, a ReLU and a dense layer without bias from the offset of two pixels on a logarithmic
    /// scale (arXiv 2111.09883, section 3.3). Parameters `0.weight` `[hidden, 2]`, `0.bias` and `2.weight` `[heads,
    /// hidden]`, as in torchvision and timm.
    pub struct ContinuousPositionBias {
        /// Height and width of the window.
        pub size: Pair,
        /// Number of attention heads.
        pub heads: Size,
        /// Width of the first dense layer.
        pub hidden: Size = Size(512),
        /// Name of the tap for the bias.
        pub tap: String,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub init: WeightInit = WeightInit::default(),
    }
}

impl ContinuousPositionBias {
    /// The largest bias.
    pub const MOST: f64 = 16.0;

    /// Offsets `1 - extent` to `extent - 1` along an axis as the network sees them: `sign(v) log2(1 + |v|) / 3`, where
    /// `v` is the offset divided by the largest one, times 8. All steps are in f32, as the buffer of torchvision and
    /// timm.
    pub fn offsets(extent: usize) -> Vec<f32> {
        let largest = extent.saturating_sub(1) as f32;
        let seen = |place: usize| {
            let v = (place as f32 - largest) / largest * 8.0;
            let logarithm = f64::from(v.abs() + 1.0).log2() as f32;
            v.signum() * logarithm / 3.0
        };
        (0..(2 * extent).saturating_sub(1)).map(seen).collect()
    }

    /// The offsets of the rows of `RelativePositionBias::rows`: `[(2h-1)*(2w-1), 2]`, row by row.
    pub fn table([height, width]: [usize; 2]) -> Vec<[f32; 2]> {
        let across = Self::offsets(width);
        Self::offsets(height).into_iter().flat_map(|down| across.iter().map(move |across| [down, *across])).collect()
    }
}

/// In Python.
const CONTINUOUS: &str = r#"
def continuous_bias(network: nn.Module, height: int, width: int) -> Tensor:
    """Biases of scores from the offsets of pixels, spaced by their logarithm (arXiv 2111.09883)."""

    def offsets(extent: int) -> Tensor:
        steps = torch.arange(1 - extent, extent, dtype=torch.float32) / (extent - 1) * 8
        return torch.sign(steps) * torch.log2(steps.abs() + 1.0) / 3.0

    weight = next(network.parameters())
    table = torch.stack(torch.meshgrid(offsets(height), offsets(width), indexing="ij"), dim=-1)
    rows = network(table.to(weight.device, weight.dtype).flatten(0, 1))
    return (16 * torch.sigmoid(rows))[relative_positions(height, width)].permute(2, 0, 1)
"#;

impl Word for ContinuousPositionBias {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.tap = at.new_tap(&self.tap)?;
        self.init = self.init.or(&at.init().linear);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [height, width] = self.size.0;
        let (tokens, heads, hidden) = (height.saturating_mul(width), self.heads.0, self.hidden.0);
        if tokens > 4096 || height < 2 || width < 2 {
            return Err(at.refuse(format!(
                "a window of {height}x{width}: each side has 2 pixels or more, and the \
                                          window at most 4096"
            )));
        }
        let [rows, columns] = [2 * height - 1, 2 * width - 1];
        let dtype = at.graph().ty(x).dtype;
        let zeros =
            at.add_part("zeros", ops::Fill { value: 0.0, ty: TensorType::plain([1, rows, columns, 2], dtype) }, &[])?;
        let sides = [height, width].map(Self::offsets);
        let offsets = Formula::define(0, |[zero]| {
            // Positions along the first axis are those of samples.
            let along = |side: usize| chosen(zero, side + 1, &sides[side]);
            [zero.coordinate(3).at_least(1.0).select(along(1), along(0))]
        });
        let offsets = at.unnamed_part("offsets", offsets, &[zeros])?;
        let parameter = |at: &mut Builder<'_, '_>, leaf, shape: &[usize]| match leaf {
            "0.bias" => at.parameter(leaf, VariableRole::Bias, shape, &self.init.bias()),
            _ => at.parameter(leaf, VariableRole::Weight, shape, &self.init.weight()),
        };
        let (weight, bias) = (parameter(at, "0.weight", &[hidden, 2])?, parameter(at, "0.bias", &[hidden])?);
        let dense = MatMul { transpose_a: false, transpose_b: true };
        let first = at.add_part("first", dense.clone(), &[offsets, weight, bias])?;
        let relu = at.add_part("relu", ops::Relu { rectifier: ops::Rectifier::Relu }, &[first])?;
        let weight = parameter(at, "2.weight", &[heads, hidden])?;
        let y = at.add_part("second", dense, &[relu, weight])?;
        at.gives(Gives::Inside(vec![("0", first), ("1", relu), ("2", y)], y));
        let bounded = Formula::define(0, |[x]| [x.sigmoid() * Self::MOST]);
        let table = at.unnamed_part("bounded", bounded, &[y])?;
        let table = at.add_part("table", Reshape { shape: [rows * columns, heads].into() }, &[table])?;
        let of_pairs =
            Gather { indices: Indices::Fixed(RelativePositionBias::rows(self.size.0).into()), padding: None };
        let of_pairs = at.add_part("of_pairs", of_pairs, &[table])?;
        let by_query = at.add_part("by_query", Reshape { shape: [tokens, tokens, heads].into() }, &[of_pairs])?;
        let bias = at.transposed("by_head", &[2, 0, 1], by_query)?;
        at.keep(&self.tap, bias);
        Ok(x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let Pair([height, width]) = self.size;
        let (heads, hidden) = (at.size("heads", self.heads.0), at.size("hidden", self.hidden.0));
        let first = Code::call("nn.Linear", vec![Code::text("2"), Code::number(hidden.clone())]);
        let second = Code::call("nn.Linear", vec![Code::number(hidden), Code::number(heads), Code::text("bias=False")]);
        let child = at.registered(Code::call("nn.Sequential", vec![first, Code::text("nn.ReLU()"), second]))?;
        at.helper(relative_position_bias::RELATIVE);
        at.helper(CONTINUOUS);
        let size = [height, width].map(Code::count).to_vec();
        let arguments = std::iter::once(child).chain(size).collect();
        let bias = at.function(Code::call("continuous_bias", arguments));
        at.shaped(bias, &[self.heads.0, height * width, height * width]);
        at.keep(&self.tap, bias);
        Ok(at.x())
    }
}

/// The value at the place along an axis.
fn chosen<'f>(zero: Expression<'f>, axis: usize, values: &[f32]) -> Expression<'f> {
    let place = zero.coordinate(axis);
    let numbered = (0..).zip(values);
    numbered
        .fold(zero, |before, (index, value)| place.at_least(f64::from(index)).select(zero + f64::from(*value), before))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// log2(1 + 8/3) / 3, log2(1 + 16/3) / 3 and log2(9) / 3.
    #[test]
    fn offsets_of_four_pixels() {
        let offsets = ContinuousPositionBias::offsets(4);
        let close = |value: f32, expected: f64| assert!((f64::from(value) - expected).abs() < 1e-7, "{value}");
        close(offsets[6], 1.0566416671474375);
        close(offsets[5], 0.8876550042408097);
        close(offsets[4], 0.6248230393053803);
        let mirrored: Vec<f32> = offsets.iter().rev().map(|value| -value).collect();
        assert_eq!(offsets[..3], mirrored[..3]);
        assert_eq!(offsets[3], 0.0);
    }

    #[test]
    fn rows_are_pairs_of_offsets() {
        let table = ContinuousPositionBias::table([2, 3]);
        assert_eq!(table.len(), 3 * 5);
        assert_eq!(table[5 + 2], [0.0, 0.0]);
        assert_eq!(table[0], [-table[14][0], -table[14][1]]);
    }
}
