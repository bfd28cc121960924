//! What `capture.json` says about the rank that wrote it, and about what the rank has of a tensor.

use serde::Deserialize;
use std::collections::BTreeMap;
use zoo_graph::parallel::MeshAxis;

/// What `capture.json` says about the rank that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RankFacts {
    /// The number of the rank.
    pub rank: usize,
    /// The number of all ranks.
    pub world: usize,
    /// A word that all ranks of a run have in common.
    #[serde(default)]
    pub run: Option<String>,
    /// The place of the rank; empty if it does not know.
    #[serde(default)]
    pub mesh: BTreeMap<MeshAxis, Place>,
    /// Micro-batches of the step.
    #[serde(default = "one")]
    pub micro_batches: usize,
}

fn one() -> usize {
    1
}

/// The place of a rank along an axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Place {
    /// Its place, from 0.
    pub place: usize,
    /// The number of places.
    pub ranks: usize,
}

/// What a rank has of a tensor along an axis of the mesh, as a recording says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Held {
    /// A part along this dimension of the tensor.
    Along(usize),
    /// A term of a sum.
    #[serde(deserialize_with = "sum")]
    Sum,
}

fn sum<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    enum Word {
        #[serde(rename = "sum")]
        Sum,
    }
    Word::deserialize(deserializer).map(|Word::Sum| ())
}
