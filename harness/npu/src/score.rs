//! Published throughput against the clock's.

use crate::device::{Device, Stack};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_recipe::schema::Precision;

/// A throughput file: rows of what was published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// The rows.
    pub rows: Vec<Row>,
}

/// What was run, on what, and what was published: one of `ms` and `ips`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the row.
    pub id: String,
    /// Recipe.
    pub network: String,
    /// Height and width of the images.
    #[schemars(range(min = 1, max = 8192))]
    pub input: usize,
    /// Device.
    pub device: String,
    /// Number formats.
    pub precision: RowPrecision,
    /// Images per step and device.
    #[schemars(range(min = 1, max = 65536))]
    pub batch: usize,
    /// Devices.
    #[schemars(range(min = 1, max = 65536))]
    pub devices: usize,
    /// Milliseconds per step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub ms: Option<f64>,
    /// Images per second over all devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub ips: Option<f64>,
    /// What else was set otherwise than in the recipe, as `--set` takes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Where it was published.
    #[serde(default)]
    pub source: String,
    /// Whether the row contradicts others.
    #[serde(default)]
    pub doubtful: bool,
    /// What else there is to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Number formats of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowPrecision {
    /// Mixed.
    Mixed,
    /// fp16 throughout.
    Fp16,
    /// fp32 throughout.
    Fp32,
    /// bf16.
    Bf16,
}

impl RowPrecision {
    /// As recipes name it.
    pub fn of_recipe(self) -> Precision {
        match self {
            Self::Mixed => Precision::AllowMixPrecision,
            Self::Fp16 => Precision::ForceFp16,
            Self::Fp32 => Precision::Fp32,
            Self::Bf16 => Precision::Bf16,
        }
    }
}

impl Row {
    /// The stack that the row ran on, as its source tells.
    pub fn stack<'d>(&self, device: &'d Device) -> Option<&'d Stack> {
        device.stacks.iter().find(|stack| stack.sources.iter().any(|source| self.source.starts_with(source.as_str())))
    }
}

/// A row beside what the clock says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scored {
    /// It could be simulated.
    Simulated {
        /// Name of the row.
        id: String,
        /// `ms` or `ips`.
        unit: &'static str,
        /// What was published.
        published: f64,
        /// What the clock says.
        simulated: f64,
        /// `simulated / published - 1`.
        error: f64,
        /// Whether the device file was fitted to it.
        fitted: bool,
        /// Whether it contradicts others.
        doubtful: bool,
        /// What ends the step last.
        limit: &'static str,
        /// Options of its stack.
        #[serde(skip_serializing_if = "Option::is_none")]
        stack: Option<String>,
        /// What else there is to say; of a doubtful row, why it is doubted.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// It could not.
    Skipped {
        /// Name of the row.
        id: String,
        /// Why.
        skipped: String,
    },
}

/// Mean absolute errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Of all rows but doubtful ones.
    pub mape: Option<f64>,
    /// Of those that nothing was fitted to.
    pub mape_not_fitted: Option<f64>,
    /// Of those that something was fitted to.
    pub mape_fitted: Option<f64>,
    /// Of doubtful rows.
    pub mape_doubtful: Option<f64>,
    /// Largest of those that nothing was fitted to.
    pub worst_not_fitted: Option<f64>,
}

/// The errors of rows, together.
pub fn summary(rows: &[Scored]) -> Summary {
    let errors = |wanted: fn(bool, bool) -> bool| {
        let all = rows.iter().filter_map(move |row| match row {
            Scored::Simulated { error, fitted, doubtful, .. } => wanted(*fitted, *doubtful).then_some(error.abs()),
            Scored::Skipped { .. } => None,
        });
        all.collect::<Vec<f64>>()
    };
    let mean = |all: Vec<f64>| (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64);
    let not_fitted: fn(bool, bool) -> bool = |fitted, doubtful| !fitted && !doubtful;
    Summary {
        mape: mean(errors(|_, doubtful| !doubtful)),
        mape_not_fitted: mean(errors(not_fitted)),
        mape_fitted: mean(errors(|fitted, doubtful| fitted && !doubtful)),
        mape_doubtful: mean(errors(|_, doubtful| doubtful)),
        worst_not_fitted: errors(not_fitted).into_iter().reduce(f64::max),
    }
}
