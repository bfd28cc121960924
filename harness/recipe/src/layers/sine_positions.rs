//! Positions as sines and cosines.

use zoo_graph::{GraphError, TensorType, ValueId, formula::Formula, ops};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Adds sines and cosines of the position t to each token of `[T, E]` (arXiv 1706.03762, section 3.5): channel 2i
    /// gets sin(t / base^(2i/E)), and channel 2i + 1 the cosine of the same. It has no parameters and any number of
    /// tokens.
    pub struct SinePositions {
        /// The longest wavelength is 2*pi*base.
        #[schemars(range(min = 1))]
        pub base: f64 = 10000.0,
    }
}

/// In Python.
const SINES: &str = r#"
def add_sine_positions(x: Tensor, base: float) -> Tensor:
    """Adds sines and cosines of positions to tokens (arXiv 1706.03762, section 3.5)."""
    places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None]
    pairs = torch.arange(0, x.shape[2], 2, device=x.device, dtype=x.dtype)
    angles = places * torch.exp(pairs * (-math.log(base) / x.shape[2]))
    return x + torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
"#;

impl Word for SinePositions {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [_, t, e] = at.tokens(x)?;
        if !e.is_multiple_of(2) {
            return Err(at.refuse(format!("{e} channels; pairs of sine and cosine need an even number")));
        }
        // The table [1, t, e/2, 2] has the pairs as rows.
        let ty = TensorType::plain([1, t, e / 2, 2], at.graph().ty(x).dtype);
        let places = at.add_part("places", ops::Fill { value: 0.0, ty }, &[])?;
        let base = self.base;
        let table = Formula::define(0, |[zero]| {
            let angle = zero.coordinate(1) * (zero.coordinate(2) * (-2.0 * base.ln() / e as f64)).exp();
            [zero.coordinate(3).at_least(1.0).select(angle.cos(), angle.sin())]
        });
        let table = at.unnamed_part("table", table, &[places])?;
        let table = at.add_part("rows", ops::Reshape { shape: [1, t, e].into() }, &[table])?;
        at.unnamed(Formula::define(0, |[x, table]| [x + table]), &[x, table])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.helper(SINES);
        let base = Code::number(at.real("base", self.base));
        at.pure(Code::applied("add_sine_positions", at.x(), vec![base]))
    }
}
