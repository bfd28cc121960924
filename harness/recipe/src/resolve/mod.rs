//! The resolved architecture: arguments substituted, blocks inlined, stacks repeated, names complete.
//!
//! Order of execution is the order of the tree: a residual runs `main` before `shortcut`, branches of a concatenation
//! run from first to last. A layer with a name is a module, which returns after its last inner layer. A walk in this
//! order, with containers after their content, therefore lists modules in the order of PyTorch's forward hooks. If a
//! name occurs again, it is another call of the same module (`relu#0`, `relu#1`, ...).

mod args;
mod blocks;
mod expand;
mod place;

pub(crate) use expand::expand;
pub(crate) use place::Place;

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::layers::Layer;
use crate::schema::InputShape;
use crate::span::{ConfigPath, Span};
use crate::values::Expression;

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

/// One layer that is switched on.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedLayer {
    /// Full name of the module, as in state_dict (`layer1.0.conv1`); `None` for a plain function.
    /// Layers with parameters always have one, and it is theirs alone.
    pub name: Option<String>,
    /// Whether its output is the output of the module `name`. It is not for a layer called `.`, which only owns the
    /// parameters of the enclosing module.
    pub is_module: bool,
    /// Its path in the recipe, for example `model.blocks.bottleneck.body[0].residual.main[3]`.
    pub path: ConfigPath,
    /// Where that was written.
    pub span: Span,
    /// What it does.
    pub kind: Layer,
    /// Taps that it returns to its caller, by key, if it returns more than its last value.
    pub returns: IndexMap<String, String>,
    /// The expressions of block arguments in it, by the keys that lead there (`out`, `args.width`).
    pub expressions: BTreeMap<String, Expression>,
}
