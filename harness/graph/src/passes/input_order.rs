//! Reads images with the channels last.
//!
//! What: each image input is `[n, h, w, c]`, and is transposed to `[n, c, h, w]` on the device. Why: this is the cost
//! of a loader that does not transpose. The fastest axis changes, so the transpose copies the whole batch (the Gaudi
//! guide's "avoid non-logical transpose operations"). When not: inputs without four axes; loaders that provide
//! channels first.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Phase, Scope},
    ops::Transpose,
};

/// See the module's documentation. Runs first: it changes the types of inputs.
pub struct ChannelsLastInput;

impl Pass for ChannelsLastInput {
    fn name(&self) -> &'static str {
        "channels_last_input"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut draft = Draft::new(graph);
        let scope = Scope { phase: Phase::Forward, origin: None };
        let mut moved = Vec::new();
        for input in &graph.inputs {
            let ty = graph.ty(input.value);
            let (Some([n, c, h, w]), true) = (ty.shape.nchw(), ty.dtype.is_float()) else { continue };
            draft.patch.retype.push((input.value, ty.with_shape([n, h, w, c])));
            let op = Transpose { permutation: vec![0, 3, 1, 2] };
            let name = format!("{}/transpose", input.name);
            let to = draft.add_typed(0, &scope, name, op.into(), vec![input.value], ty.clone());
            moved.push((input.value, to));
        }
        draft.reread(|_, v| moved.iter().find(|(from, _)| *from == v).map_or(v, |(_, to)| *to));
        Ok(draft.finish(format!("{} inputs", moved.len())))
    }
}
