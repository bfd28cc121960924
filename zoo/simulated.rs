//! The arithmetic of a simulated device, from its file and the recipe's `npu:` section.

use crate::Failure;
use crate::context::Context;
use std::collections::BTreeMap;
use zoo_engine::{
    Arithmetic, Options,
    simulate::{Overflow, Range, Subnormals},
};
use zoo_golden::device::DeviceOptions;
use zoo_graph::passes::ScaleLoss;
use zoo_npu::{
    NpuError, Work,
    device::{self, Device},
    policy,
};
use zoo_recipe::{
    Recipe,
    schema::{self, LossScale},
};
use zoo_train::{HOST, SimulatedDevice};

/// A simulated device with its arithmetic.
pub struct Simulated {
    name: String,
    /// Where and to what type values are rounded.
    pub arithmetic: Arithmetic,
}

impl Simulated {
    /// The device with a name for the given kind of work; `None` for the host itself. The name is stored in the
    /// recipe.
    ///
    /// # Errors
    /// The device does not exist or cannot train.
    pub fn find(
        name: Option<&str>,
        work: Work,
        recipe: &mut Recipe,
        context: &Context,
    ) -> Result<Option<Self>, Failure> {
        let Some(name) = name.filter(|name| *name != HOST) else { return Ok(None) };
        recipe.npu.device = name.to_owned();
        let device = context.devices()?.load(name)?;
        if work == Work::Train && device.inference_only {
            return Err(NpuError::InferenceOnly { device: device.name }.into());
        }
        Ok(Some(Self { name: device.name.clone(), arithmetic: arithmetic(recipe, &device) }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device in the form that a check of the recipe's step needs.
    pub fn options(&self, recipe: &Recipe) -> DeviceOptions<'_> {
        DeviceOptions {
            device: &self.name,
            arithmetic: &self.arithmetic,
            loss_scale: zoo_train::LossScale::start(&recipe.npu.loss_scale).scale,
            engine: Options::of(recipe),
        }
    }

    /// The device in the form that a training needs.
    pub fn device(&self) -> SimulatedDevice<'_> {
        SimulatedDevice { name: &self.name, arithmetic: &self.arithmetic }
    }
}

/// The arithmetic in which the device computes the recipe's step.
fn arithmetic(recipe: &Recipe, device: &Device) -> Arithmetic {
    let npu = &recipe.npu;
    let overflow = match device.numerics.overflow {
        device::Overflow::Saturate => Overflow::Saturate,
        device::Overflow::Infinite => Overflow::Infinite,
    };
    let subnormals = match npu.subnormals.unwrap_or(device.numerics.subnormals) {
        schema::Subnormals::Keep => Subnormals::Keep,
        schema::Subnormals::Flush => Subnormals::Flush,
    };
    let scaling = ScaleLoss { clips_scaled: recipe.gradients.clip_scaled };
    let (scales_loss, skips_overflow) = match &npu.loss_scale {
        LossScale::None => (None, false),
        LossScale::Fixed(fixed) => (Some(scaling), fixed.skip_overflow),
        LossScale::Dynamic(_) => (Some(scaling), true),
    };
    Arithmetic {
        policy: policy(device, npu.precision, &npu.keep_fp32),
        range: Range::Format { overflow, subnormals },
        scales_loss,
        skips_overflow,
        planted: BTreeMap::new(),
    }
}

/// Parses `NODE=POWER`.
///
/// # Errors
/// The text does not have this form.
pub fn planted(text: &str) -> Result<(String, i32), String> {
    let (node, power) = text.rsplit_once('=').ok_or("expected NODE=POWER")?;
    let power: i32 = power.parse().map_err(|_| format!("`{power}` is not a whole number"))?;
    if !(-100..=100).contains(&power) {
        return Err(format!("two to the power of {power} is out of the range of fp32"));
    }
    Ok((node.to_owned(), power))
}
