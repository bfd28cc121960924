//! Finds the origin of a NaN or an infinity.

use candle_core::{DType, Tensor};
use std::fmt;
use zoo_engine::Observer;
use zoo_graph::{Graph, Phase, Source, ValueId};

/// The first value of a step with a NaN or an infinity.
#[derive(Clone, Debug, PartialEq)]
pub struct Culprit {
    /// Its source.
    pub cause: Cause,
    /// Number of its elements that are NaN or infinite.
    pub bad: usize,
    /// Number of its elements.
    pub of: usize,
    /// The first of these values.
    pub first: f64,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// The batch: the data or their preprocessing are wrong.
    Input {
        /// Name of the input.
        name: String,
        /// The first such sample of the batch, from 0.
        sample: usize,
    },
    /// A variable, before the step.
    Variable {
        /// Its name.
        name: String,
    },
    /// A node whose operands were all finite.
    Node {
        /// Its dotted name.
        name: String,
        /// Its operator.
        op: &'static str,
        /// Part of the step.
        phase: Phase,
        /// Position and path of the recipe entry that it comes from.
        line: Option<(String, String)>,
        /// Largest magnitude among its operands.
        largest: f64,
    },
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, bad, of, first } = self;
        match cause {
            Cause::Input { name, sample } => write!(
                f,
                "the batch itself: {bad} of {of} values of the input `{name}` are not finite (the first is {first}, \
                 in sample {sample} of the batch, counted from 0): check the data and `preprocess`"
            ),
            Cause::Variable { name } => {
                write!(f, "`{name}` before the step: {bad} of {of} values, the first is {first}")
            }
            Cause::Node { name, op, phase, line, largest } => {
                write!(
                    f,
                    "node {name} ({op}), {phase}: {bad} of {of} values, the first is {first}; its operands are \
                     finite, at most {largest:.3e}"
                )?;
                line.iter().try_for_each(|(place, path)| write!(f, "\n  --> {place} ({path})"))
            }
        }
    }
}

/// Observes all values of a step until one contains a NaN or an infinity.
#[derive(Debug, Default)]
pub struct Search {
    /// Largest magnitude, by value.
    largest: Vec<f64>,
    found: Option<Found>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    value: ValueId,
    bad: usize,
    of: usize,
    /// Index of the first such element.
    at: usize,
    first: f64,
}

impl Observer for Search {
    fn wants(&self, _value: ValueId) -> bool {
        self.found.is_none()
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        // Indices are always finite. Tensors that candle cannot convert are not judged.
        let numbers = tensor.to_dtype(DType::F64).and_then(|tensor| tensor.flatten_all()?.to_vec1::<f64>());
        let Ok(numbers) = numbers else { return };
        let (mut bad, mut largest, mut first) = (0, 0.0f64, None);
        for (at, number) in numbers.iter().enumerate() {
            if number.is_finite() {
                largest = largest.max(number.abs());
            } else {
                bad += 1;
                first = first.or(Some((at, *number)));
            }
        }
        if self.largest.len() <= value.0 {
            self.largest.resize(value.0 + 1, 0.0);
        }
        self.largest[value.0] = largest;
        self.found = first.map(|(at, first)| Found { value, bad, of: numbers.len(), at, first });
    }
}

impl Search {
    /// The result for a step of this graph.
    pub fn culprit(&self, graph: &Graph) -> Option<Culprit> {
        let Found { value, bad, of, at, first } = self.found?;
        let cause = match graph.value(value).source {
            Source::Input(i) => {
                let samples = graph.ty(value).shape.first().copied().unwrap_or(1).max(1);
                let name = graph.inputs.get(i)?.name.clone();
                Cause::Input { name, sample: at / (of / samples).max(1) }
            }
            Source::Variable(id) => Cause::Variable { name: graph.variable(id).name.clone() },
            Source::Node(id, _) => {
                let node = graph.nodes.get(id.0)?;
                let magnitudes = node.inputs.iter().filter_map(|operand| self.largest.get(operand.0));
                Cause::Node {
                    name: node.name.clone(),
                    op: node.op.name(),
                    phase: node.phase,
                    line: node.origin.as_ref().map(|origin| (origin.span.to_string(), origin.path.clone())),
                    largest: magnitudes.copied().fold(0.0, f64::max),
                }
            }
        };
        Some(Culprit { cause, bad, of, first })
    }
}
