//! Results obtained before a training, as events for its log and page.

use crate::context::SCHEMA_VERSION;
use std::time::Duration;
use zoo_golden::device::DeviceReport;
use zoo_golden::report::{Divergence, StageReport};
use zoo_golden::{Precision, Report, Verdict};
use zoo_npu::Event as Kernel;
use zoo_npu::Profile;
use zoo_train::GoldenVerdict;
use zoo_train::event::{
    Busy, Compared, Cost, DeviceCheck, FirstDivergence, GoldenCheck, Lane, LossScaleFound, NodeLoss, OperatorCost,
    StageCheck,
};

/// Number of nodes of a device's step to store.
const NODES: usize = 12;
/// Number of operators of a predicted cost to store.
const OPERATORS: usize = 12;
/// Number of spans per stream to store: a screen does not show more.
const SPANS: usize = 300;

/// A golden check; `changes` are the changes of the run to the recipe as written.
pub(super) fn golden(report: &Report, changes: Vec<String>, time: Duration) -> GoldenCheck {
    GoldenCheck {
        schema_version: SCHEMA_VERSION,
        recipe: report.recipe.clone(),
        golden: report.golden.clone(),
        baseline: report.baseline,
        dtype: match report.dtype {
            Precision::F32 => "f32".to_owned(),
            Precision::F64 => "f64".to_owned(),
        },
        verdict: verdict(report.verdict),
        stages: report.stages.iter().map(stage).collect(),
        first_divergence: report.first_divergence.as_ref().map(divergence),
        changes,
        seconds: time.as_secs_f64(),
    }
}

fn verdict(verdict: Verdict) -> GoldenVerdict {
    match verdict {
        Verdict::Pass => GoldenVerdict::Pass,
        Verdict::Fail | Verdict::Partial => GoldenVerdict::Fail,
        Verdict::Absent => GoldenVerdict::Absent,
    }
}

fn stage(stage: &StageReport) -> StageCheck {
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    let compared = |item: &zoo_golden::report::Item| Compared {
        name: item.name.clone(),
        error: finite(item.error),
        floor: item.floor,
        ratio: finite(item.ratio),
    };
    StageCheck {
        stage: stage.stage.to_string(),
        tensors: stage.tensors,
        fused: stage.fused,
        worst: stage.worst.as_ref().map(compared),
        median_ratio: stage.median_ratio.and_then(finite),
        verdict: verdict(stage.verdict),
    }
}

fn divergence(found: &Divergence) -> FirstDivergence {
    FirstDivergence {
        stage: found.stage.to_string(),
        tensor: found.tensor.clone(),
        node: found.node.clone(),
        local: found.local,
        suspects: found.suspects.clone(),
        line: found.line.clone(),
        hints: found.hints.clone(),
    }
}

/// A step on a device.
pub(super) fn device(report: &DeviceReport, name: &str) -> DeviceCheck {
    let mut nodes: Vec<_> = report.nodes.iter().filter(|node| node.underflow + node.overflow > 0.0).collect();
    nodes.sort_by(|a, b| (b.underflow + b.overflow).total_cmp(&(a.underflow + a.overflow)));
    let loss = |node: &&zoo_golden::device::NodeReport| NodeLoss {
        node: node.node.clone(),
        dtype: node.dtype.to_string(),
        underflow: node.underflow,
        overflow: node.overflow,
    };
    DeviceCheck {
        device: name.to_owned(),
        verdict: verdict(report.verdict),
        first_divergence: report.first_divergence.as_ref().map(divergence),
        loss_scale: report.loss_scale.map(|scale| LossScaleFound {
            present: scale.present,
            lost_at_1: scale.lost_at_1,
            lost_at_present: scale.lost_at_present,
            best: scale.best,
            lost_at_best: scale.lost_at_best,
        }),
        losses: nodes.iter().take(NODES).map(loss).collect(),
    }
}

/// The predicted cost of a step on a device.
pub(super) fn cost(profile: &Profile, device: &str) -> Cost {
    let ops = profile.by_operator().into_iter().take(OPERATORS).map(|op| OperatorCost {
        op: op.op,
        count: op.count,
        ms: op.ms,
        share: op.share,
        bound: op.bound.to_owned(),
    });
    let lanes = zoo_npu::STREAMS
        .iter()
        .map(|(stream, name)| Lane { stream: (*name).to_owned(), spans: spans(profile, profile.stream(*stream)) });
    Cost {
        device: device.to_owned(),
        devices: profile.devices,
        batch: profile.batch,
        step_ms: profile.step.ms(),
        images_per_s: profile.images_per_s,
        limit: profile.limit.name().to_owned(),
        peak_memory_bytes: profile.peak_memory.0,
        ops: ops.collect(),
        timeline: lanes.filter(|lane| !lane.spans.is_empty()).collect(),
    }
}

/// Busy times of kernels in order. Consecutive kernels with short gaps are merged if they have the same bottleneck or
/// are too short to be visible.
fn spans<'p>(profile: &Profile, kernels: impl Iterator<Item = &'p Kernel>) -> Vec<Busy> {
    // Shorter entries are not visible on a screen.
    let close = profile.timeline.end.ms() / SPANS as f64;
    let mut spans: Vec<(Busy, f64)> = Vec::new();
    for kernel in kernels {
        let (from, to) = (kernel.start.ms(), kernel.end.ms());
        let bound = kernel.kernel.map(|k| profile.prices[k].bound.name().to_owned());
        match spans.last_mut() {
            Some((last, longest))
                if from - last.to_ms < close && (last.bound == bound || to - last.from_ms < close) =>
            {
                (last.to_ms, last.count) = (to, last.count + 1);
                if to - from > *longest {
                    *longest = to - from;
                    (last.longest, last.bound) = (kernel.name.clone(), bound);
                }
            }
            _ => {
                let longest = kernel.name.clone();
                spans.push((Busy { from_ms: from, to_ms: to, bound, count: 1, longest }, to - from));
            }
        }
    }
    spans.into_iter().map(|(span, _)| span).collect()
}
