//! Writes a network as an ONNX model for inference: the operators of the evaluation graph, and the weights.
//!
//! Normalisations use their running statistics, feature maps are NCHW, and initializers have the names of PyTorch's
//! state_dict. The model only uses operators of the operator set [`OPSET`].
//!
//! ```
//! use zoo_onnx::{About, Batch, export};
//! use zoo_recipe::{BuildOptions, Library, LoadOptions};
//!
//! let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
//! let recipe = Library::new([recipes]).load("resnet18", &LoadOptions::default())?.recipe;
//! let network = recipe.resolve()?;
//! let graph = |samples| zoo_recipe::build(&recipe, &network, &BuildOptions::eval(samples));
//! // In a graph for a batch size of its own, the batch is told apart from other dimensions of this size.
//! let graph = graph(zoo_onnx::distinct_batch(&graph(1)?))?;
//! assert_eq!(zoo_onnx::batch(&graph), Batch::Any);
//! let numel = |name: &str| Some(graph.ty(graph.variable(graph.find_variable(name)?).value).shape.numel());
//! let model = export(&graph, Batch::Any, &About::default(), |name| Some(vec![0.0; numel(name)?]))?;
//! assert!(model.bytes.len() > 4 * 11_000_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod constant;
mod message;
mod translate;

pub use translate::{Batch, Exported, OnnxError, batch, distinct_batch, export};

/// The operator set of ONNX 1.13 (December 2022), the first whose `Resize` can exclude the batch dimension.
pub const OPSET: i64 = 18;

/// The version of the file format that [`OPSET`] requires.
const IR_VERSION: i64 = 8;

/// The metadata of a model.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the network.
    pub name: String,
    /// A description in one or two sentences.
    pub description: String,
    /// Version of the program that wrote it.
    pub version: String,
    /// Further metadata, as pairs of key and value.
    pub metadata: Vec<(String, String)>,
}
