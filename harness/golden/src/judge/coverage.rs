//! How much of each stage a recording has.

use super::{targets::Target, targets::Targets};
use crate::{foreign::Quantity, report::Stage};
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use zoo_graph::ValueId;

/// How much of a stage was compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Coverage {
    /// The stage.
    pub stage: Stage,
    /// Number of values that the recording has.
    pub recorded: usize,
    /// Number of values that a complete recording has. What several modules return counts once; what a port need not
    /// have (containers, paddings, dropouts that goldens leave out) counts only if it is recorded.
    pub of: usize,
    /// Names of those that are missing.
    pub missing: Vec<String>,
    /// Whether others of the same kind are recorded: then the missing ones may be so because the port lacks them.
    pub suspicious: bool,
}

impl Coverage {
    /// Of a stage, if these places of `targets` are recorded.
    pub(crate) fn of(stage: Stage, targets: &Targets, places: &BTreeSet<usize>) -> Self {
        let known: HashSet<ValueId> = places.iter().map(|place| targets.list[*place].value).collect();
        let kinds: HashSet<(Stage, &str)> = places.iter().map(|n| kind(&targets.list[*n])).collect();
        let mut coverage = Self { stage, recorded: 0, of: 0, missing: Vec::new(), suspicious: false };
        let mut seen = HashSet::new();
        let of_stage = targets.list.iter().filter(|target| target.stage == stage);
        // A value that a required quantity names is missing under this name.
        let (required, optional): (Vec<&Target>, Vec<&Target>) = of_stage.partition(|target| !target.optional);
        for target in required.into_iter().chain(optional) {
            let is_known = known.contains(&target.value);
            if (target.optional && !is_known) || !seen.insert(target.value) {
                continue;
            }
            coverage.of += 1;
            if is_known {
                coverage.recorded += 1;
            } else {
                coverage.suspicious |= kinds.contains(&kind(target));
                coverage.missing.push(target.name.clone());
            }
        }
        coverage
    }

    /// Whether everything is recorded.
    pub fn is_full(&self) -> bool {
        self.missing.is_empty()
    }

    /// The share that is recorded, in whole percent; 100 only if everything is.
    pub fn percent(&self) -> usize {
        (100 * self.recorded).checked_div(self.of).unwrap_or(100)
    }

    /// Whether the verdict needs it: a wrong start shows in what follows.
    pub fn counts(&self) -> bool {
        self.stage != Stage::Init
    }
}

/// Quantities of one kind are usually either all recorded, or none of them.
fn kind(target: &Target) -> (Stage, &str) {
    match &target.quantity {
        Quantity::After { kind, .. } => (target.stage, kind),
        Quantity::Start(_)
        | Quantity::Input(_)
        | Quantity::Into { .. }
        | Quantity::Output(_)
        | Quantity::Loss(_)
        | Quantity::Gradient(_) => (target.stage, ""),
    }
}
