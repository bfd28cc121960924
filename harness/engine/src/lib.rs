//! Executes a step graph on candle tensors.
//!
//! A [`Step`] has a [`Graph`](zoo_graph::Graph) and the variables that persist between steps. Each [`run`](Step::run)
//! executes the whole graph, shows requested values to an [`Observer`], and replaces the variables by their next
//! values. The kernels of [`mod@reference`] compute every operator in any floating-point type and define the correct
//! result.
//!
//! ```
//! use zoo_engine::{Options, Step};
//! use zoo_recipe::{BuildOptions, Library, LoadOptions};
//!
//! let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
//! let recipe = Library::new([recipes]).load("resnet18", &LoadOptions::default())?.recipe;
//! let graph = zoo_recipe::build(&recipe, &recipe.resolve()?, &BuildOptions::train(2))?;
//! let mut step = Step::new(graph, Options::of(&recipe))?;
//! step.initialize(0)?;
//! assert_eq!(step.variable("fc.bias")?.dims(), [1000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operator is a decision wherever operators are told apart")]

pub mod bounds;
pub mod init;
pub mod layout;
pub mod lockstep;
mod mask_windows;
pub mod reference;
pub mod simulate;

mod elements;
mod error;
mod fast;
mod footprint;
mod formula;
mod memory;
mod routing;
mod run;
mod step;

pub use elements::Elements;
pub use error::{EngineError, KernelError};
pub use memory::StepMemory;
pub use run::{Inputs, Observer, Scalars, StepResult};
pub use simulate::{Arithmetic, Findings};
pub use step::{Kernels, Options, Step};
pub use zoo_kernels::{Isa, Level, Loops, Tiles, keep_memory, release_memory, tiles};

/// candle's name of an element type. Half precision is simulated: its numbers are stored in f32 (see [`simulate`]).
pub fn candle_dtype(dtype: zoo_graph::DType) -> candle_core::DType {
    match dtype {
        zoo_graph::DType::F16 | zoo_graph::DType::Bf16 | zoo_graph::DType::F32 => candle_core::DType::F32,
        zoo_graph::DType::F64 => candle_core::DType::F64,
        zoo_graph::DType::U32 => candle_core::DType::U32,
    }
}
