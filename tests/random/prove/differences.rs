//! The gradient of the loss against its finite differences.

use super::{Case, Outcome, Proof, REFERENCE, elements, expect, told};
use candle_core::{Device as Host, Tensor};
use zoo_engine::{Observer, StepMemory};
use zoo_graph::{Graph, ValueId};

impl Case {
    /// The gradient of the loss in f64 against its finite differences along a direction.
    pub(super) fn differences(&self) -> Proof<Outcome> {
        // The gradient of a padded row is not that of the loss.
        if std::fs::read_to_string(&self.file).unwrap_or_default().contains("\"padding\"") {
            return Ok(Outcome::Proven);
        }
        let graph = self.trained(zoo_graph::DType::F64)?;
        let inputs = self.inputs(&graph)?;
        let forecast = told("memory", StepMemory::of(graph.clone(), REFERENCE, None))?.values;
        let mut step = self.step(graph, REFERENCE)?;
        let graph = step.graph().clone();
        let before: Vec<Tensor> = told("variables", step.variables())?.into_iter().map(|(_, tensor)| tensor).collect();
        let mut gradients = Gradients::new(&graph);
        let result = told("run", step.run(&inputs, self.scalars, &mut gradients))?;
        let held = result.peak_memory;
        // In f64, tensors are counted as they live, and a few of a single number are not in the plan.
        let most = forecast.0 + forecast.0 / 20 + 1024;
        expect(held.0 <= most, || format!("{forecast} were forecast in f64, {held} were held"))?;
        let loss = result.losses[0].1;
        let mut along = Vec::new();
        let (mut slope, mut scale) = (0.0, 0.0);
        for (n, (id, _)) in graph.gradients.iter().enumerate() {
            let Some(gradient) = &gradients.of[n].1 else { return Err("a gradient was not observed".to_owned()) };
            let direction: Vec<f64> = (0..gradient.len()).map(|i| noise((id.0 * 7919 + i) as u64)).collect();
            slope += gradient.iter().zip(&direction).map(|(g, d)| g * d).sum::<f64>();
            scale += gradient.iter().zip(&direction).map(|(g, d)| (g * d).powi(2)).sum::<f64>();
            along.push((*id, direction));
        }
        if !loss.is_finite() || !slope.is_finite() {
            return Ok(Outcome::NotFinite);
        }
        let mut moved = |by: f64| -> Proof<f64> {
            for (variable, tensor) in graph.variables.iter().zip(&before) {
                told("variable", step.set_variable(&variable.name, tensor))?;
            }
            for (id, direction) in &along {
                let start = elements(&before[id.0])?;
                let values = start.iter().zip(direction).map(|(p, d)| p + by * d).collect();
                let tensor = told("move", Tensor::from_vec(values, before[id.0].dims(), &Host::Cpu))?;
                told("variable", step.set_variable(&graph.variable(*id).name, &tensor))?;
            }
            Ok(told("run", step.run(&inputs, self.scalars, &mut ()))?.losses[0].1)
        };
        let mut nearest = (f64::INFINITY, 0.0, false);
        let mut sides_by_step = Vec::new();
        for h in [1e-5, 1e-6, 1e-4, 1e-7] {
            let (up, down) = (moved(h)?, moved(-h)?);
            let central = (up - down) / (2.0 * h);
            // What rounding and the third derivative leave of a difference.
            let tolerance = 1e-5 * (slope.abs() + scale.sqrt()) + 1e-12 * loss.abs().max(1.0) / h;
            let off = (central - slope).abs() / tolerance;
            if off <= 1.0 {
                return Ok(Outcome::Proven);
            }
            // At a kink, the slopes of both sides differ, and the gradient is between them.
            let sides = [(up - loss) / h, (loss - down) / h];
            let apart = (sides[0] - sides[1]).abs();
            sides_by_step.push((h, sides));
            if off < nearest.0 {
                nearest = (off, central, apart > (central - slope).abs());
            }
        }
        match nearest {
            (_, _, true) => Ok(Outcome::Kink),
            _ if gradients.saturated => Ok(Outcome::Kink),
            (off, central, false) => Err(format!(
                "the loss changes by {central:.9e}, its gradient says {slope:.9e}: {off:.1} tolerances; \
                     slopes on both sides {sides_by_step:?}"
            )),
        }
    }
}

/// A number from -1 to 1 for each index.
fn noise(index: u64) -> f64 {
    let mut z = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Keeps the gradients of a step.
struct Gradients {
    of: Vec<(ValueId, Option<Vec<f64>>)>,
    probabilities: Vec<ValueId>,
    /// Whether a probability is 1 but for its last digits, so that the logarithm of the rest is a staircase.
    saturated: bool,
}

impl Gradients {
    fn new(graph: &Graph) -> Self {
        let sigmoids = graph.nodes.iter().filter(|node| node.op.name() == "Sigmoid");
        let probabilities = sigmoids.flat_map(|node| node.outputs.iter().copied()).collect();
        let of = graph.gradients.iter().map(|(_, value)| (*value, None)).collect();
        Self { of, probabilities, saturated: false }
    }
}

impl Observer for Gradients {
    fn wants(&self, value: ValueId) -> bool {
        self.probabilities.contains(&value) || self.of.iter().any(|(own, _)| *own == value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        let elements = elements(tensor).ok();
        if self.probabilities.contains(&value) {
            self.saturated |= elements.iter().flatten().any(|p| 1.0 - p < 1e-10);
        }
        self.of.iter_mut().filter(|(own, _)| *own == value).for_each(|(_, kept)| *kept = elements.clone());
    }
}
