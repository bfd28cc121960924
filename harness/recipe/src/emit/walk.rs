//! The walk through a resolved network that writes its modules and calls as Python.

use zoo_graph::Shape;

use crate::diagnostic::Diagnostic;
use crate::python::{Dialect, Emitter, Exports, Var};
use crate::resolve::ResolvedModel;
use crate::schema::{InputShape, Model};

/// Writes the network. `shapes` are those of the input and the output of each layer, in the order of their calls.
pub(super) fn write<'a>(
    dialect: Dialect,
    model: &'a Model,
    resolved: &ResolvedModel,
    shapes: &'a [[Shape; 2]],
) -> Result<Emitter<'a>, Diagnostic> {
    let mut exports = Exports::new();
    loop {
        let blocks = model.blocks.iter().map(|(name, block)| (name.as_str(), &block.args));
        let mut emitter = Emitter::new(dialect, blocks, shapes, exports);
        let extents = |input: &InputShape| input.extents().iter().map(|extent| extent.0).collect();
        emitter.start(model.classes, resolved.inputs.iter().map(|(name, input)| (name.as_str(), extents(input))));
        let y = resolved.body.iter().try_fold(Var(0), |x, layer| layer.emit(&mut emitter, x))?;
        emitter.finish(y, &resolved.outputs);
        if emitter.wanted.is_subset(&emitter.exports) {
            return Ok(emitter);
        }
        exports = emitter.exports;
        exports.append(&mut emitter.wanted);
    }
}
