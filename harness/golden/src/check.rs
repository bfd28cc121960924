//! The check: one recipe against one golden, in all stages.

use crate::{
    bound::{Bound, Fault},
    compare::{F32_MEDIAN, Precision},
    conditions,
    divergence::{first_divergence, impossible},
    error::GoldenError,
    facts,
    golden::Golden,
    initial, items, memory,
    options::CheckOptions,
    report::{Item, Report, Stage, StageReport, Verdict},
    run::Run,
};
use std::path::Path;
use zoo_recipe::Recipe;

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
    let bound = match Bound::new(recipe, golden, options.precision, options.engine) {
        Ok(bound) => bound,
        Err(GoldenError::Graph(error)) => return Ok(impossible(Report::new(recipe, golden, options.precision), error)),
        Err(error) => return Err(error),
    };
    let mut checking = Checking::new(recipe, folder, &bound);
    checking.conditions();
    checking.facts(progress)?;
    let mut run = Run::new(&bound)?;
    run.first_step(progress)?;
    run.later_steps(recipe, progress)?;
    checking.judge(&run);
    if !checking.is_undecided() {
        return Ok(checking.finish(&run));
    }
    drop(run);
    zoo_engine::release_memory();
    let exact = Bound::new(recipe, golden, Precision::F64, options.engine)?;
    let needed = memory::deciding(&exact)?;
    if options.room.is_some_and(|room| needed > room) {
        return Err(GoldenError::NoRoom { needed });
    }
    progress("f64 decides");
    let mut run = Run::new(&exact)?;
    run.first_step(&mut |_| {})?;
    if checking.fails_after(Stage::Update) {
        run.later_steps(recipe, &mut |_| {})?;
    }
    checking.decide(&run);
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
    let mut recipe = recipe.clone();
    if let Some(Fault::Recipe(plant)) = fault
        && !plant(&mut recipe)
    {
        return Ok(None);
    }
    let bound = match Bound::with_fault(&recipe, golden, options.precision, options.engine, fault) {
        Ok(Some(bound)) => bound,
        Ok(None) => return Ok(None),
        Err(GoldenError::Graph(error)) => {
            return Ok(Some(impossible(Report::new(&recipe, golden, options.precision), error)));
        }
        Err(error) => return Err(error),
    };
    let mut checking = Checking::new(&recipe, folder, &bound);
    let quiet = &mut |_: &str| {};
    checking.facts(quiet)?;
    let mut run = Run::new(&bound)?;
    if !checking.failed() {
        run.first_step(quiet)?;
        checking.judge(&run);
    }
    if !checking.failed() {
        run.later_steps(&recipe, quiet)?;
        checking.judge(&run);
    }
    Ok(Some(checking.finish(&run)))
}

/// A check in progress.
struct Checking<'a> {
    /// As written.
    recipe: &'a Recipe,
    folder: &'a Path,
    bound: &'a Bound,
    report: Report,
}

impl<'a> Checking<'a> {
    fn new(recipe: &'a Recipe, folder: &'a Path, bound: &'a Bound) -> Self {
        Self { recipe, folder, bound, report: Report::new(recipe, &bound.golden, bound.precision) }
    }

    fn failed(&self) -> bool {
        self.report.stages.iter().any(|s| s.verdict == Verdict::Fail)
    }

    fn conditions(&mut self) {
        let differences = conditions::differences(self.recipe, &self.bound.graph, &self.bound.golden.manifest);
        self.report.stages.push(StageReport::of_conditions(&differences));
        self.report.conditions_differ = differences;
    }

    /// Stages that need no step.
    fn facts(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), GoldenError> {
        let (recipe, Bound { graph, golden, .. }) = (self.recipe, self.bound);
        progress("preprocessing");
        self.push_exact(Stage::Preprocess, facts::preprocess(recipe, self.folder)?);
        self.push_exact(Stage::Schedule, facts::schedule(recipe, golden, self.folder)?);
        progress("initial values");
        let mut init = items::init_items(graph, golden);
        // A baseline from elsewhere may be of other sizes than the network whose initialisers the folder describes.
        if !golden.is_baseline() || self.has_sizes_of_folder()? {
            init.extend(initial::init(graph, &golden.manifest, self.folder)?);
        }
        self.push_exact(Stage::Init, init);
        Ok(())
    }

    /// Whether the network has the parameters of the golden in the folder, if there is one.
    fn has_sizes_of_folder(&self) -> Result<bool, GoldenError> {
        let own = self.folder.join("step.json");
        if !own.is_file() || own == self.bound.golden.path {
            return Ok(true);
        }
        let (graph, manifest) = (&self.bound.graph, Golden::read(&own)?.manifest);
        let count: usize = graph.parameters().map(|(_, v)| graph.ty(v.value).shape.numel()).sum();
        Ok(manifest.parameter_count == count as u64)
    }

    /// Adds the stages of a run that the report does not have.
    fn judge(&mut self, run: &Run<'_>) {
        self.report.fused.clone_from(&run.fused);
        for (stage, items) in &run.items {
            if self.report.stages.iter().all(|known| known.stage != *stage) {
                self.report.stages.push(stage_report(*stage, items, self.bound.precision, run));
            }
        }
    }

    /// Whether f32 cannot decide: kernels, outputs and losses pass, but values that depend on the branches of ReLUs
    /// exceed the limits. Outputs all of which are within the limit may exceed that of their median: a small network
    /// has too few of them for a median.
    fn is_undecided(&self) -> bool {
        let fails = |stage: &&StageReport| stage.verdict == Verdict::Fail;
        let mut failed = self.report.stages.iter().filter(fails).peekable();
        self.bound.precision == Precision::F32
            && failed.peek().is_some()
            && failed.all(|stage| stage.stage > Stage::Loss || stage.stage == Stage::Forward && stage.failed.is_empty())
    }

    fn fails_after(&self, stage: Stage) -> bool {
        self.report.stages.iter().any(|s| s.stage > stage && s.verdict == Verdict::Fail)
    }

    /// Replaces the stages that f32 cannot decide by those of the steps in f64 that were run.
    fn decide(&mut self, exact: &Run<'_>) {
        for (stage, items) in &exact.items {
            let exact = stage_report(*stage, items, Precision::F64, exact);
            let replaced = self.report.stages.iter_mut().find(|report| report.stage == *stage);
            if let Some(report) = replaced
                && (report.verdict == Verdict::Fail || exact.verdict == Verdict::Fail)
            {
                *report = StageReport { fused: report.fused, in_f32: report.worst.take(), ..exact };
            }
        }
    }

    /// Adds a stage whose items have their own tolerance.
    fn push_exact(&mut self, stage: Stage, items: Vec<Item>) {
        self.report.stages.push(StageReport::of(stage, items, 1.0, None));
    }

    fn finish(mut self, run: &Run<'_>) -> Report {
        self.report.first_divergence = first_divergence(&self.report, self.recipe, self.bound, run);
        self.report.verdict = if self.failed() { Verdict::Fail } else { Verdict::Pass };
        self.report
    }
}

/// The verdict on a stage of a run. Kernels have their own tolerances.
fn stage_report(stage: Stage, items: &[Item], precision: Precision, run: &Run<'_>) -> StageReport {
    let (limit, median) = match precision {
        Precision::F32 if stage == Stage::Kernels => (1.0, None),
        Precision::F32 => (precision.limit(), Some(F32_MEDIAN)),
        Precision::F64 => (precision.limit(), None),
    };
    let report = StageReport::of(stage, items.to_vec(), limit, median);
    StageReport { fused: if stage == Stage::Forward { run.fused.len() } else { report.fused }, ..report }
}
