//! Detects whether this process was started by `mpirun`.

use crate::{Ranks, RanksError};
use std::env;

/// Environment variables with the number of started processes: OpenMPI's mpirun, and PMI (MPICH, Slurm).
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// Variables that indicate a launcher, with any number of processes: PMIx (OpenMPI 5, `srun --mpi=pmix`).
const PRESENT: [&str; 1] = ["PMIX_RANK"];

/// The rank that this process is; [`Ranks::alone`] if no launcher has started it.
///
/// # Errors
/// An MPI that cannot be used, and a command without MPI that was started several times.
pub fn launched() -> Result<Ranks, RanksError> {
    let size = SIZES.iter().find_map(|name| env::var(name).ok()?.parse::<usize>().ok());
    match size {
        Some(1) => Ok(Ranks::alone()),
        Some(_) => connect(),
        None if PRESENT.iter().any(|name| env::var_os(name).is_some()) => connect(),
        None => Ok(Ranks::alone()),
    }
}

#[cfg(feature = "mpi")]
fn connect() -> Result<Ranks, RanksError> {
    crate::mpi::connect()
}

#[cfg(not(feature = "mpi"))]
fn connect() -> Result<Ranks, RanksError> {
    let message = "several processes were started, but this zoo was built without MPI: \
                   cargo install --path . --features mpi (docs/many-machines.md)";
    Err(RanksError::Mpi(message.into()))
}
