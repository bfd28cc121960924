//! Arguments of a kernel.

use crate::{
    KernelError, Scalars,
    error::MAP,
    simulate::{HalfType, Held, Overflow, Range, half_type},
};
use zoo_graph::TensorType;
use zoo_kernels::{Blocked, Isa, half::Rounding};
use zoo_ranks::Ranks;

/// An operand of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand<'a> {
    /// Elements as stored.
    Float(&'a [f32]),
    /// Class indices.
    Index(&'a [u32]),
    /// The operand is stored in the buffer of this result, which overwrites it.
    Overwritten {
        /// Index of the result.
        result: usize,
    },
}

/// Operands, results and their types. Elements are as stored, including padding.
pub(crate) struct Call<'a> {
    pub isa: Isa,
    pub scalars: Scalars,
    pub operands: Vec<Operand<'a>>,
    pub operand_types: Vec<&'a TensorType>,
    pub results: Vec<&'a mut [f32]>,
    pub result_types: Vec<&'a TensorType>,
    /// The exponents of a simulated device.
    pub range: Option<Range>,
    /// The type in which a simulated device stores each result.
    pub held: &'a [Option<Held>],
    /// As many elements as the [kernel](super::choice::FastKernel) needs, with any content.
    pub workspace: &'a mut [f32],
    pub ranks: &'a Ranks,
}

impl<'a> Call<'a> {
    /// The `i`-th operand, which no result overwrites.
    ///
    /// # Errors
    /// There is no such operand, it contains indices, or it is overwritten: the kernel does not fit its operator's
    /// rules.
    pub fn operand(&self, i: usize) -> Result<&'a [f32], KernelError> {
        match self.operands.get(i) {
            Some(Operand::Float(values)) => Ok(values),
            Some(Operand::Index(_) | Operand::Overwritten { .. }) | None => {
                Err(KernelError::Operand { place: i, expected: "a tensor of numbers that no result overwrites" })
            }
        }
    }

    /// The `i`-th operand, unless a result overwrites it.
    pub fn apart(&self, i: usize) -> Option<&'a [f32]> {
        match self.operands.get(i) {
            Some(Operand::Float(values)) => Some(values),
            Some(Operand::Index(_) | Operand::Overwritten { .. }) | None => None,
        }
    }

    /// The `i`-th operand as class indices.
    ///
    /// # Errors
    /// There is no such operand, or it does not contain indices.
    pub fn indices(&self, i: usize) -> Result<&'a [u32], KernelError> {
        match self.operands.get(i) {
            Some(Operand::Index(values)) => Ok(values),
            Some(Operand::Float(_) | Operand::Overwritten { .. }) | None => {
                Err(KernelError::Operand { place: i, expected: "a tensor of class indices" })
            }
        }
    }

    /// Exactly `N` results.
    ///
    /// # Errors
    /// There is another number of results.
    pub fn results<const N: usize>(&mut self) -> Result<[&mut [f32]; N], KernelError> {
        let arity = KernelError::Arity { found: self.results.len() };
        let all: Vec<&mut [f32]> = self.results.iter_mut().map(|r| &mut **r).collect();
        all.try_into().map_err(|_| arity)
    }

    /// As [`factors`], of this call.
    pub fn factors(&self) -> (Isa, Option<HalfType>) {
        factors(self.isa, self.range, &self.operand_types)
    }

    /// The rounding of the `r`-th result, for kernels that round while the result is in the cache. If a kernel does not
    /// request it, the result is rounded afterwards.
    pub fn rounding(&self, r: usize) -> Option<&'a Rounding> {
        self.held.get(r)?.as_ref()?.by_kernel()
    }

    /// Extent of the `i`-th operand, a blocked map.
    ///
    /// # Errors
    /// It is not a map.
    pub fn map(&self, i: usize) -> Result<Blocked, KernelError> {
        self.operand_types.get(i).and_then(|ty| extent(ty)).ok_or(KernelError::Operand { place: i, expected: MAP })
    }

    /// Extent of the `i`-th result, a blocked map.
    ///
    /// # Errors
    /// It is not a map.
    pub fn result_map(&self, i: usize) -> Result<Blocked, KernelError> {
        self.result_types.get(i).and_then(|ty| extent(ty)).ok_or(KernelError::Result { place: i, expected: MAP })
    }
}

/// Instructions for a product of the first two operands, and the format of both if it is not f32. Tiles divide fp16
/// numbers into parts, which infinities do not have, so they are for devices that saturate.
pub(crate) fn factors(isa: Isa, range: Option<Range>, operands: &[&TensorType]) -> (Isa, Option<HalfType>) {
    let half = |i: usize| operands.get(i).and_then(|ty| half_type(ty.dtype));
    let ty = half(0).filter(|ty| half(1) == Some(*ty));
    let saturates = matches!(range, Some(Range::Format { overflow: Overflow::Saturate, .. }));
    match ty {
        Some(HalfType::Fp16) if !saturates => (isa.direct(), None),
        Some(HalfType::Fp16 | HalfType::Bf16) | None => (isa, ty),
    }
}

/// Extent of a tensor with four axes.
pub(crate) fn extent(ty: &TensorType) -> Option<Blocked> {
    ty.shape.nchw().map(|[n, c, h, w]| Blocked { n, c, h, w })
}
