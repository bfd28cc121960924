//! The check: one recipe against one golden, in all stages.

use crate::{
    compare::{Distance, F32_MEDIAN, LOSS_FLOOR, Precision},
    conditions::{self, Difference},
    divergence,
    error::GoldenError,
    facts,
    golden::Golden,
    initial, items, memory,
    mutants::Fault,
    report::{Divergence, Item, Report, Stage, StageReport, Verdict},
    run::{self, Run, Setup},
    variants,
};
use std::{collections::HashSet, path::Path};
use zoo_graph::{Bytes, Graph, GraphError, ValueId};
use zoo_recipe::{BuildOptions, MIXED_LABEL, Mode, Recipe, ResolvedLayer, ResolvedModel};

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The arithmetic that is judged, which also selects the measure of error.
    pub precision: Precision,
    /// Kernels and threads. Steps in f64 always use the reference kernels.
    pub engine: zoo_engine::Options,
    /// Memory that a deciding step in f64 may take, on top of what the process has before the check. `None`: no
    /// limit.
    pub room: Option<Bytes>,
}

impl CheckOptions {
    /// How steps are computed: in f64 with the reference kernels, whichever kernels the training uses.
    pub(crate) fn engine(&self) -> zoo_engine::Options {
        match self.precision {
            Precision::F64 => zoo_engine::Options { kernels: zoo_engine::Kernels::Reference, ..self.engine },
            Precision::F32 => self.engine,
        }
    }
}

/// Checks a recipe's step against a golden.
///
/// `folder` contains the other reference values of the recipe (schedule, preprocessing, initialisers). It is the
/// folder of the recipe's own golden, even if another golden is passed. `progress` is told what is computed.
///
/// # Errors
/// A golden that cannot be read, or an engine that fails. A recipe that differs from the golden, or whose layers do
/// not fit each other under its conditions, gives a failed report and no error.
pub fn check(
    recipe: &Recipe,
    golden: &Golden,
    folder: &Path,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, GoldenError> {
    let golden = &bound(recipe, golden)?;
    let setup = match Setup::new(&under_conditions(recipe, golden), golden, options) {
        Ok(setup) => setup,
        Err(GoldenError::Graph(error)) => return Ok(impossible(empty_report(recipe, golden, options), error)),
        Err(error) => return Err(error),
    };
    let mut checking = Checking::new(recipe, golden, folder, options, &setup);
    checking.conditions();
    checking.facts(progress)?;
    let mut run = Run::new(&setup, golden, options)?;
    run.first_step(progress)?;
    run.later_steps(progress)?;
    run.lifted(progress)?;
    checking.first_step(&run);
    checking.later_steps(&run, progress)?;
    if !checking.is_undecided() {
        return Ok(checking.finish(&run));
    }
    drop(run);
    zoo_engine::release_memory();
    let exact = CheckOptions { precision: Precision::F64, ..options.clone() };
    let setup = Setup::new(&under_conditions(recipe, golden), golden, &exact)?;
    let needed = memory::deciding(setup.graph(), &exact)?;
    if options.room.is_some_and(|room| needed > room) {
        return Err(GoldenError::NoRoom { needed });
    }
    progress("f64 decides");
    let mut run = Run::new(&setup, golden, &exact)?;
    run.first_step(&mut |_| {})?;
    let later = checking.fails_after(Stage::Update);
    if later {
        run.later_steps(&mut |_| {})?;
        run.lifted(&mut |_| {})?;
    }
    let variants = if later { checking.variants(&exact, &mut |_| {})? } else { Vec::new() };
    checking.decide(&run, &variants, exact.precision);
    Ok(checking.finish(&run))
}

/// Number of calls of [`check`]'s `progress`, unless a step in f64 has to decide.
pub fn phases(golden: &Golden, precision: Precision) -> usize {
    const FACTS: usize = 2;
    let unfused = usize::from(precision == Precision::F32);
    FACTS + golden.manifest.losses_f64.len() + unfused + golden.manifest.variants.len()
}

/// Checks a recipe with a planted fault, if any, up to the first stage that fails. The stage of the conditions is left
/// out. `None`: the fault cannot be planted in this recipe.
pub(crate) fn check_faulty(
    recipe: &Recipe,
    golden: &Golden,
    folder: &Path,
    options: &CheckOptions,
    fault: Option<Fault>,
) -> Result<Option<Report>, GoldenError> {
    let golden = &bound(recipe, golden)?;
    let mut recipe = recipe.clone();
    if let Some(Fault::Recipe(plant)) = fault
        && !plant(&mut recipe)
    {
        return Ok(None);
    }
    let setup = match Setup::with_fault(&under_conditions(&recipe, golden), golden, options, fault) {
        Ok(Some(setup)) => setup,
        Ok(None) => return Ok(None),
        Err(GoldenError::Graph(error)) => {
            return Ok(Some(impossible(empty_report(&recipe, golden, options), error)));
        }
        Err(error) => return Err(error),
    };
    let mut checking = Checking::new(&recipe, golden, folder, options, &setup);
    let quiet = &mut |_: &str| {};
    checking.facts(quiet)?;
    let mut run = Run::new(&setup, golden, options)?;
    if !checking.failed() {
        run.first_step(quiet)?;
        checking.first_step(&run);
    }
    if !checking.failed() {
        run.later_steps(quiet)?;
        run.lifted(quiet)?;
        checking.later_steps(&run, quiet)?;
    }
    Ok(Some(checking.finish(&run)))
}

/// A check in progress.
struct Checking<'a> {
    recipe: &'a Recipe,
    golden: &'a Golden,
    folder: &'a Path,
    options: &'a CheckOptions,
    setup: &'a Setup,
    report: Report,
}

impl<'a> Checking<'a> {
    fn new(
        recipe: &'a Recipe,
        golden: &'a Golden,
        folder: &'a Path,
        options: &'a CheckOptions,
        setup: &'a Setup,
    ) -> Self {
        let report = empty_report(recipe, golden, options);
        Self { recipe, golden, folder, options, setup, report }
    }

    fn failed(&self) -> bool {
        self.report.stages.iter().any(|s| s.verdict == Verdict::Fail)
    }

    fn conditions(&mut self) {
        let differences = conditions::differences(self.recipe, self.setup.graph(), &self.golden.manifest);
        self.report.stages.push(conditions_stage(&differences));
        self.report.conditions_differ = differences;
    }

    /// Stages that need no step.
    fn facts(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), GoldenError> {
        let (recipe, graph) = (self.recipe, self.setup.graph());
        progress("preprocessing");
        self.push_exact(Stage::Preprocess, facts::preprocess(recipe, self.folder)?);
        self.push_exact(Stage::Schedule, facts::schedule(recipe, self.golden, self.folder)?);
        progress("initial values");
        let mut init = items::init_items(graph, self.golden);
        init.extend(initial::init(graph, &self.golden.manifest, self.folder)?);
        self.push_exact(Stage::Init, init);
        Ok(())
    }

    fn first_step(&mut self, run: &Run<'_>) {
        self.report.fused = run.fused.clone();
        if self.options.precision == Precision::F32 {
            self.push_exact(Stage::Kernels, run.kernels.iter().map(|(_, item)| item.clone()).collect());
        }
        let forward = self.stage(Stage::Forward, run.forward.clone(), self.options.precision);
        self.report.stages.push(StageReport { fused: run.fused.len(), ..forward });
        for (stage, items) in [(Stage::Loss, &run.loss), (Stage::Backward, &run.backward), (Stage::Update, &run.update)]
        {
            self.report.stages.push(self.stage(stage, items.clone(), self.options.precision));
        }
    }

    fn later_steps(&mut self, run: &Run<'_>, progress: &mut dyn FnMut(&str)) -> Result<(), GoldenError> {
        let variants = self.variants(self.options, progress)?;
        let later = [(Stage::Trajectory, &run.trajectory), (Stage::Lifted, &run.lifted), (Stage::Variants, &variants)];
        for (stage, items) in later {
            self.report.stages.push(self.stage(stage, items.clone(), self.options.precision));
        }
        Ok(())
    }

    fn variants(&self, options: &CheckOptions, progress: &mut dyn FnMut(&str)) -> Result<Vec<Item>, GoldenError> {
        let mut variants = Vec::new();
        for (variant, recipe) in
            variants::recipes(self.recipe, &under_conditions(self.recipe, self.golden), self.golden)
        {
            progress(variant);
            let setup = Setup::new(&recipe, self.golden, options)?;
            variants.extend(run::variant_losses(&setup, self.golden, variant, options)?);
        }
        Ok(variants)
    }

    /// Whether f32 cannot decide: kernels, outputs and losses pass, but values that depend on the branches of ReLUs
    /// exceed the limits. Outputs all of which are within the limit may exceed that of their median: a small network has
    /// too few of them for a median.
    fn is_undecided(&self) -> bool {
        let fails = |stage: &&StageReport| stage.verdict == Verdict::Fail;
        let mut failed = self.report.stages.iter().filter(fails).peekable();
        self.options.precision == Precision::F32
            && failed.peek().is_some()
            && failed.all(|stage| stage.stage > Stage::Loss || stage.stage == Stage::Forward && stage.failed.is_empty())
    }

    fn fails_after(&self, stage: Stage) -> bool {
        self.report.stages.iter().any(|s| s.stage > stage && s.verdict == Verdict::Fail)
    }

    /// Replaces the stages that f32 cannot decide by those of the steps in f64 that were run.
    fn decide(&mut self, exact: &Run<'_>, variants: &[Item], precision: Precision) {
        let in_f64: [(Stage, &[Item]); 7] = [
            (Stage::Forward, &exact.forward),
            (Stage::Loss, &exact.loss),
            (Stage::Backward, &exact.backward),
            (Stage::Update, &exact.update),
            (Stage::Trajectory, &exact.trajectory),
            (Stage::Lifted, &exact.lifted),
            (Stage::Variants, variants),
        ];
        for (stage, items) in in_f64 {
            let exact = self.stage(stage, items.to_vec(), precision);
            let replaced = self.report.stages.iter_mut().find(|report| report.stage == stage);
            if let Some(report) = replaced
                && (report.verdict == Verdict::Fail || exact.verdict == Verdict::Fail)
            {
                *report = StageReport { fused: report.fused, in_f32: report.worst.take(), ..exact };
            }
        }
    }

    fn stage(&self, stage: Stage, items: Vec<Item>, precision: Precision) -> StageReport {
        let median = matches!(precision, Precision::F32).then_some(F32_MEDIAN);
        StageReport::of(stage, items, precision.limit(), median)
    }

    /// Adds a stage whose items have their own tolerance.
    fn push_exact(&mut self, stage: Stage, items: Vec<Item>) {
        self.report.stages.push(StageReport::of(stage, items, 1.0, None));
    }

    fn finish(mut self, run: &Run<'_>) -> Report {
        self.report.first_divergence =
            first_divergence(&self.report, self.recipe, self.golden, run, self.setup.graph());
        self.report.verdict = if self.failed() { Verdict::Fail } else { Verdict::Pass };
        self.report
    }
}

fn empty_report(recipe: &Recipe, golden: &Golden, options: &CheckOptions) -> Report {
    Report {
        schema_version: 1,
        recipe: recipe.name.clone(),
        golden: golden.path.display().to_string(),
        baseline: golden.is_baseline(),
        dtype: options.precision,
        verdict: Verdict::Absent,
        stages: Vec::new(),
        first_divergence: None,
        conditions_differ: Vec::new(),
        fused: Vec::new(),
    }
}

/// The golden to which the recipe is bound: the main run, or a variant with another optimizer.
pub(crate) fn bound(recipe: &Recipe, golden: &Golden) -> Result<Golden, GoldenError> {
    match recipe.golden.as_ref().and_then(|golden| golden.variant.as_deref()) {
        Some(variant) => golden.bound_to(variant),
        None => Ok(golden.clone()),
    }
}

/// The recipe with the settings that the golden determines, except those set on the command line.
pub(crate) fn under_conditions(recipe: &Recipe, golden: &Golden) -> Recipe {
    let mut recipe = with_parts_of_golden(recipe);
    // Classes are the last axis of samples and tokens, and the first axis after the batch for pixels.
    if let Some([_, classes, _, _] | [_, .., classes]) =
        golden.manifest.tensors.get("out/@root#0").map(|t| t.shape.as_slice())
        && !conditions::overridden(&recipe, "model.classes")
    {
        recipe.model.classes = *classes;
    }
    if !golden.manifest.inputs.contains_key(MIXED_LABEL) {
        recipe.preprocess.mix = None;
    }
    let spans = recipe.spans.clone();
    for (name, shape) in &mut recipe.model.inputs {
        let path = zoo_recipe::ConfigPath::from(format!("model.inputs.{name}").as_str());
        let Some(input) = golden.manifest.inputs.get(name) else { continue };
        if let ([_, extents @ ..], false) = (input.shape.as_slice(), spans.get(&path).is_override()) {
            shape.set(extents);
        }
    }
    recipe
}

/// The recipe, with the trained parts that its golden section names.
pub(crate) fn with_parts_of_golden(recipe: &Recipe) -> Recipe {
    let mut recipe = recipe.clone();
    if let Some(parts) = recipe.golden.as_ref().and_then(|golden| golden.parts.clone())
        && !conditions::overridden(&recipe, "train.parts")
    {
        recipe.train.parts = parts;
    }
    recipe
}

/// Options for the step's graph under the golden's conditions: its batch, and no dropout unless set on the command
/// line.
pub(crate) fn build_options(
    recipe: &Recipe,
    model: &ResolvedModel,
    golden: &Golden,
    precision: Precision,
) -> BuildOptions {
    let batch = golden.manifest.inputs.values().filter_map(|i| i.shape.first().copied()).next().unwrap_or(1);
    let dtype = match precision {
        Precision::F64 => zoo_graph::DType::F64,
        Precision::F32 => zoo_graph::DType::F32,
    };
    BuildOptions { mode: Mode::Train, batch, dtype, dropout: chance_overridden(recipe, &model.body), epoch: 0 }
}

/// Whether the command line sets a probability of a random layer. Goldens leave such layers out.
fn chance_overridden(recipe: &Recipe, layers: &[ResolvedLayer]) -> bool {
    layers.iter().any(|layer| {
        let path = |key| layer.path.key(layer.kind.tag()).key(key);
        layer.kind.chance().is_some_and(|key| recipe.span_of(&path(key)).is_override())
            || layer.kind.describe().inside().into_iter().any(|inside| chance_overridden(recipe, inside))
    })
}

/// The stage that reports the conditions.
pub(crate) fn conditions_stage(differences: &[Difference]) -> StageReport {
    let counts = differences.iter().filter(|d| d.declared.is_none());
    let failed: Vec<Item> = counts
        .map(|d| Item::wrong(&d.path, format!("the recipe has {}, the golden was made with {}", d.recipe, d.golden)))
        .collect();
    StageReport {
        stage: Stage::Conditions,
        tensors: conditions::COMPARED,
        fused: 0,
        worst: failed.first().cloned(),
        median_ratio: None,
        verdict: if failed.is_empty() { Verdict::Pass } else { Verdict::Fail },
        median_limit: None,
        would_pass_at: None,
        failed,
        in_f32: None,
    }
}

/// Report if layers do not fit each other: nothing can be computed, so the forward pass fails.
fn impossible(mut report: Report, error: GraphError) -> Report {
    let (tensor, line) = match &error {
        GraphError::Shape { name, origin, .. } => (name.clone(), origin.as_ref().map(|o| o.span.to_string())),
        GraphError::Model { origin, .. } => ("model".into(), origin.as_ref().map(|o| o.span.to_string())),
        GraphError::Invariant { .. } => ("graph".into(), None),
    };
    let message = error.to_string();
    let item = Item::wrong(&tensor, &message);
    report.stages.push(StageReport::of(Stage::Forward, vec![item], 1.0, None));
    report.verdict = Verdict::Fail;
    let (node, hints) = (Some(tensor.clone()), vec![message]);
    let suspects = vec![tensor.clone()];
    report.first_divergence =
        Some(Divergence { stage: Stage::Forward, tensor, node, local: None, suspects, line, hints });
    report
}

fn first_divergence(
    report: &Report,
    recipe: &Recipe,
    golden: &Golden,
    run: &Run<'_>,
    graph: &Graph,
) -> Option<Divergence> {
    let stage = report.stages.iter().find(|s| s.verdict == Verdict::Fail)?;
    let item = stage.failed.first().or(stage.worst.as_ref())?;
    let mut divergence = Divergence {
        stage: stage.stage,
        tensor: item.name.clone(),
        node: None,
        local: None,
        suspects: Vec::new(),
        line: None,
        hints: item.note.iter().cloned().collect(),
    };
    match stage.stage {
        Stage::Conditions => {
            divergence.line = report.conditions_differ.iter().find(|d| d.path == item.name).map(|d| d.line.clone());
        }
        Stage::Preprocess => divergence.line = Some(recipe.span_of_change("preprocess.eval").to_string()),
        Stage::Schedule => {
            let path = if item.name.starts_with("train.") { item.name.as_str() } else { "schedule" };
            divergence.line = Some(recipe.span_of_change(path).to_string());
        }
        Stage::Init => {
            let name = item.name.strip_prefix("initialiser of ").unwrap_or(&item.name);
            let variable = graph.find_variable(name).map(|id| graph.variable(id));
            divergence.line = variable.and_then(|v| v.origin.as_ref()).map(|o| o.span.to_string());
        }
        Stage::Kernels => {
            let first = run.kernels.iter().find(|(_, item)| item.ratio > 1.0);
            let node = first.map(|(node, _)| run.step.graph().node(*node));
            divergence.node = node.map(|node| node.name.clone());
            divergence.line = node.and_then(|node| node.origin.as_ref()).map(|o| o.span.to_string());
            divergence.local = Some(true);
        }
        Stage::Forward
        | Stage::Loss
        | Stage::Backward
        | Stage::Update
        | Stage::Trajectory
        | Stage::Lifted
        | Stage::Variants => {
            locate(&mut divergence, run, graph);
        }
    }
    if divergence.stage == Stage::Loss {
        divergence.hints.extend(loss_hints(run.first_loss, golden));
    }
    if divergence.stage == Stage::Trajectory {
        let hint = "the first step is right and later ones are not: look at momentum, and at what the first step leaves \
                    behind (optimizer slots, running statistics)";
        divergence.hints.push(hint.into());
    }
    Some(divergence)
}

/// Finds the node, the line of the recipe and the suspects of a divergence in the step.
fn locate(divergence: &mut Divergence, run: &Run<'_>, graph: &Graph) {
    let key = (divergence.stage, divergence.tensor.clone());
    let Some(value) = run.values.get(&key).copied() else { return };
    let stages = [Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update];
    let proven: HashSet<ValueId> = run
        .values
        .iter()
        .filter(|((stage, name), _)| stages.contains(stage) && run.passed(*stage, name))
        .map(|(_, v)| *v)
        .collect();
    divergence::locate(divergence, graph, value, &proven);
}

/// Known mistakes that would give exactly this loss.
pub(crate) fn loss_hints(found: Option<f64>, golden: &Golden) -> Vec<String> {
    let (Some(found), Some(losses)) = (found, golden.manifest.losses_f64.first()) else { return Vec::new() };
    let same = |truth: f64| Distance::new((found - truth).abs() / truth.abs(), LOSS_FLOOR / 4.0).ratio() <= 1.0;
    let alternatives = losses.iter().filter(|(name, _)| name.starts_with("loss_"));
    alternatives
        .filter(|(_, truth)| same(**truth))
        .map(|(name, _)| format!("the loss found is the reference's `{name}`"))
        .collect()
}
