//! What a training reports at its start and at its end.

use super::Trainer;
use crate::{
    environment::Environment,
    event::{Reached, RunResult, SCHEMA_VERSION, Started},
    job::Job,
};
use zoo_recipe::schema::{Goal, Kernels, Target};
use zoo_tasks::not_finite;

impl Trainer<'_> {
    /// The event at the start.
    pub(super) fn started(&self) -> Started {
        let Job { recipe, model, data, linear_baseline, baselines, golden, .. } = self.job;
        let graph = self.session.step().graph();
        let parameters = graph.parameters().map(|(_, v)| graph.ty(v.value).shape.numel() as u64).sum();
        let kernels = match recipe.engine.kernels {
            Kernels::Fast => "fast",
            Kernels::Reference => "reference",
        };
        Started {
            schema_version: SCHEMA_VERSION,
            recipe: recipe.name.clone(),
            resumed_at: self.resumed_at,
            parameters,
            batch: recipe.train.batch,
            ranks: self.ranks.size(),
            epochs: self.timetable.epochs(),
            steps_per_epoch: self.timetable.steps_per_epoch(),
            steps: self.timetable.steps(),
            data: data.description.clone(),
            train_samples: data.samples.train_len(),
            val_samples: data.samples.val_len(),
            classes: model.classes,
            seed: recipe.train.seed,
            target: recipe.target.clone(),
            linear_baseline,
            baselines: baselines.to_vec(),
            golden,
            device: self.job.device_name().to_owned(),
            environment: Environment::detect(self.job.threads(), kernels),
        }
    }

    /// The verdict on the last evaluation.
    pub(super) fn result(&self) -> RunResult {
        let target = self.job.recipe.target.as_ref();
        let metric = self.job.recipe.metric();
        let last =
            |metric| self.evaluations.last().and_then(|last| last.score(metric)).filter(|value| value.is_finite());
        let judge = |Goal { metric, value: target }: Goal| {
            let achieved = last(metric);
            let met = achieved.is_some_and(|achieved| metric.reaches(achieved, target));
            Reached { metric, target, achieved, met }
        };
        let goals: Vec<Reached> = target.into_iter().flat_map(Target::goals).map(judge).collect();
        RunResult {
            schema_version: SCHEMA_VERSION,
            metric,
            target: target.map(|target| target.value),
            achieved: last(metric),
            met: target.map(|_| goals.iter().all(|goal| goal.met)),
            also: goals.into_iter().skip(1).collect(),
            epochs: self.timetable.epochs(),
            steps: self.session.done(),
            seconds: self.seconds(),
            linear_baseline: self.job.linear_baseline,
            baselines: self.job.baselines.to_vec(),
            golden: self.job.golden,
            device: self.job.device_name().to_owned(),
            skipped_steps: self.session.loss_scale().skipped,
            not_finite: self.evaluations.last().map_or_else(Vec::new, |last| not_finite(&last.scores, last.loss)),
        }
    }
}
