//! The reference kernels against hand-worked cases, naive loops, central differences and candle's autograd.

mod autograd;
mod cosine;
mod dense;
mod determinism;
mod device_passes;
mod experts;
mod formulas;
mod forward;
mod gradients;
mod layouts;
mod losses;
mod naive;
mod optimizers;
mod siamese;
mod simulate;
mod step;
mod tensors;
mod tiny;
mod words;
