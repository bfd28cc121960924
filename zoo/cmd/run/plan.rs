//! The plan of a training, from the command line or from the run that is resumed.

use super::args::Args;
use super::folder::{expect_writable, last_run, next_run};
use crate::Failure;
use crate::context::Context;
use crate::options::Change;
use crate::trained::names_no_file;
use std::path::{Path, PathBuf};
use zoo_recipe::Loaded;
use zoo_train::{Launch, RunFolder};

/// A training that has passed all cheap checks.
pub(super) struct Plan {
    /// The settings; for a resumed run, its original settings with those of the command line.
    pub launch: Launch,
    /// The recipe, with profile and overrides.
    pub loaded: Loaded,
    /// The run to resume.
    pub resumed: Option<PathBuf>,
    /// Folder of the run, or parent of several; `None` for the next free default folder.
    out: Option<PathBuf>,
    repeat: u16,
}

impl Plan {
    /// Reads the recipe and checks the folders.
    ///
    /// # Errors
    /// A recipe with mistakes, a folder with an existing run for a new run, or a folder without a run to resume.
    pub(super) fn new(args: &Args, context: &mut Context) -> Result<Self, Failure> {
        let named = Path::new(&args.recipe);
        let (mut launch, mut resumed) = (args.launch(context)?, None);
        if RunFolder::is_run(named) {
            let run = named.display();
            if !args.resume || args.out.is_some() {
                let message = format!("{run} is a run folder: zoo run --resume {run} resumes it");
                return Err(Failure::Usage(message));
            }
            let Some(begun) = Launch::read(named)? else {
                let message = format!("{run} does not store its command: zoo run RECIPE --resume --out {run}");
                return Err(Failure::Usage(message));
            };
            launch = Launch { recipe: begun.recipe.clone(), ..launch }.over(begun);
            resumed = Some(named.to_owned());
        } else if let Some(out) = args.out.as_deref().filter(|_| args.resume) {
            RunFolder::expect_run(out)?;
            launch = launch.over(Launch::read(out)?.unwrap_or_default());
            resumed = Some(out.to_owned());
        } else if args.resume && names_no_file(named) {
            return Err(Failure::Usage(format!("there is no run folder `{}`", args.recipe)));
        }
        context.also_search(launch.recipes.iter().cloned());
        let change = Change { profile: launch.profile.clone(), sets: launch.sets.clone() };
        let (profile, mut loaded) = context.load_to_train(&launch.recipe, &change)?;
        launch.profile = profile;
        if args.resume && resumed.is_none() {
            let folder = last_run(&stem(&loaded, &launch))?;
            RunFolder::expect_run(&folder)?;
            if let Some(begun) = Launch::read(&folder)? {
                launch = launch.over(begun);
                context.also_search(launch.recipes.iter().cloned());
                let change = Change { profile: launch.profile.clone(), sets: launch.sets.clone() };
                loaded = context.load_to_train(&launch.recipe, &change)?.1;
            }
            resumed = Some(folder);
        }
        loaded.recipe.engine.threads = args.threads.map(usize::from).or(loaded.recipe.engine.threads);
        let plan = Self { launch, loaded, resumed, out: args.out.clone(), repeat: args.repeat };
        if plan.resumed.is_none() && context.ranks.is_first() {
            plan.seeds()
                .into_iter()
                .filter_map(|seed| plan.given(seed))
                .try_for_each(|out| RunFolder::expect_vacant(&out))?;
            plan.seeds().into_iter().try_for_each(|seed| expect_writable(&plan.folder(seed)))?;
        }
        Ok(plan)
    }

    /// The seeds in order.
    pub(super) fn seeds(&self) -> Vec<u64> {
        let first = self.loaded.recipe.train.seed;
        (0..u64::from(self.repeat)).map(|n| first.wrapping_add(n)).collect()
    }

    /// Folder of the run with a seed.
    pub(super) fn folder(&self, seed: u64) -> PathBuf {
        let named = self.resumed.clone().or_else(|| self.given(seed));
        named.unwrap_or_else(|| next_run(&stem(&self.loaded, &self.launch)))
    }

    /// The folder given on the command line.
    fn given(&self, seed: u64) -> Option<PathBuf> {
        let out = self.out.clone()?;
        Some(if self.repeat > 1 { out.join(format!("seed-{seed}")) } else { out })
    }

    /// The settings of the run with one seed.
    pub(super) fn launch(&self, seed: u64) -> Launch {
        let mut launch = self.launch.clone();
        if self.repeat > 1 {
            launch.sets.push(format!("train.seed={seed}"));
        }
        launch
    }

    /// The name of the training.
    pub(super) fn title(&self) -> String {
        let name = &self.loaded.recipe.name;
        self.launch.profile.as_ref().map_or(name.clone(), |profile| format!("{name} {profile}"))
    }
}

/// The prefix of the names of run folders.
fn stem(loaded: &Loaded, launch: &Launch) -> String {
    let name = &loaded.recipe.name;
    launch.profile.as_ref().map_or(name.clone(), |profile| format!("{name}-{profile}"))
}
