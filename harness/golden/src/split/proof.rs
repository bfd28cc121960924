//! The truth about a step, and its ranks before they run.

use super::{
    SplitOptions,
    truth::Truth,
    whole::{Begin, Whole},
};
use crate::GoldenError;
use zoo_engine::Inputs;
use zoo_graph::Graph;
use zoo_recipe::{Parallel, Recipe, SplitStep};

/// A proof before its ranks run: the truth, and the start of the steps.
pub struct Proof {
    pub(super) recipe: Recipe,
    pub(super) parallel: Parallel,
    pub(super) options: SplitOptions,
    pub(super) whole: Graph,
    pub(super) truth: Truth,
    pub(super) learning_rate: f64,
    pub(super) start: Vec<Vec<f32>>,
    pub(super) inputs: Inputs,
    pub(super) split: SplitStep,
}

impl Proof {
    /// Computes the truth.
    ///
    /// # Errors
    /// As [`super::check_split`].
    pub fn new(
        recipe: &Recipe,
        parallel: &Parallel,
        options: &SplitOptions,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, GoldenError> {
        let whole = Whole::of(recipe, options)?;
        // A split that does not fit is refused before anything is computed.
        let split = whole.split(parallel, options.precision)?;
        let Begin { variables: start, inputs, manifest } = whole.start()?;
        let learning_rate = manifest.optimizer.base_lr();
        let truth = Truth::of(&whole, options, (learning_rate, &start, &inputs), progress)?;
        let Whole { recipe, graph: whole, .. } = whole;
        let (parallel, options) = (parallel.clone(), options.clone());
        Ok(Self { recipe, parallel, options, whole, truth, learning_rate, start, inputs, split })
    }

    /// Computes the truth about steps that ranks recorded, with what they begin with.
    ///
    /// # Errors
    /// As [`super::check_split`].
    pub(super) fn of_recorded(
        recipe: &Recipe,
        parallel: &Parallel,
        options: &SplitOptions,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, GoldenError> {
        let mut proof = Self::new(recipe, parallel, options, progress)?;
        proof.truth.add_start((&proof.whole, &proof.start, &proof.inputs))?;
        Ok(proof)
    }

    /// The graph of a rank.
    pub fn graph(&self) -> &Graph {
        &self.split.graph
    }
}
