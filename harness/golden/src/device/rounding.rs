//! Observes the effect of a device's types on a step: the exponents of its values, and the rounding error of each
//! result.

use candle_core::Tensor;
use rayon::prelude::*;
use std::collections::BTreeMap;
use zoo_engine::{Elements, Observer};
use zoo_graph::{Graph, NodeId, ValueId};

/// Histogram of binary exponents: the `e` of `2^e <= |x| < 2^(e+1)`. Zeros are not counted.
pub type Exponents = BTreeMap<i32, u64>;

/// Counts the exponents of every value.
pub(super) struct Spread {
    /// By value; empty for values that are not floating-point numbers.
    pub exponents: Vec<Exponents>,
}

impl Spread {
    pub(super) fn of(graph: &Graph) -> Self {
        Self { exponents: vec![Exponents::new(); graph.values.len()] }
    }
}

impl Observer for Spread {
    fn wants(&self, _value: ValueId) -> bool {
        true
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        // A value that cannot be read has no exponents.
        self.exponents[value.0] = exponents(tensor).unwrap_or_default();
    }
}

/// Elements per task.
const PIECE: usize = 1 << 14;

/// The exponents of a tensor in f32. Subnormal numbers count as the smallest exponent.
fn exponents(tensor: &Tensor) -> candle_core::Result<Exponents> {
    const BIASED: usize = 1 << 8;
    let count = |piece: &[f32]| {
        let mut counts = [0u64; BIASED];
        piece.iter().filter(|x| **x != 0.0).for_each(|x| counts[(x.to_bits() >> 23) as usize % BIASED] += 1);
        counts
    };
    let both = |a: [u64; BIASED], b: [u64; BIASED]| std::array::from_fn(|e| a[e] + b[e]);
    let elements = Elements::of(tensor)?;
    let counts = elements.slice::<f32>()?.par_chunks(PIECE).map(count).reduce(|| [0; BIASED], both);
    // The largest exponent is that of infinities and NaN.
    let finite = (-127..).zip(counts).take(BIASED - 1);
    Ok(finite.filter(|(_, count)| *count > 0).collect())
}

/// Measures the rounding error of each result, and passes the results before rounding to another observer.
pub(super) struct Rounded<'a, O> {
    graph: &'a Graph,
    /// Results of the running node, as its kernel computed them.
    computed: Vec<(usize, Tensor)>,
    /// Relative rounding error by value; none if the device stores the computed result.
    pub errors: Vec<Option<f64>>,
    /// The other observer.
    pub of: O,
}

impl<'a, O> Rounded<'a, O> {
    pub(super) fn of(graph: &'a Graph, of: O) -> Self {
        Self { graph, computed: Vec::new(), errors: vec![None; graph.values.len()], of }
    }
}

impl<O: Observer> Observer for Rounded<'_, O> {
    fn wants(&self, value: ValueId) -> bool {
        self.of.wants(value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        self.of.observe(value, tensor);
    }

    fn sees_rounding(&self, _node: NodeId) -> bool {
        true
    }

    fn rounded(&mut self, node: NodeId, result: usize, computed: &Tensor, held: &Tensor) {
        let value = self.graph.node(node).outputs[result];
        // A value that cannot be read fails its node.
        self.errors[value.0] = Some(error(computed, held).unwrap_or(f64::NAN));
        if self.of.follows(node) {
            self.computed.push((result, computed.clone()));
        }
    }

    fn follows(&self, node: NodeId) -> bool {
        self.of.follows(node)
    }

    fn follow(&mut self, node: NodeId, operands: &[Tensor], results: &[Tensor]) {
        let mut results = results.to_vec();
        self.computed.drain(..).for_each(|(result, computed)| results[result] = computed);
        self.of.follow(node, operands, &results);
    }
}

/// Relative distance of the stored result from the computed one; infinite or NaN if either is not finite.
fn error(computed: &Tensor, held: &Tensor) -> candle_core::Result<f64> {
    let (computed, held) = (Elements::of(computed)?, Elements::of(held)?);
    let squares = |[norm, lost]: [f64; 2], (computed, held): (&f32, &f32)| {
        let (computed, held) = (f64::from(*computed), f64::from(*held));
        [norm + computed * computed, lost + (held - computed) * (held - computed)]
    };
    let pieces = computed.slice::<f32>()?.par_chunks(PIECE).zip(held.slice::<f32>()?.par_chunks(PIECE));
    let sums: Vec<[f64; 2]> = pieces.map(|(a, b)| a.iter().zip(b).fold([0.0; 2], squares)).collect();
    let [norm, lost] = sums.iter().fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    Ok(if lost == 0.0 { 0.0 } else { (lost / norm).sqrt() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn exponents_are_those_of_the_powers_below() {
        let of = |values: &[f32]| exponents(&Tensor::new(values, &Device::Cpu).unwrap()).unwrap();
        let some = of(&[1.0, 1.99, 2.0, -0.5, 65504.0, 2f32.powi(-24), 0.0, f32::NAN, f32::INFINITY]);
        assert_eq!(some, Exponents::from([(-24, 1), (-1, 1), (0, 2), (1, 1), (15, 1)]));
        assert_eq!(of(&[f32::MAX, -1e-45]), Exponents::from([(-127, 1), (127, 1)]));
    }

    #[test]
    fn what_rounding_costs_is_relative_to_the_whole_result() {
        let of = |computed: [f32; 2], held: [f32; 2]| {
            let tensor = |values: [f32; 2]| Tensor::new(&values, &Device::Cpu).unwrap();
            error(&tensor(computed), &tensor(held)).unwrap()
        };
        assert_eq!(of([3.0, 4.0], [3.0, 3.5]), 0.1);
        assert_eq!(of([0.0, 0.0], [0.0, 0.0]), 0.0);
        // A lost element adds its share to the error.
        assert_eq!(of([0.75, 1.0], [0.75, 0.0]), 0.8);
        assert_eq!(of([1.0, 1e9], [1.0, f32::INFINITY]), f64::INFINITY);
        assert!(of([1.0, f32::INFINITY], [1.0, 65504.0]).is_nan());
    }
}
