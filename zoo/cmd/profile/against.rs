//! `zoo profile R --against OTHER`: compare two steps.

use crate::Failure;
use crate::complete;
use crate::console::{Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::machine::Machine;
use crate::options::Change;
use crate::table::Table;
use serde::Serialize;
use std::io::Write;
use zoo_npu::{OpDifference, PHASES, Profile, Work};
use zoo_recipe::Recipe;

/// Another step.
pub(super) struct Other {
    pub profile: Profile,
    pub title: String,
}

/// The other step.
#[derive(Debug, clap::Args)]
pub(super) struct AgainstArgs {
    /// Compare with the step of another recipe, with the device, number of devices and batch of this one unless
    /// --against-set or --against-device name others
    #[arg(long, value_name = "RECIPE", conflicts_with_all = ["what_if", "kernels", "trace"])]
    against: Option<String>,
    /// Override a value of the other recipe (can be repeated)
    #[arg(long, value_name = "PATH=VALUE", requires = "against")]
    against_set: Vec<String>,
    /// Device of the other step, if different
    #[arg(long, value_name = "NAME", requires = "against", add = complete::devices())]
    against_device: Option<String>,
}

impl AgainstArgs {
    /// Predicts the other step if one is named: with the device, the number of devices and the batch of the `first`
    /// recipe unless `--against-device` or `--against-set` name others.
    pub(super) fn profile(
        &self,
        first: &Recipe,
        machine: &Machine,
        work: Work,
        context: &Context,
    ) -> Result<Option<Other>, Failure> {
        let Some(name) = &self.against else { return Ok(None) };
        let is_set =
            |path: &str| self.against_set.iter().any(|set| set.split('=').next().is_some_and(|key| key.trim() == path));
        let unless_set = |path: &str, value: usize| if is_set(path) { None } else { u32::try_from(value).ok() };
        let of_first = || (!is_set("npu.device")).then(|| first.npu.device.clone());
        let mut machine = machine.clone();
        machine.device = self.against_device.clone().or(machine.device).or_else(of_first);
        machine.devices = machine.devices.or_else(|| unless_set("npu.devices", first.npu.devices));
        machine.batch = machine.batch.or_else(|| unless_set("train.batch", first.train.batch));
        let change = Change { profile: None, sets: self.against_set.clone() };
        let (recipe, device) = machine.load(name, &change, context)?;
        let profile = zoo_npu::profile(&recipe, &device, work)?;
        let set = self.against_set.join(" ");
        let title = format!("{} on {}, batch {} {set}", recipe.name, device.name, profile.batch).trim_end().to_owned();
        Ok(Some(Other { profile, title }))
    }
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
        let columns = |first| Table::new([first, ">first", ">second", ">ratio"]);
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
