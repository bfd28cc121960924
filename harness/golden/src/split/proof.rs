//! The truth about a step, and its ranks before they run.

use super::{
    LEARNING_RATE, SplitOptions,
    comparison::{Comparison, Keep},
    report::{SplitReport, collectives, divided},
    truth::{self, Truth, uneven},
};
use crate::{
    GoldenError, Precision,
    bound::{self, Bound, with_parts_of_golden},
    manifest::Manifest,
    record::{REFERENCE, RecordOptions, conditions::conditions, inputs::MadeInputs, start_values},
};
use candle_core::{Device, Tensor};
use zoo_engine::{
    EngineError, Inputs, candle_dtype,
    lockstep::{Disturbance, LockStep, Ranked, part_of},
};
use zoo_graph::{
    DType, Graph, NodeId, Variable, VariableId,
    parallel::{MeshAxis, Placement},
};
use zoo_recipe::{BuildOptions, Mode, Parallel, Placed, Recipe, ResolvedModel, SplitStep, build_split};

/// The step on one device.
pub(super) struct Whole {
    pub recipe: Recipe,
    pub model: ResolvedModel,
    /// The step in f64, and what it is for.
    pub graph: Graph,
    pub build: BuildOptions,
    bound: Option<Bound>,
}

impl Whole {
    /// # Errors
    /// A recipe without such a step, or another golden.
    pub fn of(recipe: &Recipe, options: &SplitOptions) -> Result<Self, GoldenError> {
        let bound = options.golden.as_ref().map(|golden| Bound::new(recipe, golden, Precision::F64, REFERENCE));
        let bound = bound.transpose()?;
        let recipe = bound.as_ref().map_or_else(|| with_parts_of_golden(recipe), |bound| bound.recipe.clone());
        let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
        let (batch, dropout) = (options.batch, options.dropout);
        let build = match &bound {
            Some(bound) => bound::build_options(&recipe, &model, &bound.golden, Precision::F64),
            None => BuildOptions { mode: Mode::Train, batch, dtype: DType::F64, dropout, epoch: 0 },
        };
        let graph = zoo_recipe::build(&recipe, &model, &build)?;
        Ok(Self { recipe, model, graph, build, bound })
    }

    /// The step of each rank in an arithmetic.
    ///
    /// # Errors
    /// A split that does not fit.
    pub fn split(&self, parallel: &Parallel, precision: Precision) -> Result<SplitStep, GoldenError> {
        let dtype = match precision {
            Precision::F64 => DType::F64,
            Precision::F32 => DType::F32,
        };
        Ok(build_split(&self.recipe, &self.model, &BuildOptions { dtype, ..self.build }, parallel)?)
    }

    /// The step in f32.
    ///
    /// # Errors
    /// As [`zoo_recipe::build`].
    pub fn in_f32(&self) -> Result<Graph, GoldenError> {
        Ok(zoo_recipe::build(&self.recipe, &self.model, &BuildOptions { dtype: DType::F32, ..self.build })?)
    }

    /// What the first step begins with: that of the golden, or what follows from names.
    ///
    /// # Errors
    /// An input without a rule.
    pub fn start(&self) -> Result<Begin, GoldenError> {
        let graph = &self.graph;
        if let Some(bound) = &self.bound {
            let step = bound.step()?;
            let of = |(_, tensor): (_, Tensor)| tensor.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1();
            let variables = step.variables()?.into_iter().map(of).collect::<candle_core::Result<_>>();
            let manifest = bound.golden.manifest.clone();
            return Ok(Begin { variables: variables.map_err(EngineError::from)?, inputs: bound.inputs()?, manifest });
        }
        let (batch, learning_rate) = (self.build.batch, LEARNING_RATE);
        let recorded = RecordOptions { batch, learning_rate, salt: String::new(), samples: 0 };
        let made = MadeInputs::of(&self.recipe, graph, self.model.classes, &recorded.salt);
        let manifest = conditions(&self.recipe, graph, &made, &recorded);
        let inputs = uneven(graph, made.tensors(graph)?)?;
        let values = |v: &Variable| start_values(&manifest, &v.name, graph.ty(v.value).shape.numel(), false);
        let variables = graph.variables.iter().map(values).collect();
        Ok(Begin { variables, inputs, manifest })
    }
}

/// What the first step begins with.
pub(super) struct Begin {
    /// The variables, in the order of the graph.
    pub variables: Vec<Vec<f32>>,
    pub inputs: Inputs,
    pub manifest: Manifest,
}

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

    /// Measures again what rounding in f32 explains.
    ///
    /// # Errors
    /// As [`super::check_split`].
    pub(super) fn widen(&mut self, recipe: &Recipe) -> Result<(), GoldenError> {
        let rounded = Whole::of(recipe, &self.options)?.in_f32()?;
        self.truth.widen(&rounded, (self.learning_rate, &self.start, &self.inputs), self.options.steps)
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
        let comparison = self.compare((graph, disturbed), self.options.steps, Keep::Nothing)?;
        Ok(comparison.report(collectives(&self.split.graph), divided(&self.split)))
    }

    /// The same for some of the steps.
    pub(super) fn compare(
        &self,
        (graph, disturbed): (Graph, &[(NodeId, Disturbance)]),
        steps: usize,
        keep: Keep,
    ) -> Result<Comparison<'_>, GoldenError> {
        let mut ranks = LockStep::new(graph, self.split.mesh.clone())?;
        disturbed.iter().for_each(|(node, by)| ranks.disturb(*node, *by));
        self.set_start(&mut ranks)?;
        let inputs = self.inputs_of_ranks()?;
        let mut comparison = Comparison::of_ranks(self, &ranks.graph().gradients, keep);
        for n in 0..steps {
            comparison.step = n;
            let scalars = ranks.run(&inputs, truth::scalars(self.learning_rate, n), &mut comparison)?;
            comparison.scalars(&scalars);
            comparison.variables(&ranks)?;
        }
        Ok(comparison)
    }

    fn set_start(&self, ranks: &mut LockStep) -> Result<(), GoldenError> {
        for (n, values) in self.start.iter().enumerate() {
            let id = VariableId(n);
            let shape = self.whole.ty(self.whole.variable(id).value).shape.to_vec();
            let dtype = candle_dtype(ranks.graph().ty(ranks.graph().variable(id).value).dtype);
            let whole = Tensor::from_vec(values.clone(), shape, &Device::Cpu).and_then(|t| t.to_dtype(dtype));
            let parts = self.parts(&whole.map_err(EngineError::from)?, &self.split.variable(id))?;
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
            let tensor = tensor.ok_or_else(missing)?.map_err(EngineError::from)?;
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
        Ok(parts.map_err(EngineError::from)?)
    }
}
