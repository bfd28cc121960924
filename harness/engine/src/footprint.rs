//! The memory of the live tensors of a step.

use candle_core::Tensor;
use std::collections::HashMap;
use zoo_graph::Bytes;

/// Counts the bytes of tensors. Memory shared by several tensors (a reshape, a variable) counts once.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    /// Holders and bytes, by address of the storage.
    live: HashMap<usize, (usize, u64)>,
    now: u64,
    worst: u64,
}

impl Footprint {
    /// Registers a new tensor, or another holder of it.
    pub fn hold(&mut self, tensor: &Tensor) {
        let (holders, bytes) = self.live.entry(address(tensor)).or_default();
        *holders += 1;
        if *holders == 1 {
            *bytes = (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64;
            self.now += *bytes;
            self.worst = self.worst.max(self.now);
        }
    }

    /// Registers that a holder is about to release a tensor.
    pub fn release(&mut self, tensor: &Tensor) {
        let address = address(tensor);
        if let Some((holders, bytes)) = self.live.get_mut(&address) {
            *holders -= 1;
            if *holders == 0 {
                self.now -= *bytes;
                self.live.remove(&address);
            }
        }
    }

    /// The largest sum so far.
    pub fn worst(&self) -> Bytes {
        Bytes(self.worst)
    }
}

/// Identifies the memory of a live tensor.
fn address(tensor: &Tensor) -> usize {
    std::ptr::from_ref(&*tensor.storage_and_layout().0).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    fn shared_memory_counts_once() {
        let mut footprint = Footprint::default();
        let a = Tensor::zeros((2, 3), DType::F64, &Device::Cpu).unwrap();
        let b = a.reshape(6).unwrap();
        let c = Tensor::zeros(5, DType::F32, &Device::Cpu).unwrap();
        footprint.hold(&a);
        footprint.hold(&b);
        assert_eq!(footprint.worst(), Bytes(48));
        footprint.release(&a);
        footprint.hold(&c);
        assert_eq!(footprint.worst(), Bytes(68));
        footprint.release(&b);
        footprint.hold(&c);
        assert_eq!(footprint.now, 20);
    }
}
