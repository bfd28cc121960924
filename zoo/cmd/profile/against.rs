//! `zoo profile R --against OTHER`: compare two steps.

use super::Args;
use crate::Failure;
use crate::catalog::Catalog;
use crate::console::{Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::options::Change;
use crate::table::{Align, Table};
use serde::Serialize;
use std::io::Write;
use zoo_npu::{OpDifference, PHASES, Profile, Work};
use zoo_recipe::Recipe;

/// Another step.
pub(super) struct Other {
    pub profile: Profile,
    pub title: String,
}

/// Predicts the other step, with the device, the number of devices and the batch of the `first` recipe unless
/// `--against-device` or `--against-set` name others.
pub(super) fn profile(
    name: &str,
    first: &Recipe,
    args: &Args,
    catalog: &Catalog,
    context: &Context,
) -> Result<Other, Failure> {
    let is_set =
        |path: &str| args.against_set.iter().any(|set| set.split('=').next().is_some_and(|key| key.trim() == path));
    let unless_set = |path: &str, value: usize| if is_set(path) { None } else { u32::try_from(value).ok() };
    let of_first = || (!is_set("npu.device")).then(|| first.npu.device.clone());
    let mut machine = args.machine.clone();
    machine.device = args.against_device.clone().or(machine.device).or_else(of_first);
    machine.devices = machine.devices.or_else(|| unless_set("npu.devices", first.npu.devices));
    machine.batch = machine.batch.or_else(|| unless_set("train.batch", first.train.batch));
    let change = Change { profile: None, sets: args.against_set.clone() };
    let (recipe, device) = machine.load(name, &change, catalog, context)?;
    let work = if args.eval { Work::Eval } else { Work::Train };
    let profile = zoo_npu::profile(&recipe, &device, work)?;
    let set = args.against_set.join(" ");
    let title = format!("{} on {}, batch {} {set}", recipe.name, device.name, profile.batch).trim_end().to_owned();
    Ok(Other { profile, title })
}

/// Both steps as JSON.
#[derive(Serialize)]
pub(super) struct Report {
    steps: [String; 2],
    figures: Vec<Figure>,
    ops: Vec<OpDifference>,
}

#[derive(Serialize)]
struct Figure {
    what: String,
    values: [f64; 2],
}

impl Report {
    pub(super) fn new(profiles: [&Profile; 2], titles: [&str; 2]) -> Self {
        let figure =
            |what: &str, of: &dyn Fn(&Profile) -> f64| Figure { what: what.to_owned(), values: profiles.map(of) };
        let mut figures = vec![
            figure("step ms", &|p| p.step.ms()),
            figure("samples/s", &|p| p.images_per_s),
            figure("TFLOP/s per device", &Profile::tflops),
            figure("peak %", &|p| 100.0 * p.flop_utilisation()),
            figure("memory GiB", &|p| p.peak_memory.0 as f64 / f64::from(1 << 30)),
            figure("input ms", &|p| p.input.pipeline.ms()),
            figure("gradients not hidden ms", &|p| p.timeline.exposed.ms()),
        ];
        for phase in PHASES {
            let of_phase =
                |p: &Profile| p.by_phase().iter().find(|(other, _)| *other == phase).map_or(0.0, |t| t.1.ms());
            figures.push(figure(&format!("{phase} ms"), &of_phase));
        }
        let ops = zoo_npu::compare(profiles[0], profiles[1]);
        Self { steps: titles.map(str::to_owned), figures, ops }
    }

    pub(super) fn print(&self, out: &mut Console) -> Result<(), Failure> {
        let [first, second] = &self.steps;
        writeln!(out, "{}  against  {}\n", paint(HEADING, first), paint(HEADING, second))?;
        let columns = |first| {
            Table::new([
                (first, Align::Left),
                ("first", Align::Right),
                ("second", Align::Right),
                ("ratio", Align::Right),
            ])
        };
        let ratio = |[first, second]: [f64; 2]| {
            if first > 0.0 { format!("{:.2}", second / first) } else { String::new() }
        };
        let mut table = columns("figure");
        for figure in &self.figures {
            let [first, second] = figure.values.map(|value| format!("{value:.1}"));
            table.row([(&figure.what).into(), first.into(), second.into(), ratio(figure.values).into()]);
        }
        writeln!(out, "{table}")?;
        let mut table = columns("operator, ms");
        for op in &self.ops {
            let [first, second] = op.ms.map(|ms| format!("{ms:.2}"));
            table.row([(&op.op).into(), first.into(), second.into(), ratio(op.ms).into()]);
        }
        write!(out, "{table}")?;
        writeln!(out, "{}", paint(DIM, "operators with the greatest difference first"))?;
        Ok(())
    }
}
