//! Steps that several ranks recorded: a folder for each rank, as msprobe and zoo_golden.capture write them.

use super::{
    Names, Recording, layout, malformed,
    rank_facts::{Place, RankFacts},
};
use crate::GoldenError;
use std::{collections::BTreeMap, path::Path};
use zoo_graph::parallel::{Mesh, MeshAxis};

/// The steps that all ranks recorded.
#[derive(Debug)]
pub struct RankRecordings {
    /// By step, rank (by its number in the mesh) and micro-batch. A micro-batch other than the first has only what
    /// modules take and return.
    pub steps: Vec<Vec<Vec<Recording>>>,
}

impl RankRecordings {
    /// Opens the recordings of all ranks of a mesh: `step0/rank0`, `step0/rank1`, ... or `rank0`, `rank1`, ...
    ///
    /// # Errors
    /// As [`Recording::open`]; ranks that are missing, too many, of several runs, or of another mesh.
    pub fn open(path: &Path, names: &Names, mesh: &Mesh) -> Result<Self, GoldenError> {
        if !path.is_dir() {
            let message =
                if path.exists() { "a file, and ranks have a folder each" } else { "there is no such folder" };
            return Err(malformed(path, message));
        }
        let steps = layout::steps(path)?;
        let steps = if steps.is_empty() { vec![path.to_owned()] } else { steps };
        let mut run: Option<(usize, String)> = None;
        let step = |folder| of_step(folder, names, mesh, &mut run);
        Ok(Self { steps: steps.iter().map(std::path::PathBuf::as_path).map(step).collect::<Result<_, _>>()? })
    }
}

fn of_step(
    folder: &Path,
    names: &Names,
    mesh: &Mesh,
    run: &mut Option<(usize, String)>,
) -> Result<Vec<Vec<Recording>>, GoldenError> {
    let wrong = |message: String| malformed(folder, message);
    let devices = mesh.devices();
    let folders = layout::ranks(folder)?;
    if folders.is_empty() {
        return Err(wrong(format!(
            "there is no folder of a rank in it: {devices} ranks are rank0 to rank{}",
            devices - 1
        )));
    }
    if let Some(missing) = (0..devices).find(|rank| !folders.contains_key(rank)) {
        let there: Vec<String> = folders.keys().map(|rank| format!("rank{rank}")).collect();
        return Err(wrong(format!("rank{missing} of {devices} is missing: there are {}", there.join(", "))));
    }
    if let Some(more) = folders.keys().find(|rank| **rank >= devices) {
        return Err(wrong(format!("there is a rank{more}, and the split has {devices} ranks")));
    }
    let mut placed: BTreeMap<usize, (usize, Vec<Recording>)> = BTreeMap::new();
    let mut told: Option<(usize, bool)> = None;
    for (rank, path) in &folders {
        let recording = Recording::open(path, names)?;
        let own = |message: String| malformed(path, message);
        let tells = recording.ranks.is_some();
        let (other, others) = *told.get_or_insert((*rank, tells));
        if others != tells {
            let (with, without) = if tells { (*rank, other) } else { (other, *rank) };
            return Err(own(format!(
                "rank{with} says which rank it is, and rank{without} does not: record all in one way"
            )));
        }
        let (mut place, mut micro_batches) = (*rank, 1);
        if let Some(facts) = &recording.ranks {
            if facts.rank != *rank || facts.world != devices {
                let RankFacts { rank, world, .. } = facts;
                return Err(own(format!(
                    "rank {rank} of {world} recorded it, and it is rank{place} of {devices} here"
                )));
            }
            if let Some(word) = &facts.run {
                let (other, known) = run.get_or_insert_with(|| (*rank, word.clone()));
                if known != word {
                    return Err(own(format!("it is of another run than rank{other}: two runs are mixed")));
                }
            }
            if !facts.mesh.is_empty() {
                place = place_in(&facts.mesh, mesh).map_err(own)?;
            }
            micro_batches = facts.micro_batches;
        }
        let all = mesh.extent(MeshAxis::MicroBatch);
        if micro_batches != 1 && micro_batches != all {
            return Err(own(format!("{micro_batches} micro-batches are recorded, and the split has {all}")));
        }
        let recordings = recording.by_micro_batch(all).map_err(own)?;
        if let Some((other, _)) = placed.insert(place, (*rank, recordings)) {
            return Err(own(format!("rank{other} and rank{rank} both are {}", mesh.name(place))));
        }
    }
    Ok(placed.into_values().map(|(_, recordings)| recordings).collect())
}

/// The number of the rank that is at these places.
fn place_in(places: &BTreeMap<MeshAxis, Place>, mesh: &Mesh) -> Result<usize, String> {
    let known = |axis: MeshAxis| places.get(&axis).copied().unwrap_or(Place { place: 0, ranks: 1 });
    for axis in MeshAxis::ALL.into_iter().filter(|axis| *axis != MeshAxis::MicroBatch) {
        let (recorded, extent) = (known(axis).ranks, mesh.extent(axis));
        if recorded != extent {
            return Err(format!("it says {axis}={recorded}, and the split has {axis}={extent}"));
        }
    }
    let is_here = |rank: &usize| MeshAxis::ALL.iter().all(|axis| mesh.place(*rank, *axis) == known(*axis).place);
    (0..mesh.devices()).find(is_here).ok_or_else(|| "its place is outside of the mesh".to_owned())
}
