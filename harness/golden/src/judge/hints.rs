//! Hints at common mistakes of ports, from the numbers of the first quantity that differs.

use super::{judged::Judged, targets::PARAMETER};
use crate::{GoldenError, foreign::Quantity};
use zoo_graph::{Op, Optimized};

/// Relative tolerance between the recorded values and those that the mistake would give.
const SAME: f64 = 0.02;

impl Judged<'_> {
    /// What may explain the difference at a place.
    pub(super) fn hints(&self, place: usize) -> Result<Vec<String>, GoldenError> {
        let Some(entry) = self.matched.entries.get(&place) else { return Ok(Vec::new()) };
        let Some(array) = entry.array()? else { return Ok(Vec::new()) };
        let target = &self.targets.list[place];
        let is_complete = array.values.len() == target.shape.iter().product::<usize>();
        let mut hints = Vec::new();
        match &target.quantity {
            Quantity::Loss(name) => hints.extend(array.values.first().and_then(|loss| self.later_step(name, *loss))),
            Quantity::After { kind, name } if kind == "buffer" && is_complete => {
                hints.extend(self.momentum(name, &array.values));
            }
            Quantity::After { kind, name } if kind == PARAMETER && is_complete => {
                hints.extend(self.decay(name, &array.values));
            }
            Quantity::Start(_) | Quantity::Input(_) => {
                hints.push(format!("start from the values that `zoo golden inputs {}` writes", self.recipe.name));
            }
            _ => {}
        }
        Ok(hints)
    }

    /// Whether the loss is that of a later step of the golden.
    fn later_step(&self, name: &str, loss: f64) -> Option<String> {
        if self.start.step > 0 {
            return None;
        }
        let mut losses = self.golden.manifest.losses_f64.iter().enumerate().skip(1);
        let same = |truth: &f64| (loss - truth).abs() <= 1e-4 * truth.abs();
        let (step, _) = losses.find(|(_, losses)| losses.get(name).is_some_and(same))?;
        Some(format!("the loss is that of step {} of the golden: record the first step", step + 1))
    }

    /// Initial values of a variable.
    fn start(&self, name: &str, numel: usize) -> Option<Vec<f64>> {
        self.start.values(self.golden, name, numel)
    }

    /// A running statistic that was updated with another momentum, or not at all. The golden's statistics after the
    /// step show the direction of the update.
    fn momentum(&self, name: &str, found: &[f64]) -> Option<String> {
        let id = self.graph.find_variable(name)?;
        let node = self.graph.producer(self.graph.variable(id).next?)?;
        let Op::BnRunningUpdate(running) = &node.op else { return None };
        let start = self.start(name, found.len())?;
        let key = format!("buffer1/{name}");
        let truth = self.golden.samples(&key, None, found.len()).ok()?;
        // The factor by least squares over the samples.
        let (mut moved, mut way) = (0.0, 0.0);
        for (position, truth) in truth.positions.iter().zip(truth.values) {
            let whole = (truth - start[*position]) / running.momentum;
            moved += (found[*position] - start[*position]) * whole;
            way += whole * whole;
        }
        let share = moved / way;
        if (share - (1.0 - running.momentum)).abs() <= SAME {
            let (right, wrong) = (running.momentum, 1.0 - running.momentum);
            return Some(format!(
                "it was updated with a factor of {wrong:.3} instead of {right}: the momentum is inverted (PyTorch's is \
                 the weight of the new batch, MindSpore's and TensorFlow's is one minus it)"
            ));
        }
        (share.abs() <= SAME).then(|| "it was not updated: is the network in training mode?".to_owned())
    }

    /// A parameter that was updated without its weight decay, or with a decay that it should not have.
    fn decay(&self, name: &str, found: &[f64]) -> Option<String> {
        let id = self.graph.find_variable(name)?;
        let updates = self.graph.nodes.iter().filter_map(|node| self.graph.optimized(node));
        let Optimized { group, .. } = updates.into_iter().find(|update| update.parameter == id)?;
        let key = format!("param1/{name}");
        let truth = self.golden.samples(&key, None, found.len()).ok()?;
        let start = self.start(name, found.len())?;
        // If the decay differs, the difference is a multiple of the initial values.
        let (mut along, mut size, mut squares) = (0.0, 0.0, 0.0);
        for (position, truth) in truth.positions.iter().zip(truth.values) {
            let difference = found[*position] - truth;
            along += difference * start[*position];
            size += start[*position].powi(2);
            squares += difference * difference;
        }
        if size == 0.0 || squares == 0.0 || along * along < (1.0 - SAME) * size * squares {
            return None;
        }
        let rate = self.golden.manifest.optimizer.base_lr() * group.lr_scale;
        let (right, found) = (group.weight_decay, group.weight_decay - along / size / rate);
        let found = if found.abs() <= SAME * right.abs() { "missing".to_owned() } else { format!("{found:.1e}") };
        Some(format!(
            "the difference is proportional to the parameter: its weight decay of {right:.1e} seems to be {found}"
        ))
    }
}
