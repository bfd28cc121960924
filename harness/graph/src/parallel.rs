//! A step that several ranks compute together.
//!
//! Ranks lie on a [`Mesh`] with one axis for each reason to split a step. [`distribute`] splits a forward pass along
//! one of these axes: parameters and inputs are placed ([`Plan`]), every operator says in its file which axes of its
//! operands and results go together and which results are partial sums ([`Way`]), and where a value is not placed as
//! its reader needs it, a collective is inserted. All ranks run the same graph. Differentiation afterwards gives the
//! backward pass with its collectives, because each of them has a gradient; no gradient of an operator needs a rule.
//!
//! Several axes are split one after the other: what the first split leaves to a rank is a graph like any other.
//!
//! Source of the types: GSPMD (arXiv 2105.04663) and PyTorch's DTensor (split, replicated, partial); of the gradients:
//! what JAX's `shard_map` calls varying and invariant values. Megatron-LM's rules (arXiv 1909.08053, 2205.05198) are
//! what comes out.

mod distribute;
mod mesh;
mod pipeline;
mod placement;
mod plan;
mod positions;
#[cfg(test)]
mod tests;
mod way;

pub use distribute::{Distributed, distribute};
pub use mesh::{Mesh, MeshAxis};
pub use pipeline::{Pipelined, Stages, pipeline};
pub use placement::{Part, Placement};
pub use plan::{Home, Plan, Unsplit};
pub use positions::with_positions;
pub use way::{Call, Need, Outcome, Slot, Way};
