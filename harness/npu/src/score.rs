//! Compares published throughput with that of the clock.

use crate::{
    DeviceLibrary, Limit, NpuError, Work,
    device::{Device, Stack},
    library::yaml_files,
    profile::profile,
    study::PublishedFigure,
};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use zoo_recipe::{Library, LoadOptions, Recipe, schema::Precision};

zoo_recipe::settings! {
    /// A throughput file: rows of published measurements.
    pub struct Throughput {
        /// The rows.
        pub rows: Vec<Row>,
    }
}

zoo_recipe::settings! {
    /// A published measurement and its conditions, with one of `ms` and `ips`.
    pub struct Row {
        /// Name of the row.
        pub id: String,
        /// Recipe.
        pub network: String,
        /// Name of a family of similar networks, which are counted together. Default: the name of the recipe.
        pub family?: String,
        /// Height and width of the images, if they differ from the recipe.
        #[schemars(range(min = 1, max = 8192))]
        pub input?: usize,
        /// Tokens per sample, if they differ from the recipe.
        #[schemars(range(min = 1, max = 65536))]
        pub sequence?: usize,
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
        /// Milliseconds per step: a number, or the ends of a range over several software stacks.
        pub ms?: PublishedFigure,
        /// Samples per second over all devices: a number, or the ends of a range over several software stacks.
        pub ips?: PublishedFigure,
        /// Other settings that differ from the recipe, as for `--set`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub set: Vec<String> = Vec::new(),
        /// Where it was published.
        pub source: String = String::new(),
        /// Whether the row contradicts others.
        pub doubtful: bool = false,
        /// Further remarks.
        pub note?: String,
    }
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
    /// Its name in recipes.
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
    /// The family of networks with which it is counted.
    pub fn family(&self) -> &str {
        self.family.as_deref().unwrap_or(&self.network)
    }

    /// The published figure with its unit; `None` unless there is exactly one of `ms` and `ips`.
    pub fn published(&self) -> Option<(PublishedFigure, &'static str)> {
        match (self.ms, self.ips) {
            (Some(ms), None) => Some((ms, "ms")),
            (None, Some(ips)) => Some((ips, "ips")),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }

    /// Applies the settings of the row to the recipe.
    fn apply(&self, recipe: &mut Recipe) {
        recipe.npu.precision = self.precision.of_recipe();
        recipe.npu.devices = self.devices;
        recipe.train.batch = self.batch;
        for shape in recipe.model.inputs.values_mut() {
            if let Some(side) = self.input {
                shape.set_side(side);
            }
            if let Some(tokens) = self.sequence {
                shape.set_tokens(tokens);
            }
        }
    }

    /// The software stack of the row, from its source.
    pub fn stack<'d>(&self, device: &'d Device) -> Option<&'d Stack> {
        device.stacks.iter().find(|stack| stack.sources.iter().any(|source| self.source.starts_with(source.as_str())))
    }
}

/// A row with the result of the clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scored {
    /// The row was simulated.
    Simulated(Comparison),
    /// The row cannot be simulated.
    Skipped {
        /// Name of the row.
        id: String,
        /// Reason.
        skipped: String,
    },
}

/// A published figure with that of the clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the row.
    pub id: String,
    /// Its family.
    pub family: String,
    /// Device.
    pub device: String,
    /// `ms` or `ips`.
    pub unit: &'static str,
    /// The published figure; the middle of a range.
    pub published: f64,
    /// The ends of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// The simulated figure.
    pub simulated: f64,
    /// `simulated / published - 1`.
    pub error: f64,
    /// Whether the device file was fitted to it.
    pub fitted: bool,
    /// Whether it contradicts others.
    pub doubtful: bool,
    /// What limits the step.
    pub limit: Limit,
    /// Options of its stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// Further remarks; for a doubtful row, why it is doubted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Names and files of the throughput files next to the recipes in these folders.
pub fn list(recipes: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<(String, PathBuf)> {
    let dirs: Vec<PathBuf> = recipes.into_iter().map(|dir| dir.as_ref().join("throughput")).collect();
    yaml_files(&dirs)
}

/// Simulates a row. It is skipped if there is no such recipe or device, no graph can be built, or the batch does not
/// fit.
///
/// # Errors
/// A device, host or recipe file with mistakes, or options that the device lacks.
pub fn score(row: &Row, recipes: &Library, devices: &DeviceLibrary) -> Result<Scored, NpuError> {
    let skipped = |why: String| Ok(Scored::Skipped { id: row.id.clone(), skipped: why });
    let device = match devices.load(&row.device) {
        Ok(device) => device,
        Err(NpuError::UnknownDevice { .. }) => return skipped("no device".into()),
        Err(error) => return Err(error),
    };
    let Some((published, unit)) = row.published() else { return skipped("neither or both of `ms` and `ips`".into()) };
    if !recipes.list().iter().any(|(name, _)| *name == row.network) {
        return skipped("no recipe".into());
    }
    let fitted = device.is_fitted_to(&row.id);
    let stack = row.stack(&device).cloned();
    let sets = stack.iter().flat_map(|stack| &stack.set).chain(&row.set).cloned().collect();
    let mut recipe = recipes.load(&row.network, &LoadOptions { sets, ..LoadOptions::default() })?.recipe;
    row.apply(&mut recipe);
    let device = stack.iter().fold(device, Device::under);
    let profile = match profile(&recipe, &device, Work::Train) {
        Ok(profile) => profile,
        Err(error @ (NpuError::Graph(_) | NpuError::Memory { .. })) => return skipped(error.to_string()),
        Err(error) => return Err(error),
    };
    let simulated = if unit == "ms" { profile.step.ms() } else { profile.images_per_s };
    Ok(Scored::Simulated(Comparison {
        id: row.id.clone(),
        family: row.family().to_owned(),
        device: row.device.clone(),
        unit,
        published: published.middle(),
        range: published.range(),
        simulated,
        error: simulated / published.middle() - 1.0,
        fitted,
        doubtful: row.doubtful,
        limit: profile.limit,
        stack: stack.map(|stack| stack.name),
        note: row.note.clone(),
    }))
}

/// Absolute errors of rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Number of rows.
    pub rows: usize,
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The largest.
    pub worst: f64,
}

impl Errors {
    /// Of these rows, if there are any.
    pub fn of<'r>(rows: impl IntoIterator<Item = &'r Comparison>) -> Option<Self> {
        let mut errors: Vec<f64> = rows.into_iter().map(|row| row.error.abs()).collect();
        errors.sort_by(f64::total_cmp);
        let (rows, worst) = (errors.len(), *errors.last()?);
        let median = errors[(rows - 1) / 2].midpoint(errors[rows / 2]);
        Some(Self { rows, mean: errors.iter().sum::<f64>() / rows as f64, median, worst })
    }
}

/// Rows that are counted together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The family or device.
    pub name: String,
    /// Rows to which nothing was fitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out: Option<Errors>,
    /// Rows to which something was fitted.
    pub fitted: usize,
    /// Doubtful rows, fitted or not.
    pub doubtful: usize,
}

/// The errors of all rows. Doubtful rows are counted separately.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Rows to which nothing was fitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out: Option<Errors>,
    /// Rows to which something was fitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitted: Option<Errors>,
    /// Doubtful rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubtful: Option<Errors>,
    /// Rows, including doubtful ones, that wait for their input.
    pub waits_for_input: usize,
    /// By family.
    pub families: Vec<Group>,
    /// By device.
    pub devices: Vec<Group>,
}

/// The errors of all rows.
pub fn summary(rows: &[Scored]) -> Summary {
    let rows: Vec<&Comparison> = rows
        .iter()
        .filter_map(|row| match row {
            Scored::Simulated(row) => Some(row),
            Scored::Skipped { .. } => None,
        })
        .collect();
    let held_out = |row: &&&Comparison| !row.fitted && !row.doubtful;
    let groups = |name: fn(&Comparison) -> &str| {
        let mut groups: IndexMap<&str, Vec<&Comparison>> = IndexMap::new();
        rows.iter().for_each(|row| groups.entry(name(row)).or_default().push(row));
        groups.sort_keys();
        let group = |(name, rows): (&str, Vec<&Comparison>)| Group {
            name: name.to_owned(),
            held_out: Errors::of(rows.iter().filter(held_out).copied()),
            fitted: rows.iter().filter(|row| row.fitted).count(),
            doubtful: rows.iter().filter(|row| row.doubtful).count(),
        };
        groups.into_iter().map(group).collect()
    };
    Summary {
        held_out: Errors::of(rows.iter().filter(held_out).copied()),
        fitted: Errors::of(rows.iter().filter(|row| row.fitted && !row.doubtful).copied()),
        doubtful: Errors::of(rows.iter().filter(|row| row.doubtful).copied()),
        waits_for_input: rows.iter().filter(|row| row.limit == Limit::Input).count(),
        families: groups(|row| &row.family),
        devices: groups(|row| &row.device),
    }
}
