//! The simulated machine for which a step is predicted.

use crate::Failure;
use crate::complete;
use crate::context::Context;
use crate::options::Change;
use zoo_npu::Device;
use zoo_recipe::Recipe;

/// Which machine, and how much of it.
#[derive(Clone, Debug, clap::Args)]
pub struct Machine {
    /// Device: the name of a file in recipes/devices; by default the device of the recipe
    #[arg(long, value_name = "NAME", add = complete::devices())]
    pub device: Option<String>,
    /// Number of devices that train together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub devices: Option<u32>,
    /// Images per step and device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub batch: Option<u32>,
    /// Software stack: one of the `stacks` in the device file, with its options, kernels and input pipelines
    #[arg(long, value_name = "NAME")]
    pub stack: Option<String>,
}

impl Machine {
    /// Loads a recipe for the selected machine; options of the software stack are applied before those of `change`.
    pub fn load(&self, name: &str, change: &Change, context: &Context) -> Result<(Recipe, Device), Failure> {
        let mut recipe = context.load(name, change)?.recipe;
        let device = self.apply(&mut recipe, context)?;
        let stack = device.stacks.iter().find(|stack| self.stack.as_ref() == Some(&stack.name));
        if let Some(stack) = stack.filter(|stack| !stack.set.is_empty()) {
            let mut change = change.clone();
            change.sets.splice(0..0, stack.set.iter().cloned());
            recipe = context.load(name, &change)?.recipe;
            self.apply(&mut recipe, context)?;
        }
        Ok((recipe, device))
    }

    /// Applies the options to the recipe, and loads the device.
    fn apply(&self, recipe: &mut Recipe, context: &Context) -> Result<Device, Failure> {
        let npu = &mut recipe.npu;
        if let Some(device) = &self.device {
            npu.device.clone_from(device);
        }
        if let Some(devices) = self.devices {
            npu.devices = devices as usize;
        }
        if let Some(batch) = self.batch {
            recipe.train.batch = batch as usize;
        }
        let device = context.devices()?.load(&npu.device)?;
        let Some(name) = &self.stack else { return Ok(device) };
        match device.stacks.iter().find(|stack| stack.name == *name) {
            Some(stack) => Ok(device.clone().under(stack)),
            None => {
                let known: Vec<&str> = device.stacks.iter().map(|stack| stack.name.as_str()).collect();
                let (device, known) = (&device.name, known.join(", "));
                Err(Failure::Usage(format!("{device} has no stack `{name}`; known: {known}")))
            }
        }
    }
}
