//! The rows of tokens by expert, and back.

use crate::KernelError;
use crate::elements::{Elements, by_chunks};
use crate::routing::Rows;
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::{Combine, Dispatch};

/// The rows of a routing, the operand at this place, with at most `top` choices for each token.
pub(super) fn rows<T: FloatDType>(place: usize, routing: &Tensor, top: usize) -> Result<Rows, KernelError> {
    let (tokens, experts) = routing.dims2()?;
    let opened = Elements::of(routing)?;
    let weights = opened.slice::<T>()?;
    Rows::of(place, [tokens, experts], top, |at| weights[at].to_f64() != 0.0)
}

/// The row of the token of each choice.
pub(super) fn dispatch<T: FloatDType>(op: &Dispatch, [x, routing]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let (tokens, width) = x.dims2()?;
    let rows = rows::<T>(1, routing, op.top)?;
    let opened = Elements::of(x)?;
    let values = opened.slice::<T>()?;
    Ok(by_chunks::<T>(&[tokens * op.top, width], width, |row, y| {
        if let Some(token) = rows.tokens().get(row) {
            y.copy_from_slice(&values[token * width..][..width]);
        }
    })?)
}

/// The sum of the rows of the choices of each token.
pub(super) fn combine<T: FloatDType>(op: &Combine, [x, routing]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let ((tokens, experts), (_, width)) = (routing.dims2()?, x.dims2()?);
    let of_tokens = rows::<T>(1, routing, op.top)?.of_tokens(tokens);
    let (opened, weights) = (Elements::of(x)?, Elements::of(routing)?);
    let (values, weights) = (opened.slice::<T>()?, weights.slice::<T>()?);
    Ok(by_chunks::<T>(&[tokens, width], width, |token, y| {
        let weight = |expert: usize| if op.weighted { weights[token * experts + expert].to_f64() } else { 1.0 };
        for (n, y) in y.iter_mut().enumerate() {
            let terms = of_tokens[token].iter().map(|(row, expert)| values[row * width + n].to_f64() * weight(*expert));
            *y = T::from_f64(terms.sum());
        }
    })?)
}

/// The gradients of rows and routing.
pub(super) fn combine_grad<T: FloatDType>([x, routing, dy]: [&Tensor; 3]) -> Result<Vec<Tensor>, KernelError> {
    let ((tokens, experts), (all, width)) = (routing.dims2()?, x.dims2()?);
    let rows = rows::<T>(1, routing, all.checked_div(tokens).unwrap_or(0))?;
    let of_tokens = rows.of_tokens(tokens);
    let (values, weights, gradients) = (Elements::of(x)?, Elements::of(routing)?, Elements::of(dy)?);
    let (values, weights, gradients) = (values.slice::<T>()?, weights.slice::<T>()?, gradients.slice::<T>()?);
    let experts_of = rows.experts();
    let dx = by_chunks::<T>(&[all, width], width, |row, dx| {
        let Some((token, expert)) = rows.tokens().get(row).zip(experts_of.get(row)) else { return };
        let weight = weights[token * experts + expert].to_f64();
        for (dx, dy) in dx.iter_mut().zip(&gradients[token * width..]) {
            *dx = T::from_f64(dy.to_f64() * weight);
        }
    })?;
    let dw = by_chunks::<T>(&[tokens, experts], experts, |token, dw| {
        for (row, expert) in &of_tokens[token] {
            let terms = values[row * width..][..width].iter().zip(&gradients[token * width..]);
            dw[*expert] = T::from_f64(terms.map(|(x, dy)| x.to_f64() * dy.to_f64()).sum());
        }
    })?;
    Ok(vec![dx, dw])
}
