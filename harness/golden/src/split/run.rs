//! Runs all ranks in lock-step, and compares them with the truth.

use super::{
    comparison::{Comparison, Keep},
    proof::Proof,
    report::{SplitReport, collectives, divided},
    truth,
};
use crate::GoldenError;
use candle_core::{Device, Tensor};
use zoo_engine::{
    EngineError, candle_dtype,
    lockstep::{Disturbance, LockStep, Ranked, part_of},
};
use zoo_graph::{
    Graph, NodeId, VariableId,
    parallel::{MeshAxis, Placement},
};
use zoo_recipe::Placed;

impl Proof {
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
