//! Parameter groups with their own weight decay and learning rate.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use zoo_graph::VariableRole;

use crate::values::Patterns;

/// A group of parameters without weight decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecayGroup {
    /// Scale and shift of normalisations.
    Bn,
    /// Biases of convolutions and dense layers.
    Bias,
}

impl DecayGroup {
    /// Whether a variable belongs to it.
    pub fn has(self, role: &VariableRole) -> bool {
        match role {
            VariableRole::NormWeight | VariableRole::NormBias => self == Self::Bn,
            VariableRole::Bias => self == Self::Bias,
            VariableRole::Weight
            | VariableRole::RunningMean
            | VariableRole::RunningVar
            | VariableRole::Slot { .. }
            | VariableRole::Average { .. } => false,
        }
    }
}

zoo_settings::settings! {
    /// Parameter groups with their own settings. A parameter belongs to the first group that matches it.
    pub struct ParameterGroup {
        /// Full names of parameters, such as `layer1.0.conv1.weight`; `*` stands for any characters.
        #[serde(rename = "match")]
        pub patterns: Patterns,
        /// Weight decay of these parameters, instead of the one of the optimizer; `no_decay` does not apply to them.
        #[schemars(range(min = 0))]
        pub weight_decay?: f64,
        /// Factor on the learning rate, such as `64x` or `0.1x`.
        pub lr?: LrFactor,
    }
}

/// A factor on the learning rate, written `64x`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LrFactor(pub f64);

/// A text is no [`LrFactor`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a factor on the learning rate; write `64x` or `0.1x`")]
pub struct LrFactorError(String);

impl TryFrom<String> for LrFactor {
    type Error = LrFactorError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let factor = text.strip_suffix('x').and_then(|number| number.parse().ok());
        match factor.filter(|factor| (0.0..=1e9).contains(factor)) {
            Some(factor) => Ok(Self(factor)),
            None => Err(LrFactorError(text)),
        }
    }
}

impl From<LrFactor> for String {
    fn from(factor: LrFactor) -> Self {
        factor.to_string()
    }
}

impl fmt::Display for LrFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x", self.0)
    }
}

impl JsonSchema for LrFactor {
    fn schema_name() -> Cow<'static, str> {
        "LrFactor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A factor on the learning rate: `64x`, `0.1x`.",
            "type": "string",
            "pattern": r"^[0-9.]+(e-?[0-9]+)?x$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_read_and_print() {
        for (text, factor) in [("64x", 64.0), ("0.1x", 0.1), ("0x", 0.0)] {
            let read = LrFactor::try_from(text.to_owned()).unwrap();
            assert_eq!((read.0, read.to_string().as_str()), (factor, text));
        }
        for text in ["64", "x", "-1x", "64 x", "infx", "nanx"] {
            assert!(LrFactor::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
