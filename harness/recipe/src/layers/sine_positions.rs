//! Sinusoidal positions.

use zoo_graph::{GraphError, TensorType, ValueId, formula::Formula, ops};

use super::rotary::Pairs;
use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Count;

zoo_settings::settings! {
    /// Adds sines and cosines of the position t to each token of `[T, E]` (arXiv 1706.03762, section 3.5): the pair i
    /// of channels gets sin(t / base^(2i/E)) and the cosine of the same. It has no parameters and any number of tokens.
    pub struct SinePositions {
        /// The longest wavelength is almost 2*pi*base.
        #[schemars(range(min = 1))]
        pub base: f64 = 10000.0,
        /// The position of the first token (2 in fairseq).
        pub from: Count = Count(0),
        /// Which channels make a pair, the first one with the sine.
        pub pairs: Pairs = Pairs::Adjacent,
        /// Whether the longest wavelength is 2*pi*base: the exponent is i/(E/2 - 1) (tensor2tensor, fairseq, Whisper).
        pub closed: bool = false,
    }
}

impl SinePositions {
    /// By how much the angle of a pair grows from one pair to the next, as a logarithm, if tokens have so many pairs.
    fn step(&self, pairs: usize) -> f64 {
        let steps = if self.closed { pairs.saturating_sub(1).max(1) } else { pairs };
        -self.base.ln() / steps as f64
    }

    /// What a channel of a token with so many channels gets.
    pub fn value(&self, token: usize, channel: usize, channels: usize) -> f64 {
        let half = channels / 2;
        let (pair, is_cosine) = match self.pairs {
            Pairs::Adjacent => (channel / 2, channel % 2 == 1),
            Pairs::Halves => (channel % half.max(1), channel >= half),
        };
        let angle = (token + self.from.0) as f64 * (self.step(half) * pair as f64).exp();
        if is_cosine { angle.cos() } else { angle.sin() }
    }
}

/// In Python.
const SINES: &str = r#"
def add_sine_positions(x: Tensor, base: float, first: int = 0, adjacent: bool = True, closed: bool = False) -> Tensor:
    """Adds sines and cosines of positions to tokens (arXiv 1706.03762, section 3.5)."""
    pairs = x.shape[2] // 2
    places = torch.arange(first, first + x.shape[1], device=x.device, dtype=x.dtype)[:, None]
    steps = torch.arange(pairs, device=x.device, dtype=x.dtype) / max(pairs - int(closed), 1)
    angles = places * torch.exp(steps * -math.log(base))
    return x + torch.stack([angles.sin(), angles.cos()], dim=-1 if adjacent else 1).flatten(1)
"#;

impl Word for SinePositions {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [_, t, e] = at.tokens(x)?;
        if !e.is_multiple_of(2) {
            return Err(at.refuse(format!("{e} channels; pairs of sine and cosine need an even number")));
        }
        // The two channels of a pair are an axis of the table.
        let (shape, [pair, kind]) = match self.pairs {
            Pairs::Adjacent => ([1, t, e / 2, 2], [2, 3]),
            Pairs::Halves => ([1, t, 2, e / 2], [3, 2]),
        };
        let ty = TensorType::plain(shape, at.graph().ty(x).dtype);
        let places = at.add_part("places", ops::Fill { value: 0.0, ty }, &[])?;
        let table = Formula::define(0, |[zero]| {
            let place = zero.coordinate(1) + self.from.0 as f64;
            let angle = place * (zero.coordinate(pair) * self.step(e / 2)).exp();
            [zero.coordinate(kind).at_least(1.0).select(angle.cos(), angle.sin())]
        });
        let table = at.unnamed_part("table", table, &[places])?;
        let table = at.add_part("rows", ops::Reshape { shape: [1, t, e].into() }, &[table])?;
        at.unnamed(Formula::define(0, |[x, table]| [x + table]), &[x, table])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.helper(SINES);
        let mut arguments = vec![Code::number(at.real("base", self.base))];
        if self.from.0 > 0 {
            arguments.push(Code::named("first", Code::number(at.size("from", self.from.0))));
        }
        if self.pairs == Pairs::Halves {
            arguments.push(Code::text("adjacent=False"));
        }
        if self.closed {
            arguments.push(Code::text("closed=True"));
        }
        at.pure(Code::applied("add_sine_positions", at.x(), arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_both_orders() {
        let usual = SinePositions { base: 100.0, ..SinePositions::default() };
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
        near(usual.value(3, 2, 4), (3.0f64 / 10.0).sin());
        let closed = SinePositions { pairs: Pairs::Halves, closed: true, from: Count(2), ..usual };
        near(closed.value(1, 1, 4), (3.0f64 / 100.0).sin());
        near(closed.value(1, 3, 4), (3.0f64 / 100.0).cos());
    }
}
