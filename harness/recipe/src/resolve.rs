//! The resolved architecture: arguments substituted, blocks inlined, stacks repeated, names complete.
//!
//! Order of execution is the order of the tree: a residual runs `main` before `shortcut`, branches of a concatenation
//! run from first to last. A layer with a name is a module, which returns after its last inner layer. A walk in this
//! order, with containers after their content, therefore lists modules in the order of PyTorch's forward hooks. If a
//! name occurs again, it is another call of the same module (`relu#0`, `relu#1`, ...).

pub use crate::layers::ResolvedLayer;

use indexmap::IndexMap;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::layers::resolve::Expander;
use crate::schema::{InputShape, Recipe};
use crate::span::ConfigPath;

/// The architecture with everything decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedModel {
    /// Shape of each input without the batch, `[channels, height, width]`; the body starts from the first.
    pub inputs: IndexMap<String, InputShape>,
    /// Number of classes.
    pub classes: usize,
    /// The layers that are switched on, from input to output.
    pub body: Vec<ResolvedLayer>,
    /// Taps that are outputs of the network, by name; empty: the last value, as `logits`.
    pub outputs: IndexMap<String, String>,
}

impl Recipe {
    /// The resolved architecture, for the current class count and inputs.
    ///
    /// # Errors
    /// All arguments, names and numbers of layers that do not fit together.
    pub fn resolve(&self) -> Result<ResolvedModel, Diagnostics> {
        let (model, spans) = (&self.model, &self.spans);
        let network = (&model.blocks, model.classes);
        let mut expander = Expander::new(network, model.inputs.keys(), (spans, Self::shapes()));
        expander.declarations();
        let root = expander.root(&model.init);
        let body = expander.layers(model.body.written(), &ConfigPath::from("model").key("body"), &root).layers;
        let outputs = expander.named_taps(&model.outputs, &ConfigPath::from("model").key("outputs"), &root);
        for input in model.inputs.keys().filter(|input| !expander.used_inputs.contains(*input)) {
            let path = ConfigPath::from("model").key("inputs").key(input);
            let hint = format!("the body starts from the first input; use `- from: {input}` for this one");
            let error = Diagnostic::error(spans.get(&path), path, format!("nothing uses the input `{input}`"));
            expander.errors.push(error.with_hint(hint));
        }
        if !expander.errors.is_empty() {
            return Err(Diagnostics::new(expander.errors, spans.sources()));
        }
        Ok(ResolvedModel { inputs: model.inputs.clone(), classes: model.classes, body, outputs })
    }
}
