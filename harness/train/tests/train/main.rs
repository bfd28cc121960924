//! Training and evaluation of a small network, from recipe to run folder.

mod evaluation;
mod ranks;
mod stages;
mod support;
mod training;
mod weights;
