//! Updates that a skipped step omits, and gradient clipping: in place, or on a copy if the buffer plan does not allow
//! overwriting.

use super::call::Call;
use crate::KernelError;
use zoo_graph::ops::ClipByValue;
use zoo_kernels::elementwise;

/// Keeps the old values.
pub(super) fn keep(mut call: Call<'_>, count: usize) {
    start(&mut call, count);
}

/// Copies old values into the results that do not overwrite them.
fn start(call: &mut Call<'_>, count: usize) {
    for i in 0..count {
        if let Some(old) = call.apart(i) {
            call.results[i].copy_from_slice(old);
        }
    }
}

pub(super) fn clip_by_value(op: &ClipByValue, mut call: Call<'_>) -> Result<(), KernelError> {
    start(&mut call, 1);
    let isa = call.isa;
    let [gradient] = call.results()?;
    elementwise::clip(isa, op.bound as f32, gradient);
    Ok(())
}
