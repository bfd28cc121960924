//! Numbers that may be NaN, which are null in JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    finite(*value).serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Such numbers, by name.
pub mod named {
    use super::*;

    pub fn serialize<S: Serializer>(values: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|(name, value)| (name, finite(*value))))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, f64)>, D::Error> {
        let values: Vec<(String, Option<f64>)> = Vec::deserialize(deserializer)?;
        Ok(values.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect())
    }
}
