//! The text output of `zoo profile`.

use crate::Failure;
use crate::console::{Console, DIM, HEADING, paint};
use crate::numbers::percent;
use crate::table::Table;
use serde::Serialize;
use std::io::Write;
use zoo_graph::Bytes;
use zoo_npu::Bucket;
use zoo_npu::Input;
use zoo_npu::{Device, Limit, Measured, OpCost, Profile, WhatIf};
use zoo_recipe::Recipe;

/// The report as JSON.
#[derive(Serialize)]
pub(super) struct Report {
    recipe: String,
    device: String,
    devices: usize,
    batch: usize,
    /// Number of micro-batches that a device computes one after the other.
    micro_batches: usize,
    step_ms: f64,
    images_per_s: f64,
    /// What limits the step: `device` or `input`.
    limit: Limit,
    /// The time of the device if it never waits for input.
    device_ms: f64,
    /// Time of the slowest device divided by the mean; included in the step time.
    slowest: f64,
    input_ms: f64,
    input: Input,
    /// Kernels by phase.
    phases: Vec<PhaseTime>,
    /// Tokens per sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_s: Option<f64>,
    pub(super) peak_memory_bytes: u64,
    memory_bytes: u64,
    compile_s: f64,
    /// Useful TFLOP per second of one device.
    tflops: f64,
    /// TFLOP per second as a share of the half-precision peak: model FLOP utilisation.
    mfu: f64,
    utilisation: Utilisation,
    /// Time on the critical path, by bottleneck.
    critical_path: Vec<Bound>,
    all_reduce: Collective,
    passes: Vec<Pass>,
    ops: Vec<OpCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_if: Option<Vec<WhatIf>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernels: Option<Vec<KernelRow>>,
    /// The same step as a profiler measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<Measured>,
    /// The same before a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Measured>,
}

#[derive(Serialize)]
struct Utilisation {
    cube: f64,
    vector: f64,
    hbm: f64,
}

#[derive(Serialize)]
struct PhaseTime {
    phase: String,
    ms: f64,
}

#[derive(Serialize)]
struct Bound {
    bound: &'static str,
    ms: f64,
}

#[derive(Serialize)]
struct Collective {
    buckets: Vec<Bucket>,
    exposed_ms: f64,
}

#[derive(Serialize)]
struct Pass {
    pass: &'static str,
    patches: usize,
}

#[derive(Serialize)]
struct KernelRow {
    name: String,
    op: String,
    phase: String,
    /// Line of the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,
    us: f64,
    cube_us: f64,
    vector_us: f64,
    hbm_us: f64,
    l2_us: f64,
    bytes: u64,
    bound: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<[u64; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<[u64; 2]>,
}

impl Report {
    pub(super) fn new(
        recipe: &Recipe,
        device: &Device,
        profile: &Profile,
        kernels: bool,
        what_if: Option<Vec<WhatIf>>,
    ) -> Self {
        let [cube, vector, hbm] = profile.utilisation();
        let timeline = &profile.timeline;
        let bounds = timeline.bounds(&profile.prices).into_iter().map(|(bound, time)| Bound { bound, ms: time.ms() });
        let phases = profile.by_phase().into_iter();
        let phases = phases.map(|(phase, time)| PhaseTime { phase: phase.to_string(), ms: time.ms() });
        let passes = profile.applied.iter().map(|pass| Pass { pass: pass.pass, patches: pass.patches.len() });
        Self {
            recipe: recipe.name.clone(),
            device: device.name.clone(),
            devices: profile.devices,
            batch: profile.batch,
            micro_batches: profile.accumulate,
            step_ms: profile.step.ms(),
            images_per_s: profile.images_per_s,
            limit: profile.limit,
            device_ms: profile.device_step.ms(),
            slowest: profile.slowest,
            input_ms: profile.input.pipeline.ms(),
            input: profile.input.clone(),
            phases: phases.collect(),
            sequence: profile.sequence,
            tokens_per_s: profile.tokens_per_s(),
            peak_memory_bytes: profile.peak_memory.0,
            memory_bytes: device.memory_bytes(),
            compile_s: profile.compile.0,
            tflops: profile.tflops(),
            mfu: profile.flop_utilisation(),
            utilisation: Utilisation { cube, vector, hbm },
            critical_path: bounds.collect(),
            all_reduce: Collective { buckets: timeline.buckets.clone(), exposed_ms: timeline.exposed.ms() },
            passes: passes.collect(),
            ops: profile.by_operator(),
            what_if,
            kernels: kernels.then(|| rows(profile)),
            measured: None,
            before: None,
        }
    }

    /// The first line: the recipe, and the machine.
    pub(super) fn heading(&self) -> String {
        let devices = if self.devices == 1 { "1 device".to_owned() } else { format!("{} devices", self.devices) };
        let pieces = match self.micro_batches {
            1 => String::new(),
            count => format!(" in {count} micro-batches"),
        };
        let recipe = paint(HEADING, &self.recipe);
        format!("{recipe}  on {}, {devices}, batch {}{pieces}\n", self.device, self.batch)
    }

    pub(super) fn print(&self, out: &mut Console) -> Result<(), Failure> {
        writeln!(out, "{}", self.heading())?;
        let waits = match self.limit {
            Limit::Device => String::new(),
            Limit::Input => paint(DIM, format!(" (waits for its input; the device needs {:.1})", self.device_ms)),
        };
        writeln!(out, "step      {:.1} ms{waits}", self.step_ms)?;
        match (self.sequence, self.tokens_per_s) {
            (Some(sequence), Some(tokens)) => {
                writeln!(out, "samples   {:.1} per second, {tokens:.0} tokens ({sequence} each)", self.images_per_s)?;
            }
            _ => writeln!(out, "images    {:.0} per second", self.images_per_s)?,
        }
        let used = &self.utilisation;
        let [cube, vector, hbm] = [used.cube, used.vector, used.hbm].map(percent);
        writeln!(
            out,
            "busy      Cube {cube}, Vector {vector}, HBM {hbm}; {:.0} useful TFLOP/s per device",
            self.tflops
        )?;
        let (peak, memory) = (Bytes(self.peak_memory_bytes), Bytes(self.memory_bytes));
        writeln!(out, "memory    {peak} of {memory}")?;
        let limit = if self.input.steps.is_empty() {
            String::new()
        } else {
            format!(", limited by {}", self.input.limit.name())
        };
        writeln!(out, "input     {:.1} ms{limit}", self.input_ms)?;
        if !self.all_reduce.buckets.is_empty() {
            let count = self.all_reduce.buckets.len();
            let exposed = self.all_reduce.exposed_ms;
            writeln!(out, "gradients {count} buckets, {exposed:.1} ms of their sum not hidden by computation")?;
        }
        if self.devices > 1 {
            let more = percent(self.slowest - 1.0);
            writeln!(out, "devices   the slowest of {} takes {more} more than their mean", self.devices)?;
        }
        writeln!(out, "first     {:.0} s of compilation before the first step", self.compile_s)?;
        let path: Vec<String> = self.critical_path.iter().map(|b| format!("{} {:.1}", b.bound, b.ms)).collect();
        writeln!(out, "path      {} ms", path.join(", "))?;
        writeln!(out, "peak      {} of what the matrix units could do in half precision", percent(self.mfu))?;
        let phases: Vec<String> = self.phases.iter().map(|p| format!("{} {:.1}", p.phase, p.ms)).collect();
        writeln!(out, "phases    {} ms\n", phases.join(", "))?;
        let mut table = Table::new(["operator", ">kernels", ">ms", ">share", ">TFLOP/s", ">GB/s", "bound"]);
        for op in &self.ops {
            table.row([
                (&op.op).into(),
                op.count.into(),
                format!("{:.2}", op.ms).into(),
                percent(op.share).into(),
                format!("{:.1}", op.tflops).into(),
                format!("{:.0}", op.gb_per_s).into(),
                op.bound.into(),
            ]);
        }
        write!(out, "{table}")?;
        if let Some(options) = &self.what_if {
            write!(out, "\n{}", options_table(options))?;
        }
        let Some(kernels) = &self.kernels else { return Ok(()) };
        let mut table =
            Table::new(["kernel", "operator", "phase", "line", ">us", ">Cube", ">Vector", ">HBM", ">L2", "bound"]);
        for row in kernels {
            let us = |value: f64| format!("{value:.1}").into();
            let bound = row.bound.into();
            table.row([
                (&row.name).into(),
                (&row.op).into(),
                (&row.phase).into(),
                row.line.as_deref().unwrap_or_default().into(),
                us(row.us),
                us(row.cube_us),
                us(row.vector_us),
                us(row.hbm_us),
                us(row.l2_us),
                bound,
            ]);
        }
        write!(out, "\n{table}")?;
        Ok(())
    }
}

/// The effect of each option.
fn options_table(options: &[WhatIf]) -> Table {
    let mut table = Table::new(["option", ">step ms", ">images/s", "what it does"]);
    for option in options {
        let ms = option.step_ms.map(|ms| format!("{ms:.1}")).unwrap_or_default();
        let gain = option.gain.map_or("refused".to_owned(), |gain| format!("{:+.1} %", 100.0 * gain));
        let what = option.refused.as_deref().unwrap_or(option.what);
        table.row([(&option.set).into(), ms.into(), gain.into(), what.into()]);
    }
    table
}

fn rows(profile: &Profile) -> Vec<KernelRow> {
    let row = |(kernel, price): (&zoo_npu::Kernel, &zoo_npu::Price)| KernelRow {
        name: profile.graph.nodes[kernel.nodes[0]].name.clone(),
        op: profile.kernel_name(kernel),
        phase: kernel.phase.to_string(),
        line: profile.line_of(kernel),
        us: price.time.us(),
        cube_us: price.cube.us(),
        vector_us: price.vector.us(),
        hbm_us: price.hbm.us(),
        l2_us: price.l2.us(),
        bytes: price.bytes,
        bound: price.bound.name(),
        split: price.tiling.map(|tiling| tiling.split),
        block: price.tiling.map(|tiling| tiling.block),
    };
    profile.kernels.iter().zip(&profile.prices).map(row).collect()
}
