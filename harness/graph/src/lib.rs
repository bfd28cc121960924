//! The training step as one explicit, static graph of device operators.
//!
//! A [`Graph`] holds the whole step: forward, loss, backward and optimizer update. It is built from
//! a resolved recipe ([`lower`]), differentiated as a graph transform ([`mod@differentiate`]), checked by
//! the verifier ([`mod@verify`]) and rewritten by [`passes`]. The engine executes it and the device clock
//! prices it; neither is known here.

pub mod differentiate;
mod forward;
pub mod graph;
pub mod liveness;
pub mod lower;
pub mod memory;
pub mod ops;
pub mod passes;
pub mod tensor;
pub mod units;
pub mod verify;

mod error;

pub use differentiate::differentiate;
pub use error::GraphError;
pub use graph::{
    Graph, Node, NodeId, Origin, Phase, Place, Scope, Source, Tap, TapState, Value, ValueId, Variable, VariableId,
    VariableRole,
};
pub use lower::{BuildOptions, EMA, LABEL, Mode, ROOT, build, stages};
pub use memory::{BufferId, MemoryPlan};
pub use ops::{Cost, Op, OpError, Operator};
pub use tensor::{C0, DType, Layout, Shape, TensorType};
pub use units::{Bytes, Flop};
pub use verify::verify;
