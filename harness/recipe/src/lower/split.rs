//! The step of one of several ranks that share it.

use super::{finish, forward};
use crate::{BuildOptions, Recipe, ResolvedModel, parallel::Parallel};
use std::collections::{BTreeMap, BTreeSet};
use zoo_graph::{
    Graph, GraphError, Op, ValueId, VariableId, VariableRole,
    ops::Group,
    parallel::{
        Distributed, Home, Mesh, MeshAxis, Part, Pipelined, Placement, Plan, distribute, pipeline, with_positions,
    },
};

/// A value of a rank, and how the ranks along each axis of the mesh have it: the first axis divides the whole value,
/// each further one what the axis before leaves to a rank.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The value in the graph of a rank.
    pub value: ValueId,
    /// Axes along which it is not whole.
    pub placements: Vec<(MeshAxis, Placement)>,
}

/// The step of each rank.
#[derive(Clone, Debug)]
pub struct SplitStep {
    /// The graph that each rank runs. Its variables are those of the whole step, in the same order.
    pub graph: Graph,
    /// The ranks.
    pub mesh: Mesh,
    /// Where the values of the whole step are, by their number, up to its losses.
    pub places: Vec<Option<Placed>>,
    /// The places along the pipeline that have each variable of the network. One that is not listed is everywhere.
    holders: BTreeMap<VariableId, BTreeSet<usize>>,
    /// Parameters of whose slots each data rank has a part, and the part of what the other axes leave to it.
    slots: BTreeMap<VariableId, Part>,
}

impl SplitStep {
    /// Whether the ranks at a place along the pipeline have a variable.
    pub fn has(&self, place: usize, id: VariableId) -> bool {
        let of = self.graph.variable(id).role.kept_beside().unwrap_or(id);
        self.holders.get(&of).is_none_or(|holders| holders.contains(&place))
    }

    /// How the ranks have a variable.
    pub fn variable(&self, id: VariableId) -> Placed {
        let variable = self.graph.variable(id);
        let of = variable.role.kept_beside().map_or(variable.value, |parameter| self.graph.variable(parameter).value);
        let parameter = self.places.iter().flatten().find(|placed| placed.value == of);
        let mut placements = parameter.map_or(Vec::new(), |placed| placed.placements.clone());
        if let VariableRole::Slot { parameter, .. } = &variable.role
            && let Some(part) = self.slots.get(parameter)
        {
            placements.push((MeshAxis::Data, Placement::Split(part.clone())));
        }
        Placed { placements, value: variable.value }
    }
}

/// Builds the step of a recipe for each of the ranks that share it.
///
/// # Errors
/// As [`super::build`]; and extents that the ranks cannot share, with the line of the recipe.
pub fn build_split(
    recipe: &Recipe,
    model: &ResolvedModel,
    options: &BuildOptions,
    parallel: &Parallel,
) -> Result<SplitStep, GraphError> {
    let mut graph = forward(recipe, model, options)?;
    let mesh = parallel.mesh(options.batch).map_err(refused)?;
    let begin = |value| Some(Placed { value: ValueId(value), placements: Vec::new() });
    let mut places: Vec<Option<Placed>> = (0..graph.values.len()).map(begin).collect();
    let mut holders = BTreeMap::new();
    // Stages come first, then what is inside of a layer, and then the samples: the parameters are still operands of
    // their layers.
    let order = mesh.axes().iter().rev().filter(|(axis, _)| *axis != MeshAxis::Pipeline);
    let pipelined = mesh.axes().iter().filter(|(axis, _)| *axis == MeshAxis::Pipeline);
    for &(axis, ranks) in pipelined.chain(order) {
        let plan = match axis {
            MeshAxis::Pipeline => {
                let Pipelined { distributed, holders: found } = pipeline(&graph, parallel.stages())?;
                holders = found;
                graph = distributed.graph;
                advance(&mut places, axis, &distributed.places);
                continue;
            }
            MeshAxis::Tensor => units(&graph, ranks, parallel)?,
            MeshAxis::Context => {
                graph = with_positions(&graph)?;
                tokens(&graph, ranks)?
            }
            MeshAxis::Expert => experts(&graph, ranks)?,
            MeshAxis::Data if parallel.zero == 3 => {
                samples(&graph, axis, ranks)?.with_gathered_parameters(&graph, ranks)
            }
            MeshAxis::Data | MeshAxis::MicroBatch => samples(&graph, axis, ranks)?,
        };
        let Distributed { graph: own, places: next } = distribute(&graph, axis, ranks, &plan)?;
        graph = own;
        advance(&mut places, axis, &next);
    }
    let mut split = SplitStep { graph, mesh, places, holders, slots: BTreeMap::new() };
    let divided = |(id, _): (VariableId, _)| {
        let part = |(axis, placement)| match placement {
            Placement::Split(part) => Some((axis, split.mesh.extent(axis), part)),
            Placement::Whole | Placement::Partial | Placement::Local => None,
        };
        let parts = split.variable(id).placements.into_iter().filter_map(part).collect();
        let stages = split.mesh.extent(MeshAxis::Pipeline);
        let holders = split.holders.get(&id).filter(|_| stages > 1).cloned().unwrap_or_default();
        (id, Share { parts, stages, holders })
    };
    let divided: BTreeMap<VariableId, Share> = split.graph.parameters().map(divided).collect();
    let folds = recipe.optimizer.operator(Group { weight_decay: 0.0, lr_scale: 1.0 }).formula.rows() > 0;
    if matches!(parallel.zero, 1 | 2) && !folds {
        // Slots of parameters that have no equal parts stay whole, as the parameters do in stage 3.
        let plan = Plan::default().with_gathered_parameters(&split.graph, parallel.data);
        split.slots = plan.variables.into_iter().collect();
    }
    let shares = Shares { divided, slots: split.slots.clone(), ranks: parallel.data };
    finish(&mut split.graph, recipe, options, &shares)?;
    parallel.passes().run(&mut split.graph, None)?;
    Ok(split)
}

/// Follows values into the graph of a further split.
fn advance(places: &mut [Option<Placed>], axis: MeshAxis, next: &[Option<(ValueId, Placement)>]) {
    for place in places {
        *place = place.take().and_then(|Placed { value, mut placements }| {
            let (value, placement) = next[value.0].clone()?;
            if placement != Placement::Whole {
                placements.push((axis, placement));
            }
            Some(Placed { value, placements })
        });
    }
}

/// What ranks share of the optimizer's work.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// What the ranks have of each parameter.
    pub divided: BTreeMap<VariableId, Share>,
    /// Parameters of whose slots each data rank has a part, and the part of what the other axes leave to it.
    pub slots: BTreeMap<VariableId, Part>,
    /// The data ranks.
    pub ranks: usize,
}

/// What the ranks have of a parameter.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    /// The axes of a mesh, with their extents, whose ranks each have a part of it: of the whole, and further ones of
    /// what the one before leaves.
    pub parts: Vec<(MeshAxis, usize, Part)>,
    /// Ranks along the pipeline.
    pub stages: usize,
    /// The places along the pipeline that have it; none without a pipeline.
    pub holders: BTreeSet<usize>,
}

impl Share {
    /// Whether each rank has all of it.
    pub fn is_whole(&self) -> bool {
        self.parts.is_empty() && self.holders.is_empty()
    }

    /// The axes along which squares have to be summed, with their extents, and the places that have it.
    pub fn summed(&self) -> (Vec<(MeshAxis, usize)>, &BTreeSet<usize>) {
        (self.parts.iter().map(|(axis, ranks, _)| (*axis, *ranks)).collect(), &self.holders)
    }
}

fn refused(message: String) -> GraphError {
    GraphError::Model { origin: None, message }
}

/// The plan of tensor parallelism.
fn units(graph: &Graph, ranks: usize, parallel: &Parallel) -> Result<Plan, GraphError> {
    let (plan, unsplit) = Plan::units(graph, ranks);
    if let Some(part) = unsplit.into_iter().next() {
        let runs: Vec<String> = part.runs.iter().map(usize::to_string).collect();
        let message = format!(
            "tensor={ranks} divides `{}`, and {} of `{}` is no multiple of {ranks}",
            part.parameter,
            runs.join(" or "),
            part.at
        );
        return Err(GraphError::Model { origin: part.origin, message });
    }
    if plan.variables.is_empty() {
        let message = format!(
            "tensor={ranks} divides nothing: no layer has units or heads between two products, no loss has classes"
        );
        return Err(GraphError::Model { origin: None, message });
    }
    Ok(Plan { home: parallel.sequence.then_some(Home::Tokens), ..plan })
}

/// The plan of data parallelism, and of micro-batches.
fn samples(graph: &Graph, axis: MeshAxis, ranks: usize) -> Result<Plan, GraphError> {
    let normalises = |node: &&zoo_graph::Node| matches!(node.op, Op::BnTrainingReduce(_));
    if let (MeshAxis::MicroBatch, Some(node)) = (axis, graph.nodes.iter().find(normalises)) {
        let message = format!(
            "`{}` normalises each micro-batch by itself, so the step is another one than that of the whole batch: leave \
             out `micro_batch`",
            node.name
        );
        return Err(GraphError::Model { origin: node.origin.clone(), message });
    }
    let plan = Plan::samples(graph);
    match plan.inputs.values().find(|part| !part.divides(ranks)) {
        Some(part) => {
            Err(refused(format!("{axis}={ranks} divides a batch of {}, which is no multiple of {ranks}", part.runs[0])))
        }
        None => Ok(plan),
    }
}

/// The plan of context parallelism.
fn tokens(graph: &Graph, ranks: usize) -> Result<Plan, GraphError> {
    let plan = Plan::tokens(graph);
    let plan =
        plan.ok_or_else(|| refused(format!("context={ranks} divides tokens, and the network has no input of them")))?;
    match plan.inputs.values().find(|part| !part.divides(ranks)) {
        Some(part) => {
            let tokens = part.runs[0];
            Err(refused(format!("context={ranks} divides {tokens} tokens, which is no multiple of {ranks}")))
        }
        None => Ok(plan),
    }
}

/// The plan of expert parallelism.
fn experts(graph: &Graph, ranks: usize) -> Result<Plan, GraphError> {
    let plan = Plan::experts(graph);
    let plan = plan.ok_or_else(|| refused(format!("expert={ranks} divides experts, and the network has none")))?;
    if let Some((id, part)) = plan.variables.iter().find(|(_, part)| !part.divides(ranks)) {
        let (variable, experts) = (graph.variable(*id), part.runs[0]);
        let message = format!("expert={ranks} divides {experts} experts, which is no multiple of {ranks}");
        return Err(GraphError::Model { origin: variable.origin.clone(), message });
    }
    match plan.inputs.values().find(|part| !part.divides(ranks)) {
        Some(part) => {
            let batch = part.runs[0];
            Err(refused(format!("expert={ranks} divides a batch of {batch} too, which is no multiple of {ranks}")))
        }
        None => Ok(plan),
    }
}
