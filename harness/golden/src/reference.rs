//! Writes the step in f64 as a recording: for external comparison tools, and as input of `zoo judge`.

use crate::{
    GoldenError,
    bound::Bound,
    compare::Precision,
    foreign::{Quantity, msprobe_dump, replace},
    golden::Golden,
    judge::Targets,
    probe::to_f64,
};
use candle_core::Tensor;
use std::{collections::HashMap, path::Path};
use zoo_engine::{Observer, Options};
use zoo_graph::ValueId;
use zoo_recipe::Recipe;
use zoo_tensors::{Array, ElementType, npy};

/// Format of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A folder of `.npy` files in f64, named by the golden's keys.
    Named,
    /// A dump of msprobe for PyTorch in f32: `dump.json`, `construct.json`, `stack.json` and a `.pt` file per tensor.
    Msprobe,
}

/// Runs the first step of the golden in f64 and writes the values that have a golden key. Returns the number of
/// tensors.
///
/// # Errors
/// A step that cannot be built or run, or files that cannot be written.
pub fn write(recipe: &Recipe, golden: &Golden, form: Form, folder: &Path) -> Result<usize, GoldenError> {
    let bound = Bound::new(recipe, golden, Precision::F64, Options::of(recipe))?;
    let targets = Targets::of(&bound.graph, &bound.recipe);
    let mut dump = msprobe_dump::Dump::new(folder, &bound.golden);
    let mut written = 0;
    let mut take = |quantity: &Quantity, array: Array| {
        written += 1;
        match form {
            Form::Named => replace(&folder.join(format!("{}.npy", quantity.key())), &npy::encode(&array)),
            Form::Msprobe => dump.add(quantity, array),
        }
    };
    let mut shown = Shown { targets: &targets, by_value: targets.by_value(), take: &mut take, failed: None };
    bound.step()?.run(&bound.inputs()?, bound.scalars(0), &mut shown)?;
    shown.failed.map_or(Ok(()), Err)?;
    if form == Form::Msprobe {
        dump.finish(&bound.graph)?;
    }
    Ok(written)
}

/// Passes on the values of a step that have a golden key.
struct Shown<'a> {
    targets: &'a Targets,
    by_value: HashMap<ValueId, Vec<usize>>,
    take: &'a mut (dyn FnMut(&Quantity, Array) -> Result<(), GoldenError> + Send),
    failed: Option<GoldenError>,
}

impl Observer for Shown<'_> {
    fn wants(&self, value: ValueId) -> bool {
        self.failed.is_none() && self.by_value.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        let values = match to_f64(tensor) {
            Ok(values) => values,
            Err(error) => return self.failed = Some(zoo_engine::EngineError::from(error).into()),
        };
        for place in self.by_value.get(&value).into_iter().flatten() {
            let target = &self.targets.list[*place];
            let dtype = if tensor.dtype().is_float() { ElementType::F64 } else { ElementType::I64 };
            let array = Array { dtype, shape: target.shape.clone(), values: values.clone() };
            if let Err(error) = (self.take)(&target.quantity, array) {
                return self.failed = Some(error);
            }
        }
    }
}
