//! The verdict on a split step, for people and for scripts.

use crate::{Precision, Stage, Verdict, report::StageReport};
use serde::Serialize;
use std::collections::BTreeMap;
use zoo_graph::{Graph, VariableId, parallel::MeshAxis};
use zoo_recipe::SplitStep;

/// The verdict on a split step.
#[derive(Clone, Debug, Serialize)]
pub struct SplitReport {
    /// Version of this structure.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The split.
    pub parallel: String,
    /// Number of ranks.
    pub ranks: usize,
    /// Samples per step.
    pub batch: usize,
    /// The arithmetic of the ranks.
    pub dtype: Precision,
    /// What ranks do together in a step.
    pub collectives: Vec<Collectives>,
    /// Parameters of which each rank has a part.
    pub divided: Vec<Divided>,
    /// Values that are rounding alone on one device too: a gradient that is zero in exact arithmetic, and what an
    /// optimizer makes of it. They are judged by their size.
    pub without_digits: Vec<String>,
    /// The stages.
    pub stages: Vec<StageReport>,
    /// The first value that differs, in the order in which the step computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_divergence: Option<Difference>,
    /// The result.
    pub verdict: Verdict,
}

/// Operators of one kind that ranks compute together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Collectives {
    /// The operator of the device.
    pub operator: &'static str,
    /// The axis of the mesh.
    pub over: MeshAxis,
    /// How many a step has.
    pub count: usize,
    /// Bytes that a rank gives to them, in f32.
    pub bytes: u64,
}

/// A parameter of which each rank has a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divided {
    /// The parameter.
    pub parameter: String,
    /// How it is divided.
    pub placement: String,
}

/// A value that differs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The part of the check.
    pub stage: Stage,
    /// The value.
    pub tensor: String,
    /// What is wrong with it.
    pub explanation: String,
    /// The line of the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

impl SplitReport {
    /// Whether all ranks together compute the step of one device.
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Pass
    }
}

/// What ranks do together.
pub(super) fn collectives(graph: &Graph) -> Vec<Collectives> {
    let mut found: BTreeMap<(MeshAxis, &'static str), (usize, u64)> = BTreeMap::new();
    for node in &graph.nodes {
        let zoo_graph::Op::Collective(op) = &node.op else { continue };
        if op.communicates() {
            let (count, bytes) = found.entry((op.over, node.op.name())).or_default();
            *count += 1;
            *bytes += 4 * graph.ty(node.inputs[0]).shape.numel() as u64;
        }
    }
    found.into_iter().map(|((over, operator), (count, bytes))| Collectives { operator, over, count, bytes }).collect()
}

/// The parameters of which each rank has a part.
pub(super) fn divided(split: &SplitStep) -> Vec<Divided> {
    let of = |(id, variable): (VariableId, &zoo_graph::Variable)| {
        let placements = split.variable(id).placements;
        let placement = placements.iter().map(|(axis, placement)| format!("{axis}: {placement}")).collect::<Vec<_>>();
        (!placements.is_empty()).then(|| Divided { parameter: variable.name.clone(), placement: placement.join(", ") })
    };
    split.graph.parameters().filter_map(of).collect()
}
