//! Parallel loops over the planes of a blocked tensor and over flat slices.
//!
//! Who computes what is rayon's choice; what is computed, and the order in which sums are formed, follows from the
//! shape alone (see [`crate::parallel`]).

use crate::Blocked;
use rayon::prelude::*;

/// f32 elements that are worth a task of their own: 64 KiB.
pub(crate) const TASK_LEN: usize = 16 * 1024;

/// Planes that are worth a task of their own.
pub(crate) fn planes_per_task(shape: Blocked) -> usize {
    (TASK_LEN / shape.plane_len().max(1)).max(1)
}

/// The planes of a tensor by channel block: `result[c1][n]`.
pub(crate) fn by_block(shape: Blocked, x: &mut [f32]) -> Vec<Vec<&mut [f32]>> {
    let c1 = shape.c1();
    let mut blocks: Vec<Vec<&mut [f32]>> = (0..c1).map(|_| Vec::with_capacity(shape.n)).collect();
    if !shape.is_empty() {
        for (index, plane) in x.chunks_exact_mut(shape.plane_len()).enumerate() {
            blocks[index % c1].push(plane);
        }
    }
    blocks
}

/// Runs `task(n, plane)` for the planes of one channel block.
pub(crate) fn for_each_image(shape: Blocked, planes: Vec<&mut [f32]>, task: impl Fn(usize, &mut [f32]) + Sync + Send) {
    planes.into_par_iter().enumerate().with_min_len(planes_per_task(shape)).for_each(|(n, plane)| task(n, plane));
}

/// Runs `task(n, c1, plane)` for all planes.
pub(crate) fn for_each_plane(shape: Blocked, x: &mut [f32], task: impl Fn(usize, usize, &mut [f32]) + Sync + Send) {
    if shape.is_empty() {
        return;
    }
    x.par_chunks_exact_mut(shape.plane_len())
        .with_min_len(planes_per_task(shape))
        .enumerate()
        .for_each(|(index, plane)| task(index / shape.c1(), index % shape.c1(), plane));
}

/// Panics unless a tensor has as many elements as its shape says.
#[track_caller]
pub(crate) fn expect_len(name: &str, found: usize, expected: usize) {
    assert!(found == expected, "{name} has {found} elements instead of {expected}");
}
