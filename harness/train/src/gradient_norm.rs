//! The Euclidean norm of all gradients of a step.

use candle_core::{DType, Tensor};
use std::collections::HashSet;
use zoo_engine::Observer;
use zoo_graph::{Graph, ValueId};

/// Observes the gradient of each parameter, before any clipping. This takes a few per cent of a step, so it is only
/// done at some steps.
#[derive(Debug)]
pub struct GradientNorm {
    gradients: HashSet<ValueId>,
    squares: f64,
}

impl GradientNorm {
    /// For the steps of this graph.
    pub fn new(graph: &Graph) -> Self {
        Self { gradients: graph.gradients.iter().map(|(_, gradient)| *gradient).collect(), squares: 0.0 }
    }

    /// The norm over the observed tensors: summed in f64, tensor by tensor, so that it does not depend on the number of
    /// threads.
    pub fn value(&self) -> f64 {
        self.squares.sqrt()
    }
}

impl Observer for GradientNorm {
    fn wants(&self, value: ValueId) -> bool {
        self.gradients.contains(&value)
    }

    fn observe(&mut self, _value: ValueId, tensor: &Tensor) {
        let numbers = tensor.to_dtype(DType::F32).and_then(|tensor| tensor.flatten_all()?.to_vec1::<f32>());
        // Tensors that candle cannot convert make the norm NaN, which is not written.
        self.squares += numbers.map_or(f64::NAN, |all| all.iter().map(|n| f64::from(*n) * f64::from(*n)).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_norm_over_several_tensors() {
        let mut norm = GradientNorm { gradients: HashSet::from([ValueId(3)]), squares: 0.0 };
        assert!(norm.wants(ValueId(3)) && !norm.wants(ValueId(4)));
        let device = candle_core::Device::Cpu;
        norm.observe(ValueId(3), &Tensor::new(&[[1.0f32, 2.0], [0.0, 0.0]], &device).unwrap());
        norm.observe(ValueId(3), &Tensor::new(&[2.0f32], &device).unwrap());
        assert_eq!(norm.value(), 3.0);
    }
}
