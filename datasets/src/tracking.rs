//! Tracking and segmenting one target through a video, as SiamMask does it ("Fast online object tracking and
//! segmentation: a unifying approach", arXiv 1812.05050): generated videos, training pairs and their labels, the
//! tracker around the network, and the metrics of DAVIS and VOT.
//!
//! The original implementation is <https://github.com/foolwood/SiamMask>; functions refer to the parts that they
//! follow. The crate contains no network: the tracker takes its outputs as arrays.

mod anchors;
mod blob;
mod crop;
mod labels;
mod mixture;
mod pairs;
mod segmentation;
mod target;
mod tracker;
mod videos;
mod vot;

pub use anchors::Anchors;
pub use crop::context_side;
pub use labels::AnchorLabels;
pub use mixture::VideoMixture;
pub use pairs::{Pair, PairConfig, Pairs};
pub use segmentation::{boundary_f, mask_iou};
pub use target::{TargetBox, VideoDataset, VideoFrame};
pub use tracker::{Choice, SearchWindow, Tracked, Tracker, TrackerConfig};
pub use videos::Videos;
pub use vot::{
    Outcome, SequenceResult, accuracy, expected_average_overlap, kept_to_the_end, robustness, run_supervised,
};
