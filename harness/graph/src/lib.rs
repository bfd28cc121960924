//! The training step as one explicit, static graph of device operators.
//!
//! A [`Graph`] holds the whole step: forward, loss, backward and optimizer update. It is built from
//! a resolved recipe ([`lower`]), differentiated as a graph transform ([`differentiate`]), checked by
//! the [`verify`]er and rewritten by [`passes`]. The engine executes it and the device clock prices
//! it; neither is known here.

pub mod differentiate;
pub mod graph;
pub mod liveness;
//LOWER
pub mod ops;
//PASSES
pub mod tensor;
pub mod units;
pub mod verify;

mod error;

pub use error::GraphError;
pub use graph::{
    Graph, Node, NodeId, Origin, Phase, Scope, Source, Tap, TapState, Value, ValueId, Variable, VariableId,
    VariableRole,
};
//USE
pub use ops::{Cost, Op, OpError, Operator};
pub use tensor::{C0, DType, Layout, Shape, TensorType};
pub use units::{Bytes, Flop};
