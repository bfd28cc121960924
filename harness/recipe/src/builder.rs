//! What layers and terms of a loss add nodes to a graph with.

mod network;
mod terms;

pub(crate) use network::{Builder, Gives, Network, Routing};
pub(crate) use terms::{Component, Terms};

use zoo_graph::DType;

/// What a graph is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A whole training step: normalisations use the batch, dropout drops.
    Train,
    /// The network alone, with stored statistics and without dropout.
    Eval,
}

/// What a recipe leaves open, or a golden decides instead of it.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Training step or evaluation.
    pub mode: Mode,
    /// Images per step.
    pub batch: usize,
    /// Element type of everything that is computed.
    pub dtype: DType,
    /// Whether the recipe's dropout is applied; goldens leave it out.
    pub dropout: bool,
    /// Epoch (from 0) whose parts are trained; see [`crate::stages`].
    pub epoch: usize,
}

impl BuildOptions {
    /// A training step in f32 with dropout.
    pub fn train(batch: usize) -> Self {
        Self { mode: Mode::Train, batch, dtype: DType::F32, dropout: true, epoch: 0 }
    }

    /// An evaluation in f32.
    pub fn eval(batch: usize) -> Self {
        Self { mode: Mode::Eval, batch, dtype: DType::F32, dropout: false, epoch: 0 }
    }
}

/// Name of the integer input that holds the classes.
pub const LABEL: &str = "label";

/// Name of the integer input that holds the second classes of mixed images (`preprocess.mix`), `[n]`.
pub const MIXED_LABEL: &str = "mixed_label";

/// Name of the input that holds the share of [`LABEL`] in the label of each mixed image, `[n]`.
pub const LABEL_SHARE: &str = "label_share";

/// Name of the output of a network with a single output.
pub(crate) const LOGITS: &str = "logits";

/// Module name of the whole network.
pub const ROOT: &str = "@root";
