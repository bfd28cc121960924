//! Fast CPU kernels on plain slices: NC1HWC0 convolutions, normalisation, pools, updates.
//!
//! Every kernel takes an [`Isa`] first (the instruction set it may use), then the shape, inputs and outputs.
//! Activations are in the blocked layout of [`blocked`]; results have the same bits for any number of threads
//! (see [`parallel`]). Kernels run in the rayon pool of the calling thread.
//!
//! ```
//! use zoo_kernels::{Isa, l2_loss::l2_loss};
//!
//! // sum(x^2) / 2, on the strongest instruction set of this processor and on the one that every processor has.
//! let x = [3.0, 4.0];
//! assert_eq!(l2_loss(Isa::best(), &x), 12.5);
//! assert_eq!(l2_loss(Isa::portable(), &x), 12.5);
//! ```

pub mod aligned;
mod allocator;
pub mod average_pool;
pub mod batch_norm;
pub mod bias;
pub mod blocked;
pub mod channels;
pub mod conv;
pub mod depthwise_correlation;
pub mod dropout;
pub mod elementwise;
mod exp;
pub mod formula;
pub mod half;
pub mod isa;
pub mod l2_loss;
pub mod linear;
pub mod local_response_norm;
pub mod mask_soft_margin;
pub mod matmul;
pub mod max_pool;
mod micro;
pub mod pad;
pub mod parallel;
pub mod partial_sums;
mod parts;
pub mod patches;
pub mod peak;
mod planes;
mod prefetch;
pub mod rectifier;
pub mod resize;
pub mod rows;
mod simd;
pub mod softmax_cross_entropy;
#[cfg(test)]
mod testing;
pub mod transdata;
pub mod transpose;
pub mod window;

pub use aligned::AlignedBuf;
pub use allocator::{keep_memory, release_memory};
pub use blocked::{Blocked, C0};
pub use isa::{Isa, Level, Loops, Tiles, tiles};
