//! The step of one of several ranks that share it.

use super::{finish, forward};
use crate::{BuildOptions, Recipe, ResolvedModel, parallel::Parallel};
use std::collections::BTreeMap;
use zoo_graph::{
    Graph, GraphError, ValueId, VariableId,
    parallel::{Distributed, Home, Mesh, MeshAxis, Placement, Plan, distribute},
};

/// A value of a rank, and how the ranks along each axis of the mesh have it: the first axis divides the whole value, each
/// further one what the axis before leaves to a rank.
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
}

impl SplitStep {
    /// How the ranks have a variable.
    pub fn variable(&self, id: VariableId) -> Placed {
        let variable = self.graph.variable(id);
        let own = Placed { value: variable.value, placements: Vec::new() };
        let of = variable.role.kept_beside().map_or(variable.value, |parameter| self.graph.variable(parameter).value);
        let parameter = self.places.iter().flatten().find(|placed| placed.value == of);
        Placed { placements: parameter.map_or(own.placements, |placed| placed.placements.clone()), value: own.value }
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
    let mesh = parallel.mesh();
    let begin = |value| Some(Placed { value: ValueId(value), placements: Vec::new() });
    let mut places: Vec<Option<Placed>> = (0..graph.values.len()).map(begin).collect();
    // What is inside of a layer comes before the samples: the parameters are still operands of their layers.
    for &(axis, ranks) in mesh.axes().iter().rev() {
        let plan = match axis {
            MeshAxis::Tensor => units(&graph, ranks, parallel)?,
            MeshAxis::Data => samples(&graph, ranks)?,
            MeshAxis::Context | MeshAxis::Expert => Plan::default(),
        };
        let Distributed { graph: own, places: next } = distribute(&graph, axis, ranks, &plan)?;
        graph = own;
        for place in &mut places {
            *place = place.take().and_then(|Placed { value, mut placements }| {
                let (value, placement) = next[value.0].clone()?;
                if placement != Placement::Whole {
                    placements.push((axis, placement));
                }
                Some(Placed { value, placements })
            });
        }
    }
    let mut split = SplitStep { graph, mesh, places };
    let divided = |(id, _): (VariableId, _)| {
        let axes = split.variable(id).placements.into_iter().map(|(axis, _)| (axis, split.mesh.extent(axis)));
        (id, axes.collect())
    };
    let divided: BTreeMap<VariableId, Vec<(MeshAxis, usize)>> = split.graph.parameters().map(divided).collect();
    finish(&mut split.graph, recipe, options, &divided)?;
    Ok(split)
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

/// The plan of data parallelism.
fn samples(graph: &Graph, ranks: usize) -> Result<Plan, GraphError> {
    let plan = Plan::samples(graph);
    match plan.inputs.values().find(|part| !part.divides(ranks)) {
        Some(part) => {
            let message = format!("data={ranks} divides a batch of {}, which is no multiple of {ranks}", part.runs[0]);
            Err(GraphError::Model { origin: None, message })
        }
        None => Ok(plan),
    }
}
