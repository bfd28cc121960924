//! Normalises images on the device instead of the host.
//!
//! What: each image input contains raw levels, and `(x - mean) / deviation` per channel becomes the first operator of
//! the step. Why: this reduces the work of the host if the input pipeline is the bottleneck (TensorFlow's
//! `enable_data_pre_proc`, prefetching at the end of the pipeline). When not: inputs with another number of channels
//! than the constants.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Phase, Scope, ValueId},
    ops::{BnInfer, Concat, Fill},
    tensor::TensorType,
};

/// See the module's documentation. Runs first.
pub struct NormalizeOnDevice {
    /// Mean per channel, in the levels of the input.
    pub mean: [f64; 3],
    /// Standard deviation per channel.
    pub std: [f64; 3],
}

impl Pass for NormalizeOnDevice {
    fn name(&self) -> &'static str {
        "normalize_on_device"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut draft = Draft::new(graph);
        let scope = Scope { phase: Phase::Forward, origin: None };
        let mut moved: Vec<(ValueId, ValueId)> = Vec::new();
        for input in &graph.inputs {
            let ty = graph.ty(input.value);
            let (Some([_, 3, _, _]), true) = (ty.shape.nchw(), ty.dtype.is_float()) else { continue };
            let mut constant = |what: &str, values: [f64; 3]| {
                let scalars = values.iter().enumerate().map(|(c, value)| {
                    let one = Fill { value: *value, ty: TensorType::plain([1], ty.dtype) };
                    draft.add(0, &scope, format!("{}/{what}{c}", input.name), one, &[])
                });
                let scalars = scalars.collect::<Result<Vec<_>, _>>()?;
                draft.add(0, &scope, format!("{}/{what}", input.name), Concat { axis: 0 }, &scalars)
            };
            let [scale, shift, mean, variance] = [
                constant("scale", [1.0; 3])?,
                constant("shift", [0.0; 3])?,
                constant("mean", self.mean)?,
                constant("variance", self.std.map(|s| s * s))?,
            ];
            let operands = [input.value, scale, shift, mean, variance];
            let to = draft.add(0, &scope, format!("{}/normalize", input.name), BnInfer { eps: 0.0 }, &operands)?;
            moved.push((input.value, to));
        }
        draft.reread(|_, v| moved.iter().find(|(from, _)| *from == v).map_or(v, |(_, to)| *to));
        Ok(draft.finish(format!("{} inputs", moved.len())))
    }
}
