//! The training step as one explicit, static graph of device operators.
//!
//! A [`Graph`] holds the whole step: forward, loss, backward and optimizer update. Recipes build it, it is
//! differentiated as a graph transform ([`mod@differentiate`]), checked by the verifier ([`mod@verify`]) and rewritten
//! by [`passes`]. The engine executes it, and the clock of a device predicts its time; this crate does not depend on
//! them.
//!
//! ```
//! use zoo_graph::{DType, Graph, TensorType, verify};
//!
//! let mut graph = Graph::default();
//! let image = graph.add_input("image", TensorType::plain([4, 3, 32, 32], DType::F32));
//! assert_eq!(graph.ty(image).shape.numel(), 4 * 3 * 32 * 32);
//! verify(&graph, None)?;
//! # Ok::<(), zoo_graph::GraphError>(())
//! ```

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operator is a decision wherever operators are told apart")]

pub mod attention;
pub mod differentiate;
pub mod formula;
mod forward;
pub mod graph;
pub mod init;
pub mod liveness;
pub mod memory;
pub mod ops;
mod origin;
pub mod parallel;
pub mod passes;
mod spelling;
pub mod tensor;
pub mod units;
pub mod verify;

mod error;

pub use differentiate::differentiate;
pub use error::GraphError;
pub use graph::{
    EMA, Graph, Node, NodeId, Optimized, Phase, Place, Scope, Source, Tap, TapState, Value, ValueId, Variable,
    VariableId, VariableRole,
};
pub use init::Init;
pub use memory::MemoryPlan;
pub use ops::{Cost, Op, OpError, Operator};
pub use origin::{Origin, Span};
pub use spelling::did_you_mean;
pub use tensor::{C0, DType, Layout, Shape, TensorType, lies_depthwise};
pub use units::{Bytes, Flop};
pub use verify::verify;
