//! The network in evaluation mode.

use candle_core::{DType, Device, Tensor};
use std::collections::BTreeMap;
use zoo_engine::{Inputs, Options, Scalars, Step, candle_dtype};
use zoo_graph::{EMA, Graph};
use zoo_recipe::BuildOptions;
use zoo_recipe::schema::Extent;

use crate::{TrainError, job::Job};

/// The network with stored statistics, without dropout and update, for batches of up to a number of samples.
pub(super) struct Network<'a> {
    job: Job<'a>,
    step: Step,
    batch: usize,
    /// The weights, for a network of other inputs.
    weights: BTreeMap<String, Tensor>,
}

/// One output for all samples of a batch.
pub(super) struct Output {
    /// Shape of a sample's part.
    pub shape: Vec<usize>,
    values: Tensor,
}

impl Output {
    /// Numbers of all samples, one after the other.
    pub fn values(&self) -> Result<Vec<f32>, TrainError> {
        Ok(self.values.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
    }

    /// As [`Output::values`], in double precision.
    pub fn doubles(&self) -> Result<Vec<f64>, TrainError> {
        Ok(self.values.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?)
    }
}

impl<'a> Network<'a> {
    /// Without weights yet.
    pub fn new(job: Job<'a>, batch: usize) -> Result<Self, TrainError> {
        let graph = zoo_recipe::build(job.recipe, job.model, &BuildOptions::eval(batch))?;
        Ok(Self { job, step: step(job, graph)?, batch, weights: BTreeMap::new() })
    }

    /// The network.
    pub fn graph(&self) -> &Graph {
        self.step.graph()
    }

    /// Most samples of a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Name and shape (without the batch) of an input.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let graph = self.step.graph();
        graph.inputs.iter().map(|input| (input.name.as_str(), &graph.ty(input.value).shape[1..]))
    }

    /// Shape of an output, without the batch.
    pub fn output_shape(&self, name: &str) -> Result<Vec<usize>, TrainError> {
        let graph = self.step.graph();
        let found = graph.outputs.iter().find(|(output, _)| output == name);
        let (_, value) = found.ok_or_else(|| no_output(name))?;
        Ok(graph.ty(*value).shape[1..].to_vec())
    }

    /// Takes weights and running statistics by name; of a parameter with a moving average that one.
    pub fn load(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<(), TrainError> {
        let names: Vec<String> = self.step.graph().variables.iter().map(|variable| variable.name.clone()).collect();
        self.weights.clear();
        for name in names {
            let found = value(&format!("{name}/{EMA}")).or_else(|| value(&name));
            let tensor = found.ok_or_else(|| TrainError::Variables(format!("there is no `{name}`")))?;
            self.step.set_variable(&name, &tensor)?;
            self.weights.insert(name, tensor);
        }
        Ok(())
    }

    /// Takes images of another size from now on, `batch` at a time.
    pub fn resize(&mut self, batch: usize, input: &str, [height, width]: [usize; 2]) -> Result<(), TrainError> {
        let unchanged = self.inputs().any(|(name, shape)| name == input && shape[1..] == [height, width]);
        if unchanged && batch == self.batch {
            return Ok(());
        }
        let mut recipe = self.job.recipe.clone();
        if let Some(shape) = recipe.model.inputs.get_mut(input) {
            (shape[1], shape[2]) = (Extent(height), Extent(width));
        }
        let model = recipe.resolve().map_err(|error| TrainError::Mismatch(error.to_string()))?;
        let graph = zoo_recipe::build(&recipe, &model, &BuildOptions::eval(batch))?;
        let mut step = step(self.job, graph)?;
        for (name, tensor) in &self.weights {
            step.set_variable(name, tensor)?;
        }
        (self.step, self.batch) = (step, batch);
        Ok(())
    }

    /// Outputs of `n` samples (at most a batch), whose numbers are given for each input.
    pub fn run(&mut self, n: usize, inputs: Vec<(&str, Vec<f32>)>) -> Result<Vec<(String, Output)>, TrainError> {
        let graph = self.step.graph();
        let mut given = Inputs::new();
        for (name, mut values) in inputs {
            let input = graph.inputs.iter().find(|input| input.name == name);
            let input = input.ok_or_else(|| TrainError::Mismatch(format!("the network has no input `{name}`")))?;
            let ty = graph.ty(input.value);
            values.resize(values.len() / n * self.batch, 0.0);
            if ty.shape.numel() != values.len() || !ty.dtype.is_float() {
                let message = format!("`{name}` is {ty}, but a batch has {} numbers", values.len());
                return Err(TrainError::Mismatch(message));
            }
            let tensor = Tensor::from_vec(values, ty.shape.to_vec(), &Device::Cpu)?;
            given = given.with(name, tensor.to_dtype(candle_dtype(ty.dtype))?);
        }
        let scalars = Scalars { learning_rate: 0.0, step: 0, seed: 0, ..Scalars::default() };
        let result = self.step.run(&given, scalars, &mut ())?;
        let of_samples = |(name, tensor): (String, Tensor)| {
            let values = tensor.narrow(0, 0, n)?;
            Ok((name, Output { shape: values.dims()[1..].to_vec(), values }))
        };
        result.outputs.into_iter().map(of_samples).collect()
    }
}

fn step(job: Job<'_>, graph: zoo_graph::Graph) -> Result<Step, TrainError> {
    let options = Options::of(job.recipe);
    Ok(match job.device {
        Some(device) => Step::simulated(graph, options, device.arithmetic)?,
        None => Step::new(graph, options)?,
    })
}

/// The output of a name.
pub(super) fn output<'a>(outputs: &'a [(String, Output)], name: &str) -> Result<&'a Output, TrainError> {
    let found = outputs.iter().find(|(output, _)| output == name);
    found.map(|(_, output)| output).ok_or_else(|| no_output(name))
}

fn no_output(name: &str) -> TrainError {
    TrainError::Mismatch(format!("the network has no output `{name}`"))
}
