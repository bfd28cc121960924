//! From a resolved recipe to a graph: the network, and for training its loss, gradients and update.

mod layers;
mod loss;
mod optimizer;

use crate::{
    differentiate::differentiate,
    error::GraphError,
    graph::{Graph, Origin, Phase, Scope, VariableId},
    tensor::{DType, TensorType},
    verify::verify,
};
use zoo_recipe::{ConfigPath, Recipe, ResolvedModel};

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
}

impl BuildOptions {
    /// A training step in f32 with dropout.
    pub fn train(batch: usize) -> Self {
        Self { mode: Mode::Train, batch, dtype: DType::F32, dropout: true }
    }

    /// An evaluation in f32.
    pub fn eval(batch: usize) -> Self {
        Self { mode: Mode::Eval, batch, dtype: DType::F32, dropout: false }
    }
}

/// Name of the integer input that holds the classes.
pub const LABEL: &str = "label";

/// Builds the graph of a recipe. Parameters have their `state_dict` names.
///
/// # Errors
/// Layers that do not fit each other, with the line of the recipe; a loss that does not fit the network.
pub fn build(recipe: &Recipe, model: &ResolvedModel, options: &BuildOptions) -> Result<Graph, GraphError> {
    let mut graph = Graph::default();
    let logits = layers::lower(&mut graph, model, options)?;
    graph.outputs.push(("logits".into(), logits));
    if options.mode == Mode::Train {
        let labels = graph.add_input(LABEL, TensorType::plain([options.batch], DType::U32));
        loss::lower(&mut graph, recipe, logits, labels)?;
        let trained: Vec<VariableId> = graph.parameters().map(|(id, _)| id).collect();
        differentiate(&mut graph, &trained)?;
        optimizer::lower(&mut graph, recipe)?;
        move_statistics_to_the_end(&mut graph);
    }
    verify(&graph, None)?;
    Ok(graph)
}

/// Scope of the nodes that a section of the recipe makes.
fn section(recipe: &Recipe, path: &str, phase: Phase) -> Scope {
    let path = ConfigPath::from(path);
    let span = recipe.span_of(&path);
    Scope { phase, origin: Some(Origin { path: path.to_string(), span }) }
}

/// Orders nodes by phase, so that running statistics, which are lowered with their layers, are updated last.
fn move_statistics_to_the_end(graph: &mut Graph) {
    let (update, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut graph.nodes).into_iter().partition(|n| n.phase == Phase::Update);
    graph.nodes = rest.into_iter().chain(update).collect();
    for (n, node) in graph.nodes.iter().enumerate() {
        for (i, v) in node.outputs.iter().enumerate() {
            graph.values[v.0].source = crate::Source::Node(crate::NodeId(n), i);
        }
    }
}
