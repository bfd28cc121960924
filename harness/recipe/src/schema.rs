//! The recipe as types: the single source of the JSON Schema, the documentation and deserialisation.
//!
//! Editors show the docstrings of fields, so write them for authors of recipes.

mod data;
mod detection;
mod gradients;
mod language;
mod metric;
mod model;
mod npu;
mod preprocess;
mod run;
mod segmentation;
mod text;
mod tracking;
mod training;

pub use data::*;
pub use detection::*;
pub use gradients::*;
pub use language::*;
pub use metric::*;
pub use model::*;
pub use npu::*;
pub use preprocess::*;
pub use run::*;
pub use segmentation::*;
pub use text::*;
pub use tracking::*;
pub use training::*;

pub use zoo_settings::*;

pub use crate::losses::*;
pub use crate::optimizer::*;
pub use crate::parallel::*;
pub use crate::schedule::*;
pub use crate::values::*;

use std::sync::OnceLock;

use serde_yaml::with::singleton_map_recursive;

use crate::diagnostic::Diagnostic;
use crate::layers::shapes_of;
use crate::shape::{self, FILE_KEYS};
use crate::span::{ConfigPath, Span, SpanTable};

zoo_settings::settings! {
    /// A model, its training, and its target.
    pub struct Recipe {
        /// Name of the recipe: lower-case letters, digits, `-` and `_`.
        #[schemars(regex(pattern = "^[a-z0-9][a-z0-9_-]*$"))]
        pub name: String,
        /// Description in one or two sentences.
        pub description?: String,
        /// Source of the network and its results.
        pub reference?: Reference,
        /// The architecture.
        pub model: Model,
        /// The source of the samples.
        pub data: Data,
        /// From a decoded image to the input of the network.
        pub preprocess: Preprocess = Preprocess::default(),
        /// From the outputs of the network to what is evaluated.
        #[serde(skip_serializing_if = "Postprocess::is_default")]
        pub postprocess: Postprocess = Postprocess::default(),
        /// The loss: the sum of the terms named here.
        pub loss: Loss,
        /// What happens to gradients before the update.
        pub gradients: Gradients = Gradients::default(),
        /// The update rule.
        pub optimizer: Optimizer,
        /// The learning rate of each step.
        pub schedule: Schedule,
        /// Batch size, length, evaluations and checkpoints of the training.
        pub train: Train,
        /// The target that the training has to reach.
        pub target?: Target,
        /// How several ranks share the step.
        pub parallel?: Parallel,
        /// The simulated NPU.
        pub npu: Npu = Npu::default(),
        /// Settings of the CPU engine.
        pub engine: Engine = Engine::default(),
        /// The golden tensors that prove one step.
        pub golden?: Golden,
        /// Where each node was written.
        #[serde(skip)]
        pub spans: SpanTable,
    }
}

impl Recipe {
    /// Where the node at `path` (for example `model.body[3].conv.kernel`) was written; for a default, the position of
    /// the enclosing section.
    pub fn span(&self, path: &str) -> Span {
        self.spans.get(&ConfigPath::from(path))
    }

    /// The position of the last change in the section at `path`: the first override of the command line inside it, or
    /// the section itself.
    pub fn span_of_change(&self, path: &str) -> Span {
        self.spans.override_within(path).unwrap_or_else(|| self.span(path))
    }

    /// As [`Recipe::span`], for a path that layers and diagnostics carry.
    pub fn span_of(&self, path: &ConfigPath) -> Span {
        self.spans.get(path)
    }

    /// An error at `path`, with the line of the recipe it points to.
    pub fn error_at(&self, path: &ConfigPath, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(self.span_of(path), path.clone(), message).with_excerpt(self.spans.sources())
    }

    /// As [`Recipe::error_at`], for a path of the expanded architecture, whose `span` its layer carries.
    pub fn error_made_at(&self, span: Span, path: &ConfigPath, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(span, path.clone(), message).with_excerpt(self.spans.sources())
    }

    /// What trainings are judged by: the target's metric, without a target the first of the available ones.
    pub fn metric(&self) -> Metric {
        self.target.as_ref().map_or(self.metrics()[0], |target| target.metric)
    }

    /// The metrics that are available for the samples, in display order.
    pub fn metrics(&self) -> &'static [Metric] {
        match (self.data.source.kind(), &self.preprocess.masking) {
            (SampleKind::Language, Some(masking)) => masking.metrics(),
            (kind, _) => kind.metrics(),
        }
    }

    /// The shapes of recipes, compiled once.
    pub(crate) fn shapes() -> &'static shape::Shapes {
        static SHAPES: OnceLock<shape::Shapes> = OnceLock::new();
        SHAPES.get_or_init(|| shapes_of::<Self>(&FILE_KEYS))
    }

    /// The recipe as YAML, defaults written out; loads as an equal recipe.
    ///
    /// # Errors
    /// A path that is not UTF-8.
    pub fn to_yaml(&self) -> Result<String, serde_yaml::Error> {
        let value = singleton_map_recursive::serialize(self, serde_yaml::value::Serializer)?;
        serde_yaml::to_string(&value)
    }
}

zoo_settings::settings! {
    /// Source of a network and its results.
    pub struct Reference {
        /// The paper, for example `arXiv 1512.03385`.
        pub paper?: String,
        /// The code that the recipe follows, and its variant.
        pub code?: String,
    }
}
