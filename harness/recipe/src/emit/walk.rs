//! The walk through a resolved network that writes its modules and calls as Python.

use std::collections::{BTreeMap, BTreeSet};

use zoo_graph::Shape;

use crate::diagnostic::Diagnostic;
use crate::python::{Emitter, Exports, Usage, Var};
use crate::resolve::ResolvedModel;
use crate::schema::{InputShape, Model};

/// The network as uses of classes; the last is the whole.
pub(super) struct Written {
    /// Classes in use, those inside before those around them.
    pub uses: Vec<Usage>,
    /// Functions that the program defines.
    pub helpers: BTreeSet<&'static str>,
    /// Parameters whose name stands for that of another: `lm_head.weight`, `transformer.wte.weight`.
    pub ties: Vec<(String, String)>,
    /// Classes of modules by full name; constructors of parameters.
    pub modules: BTreeMap<String, String>,
}

/// Writes the network. `shapes` are those of the input and the output of each layer, in the order of their calls.
pub(super) fn write(model: &Model, resolved: &ResolvedModel, shapes: &[[Shape; 2]]) -> Result<Written, Diagnostic> {
    let mut exports = Exports::new();
    loop {
        let blocks = model.blocks.iter().map(|(name, block)| (name.as_str(), &block.args));
        let mut emitter = Emitter::new(blocks, shapes, &exports);
        let extents = |input: &InputShape| input.extents().iter().map(|extent| extent.0).collect();
        emitter.start(model.classes, resolved.inputs.iter().map(|(name, input)| (name.as_str(), extents(input))));
        let y = resolved.body.iter().try_fold(Var(0), |x, layer| layer.emit(&mut emitter, x))?;
        emitter.finish(y, &resolved.outputs);
        let more = std::mem::take(&mut emitter.wanted);
        if more.is_subset(&exports) {
            let Emitter { uses, helpers, ties, modules, .. } = emitter;
            return Ok(Written { uses, helpers, ties, modules });
        }
        exports.extend(more);
    }
}
