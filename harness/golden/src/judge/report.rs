//! The verdict on a recording, for people and for scripts.

use super::{Coverage, Proposal};
use crate::{
    foreign::Format,
    report::{Divergence, Item, Stage, StageReport, Verdict},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The verdict on a recorded step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgeReport {
    /// Version of this structure.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The golden's manifest.
    pub golden: String,
    /// The recording.
    pub recording: String,
    /// The writer of the recording.
    pub format: Format,
    /// The declared arithmetic.
    pub arithmetic: String,
    /// Number of recorded steps before this one.
    pub step: u64,
    /// Overall verdict: `partial` if everything compared passes, but something that the step computes is not recorded.
    pub verdict: Verdict,
    /// Whether the stages that are not completely recorded may be so.
    pub coverage_accepted: bool,
    /// Verdict by stage.
    pub stages: Vec<StageReport>,
    /// How much of each stage was compared.
    pub coverage: Vec<Coverage>,
    /// The first quantity that differs.
    pub first_divergence: Option<Divergence>,
    /// Names without a meaning in the step; a failure unless they are allowed.
    pub unmatched: Vec<String>,
    /// Whether they are allowed.
    pub unmatched_allowed: bool,
    /// What the names without a meaning may be; not used.
    #[serde(skip_serializing_if = "Proposal::is_empty")]
    pub proposal: Proposal,
    /// Number of names that were recognised without what a wrapper of the network adds, by that.
    pub wrappers: BTreeMap<String, usize>,
    /// Names of tensors that are not finite, as the recording says, in its own order.
    pub not_finite: Vec<String>,
    /// Number of quantities for which only statistics are recorded.
    pub statistics_only: usize,
    /// Number of contents of the recording that are not compared, by kind.
    pub not_compared: BTreeMap<String, usize>,
    /// Outputs and losses against those of the golden, with the errors of all modules. Not part of the verdict.
    pub end_to_end: Vec<Item>,
}

impl JudgeReport {
    /// Whether everything was compared and passes, or everything compared passes and the rest need not be there.
    pub fn is_accepted(&self) -> bool {
        match self.verdict {
            Verdict::Pass => true,
            Verdict::Partial => self.coverage_accepted,
            Verdict::Fail | Verdict::Absent => false,
        }
    }

    /// The coverage of a stage.
    pub fn coverage_of(&self, stage: Stage) -> Option<&Coverage> {
        self.coverage.iter().find(|coverage| coverage.stage == stage)
    }

    /// The stages of which something is missing that the verdict needs.
    pub fn incomplete(&self) -> impl Iterator<Item = &Coverage> {
        self.coverage.iter().filter(|coverage| coverage.counts() && !coverage.is_full())
    }
}

/// The verdict on several recorded steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepsReport {
    /// Version of this structure.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// `fail` if a step fails; otherwise `partial` if one is partial.
    pub verdict: Verdict,
    /// The first step that fails.
    pub first_failed_step: Option<u64>,
    /// What differs first in it.
    pub first_divergence: Option<Divergence>,
    /// The steps in turn.
    pub steps: Vec<JudgeReport>,
}

impl StepsReport {
    /// Of these steps.
    pub fn of(steps: Vec<JudgeReport>) -> Self {
        let failed = steps.iter().find(|report| report.verdict == Verdict::Fail);
        let verdict = match failed {
            Some(_) => Verdict::Fail,
            None if steps.iter().all(|report| report.verdict == Verdict::Pass) => Verdict::Pass,
            None => Verdict::Partial,
        };
        Self {
            schema_version: 1,
            recipe: steps.first().map(|report| report.recipe.clone()).unwrap_or_default(),
            verdict,
            first_failed_step: failed.map(|report| report.step),
            first_divergence: failed.and_then(|report| report.first_divergence.clone()),
            steps,
        }
    }
}
