//! Plane geometry on pixel coordinates: x to the right, y downwards.
//!
//! Boolean operations come from `i_overlay`. The other functions follow OpenCV and Clipper, so that targets, detections
//! and metrics agree with the reference implementations.

mod affine;
mod contour;
mod fill;
mod hull;
mod offset;
mod overlap;
mod polygon;
mod simplify;

pub use affine::Affine;
pub use contour::{Contour, ContourKind, find_contours};
pub use fill::{fill_polygon, line_pixels};
pub use hull::{RotatedRect, convex_hull, min_area_rect};
pub use offset::offset_polygon;
pub use overlap::{clip_to, intersection_area, iou};
pub use polygon::{Bounds, Pixel, Point, Polygon, PolygonError};
pub use simplify::simplify_closed;
