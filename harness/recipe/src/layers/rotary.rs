//! Rotary positions of attention.

use std::cmp::Ordering;
use std::f64::consts::TAU;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::formula::{Expression, Formula};
use zoo_graph::ops::{self, DeviceName};
use zoo_graph::{GraphError, Phase, TensorType, ValueId};

use crate::builder::Builder;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Rotary positions (arXiv 2104.09864): of the first `width` channels of a head, the pair `i` is rotated by
    /// `position * base^(-2i/width)`.
    pub struct Rotary {
        /// The longest wavelength is almost 2 pi times this many positions.
        #[schemars(range(min = 1))]
        pub base: f64 = 10000.0,
        /// Number of channels of a head that are rotated, the first ones; by default all.
        pub width?: Size,
        /// Which channels make a pair.
        pub pairs: Pairs = Pairs::Halves,
        /// How angles are made smaller, for sequences longer than those of an earlier training.
        pub scaling?: RotaryScaling,
    }
}

/// Which channels are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pairs {
    /// Channel `i` and channel `i + width/2` (Llama in transformers, GPT-NeoX).
    Halves,
    /// Channels `2i` and `2i + 1` (the paper, GPT-J, GLM).
    Adjacent,
}

/// Smaller angles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// Positions are divided by this number.
    Linear(f64),
    /// That of Llama 3.1.
    Llama3(Llama3Scaling),
}

zoo_settings::settings! {
    /// Angles of long wavelengths are divided by `factor`, those of short ones kept, and those between are interpolated
    /// (`llama3` of transformers).
    pub struct Llama3Scaling {
        /// Divisor of the angles with the longest wavelengths.
        #[schemars(range(min = 1))]
        pub factor: f64 = 8.0,
        /// Wavelengths above `positions / low` are long.
        #[schemars(range(min = 0))]
        pub low: f64 = 1.0,
        /// Wavelengths below `positions / high` are short.
        #[schemars(range(min = 0))]
        pub high: f64 = 4.0,
        /// Number of positions of the earlier training.
        #[schemars(range(min = 1))]
        pub positions: f64 = 8192.0,
    }
}

impl RotaryScaling {
    /// A rate after scaling, as a number.
    fn rate(&self, rate: f64) -> f64 {
        match self {
            Self::Linear(factor) => rate / factor,
            Self::Llama3(Llama3Scaling { factor, low, high, positions }) => {
                let kept = ((positions * rate / TAU - low) / (high - low)).clamp(0.0, 1.0);
                rate * ((1.0 - kept) / factor + kept)
            }
        }
    }

    /// The same in a formula.
    fn scaled<'f>(&self, rate: Expression<'f>) -> Expression<'f> {
        match self {
            Self::Linear(factor) => rate / *factor,
            Self::Llama3(Llama3Scaling { factor, low, high, positions }) => {
                let kept = ((rate * (positions / TAU) - *low) / (high - low)).max(0.0).min(1.0);
                rate * ((1.0 - kept) / *factor + kept)
            }
        }
    }
}

impl Rotary {
    /// What is wrong with the settings, if anything is.
    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.width.is_some_and(|width| !width.0.is_multiple_of(2)) {
            return Some("`width` must be even: channels are rotated in pairs");
        }
        match &self.scaling {
            Some(RotaryScaling::Linear(factor)) if factor.is_nan() || *factor <= 0.0 => {
                Some("`linear` must be larger than 0")
            }
            Some(RotaryScaling::Llama3(scaling)) if scaling.low.partial_cmp(&scaling.high) != Some(Ordering::Less) => {
                Some("`low` must be smaller than `high`: between them, angles are interpolated")
            }
            Some(RotaryScaling::Linear(_) | RotaryScaling::Llama3(_)) | None => None,
        }
    }

    /// By how much each of so many pairs is rotated from one position to the next.
    pub fn rates(&self, pairs: usize) -> Vec<f64> {
        let rate = |pair: usize| self.base.powf(-(pair as f64) / pairs as f64);
        let scaled = |rate| self.scaling.as_ref().map_or(rate, |scaling| scaling.rate(rate));
        (0..pairs).map(rate).map(scaled).collect()
    }

    /// The pair of a channel, and whether it is the second of the pair, of a table `[1, 1, t, 2*half]`.
    fn pair<'f>(&self, table: Expression<'f>, half: f64) -> [Expression<'f>; 2] {
        let channel = table.coordinate(3);
        match self.pairs {
            Pairs::Halves => {
                let second = channel.at_least(half);
                [channel - second * half, second]
            }
            Pairs::Adjacent => {
                let pair = (channel * 0.5).floor();
                [pair, channel - pair * 2.0]
            }
        }
    }

    /// The angle of a place and a channel.
    fn angle<'f>(&self, table: Expression<'f>, half: f64) -> Expression<'f> {
        let [pair, _] = self.pair(table, half);
        let rate = (pair * (-self.base.ln() / half)).exp();
        table.coordinate(2) * self.scaling.as_ref().map_or(rate, |scaling| scaling.scaled(rate))
    }

    /// Queries or keys `[n, .., heads, t, d]`, turned.
    pub(super) fn turned(&self, at: &mut Builder<'_, '_>, part: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let last = at.rank(x) - 1;
        let [t, d] = [last - 1, last].map(|axis| at.shape(x)[axis]);
        let width = self.width.map_or(d, |width| width.0);
        if !width.is_multiple_of(2) || width > d {
            let message = format!("rotary positions rotate pairs of {width} channels: a head has {d}");
            return Err(at.refuse(message));
        }
        if width == d {
            return self.all_turned(at, part, x, [t, d]);
        }
        let split = ops::Split { axis: last, sizes: vec![width, d - width] };
        let parts = at.add_parts(&format!("{part}_parts"), Phase::Forward, split, &[x])?;
        let turned = self.all_turned(at, part, parts[0], [t, width])?;
        at.add_part(&format!("{part}_whole"), ops::Concat { axis: last }, &[turned, parts[1]])
    }

    fn all_turned(
        &self,
        at: &mut Builder<'_, '_>,
        part: &str,
        x: ValueId,
        [t, d]: [usize; 2],
    ) -> Result<ValueId, GraphError> {
        // Sines and cosines are the same for all samples and heads: tables.
        let zeros = ops::Fill { value: 0.0, ty: TensorType::plain([1, 1, t, d], at.graph().ty(x).dtype) };
        let places = at.add_part(&format!("{part}_places"), zeros, &[])?;
        let half = (d / 2) as f64;
        let cosines = Formula::define(0, |[zero]| [self.angle(zero, half).cos()]);
        // The partner of the first of a pair comes with the other sign.
        let sines = Formula::define(0, |[zero]| {
            let sine = self.angle(zero, half).sin();
            let [_, second] = self.pair(zero, half);
            [second.select(sine, -sine)]
        });
        let cosines = at.unnamed_part(&format!("{part}_cosines"), cosines, &[places])?;
        let sines = at.unnamed_part(&format!("{part}_sines"), sines, &[places])?;
        let partners = self.partners(at, part, x)?;
        let formula = Formula::define(0, |[x, partner, cosine, sine]| [x * cosine + partner * sine]);
        let name = DeviceName::new("RotaryMul", "RotaryMulGrad");
        at.formula_part(&format!("{part}_turned"), formula, name, &[x, partners, cosines, sines])
    }

    /// For each channel the other one of its pair.
    fn partners(&self, at: &mut Builder<'_, '_>, part: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let whole = at.shape(x).to_vec();
        let last = whole.len() - 1;
        let half = whole[last] / 2;
        let (x, axis, size) = match self.pairs {
            Pairs::Halves => (x, last, half),
            Pairs::Adjacent => {
                let apart = [&whole[..last], &[half, 2]].concat();
                (at.add_part(&format!("{part}_pairs"), ops::Reshape { shape: apart.into() }, &[x])?, last + 1, 1)
            }
        };
        let split = ops::Split { axis, sizes: vec![size, size] };
        let mut halves = at.add_parts(&format!("{part}_halves"), Phase::Forward, split, &[x])?;
        halves.reverse();
        let partners = at.add_part(&format!("{part}_partners"), ops::Concat { axis }, &halves)?;
        match self.pairs {
            Pairs::Halves => Ok(partners),
            Pairs::Adjacent => {
                at.add_part(&format!("{part}_together"), ops::Reshape { shape: whole.into() }, &[partners])
            }
        }
    }

    /// Queries or keys, turned, in Python.
    pub(super) fn emit(&self, at: &mut At<'_, '_>, x: Var) -> Var {
        let mut arguments = vec![Code::number(at.real("rotary.base", self.base))];
        match &self.scaling {
            None => {}
            Some(RotaryScaling::Linear(factor)) => arguments.push(Code::named("factor", Code::real(*factor))),
            Some(RotaryScaling::Llama3(Llama3Scaling { factor, low, high, positions })) => {
                let bounds = [*low, *high, *positions].map(Code::real);
                arguments.push(Code::named("factor", Code::real(*factor)));
                arguments.push(Code::named("kept", Code::tuple(bounds.to_vec())));
            }
        }
        if let Some(width) = self.width {
            arguments.push(Code::named("width", Code::number(at.size("rotary.width", width.0))));
        }
        if self.pairs == Pairs::Adjacent {
            arguments.push(Code::text("adjacent=True"));
        }
        let plain = self.width.is_none() && self.pairs == Pairs::Halves && self.scaling.is_none();
        at.helper(if plain { PLAIN } else { ROTATE });
        at.function(Code::applied("rotate", x, arguments))
    }
}

/// In Python.
const PLAIN: &str = r#"
def rotate(x: Tensor, base: float) -> Tensor:
    """Rotates pairs of channels by angles that grow with the position (arXiv 2104.09864)."""
    half = x.shape[-1] // 2
    rates = torch.exp(torch.arange(half, device=x.device, dtype=x.dtype) * (-math.log(base) / half))
    angles = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None] * rates
    cosines, sines = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines
"#;

/// In Python.
const ROTATE: &str = r#"
def rotate(
    x: Tensor,
    base: float,
    factor: float = 1.0,
    kept: tuple[float, float, float] | None = None,
    width: int | None = None,
    adjacent: bool = False,
) -> Tensor:
    """Rotates pairs of the first channels by angles that grow with the position (arXiv 2104.09864).

    The angles are divided by a factor; those of wavelengths below positions / high are kept, with those up to
    positions / low between (`kept`: low, high, positions).
    """
    x, rest = x[..., :width], x[..., x.shape[-1] if width is None else width :]
    half = x.shape[-1] // 2
    rates = torch.exp(torch.arange(half, device=x.device, dtype=x.dtype) * (-math.log(base) / half))
    if kept is None:
        rates = rates / factor
    else:
        low, high, positions = kept
        share = ((positions * rates / math.tau - low) / (high - low)).clamp(0, 1)
        rates = rates * ((1 - share) / factor + share)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None] * rates
    cosines, sines = angles.cos(), angles.sin()
    if adjacent:
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x.chunk(2, dim=-1)
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    x = torch.stack(turned, dim=-1).flatten(-2) if adjacent else torch.cat(turned, dim=-1)
    return torch.cat([x, rest], dim=-1)
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// `_compute_llama3_parameters` of transformers 5.24 for a head of 8 channels: base 500000, factor 8, low 1, high
    /// 4, 8192 positions; computed in f64.
    #[test]
    fn rates_of_llama_3_1() {
        let scaling = Some(RotaryScaling::Llama3(Llama3Scaling::default()));
        let rotary = Rotary { base: 500_000.0, scaling, ..Rotary::default() };
        let rates = rotary.rates(4);
        let wanted = [1.0, 0.037_606_030_930_863_93, 5.248_461_609_929_547e-4, 6.647_869_871_181_235e-6];
        for (rate, wanted) in rates.iter().zip(wanted) {
            assert!((rate - wanted).abs() < 1e-9 * wanted, "{rates:?}");
        }
        let linear = Rotary { scaling: Some(RotaryScaling::Linear(4.0)), ..Rotary::default() };
        assert_eq!(linear.rates(2), [0.25, 0.0025]);
        assert_eq!((rotary.fault(), linear.fault()), (None, None));
    }

    #[test]
    fn settings_that_make_no_angles_are_faults() {
        let same = Llama3Scaling { low: 4.0, ..Llama3Scaling::default() };
        for (rotary, said) in [
            (Rotary { width: Some(Size(5)), ..Rotary::default() }, "must be even"),
            (Rotary { scaling: Some(RotaryScaling::Linear(0.0)), ..Rotary::default() }, "larger than 0"),
            (Rotary { scaling: Some(RotaryScaling::Linear(f64::NAN)), ..Rotary::default() }, "larger than 0"),
            (Rotary { scaling: Some(RotaryScaling::Llama3(same)), ..Rotary::default() }, "smaller than `high`"),
        ] {
            assert!(rotary.fault().is_some_and(|fault| fault.contains(said)), "{rotary:?}");
        }
    }
}
