//! Weights with a direction and a length.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, ops};

use crate::builder::Builder;
use crate::python::Code;

/// A weight is a direction for each output, divided by its length, times a learned length (arXiv 1602.07868; PyTorch's
/// `weight_norm`): where the parameters have their names from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightNorm {
    /// `parametrizations.weight.original0` (lengths) and `original1` (directions), of torch.nn.utils.parametrizations.
    Parametrized,
    /// `weight_g` and `weight_v`, of torch.nn.utils.
    Hooked,
}

impl WeightNorm {
    /// The names of lengths and directions within their module.
    pub fn names(self) -> [&'static str; 2] {
        match self {
            Self::Parametrized => ["parametrizations.weight.original0", "parametrizations.weight.original1"],
            Self::Hooked => ["weight_g", "weight_v"],
        }
    }

    /// A module in PyTorch with such a weight.
    pub(crate) fn around(self, module: Code) -> Code {
        let function = match self {
            Self::Parametrized => "nn.utils.parametrizations.weight_norm",
            Self::Hooked => "nn.utils.weight_norm",
        };
        Code::call(function, vec![module])
    }
}

/// The weight of a layer, with this norm.
pub(super) fn weight(
    norm: Option<WeightNorm>,
    at: &mut Builder<'_, '_>,
    shape: &[usize],
    init: &Init,
) -> Result<ValueId, GraphError> {
    let Some(norm) = norm else { return at.parameter("weight", VariableRole::Weight, shape, init) };
    let [lengths, directions] = norm.names();
    let (out, size) = (shape[0], shape[1..].iter().product());
    let one_each: Vec<usize> = std::iter::once(out).chain(shape[1..].iter().map(|_| 1)).collect();
    let length = at.parameter(lengths, VariableRole::Weight, &one_each, &Init::Constant(1.0))?;
    let direction = at.parameter(directions, VariableRole::Weight, shape, init)?;
    let length = at.add_part("length", ops::Reshape { shape: [out, 1].into() }, &[length])?;
    let direction = at.add_part("direction", ops::Reshape { shape: [out, size].into() }, &[direction])?;
    let formula = Formula::define(1, |[v, g]| [v * (g / v.square().row_sum().sqrt())]);
    let weight = at.unnamed_part("normed", formula, &[direction, length])?;
    at.add_part("weight", ops::Reshape { shape: shape.to_vec().into() }, &[weight])
}
