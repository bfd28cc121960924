//! Values that recipes write in several places: expressions of arguments, sizes, initialisations, durations, patterns of
//! names, and parts of a network that are trained differently.

mod expression;
mod init;
mod part;
mod pattern;
mod period;
mod size;

pub use expression::*;
pub use init::*;
pub use part::*;
pub use pattern::*;
pub use period::*;
pub use size::*;
