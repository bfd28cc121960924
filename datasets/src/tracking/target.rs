//! Targets and videos.

use crate::DataError;
use crate::geometry::{Point, Polygon};
use crate::grid::Mask;
use crate::image::{Image, Rect};

/// An upright box around a target, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetBox {
    /// Its middle.
    pub centre: Point,
    /// Its extent to the right.
    pub width: f64,
    /// Its extent downwards.
    pub height: f64,
}

impl TargetBox {
    /// From the upper left and the lower right corner.
    pub fn from_corners(low: Point, high: Point) -> Self {
        Self { centre: (low + high) * 0.5, width: high.x - low.x, height: high.y - low.y }
    }

    /// Around a rectangle of pixels (`cv2.boundingRect`: half of the sides is added to the corner).
    pub fn from_rect(rect: Rect) -> Self {
        let (width, height) = (rect.width as f64, rect.height as f64);
        Self { centre: Point::new(rect.x as f64 + width / 2.0, rect.y as f64 + height / 2.0), width, height }
    }

    /// The upright box with the centre and area of a rotated one, in the shape of its bounds
    /// (`get_axis_aligned_bbox`, by which VOT's trackers are started).
    pub fn from_polygon(polygon: &Polygon) -> Self {
        let bounds = polygon.bounds();
        let p = polygon.points();
        let area = p[0].distance(p[1]) * p[1].distance(p[2]);
        let around = bounds.width() * bounds.height();
        let scale = if around > 0.0 { (area / around).sqrt() } else { 0.0 };
        let (width, height) = (scale * bounds.width() + 1.0, scale * bounds.height() + 1.0);
        Self { centre: polygon.centre(), width, height }
    }

    /// The upper left corner.
    pub fn low(&self) -> Point {
        self.centre - Point::new(self.width / 2.0, self.height / 2.0)
    }

    /// The lower right corner.
    pub fn high(&self) -> Point {
        self.centre + Point::new(self.width / 2.0, self.height / 2.0)
    }

    /// As a polygon, from the upper left corner clockwise.
    pub fn polygon(&self) -> Polygon {
        let low = self.low();
        Polygon::rectangle(low.x, low.y, self.width, self.height)
    }

    /// Intersection over union; 0 if neither has an area.
    pub fn iou(&self, other: &Self) -> f64 {
        let (a, b) = (self.low(), other.low());
        let (c, d) = (self.high(), other.high());
        let width = (c.x.min(d.x) - a.x.max(b.x)).max(0.0);
        let height = (c.y.min(d.y) - a.y.max(b.y)).max(0.0);
        let common = width * height;
        let union = self.width * self.height + other.width * other.height - common;
        if union > 0.0 { common / union } else { 0.0 }
    }
}

/// One frame of a video.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoFrame {
    /// The picture.
    pub image: Image,
    /// Where the target is; `None` where that is not known, or it cannot be seen.
    pub target: Option<TargetBox>,
    /// The pixels of the target that can be seen, of the image's size; `None` where they are not known.
    pub mask: Option<Mask>,
}

/// Videos of one target each, addressed by index and frame.
///
/// Implementations are pure: the same indices give the same frame, from any thread. If a file contains several targets
/// of one video, each is a separate video here.
pub trait VideoDataset: Send + Sync {
    /// Number of videos.
    fn len(&self) -> usize;

    /// True if there are no videos.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of video `index` in messages.
    fn name(&self, index: usize) -> String;

    /// Number of frames of video `index`, 1 or more.
    fn frames(&self, index: usize) -> usize;

    /// Frame `frame` of video `index`.
    ///
    /// # Errors
    /// If a file is missing or cannot be decoded, or a mask has another size than its image.
    fn frame(&self, index: usize, frame: usize) -> Result<VideoFrame, DataError>;

    /// Largest number of frames between the images of a pair from video `index`, if the set defines it.
    fn frame_range(&self, _index: usize) -> Option<usize> {
        None
    }

    /// The outline of the target in a frame, if the set has outlines (VOT).
    fn outline(&self, _index: usize, _frame: usize) -> Option<Polygon> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_of_boxes_by_hand() {
        let a = TargetBox::from_corners(Point::new(0.0, 0.0), Point::new(4.0, 2.0));
        let b = TargetBox::from_corners(Point::new(2.0, 0.0), Point::new(6.0, 2.0));
        assert!((a.iou(&b) - 4.0 / 12.0).abs() < 1e-12);
        assert_eq!((a.iou(&a), a.polygon().area()), (1.0, 8.0));
        let point = TargetBox::from_corners(Point::default(), Point::default());
        assert_eq!(point.iou(&point), 0.0);
    }

    #[test]
    fn a_rotated_square_keeps_its_area() {
        // Standing on a corner: side sqrt(2), bounds 2 x 2, so sides sqrt(2 / 4) * 2, and one pixel.
        let corners = [(1.0, 0.0), (2.0, 1.0), (1.0, 2.0), (0.0, 1.0)].map(|(x, y)| Point::new(x, y));
        let target = TargetBox::from_polygon(&Polygon::quad(corners));
        assert_eq!(target.centre, Point::new(1.0, 1.0));
        assert!((target.width - 1.0 - 2.0_f64.sqrt()).abs() < 1e-12);
    }
}
