//! Programs in Python, and what layers, losses, optimizers and schedules write themselves with.
//!
//! A layer says how it is written at its place ([`At`]). The result are uses of classes; [`classes`] makes one class of
//! uses that differ in numbers only, and [`print`] writes it.

mod at;
mod blocks;
pub(crate) mod classes;
mod code;
mod conditions;
mod dialect;
mod emitter;
mod formula;
mod forward;
pub(crate) mod initial;
mod judged;
pub(crate) mod mindspore;
mod names;
mod number;
pub(crate) mod print;
mod repeat;
mod taps;
mod trim;
mod usage;
mod written;

pub(crate) use at::{At, Given};
pub(crate) use code::{Binding, Code, Piece, Var};
pub(crate) use conditions::{Parameter, condition, parameters};
pub use dialect::Dialect;
pub(crate) use emitter::{Emitter, Exports};
pub(crate) use formula::broadcast;
pub(crate) use judged::Judged;
pub(crate) use names::defined;
pub(crate) use number::{Kind, Number, real};
pub(crate) use trim::{drop_inputs, trim};
pub(crate) use written::Read;
