//! Faults of a split step, planted one at a time: each has to be found, with the tensor and the kind of the fault.
//!
//! Nine operators of mutation generate the silent faults that users of parallel training report: a missing collective,
//! a factor of the size of a group, another group of the same size, a local count, a wrong offset, a tensor counted
//! twice in a norm, old or lost data, another random stream, a wrong rule of the update. Each is applied to one tensor,
//! to a class of tensors, and to all. Where the values do not say what is missing, the faults that give these values
//! are named, as for steps that ranks recorded.

use super::{
    Difference, Proof, SplitOptions,
    comparison::Keep,
    planted::{Plant, all},
    suspects::{KEPT, Trace},
};
use crate::GoldenError;
use serde::Serialize;
use zoo_recipe::{Parallel, Recipe};

/// A planted fault and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The operator of mutation.
    pub operator: &'static str,
    /// What was planted.
    pub fault: String,
    /// Whether it changes no value in exact arithmetic, and so must not be found.
    pub harmless: bool,
    /// The first value that differs; `None` if all agree within three steps.
    pub found: Option<Difference>,
}

impl Found {
    /// Whether the verdict is right.
    pub fn is_right(&self) -> bool {
        self.found.is_some() != self.harmless
    }
}

/// What planting the faults shows.
#[derive(Clone, Debug)]
pub enum SplitPlanting {
    /// The split differs without a planted fault, so nothing was planted.
    Unsound(Box<super::SplitReport>),
    /// The split is right, and these are the results.
    Found(Vec<Found>),
}

/// Plants every fault that is possible in a split, one at a time. `progress` is told what is planted, and how many follow.
///
/// # Errors
/// As [`super::check_split`].
pub fn run(
    recipe: &Recipe,
    parallel: &Parallel,
    options: &SplitOptions,
    progress: &mut dyn FnMut(&str, usize),
) -> Result<SplitPlanting, GoldenError> {
    let proof = Proof::new(recipe, parallel, options, &mut |what| progress(what, 1))?;
    progress("without a fault", 1);
    let honest = proof.judge(proof.graph().clone(), &[])?;
    if !honest.passed() {
        return Ok(SplitPlanting::Unsound(Box::new(honest)));
    }
    let faults = all(&proof);
    let (mut found, mut traces, mut unexplained) = (Vec::new(), Vec::new(), Vec::new());
    for (n, Plant { operator, fault, harmless, graph, disturbed }) in faults.iter().enumerate() {
        progress(fault, faults.len() - n - 1);
        let comparison = proof.compare((graph.clone(), disturbed), options.steps, Keep::Differing(KEPT))?;
        traces.push(Trace::new(fault, &comparison));
        unexplained.push(comparison.wants_explanation());
        let report = comparison.report(Vec::new(), Vec::new());
        found.push(Found { operator, fault: fault.clone(), harmless: *harmless, found: report.first_divergence });
    }
    for ((found, trace), _) in found.iter_mut().zip(&traces).zip(&unexplained).filter(|(_, unexplained)| **unexplained)
    {
        if let Some(difference) = &mut found.found {
            difference.explanation += &format!(": as if {}", trace.alike(&traces, &proof));
        }
    }
    Ok(SplitPlanting::Found(found))
}
