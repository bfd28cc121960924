//! From a resolved recipe to a graph: the network, and for training its loss, gradients and update.

mod loss;
mod network;
mod optimizer;
mod ranks;
mod split;

use crate::builder::{BuildOptions, Mode, ROOT};
use crate::values::Training;
use crate::{ConfigPath, Recipe, ResolvedModel, did_you_mean};
use zoo_graph::{
    Graph, GraphError, Origin, Phase, Scope, Shape, Tap, TapState, ValueId, VariableId, differentiate,
    passes::PrecisionPolicy, verify,
};

pub use ranks::across;
use split::Shares;
pub use split::{Placed, SplitStep, build_split};

/// Builds the graph of a recipe. Parameters have their `state_dict` names.
///
/// # Errors
/// Layers that do not fit each other, with the line of the recipe; a loss that does not fit the network.
pub fn build(recipe: &Recipe, model: &ResolvedModel, options: &BuildOptions) -> Result<Graph, GraphError> {
    let mut graph = forward(recipe, model, options)?;
    finish(&mut graph, recipe, options, &Shares::default())?;
    Ok(graph)
}

/// The network and, for training, its loss.
fn forward(recipe: &Recipe, model: &ResolvedModel, options: &BuildOptions) -> Result<Graph, GraphError> {
    let mut graph = Graph::default();
    let network = network::lower(&mut graph, model, &recipe.train.parts, options)?;
    if options.mode == Mode::Train {
        refuse_unknown_modules(&graph, recipe)?;
        loss::lower(&mut graph, recipe, options, &network.routings)?;
    }
    Ok(graph)
}

/// Adds gradients and updates.
fn finish(graph: &mut Graph, recipe: &Recipe, options: &BuildOptions, shares: &Shares) -> Result<(), GraphError> {
    if options.mode == Mode::Train {
        let training = |name: &str| Training::of(&recipe.train.parts, name, options.epoch);
        let wanted = graph.parameters().filter(|(_, v)| {
            let training = training(&v.name);
            training.trained || training.leaks
        });
        let wanted: Vec<VariableId> = wanted.map(|(id, _)| id).collect();
        differentiate(graph, &wanted)?;
        optimizer::lower(graph, recipe, &training, shares)?;
        graph.skip_loss_above = recipe.gradients.skip_loss_above;
        move_statistics_to_the_end(graph);
        let kept = recipe.npu.keep_fp32.iter().enumerate();
        let origin = |n: usize| section(recipe, &format!("npu.keep_fp32[{n}]"), Phase::Forward).origin;
        PrecisionPolicy::refuse_unknown(graph, kept.map(|(n, name)| (name.as_str(), origin(n))))?;
    }
    root_taps(graph, recipe);
    verify(graph, None)
}

/// The network for one sample, and the shapes of the input and the output of each layer, batch included, in the order
/// of their calls; containers come before what is inside.
///
/// # Errors
/// Layers that do not fit each other.
pub(crate) fn shapes(recipe: &Recipe, model: &ResolvedModel) -> Result<(Graph, Vec<[Shape; 2]>), GraphError> {
    let mut graph = Graph::default();
    let network = network::lower(&mut graph, model, &recipe.train.parts, &BuildOptions::eval(1))?;
    Ok((graph, network.shapes))
}

/// The shapes of the input and the output of each layer for one sample, batch included, in the order of their calls;
/// containers come before what is inside.
///
/// # Errors
/// Layers that do not fit each other.
pub fn layer_shapes(recipe: &Recipe, model: &ResolvedModel) -> Result<Vec<[Shape; 2]>, GraphError> {
    Ok(shapes(recipe, model)?.1)
}

/// An error if `train.parts` or `train.whiten` names nothing of the network.
fn refuse_unknown_modules(graph: &Graph, recipe: &Recipe) -> Result<(), GraphError> {
    let variables = || graph.variables.iter().map(|variable| variable.name.as_str());
    let known = |name: &str| {
        let inside = |rest: &str| rest.is_empty() || rest.starts_with('.');
        variables().any(|variable| variable.strip_prefix(name).is_some_and(inside))
    };
    let error = |path: String, message| {
        Err(GraphError::Model { origin: section(recipe, &path, Phase::Forward).origin, message })
    };
    for (n, part) in recipe.train.parts.iter().enumerate() {
        if let Some((m, name)) = part.modules.iter().enumerate().find(|(_, name)| !known(name)) {
            // Modules are what parameters are in.
            let modules = variables().flat_map(|name| name.match_indices('.').map(|(dot, _)| &name[..dot]));
            let hint = did_you_mean(name, modules.chain(variables()));
            let hint = hint.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default();
            return error(
                format!("train.parts[{n}].modules[{m}]"),
                format!("no module with parameters, and no parameter, is named `{}`{hint}", name.escape_debug()),
            );
        }
    }
    let Some(whiten) = &recipe.train.whiten else { return Ok(()) };
    let weight = graph.find_variable(&format!("{}.weight", whiten.module));
    let shape = weight.map(|id| graph.ty(graph.variable(id).value).shape.to_vec());
    let planes = graph.inputs.first().and_then(|input| graph.ty(input.value).shape.get(1).copied());
    match shape.as_deref() {
        Some([filters, channels, height, width])
            if Some(*channels) == planes && *filters == 2 * channels * height * width =>
        {
            Ok(())
        }
        Some([filters, channels, height, width]) if Some(*channels) == planes => {
            let needed = 2 * channels * height * width;
            error("train.whiten.module".into(), format!("whitening makes {needed} filters, but it has {filters}"))
        }
        _ => {
            let message = format!("`{}` is no convolution of the images", whiten.module.escape_debug());
            error("train.whiten.module".into(), message)
        }
    }
}

/// Epochs at which the set of trained parts changes, including 0: each needs its own graph.
pub fn stages(recipe: &Recipe) -> Vec<usize> {
    let trained = recipe.train.parts.iter().filter(|part| part.trained);
    let later = trained.flat_map(|part| [Some(part.from_epoch), part.until_epoch]).flatten();
    let mut epochs: Vec<usize> = later.filter(|epoch| *epoch < recipe.train.epochs).chain([0]).collect();
    epochs.sort_unstable();
    epochs.dedup();
    epochs
}

/// The outputs of a network with several outputs, under the names of the reference network.
fn root_taps(graph: &mut Graph, recipe: &Recipe) {
    if graph.taps.iter().any(|tap| tap.module == ROOT) {
        return;
    }
    let theirs = recipe.golden.as_ref().map(|golden| &golden.outputs);
    let known = graph.outputs.iter().chain(&graph.losses).chain(&graph.metrics);
    let tap = |part: &String, value: ValueId| Tap {
        module: ROOT.into(),
        call: 0,
        part: Some(part.clone()),
        state: TapState::Value(value),
        origin: None,
    };
    let taps: Vec<Tap> = match theirs.filter(|names| !names.is_empty()) {
        None => graph.outputs.iter().map(|(name, value)| tap(name, *value)).collect(),
        Some(names) => {
            let find = |name: &String| known.clone().find(|(known, _)| known == name).map(|(_, value)| *value);
            names.iter().filter_map(|(key, name)| Some(tap(key, find(name)?))).collect()
        }
    };
    graph.taps.extend(taps);
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
            graph.values[v.0].source = zoo_graph::Source::Node(zoo_graph::NodeId(n), i);
        }
    }
}
