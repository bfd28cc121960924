//! The reference kernels against hand-worked cases, naive loops, central differences and candle's autograd.

mod autograd;
mod dense;
mod determinism;
mod forward;
mod gradients;
mod layouts;
mod naive;
mod optimizers;
mod siamese;
mod step;
mod tiny;
