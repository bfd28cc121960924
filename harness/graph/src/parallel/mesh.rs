//! The ranks of a step as points of a grid.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A reason to split a step over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeshAxis {
    /// The micro-batches of a step, one after the other on the same rank: a sum over this axis is accumulation.
    MicroBatch,
    /// Each rank has some of the layers.
    Pipeline,
    /// Each rank has a part of the samples.
    Data,
    /// Each rank has a part of the tokens of each sample.
    Context,
    /// Each rank has a part of the samples, and a part of the experts.
    Expert,
    /// Each rank has a part of heads, hidden units and rows of the vocabulary.
    Tensor,
}

impl MeshAxis {
    /// All axes, from the slowest of a rank's number to the fastest. Source: Megatron-LM's default order
    /// `tp-cp-ep-dp-pp`, from the fastest to the slowest (`megatron/core/parallel_state.py`).
    pub const ALL: [Self; 6] =
        [Self::MicroBatch, Self::Pipeline, Self::Data, Self::Expert, Self::Context, Self::Tensor];
}

impl fmt::Display for MeshAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MicroBatch => "micro-batch",
            Self::Pipeline => "pipeline",
            Self::Data => "data",
            Self::Context => "context",
            Self::Expert => "expert",
            Self::Tensor => "tensor",
        })
    }
}

/// Ranks on a grid. Axes that are not listed have one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mesh {
    /// Axes with more than one rank, in the order of [`MeshAxis::ALL`], with their extents.
    axes: Vec<(MeshAxis, usize)>,
}

impl Mesh {
    /// A grid with these extents; an axis without one has one rank.
    pub fn new(extents: impl Fn(MeshAxis) -> usize) -> Self {
        let axes = MeshAxis::ALL.into_iter().map(|axis| (axis, extents(axis)));
        Self { axes: axes.filter(|(_, extent)| *extent > 1).collect() }
    }

    /// Axes with more than one rank, from the slowest to the fastest, with their extents.
    pub fn axes(&self) -> &[(MeshAxis, usize)] {
        &self.axes
    }

    /// Number of all ranks. Each micro-batch counts as one.
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(|(_, extent)| extent).product()
    }

    /// Number of all ranks, without micro-batches.
    pub fn devices(&self) -> usize {
        self.ranks() / self.extent(MeshAxis::MicroBatch)
    }

    /// Ranks along an axis.
    pub fn extent(&self, axis: MeshAxis) -> usize {
        self.axes.iter().find(|(known, _)| *known == axis).map_or(1, |(_, extent)| *extent)
    }

    /// Distance between the numbers of neighbours along an axis.
    fn stride(&self, axis: MeshAxis) -> usize {
        let faster = self.axes.iter().rev().take_while(|(known, _)| *known != axis);
        faster.map(|(_, extent)| extent).product()
    }

    /// The place of a rank along an axis.
    pub fn place(&self, rank: usize, axis: MeshAxis) -> usize {
        match self.extent(axis) {
            1 => 0,
            extent => rank / self.stride(axis) % extent,
        }
    }

    /// The groups along an axis: ranks that differ in their place on this axis alone, in the order of their places.
    pub fn groups(&self, axis: MeshAxis) -> Vec<Vec<usize>> {
        let extent = self.extent(axis);
        let stride = if extent > 1 { self.stride(axis) } else { 1 };
        let first = (0..self.ranks()).filter(|rank| self.place(*rank, axis) == 0);
        first.map(|rank| (0..extent).map(|place| rank + place * stride).collect()).collect()
    }

    /// A rank by its places: `tensor 1, data 0`.
    pub fn name(&self, rank: usize) -> String {
        let places = self.axes.iter().rev().map(|(axis, _)| format!("{axis} {}", self.place(rank, *axis)));
        places.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_ranks_are_neighbours() {
        let mesh = Mesh::new(|axis| match axis {
            MeshAxis::Data => 2,
            MeshAxis::Tensor => 3,
            MeshAxis::MicroBatch | MeshAxis::Pipeline | MeshAxis::Context | MeshAxis::Expert => 1,
        });
        assert_eq!(mesh.ranks(), 6);
        assert_eq!(mesh.groups(MeshAxis::Tensor), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(mesh.groups(MeshAxis::Data), [[0, 3], [1, 4], [2, 5]]);
        assert_eq!(mesh.groups(MeshAxis::Context), [[0], [1], [2], [3], [4], [5]]);
        assert_eq!(mesh.name(4), "tensor 1, data 1");
    }
}
