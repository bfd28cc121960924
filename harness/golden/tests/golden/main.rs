//! Goldens: files, reference, judge, kernels and planted faults.

mod changed;
mod dense;
mod device;
mod dump;
mod format;
mod judge;
mod kernels;
mod mutation_score;
mod recipes;
mod soak;
mod split;
mod trajectory;
