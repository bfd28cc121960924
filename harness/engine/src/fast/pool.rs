//! Pools and the normalisation across channels, on blocked maps.

use super::call::Call;
use crate::KernelError;
use zoo_graph::ops::{
    AdaptiveAvgPool, AdaptiveAvgPoolGrad, AvgPool, AvgPoolGrad, Lrn, LrnGrad, MaxPool, MaxPoolGrad, Window,
};
use zoo_kernels::{
    average_pool::{self, AveragePool},
    local_response_norm::{self, LocalResponseNorm},
    max_pool, window,
};

fn window(w: &Window) -> window::Window {
    window::Window { kernel: w.kernel, stride: w.stride, pad: w.pad, dilation: w.dilation, ceil: w.ceil }
}

pub(super) fn max(op: &MaxPool, mut call: Call<'_>) -> Result<(), KernelError> {
    let pool = max_pool::MaxPool::new(call.map(0)?, window(&op.window))?;
    let (isa, x) = (call.isa, call.operand(0)?);
    let [y] = call.results()?;
    max_pool::max_pool(isa, &pool, x, y);
    Ok(())
}

pub(super) fn max_gradient(op: &MaxPoolGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let pool = max_pool::MaxPool::new(call.map(0)?, window(&op.window))?;
    let (isa, x, dy) = (call.isa, call.operand(0)?, call.operand(2)?);
    let [dx] = call.results()?;
    max_pool::max_pool_gradient(isa, &pool, x, dy, dx);
    Ok(())
}

fn sliding(op: &AvgPool, input: zoo_kernels::Blocked) -> Result<AveragePool, KernelError> {
    Ok(AveragePool::sliding(input, window(&op.window), op.count_include_pad)?)
}

pub(super) fn average(op: &AvgPool, call: Call<'_>) -> Result<(), KernelError> {
    let pool = sliding(op, call.map(0)?)?;
    average_forward(&pool, call)
}

pub(super) fn average_gradient(op: &AvgPoolGrad, call: Call<'_>) -> Result<(), KernelError> {
    let pool = sliding(&op.pool, call.result_map(0)?)?;
    average_backward(&pool, call)
}

pub(super) fn adaptive(op: &AdaptiveAvgPool, call: Call<'_>) -> Result<(), KernelError> {
    let pool = AveragePool::adaptive(call.map(0)?, op.out)?;
    average_forward(&pool, call)
}

pub(super) fn adaptive_gradient(op: &AdaptiveAvgPoolGrad, call: Call<'_>) -> Result<(), KernelError> {
    let pool = AveragePool::adaptive(call.result_map(0)?, op.pool.out)?;
    average_backward(&pool, call)
}

fn average_forward(pool: &AveragePool, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, x) = (call.isa, call.operand(0)?);
    let [y] = call.results()?;
    average_pool::average_pool(isa, pool, x, y);
    Ok(())
}

fn average_backward(pool: &AveragePool, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, dy) = (call.isa, call.operand(0)?);
    let [dx] = call.results()?;
    average_pool::average_pool_gradient(isa, pool, dy, dx);
    Ok(())
}

fn norm(op: &Lrn) -> LocalResponseNorm {
    LocalResponseNorm { size: op.size, alpha: op.alpha, beta: op.beta, k: op.k }
}

pub(super) fn lrn(op: &Lrn, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, x) = (call.isa, call.map(0)?, call.operand(0)?);
    let [y] = call.results()?;
    local_response_norm::local_response_norm(isa, shape, norm(op), x, y);
    Ok(())
}

pub(super) fn lrn_gradient(op: &LrnGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, x, dy) = (call.isa, call.map(0)?, call.operand(0)?, call.operand(1)?);
    let [dx] = call.results()?;
    local_response_norm::local_response_norm_gradient(isa, shape, norm(&op.lrn), x, dy, dx);
    Ok(())
}
