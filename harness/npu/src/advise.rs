//! Finds patterns in a recipe that vendors' guides warn of, with their lines and costs: the step as written is
//! compared with the step without the pattern.

use crate::{
    NpuError, Work,
    device::Device,
    profile::{Limit, Profile, largest_batch, profile},
};
use serde::Serialize;
use zoo_graph::{Node, Op, Phase, Place};
use zoo_recipe::{
    Recipe, Span,
    schema::{InputPipeline, Mode, PatchesForm, Split, SplitWord},
};

/// A costly pattern in a recipe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Its name.
    pub pattern: &'static str,
    /// Its position in the recipe: `file:line:column`.
    pub line: String,
    /// Description of the problem.
    pub message: String,
    /// How to avoid it.
    pub remedy: String,
    /// Time that it costs per step; for a small batch, per step of the same number of images. Zero if the step waits
    /// for its input anyway.
    pub cost_ms: f64,
    /// The cost as a share of the step.
    pub cost: f64,
    /// The cost with a faster input pipeline, if it is hidden now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_ms: Option<f64>,
}

/// If launches take more than this share of a step, the batch counts as small.
const LAUNCH_SHARE: f64 = 0.05;

/// Smaller costs per step, in milliseconds, are not reported: they would be printed as 0.00.
const LEAST_MS: f64 = 0.005;

/// All patterns found, the most expensive first.
///
/// # Errors
/// The step as written cannot be simulated.
pub fn advise(recipe: &Recipe, device: &Device, work: Work) -> Result<Vec<Advice>, NpuError> {
    let written = profile(recipe, device, work)?;
    let mut advisor = Advisor { recipe, device, work, written: &written, hidden: false, found: Vec::new() };
    advisor.input();
    let mut found = advisor.found;
    // Costs on the device are computed without the input pipeline, which may hide them.
    let mut alone = recipe.clone();
    alone.npu.input.enabled = false;
    let (hidden, written) = (written.limit == Limit::Input, profile(&alone, device, work)?);
    let mut advisor = Advisor { recipe: &alone, device, work, written: &written, hidden, found: Vec::new() };
    advisor.graph_patterns();
    advisor.options();
    advisor.placement();
    advisor.batch()?;
    found.extend(advisor.found);
    let order = |advice: &Advice| (advice.cost_ms, advice.hidden_ms.unwrap_or_default());
    found.sort_by(|a, b| {
        let ((a_paid, a_hidden), (b_paid, b_hidden)) = (order(a), order(b));
        b_paid.total_cmp(&a_paid).then(b_hidden.total_cmp(&a_hidden)).then(a.pattern.cmp(b.pattern))
    });
    Ok(found)
}

struct Advisor<'a> {
    recipe: &'a Recipe,
    device: &'a Device,
    work: Work,
    written: &'a Profile,
    hidden: bool,
    found: Vec<Advice>,
}

impl Advisor<'_> {
    /// The step with a change; `None` if the device refuses it.
    fn with(&self, change: impl FnOnce(&mut Recipe)) -> Option<Profile> {
        let mut recipe = self.recipe.clone();
        change(&mut recipe);
        profile(&recipe, self.device, self.work).ok()
    }

    /// Adds a pattern if it costs time.
    fn add(&mut self, pattern: &'static str, span: &Span, message: String, remedy: &str, cost_ms: f64) {
        if cost_ms < LEAST_MS {
            return;
        }
        let (line, remedy) = (span.to_string(), remedy.to_owned());
        let hidden_ms = self.hidden.then_some(cost_ms);
        let cost_ms = if self.hidden { 0.0 } else { cost_ms };
        let cost = cost_ms / self.written.step.ms();
        self.found.push(Advice { pattern, line, message, remedy, cost_ms, cost, hidden_ms });
    }

    /// Time that a change saves.
    fn saved(&self, change: impl FnOnce(&mut Recipe)) -> f64 {
        self.with(change).map_or(0.0, |other| self.written.step.ms() - other.step.ms())
    }

    /// Explicit pads that the device runs, and L2 in the loss.
    fn graph_patterns(&mut self) {
        let is_pad = |node: &Node| matches!(node.op, Op::Pad(_)) && node.phase == Phase::Forward;
        let pads: Vec<_> = self.written.graph.nodes.iter().filter(|node| is_pad(node)).collect();
        let lines = pads.iter().filter_map(|node| node.origin.as_ref()).map(|origin| origin.span.clone());
        if let Some(span) = lines.min_by_key(|span| span.line) {
            let (cost, remedy) = match self.recipe.npu.fold_pad {
                true => (self.time_of(is_pad), "write the padding into the layers that read it"),
                false => (
                    self.saved(|recipe| recipe.npu.fold_pad = true),
                    "`npu.fold_pad: true`, or write the padding into the convolutions",
                ),
            };
            let message = match pads.len() {
                1 => "an explicit pad copies a whole feature map".to_owned(),
                count => format!("{count} explicit pads copy whole feature maps"),
            };
            self.add("explicit pad", &span, message, remedy, cost);
        }
        if self.recipe.loss.l2.is_some() && self.work == Work::Train && !self.recipe.npu.l2_as_decay {
            let cost = self.saved(|recipe| recipe.npu.l2_as_decay = true);
            let message = "the L2 loss reads every parameter to compute a value that training does not need".to_owned();
            let remedy = "`npu.l2_as_decay: true`, or weight decay in the optimizer";
            self.add("L2 in the loss", &self.recipe.span("loss.l2"), message, remedy, cost);
        }
    }

    /// Options that cost time.
    fn options(&mut self) {
        let npu = &self.recipe.npu;
        let normalises = |node: &Node| matches!(node.op, Op::BnTrainingUpdate(_) | Op::BnInfer(_));
        if !npu.fusion && self.written.graph.nodes.iter().any(normalises) {
            let cost = self.saved(|recipe| recipe.npu.fusion = true);
            let message = "normalisations run as separate operators, which read and write every feature map".to_owned();
            self.add("unfused BN", &self.recipe.span("npu.fusion"), message, "`npu.fusion: true`", cost);
        }
        if npu.iterations_per_loop == 1 && self.work == Work::Train {
            let cost = self.saved(|recipe| recipe.npu.iterations_per_loop = 100);
            let message = "device and host wait for each other after every step".to_owned();
            let span = self.recipe.span("npu.iterations_per_loop");
            self.add("iterations_per_loop 1", &span, message, "`npu.iterations_per_loop: 100`", cost);
        }
        if npu.mode == Mode::Eager {
            let cost = self.saved(|recipe| recipe.npu.mode = Mode::Graph);
            let message = format!("the host launches {} operators one by one", self.written.kernels.len());
            self.add("eager mode", &self.recipe.span("npu.mode"), message, "`npu.mode: graph`", cost);
        }
        if npu.devices > 1 && npu.all_reduce.split == Split::Word(SplitWord::One) {
            let cost = self.saved(|recipe| recipe.npu.all_reduce.split = Split::Word(SplitWord::Auto));
            let message = "all gradients are sent together, after the last one is computed".to_owned();
            let span = self.recipe.span("npu.all_reduce.split");
            self.add("one bucket", &span, message, "`npu.all_reduce.split: auto`", cost);
        }
    }

    /// Transposes that copy, and operators on the host.
    fn placement(&mut self) {
        let copies = |node: &&Node| matches!(&node.op, Op::Transpose(op) if !op.is_metadata());
        let transposes: Vec<&Node> = self.written.graph.nodes.iter().filter(copies).collect();
        if let Some(first) = transposes.first() {
            let message = format!("{} transposes of the fastest axis copy whole tensors", transposes.len());
            let (cost, span, remedy) = if self.recipe.npu.input.channels_last {
                let cost = self.saved(|recipe| recipe.npu.input.channels_last = false);
                let span = self.recipe.span("npu.input.channels_last");
                (cost, span, "let the loader provide images with channels first")
            } else {
                let cost = self.time_of(|node| copies(&node));
                (
                    cost,
                    line_of(first),
                    "fewer changes of the layout, for example queries, keys and values from one product",
                )
            };
            self.add("DMA transpose", &span, message, remedy, cost);
        }
        let on_host: Vec<&Node> = self.written.graph.nodes.iter().filter(|node| node.place == Place::Host).collect();
        let Some(first) = on_host.first() else { return };
        let mut names: Vec<&str> = Vec::new();
        for name in on_host.iter().map(|node| node.op.name()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut device = self.device.clone();
        device.operators.missing.clear();
        let mut recipe = self.recipe.clone();
        recipe.npu.host_operators.clear();
        if recipe.npu.extract_patches == PatchesForm::Host {
            recipe.npu.extract_patches = PatchesForm::Native;
        }
        let Ok(without) = profile(&recipe, &device, self.work) else { return };
        let message = format!("{} run on the host, with copies in both directions", names.join(", "));
        let cost = self.written.step.ms() - without.step.ms();
        self.add("host fallback", &line_of(first), message, "build them from operators that the device has", cost);
    }

    /// Time of the kernels that contain such a node, in all micro-batches of a step.
    fn time_of(&self, wanted: impl Fn(&Node) -> bool) -> f64 {
        let contains = |k: &usize| self.written.kernels[*k].nodes.iter().any(|n| wanted(&self.written.graph.nodes[*n]));
        let kernels = (0..self.written.kernels.len()).filter(contains);
        kernels.map(|k| self.written.per_step(k, |price| price.time).ms()).sum()
    }

    /// An input pipeline that is slower than the device, and copies that delay the step.
    fn input(&mut self) {
        let input = |change: fn(&mut InputPipeline)| move |recipe: &mut Recipe| change(&mut recipe.npu.input);
        if self.written.limit == Limit::Input {
            let cost = self.saved(input(|input| input.enabled = false));
            let rate = self.written.images_per_s;
            let message = format!(
                "the device waits for its samples: limited by {}, {rate:.0} arrive per second; the device would take {:.1} ms per step",
                self.written.input.limit.name(),
                self.written.device_step.ms()
            );
            let remedy = "more host cores, `npu.input.normalize: device`, or smaller files";
            self.add("slow input", &self.recipe.span("preprocess.train"), message, remedy, cost);
        }
        if !self.recipe.npu.input.prefetch {
            let cost = self.saved(input(|input| input.prefetch = true));
            let message = "each batch is copied to the device before its step begins".to_owned();
            self.add(
                "no prefetch",
                &self.recipe.span("npu.input.prefetch"),
                message,
                "`npu.input.prefetch: true`",
                cost,
            );
        }
    }

    /// A batch that is so small that launches matter.
    fn batch(&mut self) -> Result<(), NpuError> {
        let launches: usize = (0..self.written.kernels.len()).map(|k| self.written.runs(k)).sum();
        let launch = self.device.control.launch_us.value * 1e-3 * launches as f64;
        if launch < LAUNCH_SHARE * self.written.step.ms() || self.written.limit != Limit::Device {
            return Ok(());
        }
        let Some(largest) = largest_batch(self.recipe, self.device, self.work)? else { return Ok(()) };
        let batch = self.recipe.train.batch;
        if largest < 2 * batch {
            return Ok(());
        }
        let larger = (8 * batch).min(largest);
        let per_image = self.with(|recipe| recipe.train.batch = larger).map_or(0.0, |p| p.step.ms() / larger as f64);
        let cost = self.written.step.ms() - per_image * batch as f64;
        let message = format!(
            "{launch:.1} of {:.1} ms are launches: at batch {larger}, an image takes {:.0} % less time (largest batch that fits: {largest})",
            self.written.step.ms(),
            100.0 * cost / self.written.step.ms()
        );
        self.add("small batch", &self.recipe.span("train.batch"), message, "a larger `train.batch`", cost);
        Ok(())
    }
}

/// The position of a node's layer in the recipe.
fn line_of(node: &Node) -> Span {
    node.origin.as_ref().map_or_else(Span::default, |origin| origin.span.clone())
}
