//! The truth about a step, and its ranks before they run.

use super::{
    LEARNING_RATE, SplitOptions, build_options,
    comparison::Comparison,
    dtype,
    report::{SplitReport, collectives, divided},
    truth::{self, Truth, uneven},
};
use crate::{
    GoldenError,
    bound::with_parts_of_golden,
    manifest::Manifest,
    record::{self, conditions::conditions, inputs::MadeInputs},
};
use candle_core::{Device, Tensor};
use zoo_engine::{
    Inputs, candle_dtype,
    lockstep::{Disturbance, LockStep, Ranked, part_of},
};
use zoo_graph::{
    DType, Graph, NodeId, Variable, VariableId,
    parallel::{MeshAxis, Placement},
};
use zoo_recipe::{Parallel, Placed, Recipe, ResolvedModel, SplitStep, build, build_split};

/// The step on one device before it runs, under conditions that follow from the recipe alone.
pub(super) struct Setting {
    pub recipe: Recipe,
    pub model: ResolvedModel,
    /// The step in f64.
    pub whole: Graph,
    /// The variables before the first step, in the order of the graph.
    pub start: Vec<Vec<f32>>,
    pub inputs: Inputs,
    pub manifest: Manifest,
}

impl Setting {
    /// # Errors
    /// A recipe without such a step, or an input without a rule.
    pub fn of(recipe: &Recipe, options: &SplitOptions) -> Result<Self, GoldenError> {
        let recipe = with_parts_of_golden(recipe);
        let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
        let whole = build(&recipe, &model, &build_options(options, DType::F64))?;
        let recorded = record::RecordOptions {
            batch: options.batch,
            learning_rate: LEARNING_RATE,
            salt: String::new(),
            samples: 0,
        };
        let made = MadeInputs::of(&recipe, &whole, model.classes, &recorded.salt);
        let manifest = conditions(&recipe, &whole, &made, &recorded);
        let inputs = uneven(&whole, made.tensors(&whole)?)?;
        let numel = |v: &Variable| whole.ty(v.value).shape.numel();
        let start = whole.variables.iter().map(|v| record::start_values(&manifest, &v.name, numel(v), false)).collect();
        Ok(Self { recipe, model, whole, start, inputs, manifest })
    }
}

/// A proof before its ranks run: the truth, and the start of the steps.
pub struct Proof {
    pub(super) recipe: Recipe,
    pub(super) parallel: Parallel,
    pub(super) options: SplitOptions,
    pub(super) whole: Graph,
    pub(super) truth: Truth,
    start: Vec<Vec<f32>>,
    inputs: Inputs,
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
        let Setting { recipe, model, whole, start, inputs, .. } = Setting::of(recipe, options)?;
        // A split that does not fit is refused before anything is computed.
        let split = build_split(&recipe, &model, &build_options(options, dtype(options.precision)), parallel)?;
        let truth = Truth::of(&recipe, &model, options, (&whole, &start, &inputs), progress)?;
        let (parallel, options) = (parallel.clone(), options.clone());
        Ok(Self { recipe, parallel, options, whole, truth, start, inputs, split })
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

    /// Runs a graph on all ranks, and compares them with the truth: the graph of the split step, or one with a planted
    /// fault.
    ///
    /// # Errors
    /// An engine that fails.
    pub fn judge(&self, graph: Graph, disturbed: &[(NodeId, Disturbance)]) -> Result<SplitReport, GoldenError> {
        let mut ranks = LockStep::new(graph, self.split.mesh.clone())?;
        disturbed.iter().for_each(|(node, by)| ranks.disturb(*node, *by));
        self.set_start(&mut ranks)?;
        let inputs = self.inputs_of_ranks()?;
        let mut comparison = Comparison::of_ranks(self, &ranks.graph().gradients);
        for n in 0..self.options.steps {
            comparison.step = n;
            let scalars = ranks.run(&inputs, truth::scalars(n), &mut comparison)?;
            comparison.scalars(&scalars);
            comparison.variables(&ranks)?;
        }
        Ok(comparison.report(collectives(&self.split.graph), divided(&self.split)))
    }

    fn set_start(&self, ranks: &mut LockStep) -> Result<(), GoldenError> {
        for (n, values) in self.start.iter().enumerate() {
            let id = VariableId(n);
            let shape = self.whole.ty(self.whole.variable(id).value).shape.to_vec();
            let dtype = candle_dtype(ranks.graph().ty(ranks.graph().variable(id).value).dtype);
            let whole = Tensor::from_vec(values.clone(), shape, &Device::Cpu).and_then(|t| t.to_dtype(dtype));
            let parts = self.parts(&whole.map_err(zoo_engine::EngineError::from)?, &self.split.variable(id))?;
            let mesh = &self.split.mesh;
            let has = |rank: usize| self.split.has(mesh.place(rank, MeshAxis::Pipeline), id);
            let parts = parts.into_iter().enumerate().map(|(rank, part)| part.filter(|_| has(rank)));
            ranks.set_variable(id, parts.collect());
        }
        Ok(())
    }

    fn inputs_of_ranks(&self) -> Result<Vec<Ranked>, GoldenError> {
        let mut all = Vec::new();
        for (input, own) in self.whole.inputs.iter().zip(&self.split.graph.inputs) {
            let dtype = candle_dtype(self.split.graph.ty(own.value).dtype);
            let tensor = self.inputs.get(&input.name).map(|tensor| tensor.to_dtype(dtype));
            let missing = || GoldenError::Recipe(format!("no values for the input `{}`", input.name));
            let tensor = tensor.ok_or_else(missing)?.map_err(zoo_engine::EngineError::from)?;
            let placed = self.split.places[input.value.0].clone();
            all.push(self.parts(&tensor, &placed.unwrap_or(Placed { value: own.value, placements: Vec::new() }))?);
        }
        Ok(all)
    }

    /// What each rank has of a tensor.
    fn parts(&self, whole: &Tensor, placed: &Placed) -> Result<Ranked, GoldenError> {
        let mesh = &self.split.mesh;
        let of_rank = |rank: usize| {
            placed.placements.iter().try_fold(whole.clone(), |tensor, (axis, placement)| match placement {
                Placement::Split(part) => part_of(&tensor, part, mesh.place(rank, *axis), mesh.extent(*axis)),
                Placement::Whole | Placement::Partial | Placement::Local => Ok(tensor),
            })
        };
        let parts = (0..mesh.ranks()).map(|rank| of_rank(rank).map(Some)).collect::<candle_core::Result<_>>();
        Ok(parts.map_err(zoo_engine::EngineError::from)?)
    }
}
