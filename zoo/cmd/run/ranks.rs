//! Training with several processes: the first one judges, writes and prints, the others follow.

use super::golden::Proof;
use crate::Failure;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use zoo_ranks::Ranks;
use zoo_train::{CheckpointStore, GoldenVerdict, Listener, Outcome, RunResult, Trainer};

/// Runs `work` on the first rank and then on the others.
///
/// # Errors
/// Errors of the work, and ranks that stopped.
pub(super) fn first_before_others<T>(ranks: &Ranks, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    if ranks.is_first() {
        let done = work()?;
        ranks.meet()?;
        return Ok(done);
    }
    ranks.meet()?;
    work()
}

/// Sends the first rank's verdict to all ranks.
///
/// # Errors
/// Another rank has ended.
pub(super) fn same_verdict(ranks: &Ranks, proof: Proof) -> Result<Proof, Failure> {
    let passing = [GoldenVerdict::Pass, GoldenVerdict::Absent, GoldenVerdict::Baseline];
    let own = passing.iter().position(|verdict| *verdict == proof.verdict).unwrap_or(passing.len()) as u8;
    let verdict = ranks.broadcast(vec![own])?.first().and_then(|place| passing.get(usize::from(*place)).copied());
    Ok(Proof { verdict: verdict.unwrap_or(GoldenVerdict::Fail), ..proof })
}

/// Trains together with the first rank, which writes all files; `None` if all ranks were interrupted.
///
/// # Errors
/// Errors that end the training.
pub(super) fn follow(trainer: &mut Trainer<'_>, cancel: &AtomicBool) -> Result<Option<RunResult>, Failure> {
    let mut nobody: Vec<Box<dyn Listener>> = Vec::new();
    match trainer.run(&CheckpointStore::new(PathBuf::new()), &mut nobody, cancel)? {
        Outcome::Interrupted { .. } => Ok(None),
        Outcome::Finished(result) => Ok(Some(result)),
    }
}
