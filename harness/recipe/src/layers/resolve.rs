//! How layers are resolved: their place, and the walk over those inside.

mod args;
mod blocks;
mod expand;
mod expander;
mod place;

pub(crate) use expander::Expander;
pub(crate) use place::Place;
