//! Visualisation: outlines, boxes and masks on images; strips and animations.

mod animation;
mod overlay;
mod results;
mod strip;

pub use animation::write_gif;
pub use overlay::{draw_polygon, draw_rectangle, tint};
pub use results::{draw_boxes, draw_labels, draw_target, draw_text, draw_tracked};
pub use strip::strip;

/// Colours that can be distinguished on most images.
pub mod colours {
    /// Predictions.
    pub const FOUND: [u8; 3] = [0, 230, 0];
    /// Ground truth.
    pub const TRUTH: [u8; 3] = [255, 210, 0];
    /// Ignored regions.
    pub const IGNORED: [u8; 3] = [120, 120, 255];
    /// Missed or wrong predictions.
    pub const WRONG: [u8; 3] = [255, 40, 40];
}
