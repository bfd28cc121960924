//! Puts the values of ranks together.

use crate::probe::to_f64;
use candle_core::{Result, Tensor};
use zoo_engine::lockstep::joined;
use zoo_graph::parallel::{Mesh, MeshAxis, Placement};

/// The whole tensor as each rank and those that share it with it have it.
pub(super) fn assembled(ranks: &[Tensor], placements: &[(MeshAxis, Placement)], mesh: &Mesh) -> Result<Vec<Tensor>> {
    let mut wholes = ranks.to_vec();
    for (axis, placement) in placements.iter().rev() {
        for group in mesh.groups(*axis) {
            let parts: Vec<&Tensor> = group.iter().map(|rank| &wholes[*rank]).collect();
            let whole = match placement {
                Placement::Whole | Placement::Local => continue,
                Placement::Split(part) => joined(&parts, part)?,
                Placement::Partial => parts[1..].iter().try_fold(parts[0].clone(), |sum, part| sum.add(part))?,
            };
            group.iter().for_each(|rank| wholes[*rank] = whole.clone());
        }
    }
    Ok(wholes)
}

/// The whole tensors that ought to be equal, each with its first rank.
pub(super) fn replicas(
    wholes: Vec<Tensor>,
    placements: &[(MeshAxis, Placement)],
    mesh: &Mesh,
) -> Result<Vec<(usize, Vec<f64>)>> {
    let first = |rank: &usize| placements.iter().all(|(axis, _)| mesh.place(*rank, *axis) == 0);
    (0..mesh.ranks()).filter(first).map(|rank| Ok((rank, to_f64(&wholes[rank])?))).collect()
}
