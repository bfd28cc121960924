//! The network in evaluation mode.

use candle_core::{DType, Tensor};
use std::collections::BTreeMap;
use zoo_engine::{Options, Scalars, Step};
use zoo_graph::{EMA, Graph};
use zoo_recipe::BuildOptions;
use zoo_tasks::{EvaluationError, Field, Input, Network as _, Numbers, Output};

use crate::{
    TrainError,
    inputs::{declared, inputs, results},
    job::Job,
};

/// The network with stored statistics, without dropout and update, for batches up to a maximum size.
pub(crate) struct Network<'a> {
    job: Job<'a>,
    step: Step,
    batch: usize,
    /// The weights, to build a network with other inputs.
    weights: BTreeMap<String, Tensor>,
}

impl<'a> Network<'a> {
    /// Builds the network without weights.
    pub fn new(job: Job<'a>, batch: usize) -> Result<Self, TrainError> {
        let graph = zoo_recipe::build(job.recipe, job.model, &BuildOptions::eval(batch))?;
        Ok(Self { job, step: step(job, graph)?, batch, weights: BTreeMap::new() })
    }

    /// The network.
    pub fn graph(&self) -> &Graph {
        self.step.graph()
    }

    /// Loads weights and running statistics by name. If a parameter has a moving average, the average is used.
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

    fn reshape(&mut self, batch: usize, input: &str, shape: &[usize]) -> Result<(), TrainError> {
        let unchanged = self.inputs().iter().any(|known| known.name == input && known.shape == shape);
        if unchanged && batch == self.batch {
            return Ok(());
        }
        let mut recipe = self.job.recipe.clone();
        if let Some(declared) = recipe.model.inputs.get_mut(input) {
            declared.set(shape);
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

    fn compute(&mut self, n: usize, mut fields: Vec<Field>) -> Result<Vec<Output>, TrainError> {
        for Field { numbers, .. } in &mut fields {
            let len = numbers.len() / n * self.batch;
            match numbers {
                Numbers::Real(values) => values.resize(len, 0.0),
                Numbers::Index(values) => values.resize(len, 0),
            }
        }
        let given = inputs(self.step.graph(), fields)?;
        let scalars = Scalars { learning_rate: 0.0, step: 0, seed: 0, ..Scalars::default() };
        let result = self.step.run(&given, scalars, &mut ())?;
        let of_samples = |(name, tensor): (String, Tensor)| {
            let values = tensor.narrow(0, 0, n)?;
            let shape = values.dims()[1..].to_vec();
            Ok(Output { name, shape, values: values.to_dtype(DType::F32)?.flatten_all()?.to_vec1()? })
        };
        result.outputs.into_iter().map(of_samples).collect()
    }
}

impl zoo_tasks::Network for Network<'_> {
    fn batch(&self) -> usize {
        self.batch
    }

    fn inputs(&self) -> Vec<Input> {
        declared(self.step.graph())
    }

    fn outputs(&self) -> Vec<(String, Vec<usize>)> {
        results(self.step.graph())
    }

    fn resize(&mut self, batch: usize, input: &str, shape: &[usize]) -> Result<(), EvaluationError> {
        self.reshape(batch, input, shape).map_err(|error| EvaluationError::Network(error.into()))
    }

    fn run(&mut self, n: usize, fields: Vec<Field>) -> Result<Vec<Output>, EvaluationError> {
        self.compute(n, fields).map_err(|error| EvaluationError::Network(error.into()))
    }
}

fn step(job: Job<'_>, graph: zoo_graph::Graph) -> Result<Step, TrainError> {
    let options = Options::of(job.recipe);
    Ok(match job.device {
        Some(device) => Step::simulated(graph, options, device.arithmetic)?,
        None => Step::new(graph, options)?,
    })
}
