//! A recipe is one network for training and evaluation, so that a network may only depend on its mode by what recipes
//! switch by themselves: dropout, stochastic depth, and the statistics of normalisations.

use std::collections::HashMap;

use crate::Refusal;
use crate::operation::{Network, Operation, Tensor, Unit, What};
use crate::proof::Numbers;
use crate::trace::Trace;
use crate::word::Word;

/// In which mode a network was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `network.train()`.
    Training,
    /// `network.eval()`.
    Evaluation,
}

const NEAREST: &str = "a recipe is one network for both modes, in which only dropout, stochastic depth and the statistics \
                       of normalisations differ: take out what else depends on `self.training`";

/// An operation without chance.
struct Step<'n> {
    number: usize,
    key: String,
    module: &'n str,
    at: &'n str,
}

/// What a network computes, dropout and stochastic depth left out.
struct Computed<'n> {
    steps: Vec<Step<'n>>,
    tensors: HashMap<Tensor, usize>,
}

impl<'n> Computed<'n> {
    fn of(network: &'n Network, trace: &Trace, numbers: &mut Numbers) -> Self {
        let tensors = network.inputs.iter().map(|(name, tensor)| (*tensor, numbers.input(name))).collect();
        let mut computed = Self { steps: Vec::new(), tensors };
        computed.units(&network.root.body, "", trace, numbers);
        computed
    }

    fn units(&mut self, units: &'n [Unit], module: &'n str, trace: &Trace, numbers: &mut Numbers) {
        for unit in units {
            match unit {
                Unit::Module(inner) => self.units(&inner.body, &inner.path, trace, numbers),
                Unit::Operation(Operation { what, operands, result, name, at }) => {
                    let operands: Vec<usize> = operands.iter().map(|operand| self.number(*operand)).collect();
                    let (what, number) = match without_chance(what) {
                        Some(what) => {
                            // Names of layers without parameters are those of modules around them.
                            let name = name.as_deref().filter(|name| owns_parameters(trace, name));
                            let number = numbers.of(&what, name, operands);
                            (what, number)
                        }
                        None => {
                            self.tensors.insert(*result, operands.first().copied().unwrap_or(usize::MAX));
                            continue;
                        }
                    };
                    self.steps.push(Step { number, key: what.key(), module, at });
                    self.tensors.insert(*result, number);
                }
            }
        }
    }

    fn number(&self, tensor: Tensor) -> usize {
        self.tensors.get(&tensor).copied().unwrap_or(usize::MAX)
    }

    fn count(&self, key: &str) -> usize {
        self.steps.iter().filter(|step| step.key == key).count()
    }

    /// The first operation that another network does not have.
    fn first_unlike(&self, other: &Self) -> Option<&Step<'n>> {
        self.steps.iter().find(|step| other.steps.iter().all(|its| its.number != step.number))
    }

    /// The numbers of what the network gives.
    fn outputs(&self, network: &Network) -> Vec<usize> {
        let returns = network.root.returns.iter().map(|(_, tensor)| *tensor);
        returns.chain([network.root.output]).map(|tensor| self.number(tensor)).collect()
    }
}

/// An operation without its rate of dropout; `None` if it does nothing else.
fn without_chance(what: &What) -> Option<What> {
    match what {
        What::Layer(word) if ["dropout", "drop_path"].contains(&word.tag) => None,
        What::Layer(word) => {
            let mut word: Word = word.clone();
            word.settings.shift_remove("dropout");
            Some(What::Layer(word))
        }
        What::Add | What::Subtract | What::Mul | What::Concat(_) => Some(what.clone()),
        What::Cut(_) | What::Join(_) | What::Segments(_) => Some(what.clone()),
    }
}

fn owns_parameters(trace: &Trace, path: &str) -> bool {
    trace
        .parameters
        .keys()
        .any(|name| name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// Compares a network in training mode with the same network in evaluation mode.
///
/// # Errors
/// What only one of them computes.
pub fn same(trace: &Trace, training: &Network, evaluation: &Network) -> Result<(), Refusal> {
    let mut numbers = Numbers::default();
    let trained = Computed::of(training, trace, &mut numbers);
    let evaluated = Computed::of(evaluation, trace, &mut numbers);
    let output = trained.number(training.root.output);
    let same = match training.root.returns.len() {
        // A network may give more in evaluation mode: the same tensor again.
        0 | 1 => evaluated.outputs(evaluation).iter().all(|other| *other == output),
        _ => evaluated.outputs(evaluation) == trained.outputs(training),
    };
    if same {
        return Ok(());
    }
    let refuse = |step: &Step<'_>, what: String| Refusal {
        module: step.module.to_owned(),
        operator: step.key.trim().to_owned(),
        at: step.at.to_owned(),
        what,
        nearest: NEAREST.to_owned(),
    };
    let (more, less) = (evaluated.first_unlike(&trained), trained.first_unlike(&evaluated));
    let is_own =
        |step: &&Step<'_>, own: &Computed<'_>, other: &Computed<'_>| own.count(&step.key) > other.count(&step.key);
    Err(match (more, less) {
        (Some(step), _) if is_own(&step, &evaluated, &trained) => {
            refuse(step, "it computes this in evaluation mode, and not in training mode".to_owned())
        }
        (_, Some(step)) if is_own(&step, &trained, &evaluated) => {
            refuse(step, "it computes this in training mode, and not in evaluation mode".to_owned())
        }
        (Some(step), _) => refuse(step, "it computes this of other tensors in evaluation mode".to_owned()),
        (None, _) => Refusal {
            module: String::new(),
            operator: training.root.class.clone(),
            at: training.root.source.clone().unwrap_or_else(|| training.root.at.clone()),
            what: "it gives other tensors in evaluation mode".to_owned(),
            nearest: NEAREST.to_owned(),
        },
    })
}
