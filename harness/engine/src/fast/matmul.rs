//! Matrix products.

use super::{call::Call, fallback};
use crate::KernelError;
use zoo_graph::ops::MatMul;

pub(super) fn product(op: &MatMul, call: Call<'_>) -> Result<(), KernelError> {
    fallback::run(&op.clone().into(), call)
}
