//! `zoo judge`: judge a training step that ran elsewhere.

mod args;
mod print;
mod split;

pub use args::Args;

use crate::ci::Suite;
use crate::context::Context;
use crate::memory::beyond_now;
use crate::options::Format;
use crate::output;
use crate::proof::{
    self,
    cases::{self, Checked},
};
use crate::simulated::Simulated;
use crate::{Exit, Failure};
use std::time::Instant;
use zoo_engine::Options;
use zoo_golden::{
    Stage, Verdict,
    facts::rates,
    foreign::{Names, Recording},
    judge::{Declared, JudgeOptions, JudgeReport, PHASES, StepsReport, judge, memory},
};
use zoo_graph::DType;
use zoo_npu::{NpuError, Work};
use zoo_recipe::Recipe;
use zoo_train::LossScale;

/// Judges; missed if something differs.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    output::judged("judge", &args.junit, context, |context| judged(args, context))
}

fn judged(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let mut loaded = context.load(&args.recipe.recipe, &args.recipe.change)?;
    let beside = args.recording.join("names.yaml");
    let names = match &args.names {
        Some(file) => Names::read(file)?,
        None if beside.is_file() => Names::read(&beside)?,
        None => Names::default(),
    };
    let allow_missing: Vec<Stage> = args.allow_missing.iter().flat_map(|part| part.stages()).collect();
    if let Some((parallel, batch)) = args.split.of(&loaded)? {
        let wanted = split::Wanted { args, parallel: &parallel, batch, names: &names, allow_missing: &allow_missing };
        return split::run(&wanted, &loaded, context);
    }
    let (golden, folder) = proof::golden(&loaded, args.golden.as_deref(), context)?;
    let half = match args.arithmetic.as_str() {
        "f32" | "fp32" => Some(Declared::F32),
        "f16" | "fp16" => Some(Declared::Half { dtype: DType::F16, loss_scale: args.loss_scale }),
        "bf16" => Some(Declared::Half { dtype: DType::Bf16, loss_scale: args.loss_scale }),
        _ => None,
    };
    let simulated = match half {
        Some(_) => None,
        None => device(&args.arithmetic, &mut loaded.recipe, context)?,
    };
    let recipe = &loaded.recipe;
    let declared = match &simulated {
        Some(device) => Declared::Device {
            name: device.name(),
            arithmetic: &device.arithmetic,
            loss_scale: LossScale::start(&recipe.npu.loss_scale).scale,
        },
        None => half.unwrap_or(Declared::F32),
    };
    let steps = Recording::steps(&args.recording, &names)?;
    let rates = match args.schedule {
        true => Some(rates(recipe, &golden, &folder, steps.len())?),
        false => None,
    };
    let options = JudgeOptions {
        declared,
        loss_scale: args.loss_scale,
        allow_unmatched: args.allow_unmatched,
        allow_missing: &allow_missing,
        rates: rates.as_deref(),
        engine: Options::of(recipe),
    };
    if let Ok(more) = memory(recipe, &golden, options.engine) {
        let what = format!("judging a recording of {}", recipe.name);
        args.memory.expect(&what, beyond_now(more), |_| "the batch is given by the golden".to_owned())?;
    }
    let begun = Instant::now();
    let mut bar = context.progress.phases(PHASES * steps.len());
    let mut progress = |what: &str| bar.next(format!("{}: {what}", recipe.name));
    let reports = judge(recipe, &golden, &steps, &options, &mut progress)?;
    drop(bar);
    if let Some(file) = &args.propose_names
        && let Some(proposal) = reports.iter().map(|report| &report.proposal).find(|proposal| !proposal.is_empty())
    {
        output::write_beside(file, &print::names_yaml(proposal), context)?;
    }
    let sets = &args.recipe.change.sets;
    let time = begun.elapsed() / u32::try_from(reports.len()).unwrap_or(1).max(1);
    for report in &reports {
        let step = if reports.len() > 1 { format!(", step {}", report.step) } else { String::new() };
        let name = format!("{} recorded in {}{step}", report.recipe, report.arithmetic);
        let checked = Checked { name, file: &loaded.path, sets, time };
        context.ci.record(suite(checked, report)?);
    }
    let accepted = reports.iter().all(JudgeReport::is_accepted);
    match (context.format, <[JudgeReport; 1]>::try_from(reports)) {
        (Format::Json, Ok([report])) => context.out.json(&report)?,
        (Format::Json, Err(reports)) => context.out.json(&StepsReport::of(reports))?,
        (Format::Text, Ok([report])) => print::report(&report, sets, &mut context.out)?,
        (Format::Text, Err(reports)) => print::steps(&StepsReport::of(reports), sets, &mut context.out)?,
    }
    Ok(if accepted { Exit::Pass } else { Exit::Missed })
}

/// A test case per stage, one for the names of the recording, and one for its coverage.
fn suite(checked: Checked<'_>, report: &JudgeReport) -> Result<Suite, Failure> {
    let mut suite = cases::suite(checked, &report.stages, report.first_divergence.as_ref())?;
    let first = report.stages.iter().all(|stage| stage.verdict != Verdict::Fail);
    let lacking: Vec<_> = report.incomplete().collect();
    suite.cases.push(print::names_case(&report.unmatched, report.unmatched_allowed, first));
    suite.cases.push(print::coverage_case(&lacking, report.coverage_accepted, report.verdict));
    Ok(suite)
}

/// The device whose arithmetic was named.
fn device(name: &str, recipe: &mut Recipe, context: &Context) -> Result<Option<Simulated>, Failure> {
    match Simulated::find(Some(name), Work::Train, recipe, context) {
        Err(Failure::Npu(NpuError::UnknownDevice { name, hint, known })) => {
            let hint = hint.map(|hint| format!(", did you mean `{hint}`?")).unwrap_or_default();
            let message = format!("there is no type or device `{name}`{hint}; known: f32, f16, bf16, {known}");
            Err(Failure::Usage(message))
        }
        found => found,
    }
}
