//! Visualisation: outlines, boxes and masks on images; strips and animations.

mod animation;
mod overlay;
mod results;
mod strip;

pub use animation::write_gif;
pub use overlay::{draw_polygon, draw_rectangle, tint};
pub use results::{draw_labels, draw_target, draw_text, draw_tracked};
pub use strip::strip;

/// Colours that can be told apart on most images.
pub mod colours {
    /// What was found.
    pub const FOUND: [u8; 3] = [0, 230, 0];
    /// What there is to find.
    pub const TRUTH: [u8; 3] = [255, 210, 0];
    /// What does not count.
    pub const IGNORED: [u8; 3] = [120, 120, 255];
    /// What was missed, or found wrongly.
    pub const WRONG: [u8; 3] = [255, 40, 40];
}
