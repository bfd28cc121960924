//! Maps the fields of a batch to the inputs of a graph.

use candle_core::{Device, Tensor};
use zoo_engine::{Inputs, candle_dtype};
use zoo_graph::Graph;
use zoo_tasks::{Element, Field, Input, Numbers};

use crate::TrainError;

/// The inputs of a graph, without the batch.
pub(crate) fn declared(graph: &Graph) -> Vec<Input> {
    let inputs = graph.inputs.iter().map(|input| {
        let ty = graph.ty(input.value);
        let element = if ty.dtype.is_float() { Element::Real } else { Element::Index };
        Input { name: input.name.clone(), shape: ty.shape.get(1..).unwrap_or_default().to_vec(), element }
    });
    inputs.collect()
}

/// Names of the outputs, and their shapes without the batch.
pub(crate) fn results(graph: &Graph) -> Vec<(String, Vec<usize>)> {
    let of = |(name, value): &(String, zoo_graph::ValueId)| {
        (name.clone(), graph.ty(*value).shape.get(1..).unwrap_or_default().to_vec())
    };
    graph.outputs.iter().map(of).collect()
}

/// The inputs of a graph, with its shapes and element types. Fields that the graph does not have are ignored.
pub(crate) fn inputs(graph: &Graph, fields: Vec<Field>) -> Result<Inputs, TrainError> {
    let mut inputs = Inputs::new();
    for Field { name, numbers } in fields {
        // Fields that no loss term uses are not inputs.
        let Some(input) = graph.inputs.iter().find(|input| input.name == name) else { continue };
        let ty = graph.ty(input.value);
        let fits = matches!(numbers, Numbers::Real(_)) == ty.dtype.is_float();
        if !fits || ty.shape.numel() != numbers.len() {
            let message = format!("`{name}` is {ty}, but a batch has {} numbers", numbers.len());
            return Err(TrainError::Mismatch(message));
        }
        let shape = ty.shape.to_vec();
        let tensor = match numbers {
            Numbers::Real(values) => Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(candle_dtype(ty.dtype))?,
            Numbers::Index(values) => Tensor::from_vec(values, shape, &Device::Cpu)?,
        };
        inputs = inputs.with(name, tensor);
    }
    Ok(inputs)
}
