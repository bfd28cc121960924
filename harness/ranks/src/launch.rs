//! What this process is: alone, or one of those that `mpirun` has started.

use crate::{Ranks, RanksError};
use std::env;

/// Variables in which launchers say how many processes they have started: OpenMPI's mpirun, and PMI's (MPICH, Slurm).
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// Variables that say that there is a launcher, whatever the number: PMIx (OpenMPI 5, `srun --mpi=pmix`).
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
