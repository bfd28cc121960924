//! Another rounding of a step in f32: parameters, inputs and results of operators are moved in their last place, as in
//! the moved runs of PyTorch's goldens.

use candle_core::{DType, Tensor};
use zoo_datasets::hash::NameHash;
use zoo_engine::Observer;
use zoo_graph::{Graph, Phase, Source, ValueId};

/// Moves numbers to a neighbour in f32. Integers are exact in any rounding: masks, labels and counts.
pub(super) fn in_last_place(name: &str, values: &mut [f32]) {
    let hash = NameHash::new(name);
    // All numbers from 2^23 on are integers, and what is none stays as it is.
    let moves = |value: f32| value.abs() < 8_388_608.0 && value as i32 as f32 != value;
    for (element, value) in (0..).zip(values).filter(|(_, value)| moves(**value)) {
        // Up where the hash is even: away from zero, or, if the sign bit is set, towards it. Branches would be guesses.
        let (bits, odd) = (value.to_bits(), hash.h(element) as u32 & 1);
        *value = f32::from_bits(bits.wrapping_add(1).wrapping_sub(2 * (odd ^ (bits >> 31))));
    }
}

/// A tensor whose elements are moved.
fn neighbour(tensor: &Tensor, value: ValueId, salt: &str) -> Option<Tensor> {
    let mut values: Vec<f32> = tensor.flatten_all().and_then(|all| all.to_vec1()).ok()?;
    in_last_place(&format!("{salt}value {}", value.0), &mut values);
    Tensor::from_vec(values, tensor.dims(), tensor.device()).ok()
}

/// Moves the inputs of a step and what its operators compute from them, up to the gradients, and passes values to an
/// observer.
pub(crate) struct Moving<'a> {
    graph: &'a Graph,
    inner: &'a mut dyn Observer,
    salt: &'a str,
    moved: Option<Tensor>,
}

impl<'a> Moving<'a> {
    /// Another salt gives another choice of neighbours.
    pub(crate) fn new(graph: &'a Graph, inner: &'a mut dyn Observer, salt: &'a str) -> Self {
        Self { graph, inner, salt, moved: None }
    }

    fn moves(&self, value: ValueId) -> bool {
        match self.graph.value(value).source {
            Source::Input(_) => true,
            Source::Variable(_) => false,
            Source::Node(node, _) => self.graph.node(node).phase != Phase::Update,
        }
    }
}

impl Observer for Moving<'_> {
    fn wants(&self, value: ValueId) -> bool {
        self.inner.wants(value) || self.moves(value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        self.inner.observe(value, tensor);
        // Indices are not numbers of f32, and stay as they are.
        self.moved = match tensor.dtype() {
            DType::F32 if self.moves(value) => neighbour(tensor, value, self.salt),
            _ => None,
        };
    }

    fn instead(&mut self, _value: ValueId) -> Option<Tensor> {
        self.moved.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_integers_move_to_a_neighbour() {
        let before: Vec<f32> = (0..64).map(|n| n as f32 / 4.0 - 8.0).collect();
        let mut after = before.clone();
        in_last_place("it", &mut after);
        for (before, after) in before.iter().zip(&after) {
            let moved = [before.next_up(), before.next_down()].contains(after);
            assert_eq!(moved, before.fract() != 0.0, "{before} {after}");
        }
        let hash = NameHash::new("it");
        for (n, (before, after)) in
            before.iter().zip(&after).enumerate().filter(|(_, (before, _))| before.fract() != 0.0)
        {
            assert_eq!(after > before, hash.h(n as u64).is_multiple_of(2), "{before} {after}");
        }
        let mut none = [f32::NAN, f32::INFINITY, 3e38, -0.0];
        in_last_place("it", &mut none);
        assert_eq!(none.map(f32::to_bits), [f32::NAN, f32::INFINITY, 3e38, -0.0].map(f32::to_bits));
        assert!(after.iter().zip(&before).any(|(a, b)| a > b) && after.iter().zip(&before).any(|(a, b)| a < b));
    }
}
