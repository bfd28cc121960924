//! Puts the values of ranks together.

use crate::probe::to_f64;
use candle_core::{Result, Tensor};
use zoo_engine::lockstep::{Ranked, joined};
use zoo_graph::parallel::{Mesh, MeshAxis, Placement};

/// The whole tensor as each rank and those that share it with it have it.
pub(super) fn assembled(ranks: &Ranked, placements: &[(MeshAxis, Placement)], mesh: &Mesh) -> Result<Ranked> {
    let mut wholes = ranks.clone();
    for (axis, placement) in placements.iter().rev() {
        for group in mesh.groups(*axis) {
            let parts = group.iter().map(|rank| wholes[*rank].as_ref()).collect::<Option<Vec<&Tensor>>>();
            let Some(parts) = parts else { continue };
            let whole = match placement {
                Placement::Whole | Placement::Local => continue,
                Placement::Split(part) => joined(&parts, part)?,
                Placement::Partial => parts[1..].iter().try_fold(parts[0].clone(), |sum, part| sum.add(part))?,
            };
            group.iter().for_each(|rank| wholes[*rank] = Some(whole.clone()));
        }
    }
    Ok(wholes)
}

/// The whole tensors that ought to be equal, each with its first rank.
pub(super) fn replicas(
    wholes: Ranked,
    placements: &[(MeshAxis, Placement)],
    mesh: &Mesh,
) -> Result<Vec<(usize, Vec<f64>)>> {
    let first = |rank: &usize| placements.iter().all(|(axis, _)| mesh.place(*rank, *axis) == 0);
    let ranks = wholes.into_iter().enumerate().filter(|(rank, _)| first(rank));
    ranks.filter_map(|(rank, whole)| Some(to_f64(&whole?).map(|values| (rank, values)))).collect()
}
