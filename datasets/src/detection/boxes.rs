//! Upright boxes. The upper left corner of an image is (0, 0), and the centre of its first pixel (0.5, 0.5).

use crate::image::Size;

/// A box as annotations and metrics have it, in pixels of the image (COCO's `bbox`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundingBox {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl BoundingBox {
    /// Width times height.
    pub fn area(&self) -> f64 {
        self.width * self.height
    }

    /// Area of the intersection with another box.
    pub fn intersection(&self, other: &Self) -> f64 {
        let width = (self.x + self.width).min(other.x + other.width) - self.x.max(other.x);
        let height = (self.y + self.height).min(other.y + other.height) - self.y.max(other.y);
        if width > 0.0 && height > 0.0 { width * height } else { 0.0 }
    }

    /// Intersection over union; 0 for boxes without intersection.
    pub fn iou(&self, other: &Self) -> f64 {
        match self.intersection(other) {
            0.0 => 0.0,
            common => common / (self.area() + other.area() - common),
        }
    }

    /// Its part inside an image; `None` if there is none.
    #[must_use]
    pub fn inside(&self, Size { width, height }: Size) -> Option<Self> {
        let (left, right) = (self.x.max(0.0), (self.x + self.width).min(width as f64));
        let (top, bottom) = (self.y.max(0.0), (self.y + self.height).min(height as f64));
        (left < right && top < bottom).then_some(Self { x: left, y: top, width: right - left, height: bottom - top })
    }
}

/// A box as a network has it, in f32 and in pixels of its input (torchvision's `xyxy`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corners {
    /// Left edge.
    pub left: f32,
    /// Upper edge.
    pub top: f32,
    /// Right edge.
    pub right: f32,
    /// Lower edge.
    pub bottom: f32,
}

/// Largest predicted logarithm of the ratio of sides (`bbox_xform_clip` of torchvision's `BoxCoder`): ln(1000/16).
const LARGEST_GROWTH: f32 = 4.135_166_6;

impl Corners {
    /// From `[left, top, right, bottom]`.
    pub const fn new([left, top, right, bottom]: [f32; 4]) -> Self {
        Self { left, top, right, bottom }
    }

    /// Width.
    pub fn width(&self) -> f32 {
        self.right - self.left
    }

    /// Height.
    pub fn height(&self) -> f32 {
        self.bottom - self.top
    }

    /// Centre, `[x, y]`.
    fn centre(&self) -> [f32; 2] {
        [self.left + 0.5 * self.width(), self.top + 0.5 * self.height()]
    }

    /// Intersection over union (torchvision's `box_iou`).
    pub fn iou(&self, other: &Self) -> f32 {
        let width = (self.right.min(other.right) - self.left.max(other.left)).max(0.0);
        let height = (self.bottom.min(other.bottom) - self.top.max(other.top)).max(0.0);
        let common = width * height;
        common / (self.width() * self.height() + other.width() * other.height() - common)
    }

    /// Multiplied by a factor for each axis, `[x, y]`.
    #[must_use]
    pub fn scaled(&self, [x, y]: [f32; 2]) -> Self {
        Self { left: self.left * x, top: self.top * y, right: self.right * x, bottom: self.bottom * y }
    }

    /// With all corners moved into an image (torchvision's `clip_boxes_to_image`).
    #[must_use]
    pub fn clipped(&self, size: Size) -> Self {
        let (width, height) = (size.width as f32, size.height as f32);
        Self {
            left: self.left.clamp(0.0, width),
            top: self.top.clamp(0.0, height),
            right: self.right.clamp(0.0, width),
            bottom: self.bottom.clamp(0.0, height),
        }
    }

    /// This box as offsets from an anchor: shift of the centre relative to the anchor's sides, and logarithm of the
    /// ratio of sides (arXiv 1311.2524, appendix C; torchvision's `encode_boxes` with weights of 1).
    pub fn encode(&self, anchor: &Self) -> [f32; 4] {
        let ([x, y], [ax, ay]) = (self.centre(), anchor.centre());
        let (width, height) = (anchor.width(), anchor.height());
        let growth = |side: f32, of: f32| libm::logf(side / of);
        [(x - ax) / width, (y - ay) / height, growth(self.width(), width), growth(self.height(), height)]
    }

    /// The box of offsets from this anchor (torchvision's `BoxCoder.decode_single`).
    #[must_use]
    pub fn decode(&self, [dx, dy, dw, dh]: [f32; 4]) -> Self {
        let ([ax, ay], width, height) = (self.centre(), self.width(), self.height());
        let (x, y) = (dx * width + ax, dy * height + ay);
        let half = |growth: f32, side: f32| 0.5 * (libm::expf(growth.min(LARGEST_GROWTH)) * side);
        let (w, h) = (half(dw, width), half(dh, height));
        Self { left: x - w, top: y - h, right: x + w, bottom: y + h }
    }
}

impl From<BoundingBox> for Corners {
    fn from(BoundingBox { x, y, width, height }: BoundingBox) -> Self {
        Self { left: x as f32, top: y as f32, right: (x + width) as f32, bottom: (y + height) as f32 }
    }
}

impl From<Corners> for BoundingBox {
    /// Sides are differences in f32, as torchvision's `convert_to_xywh` has them.
    fn from(corners: Corners) -> Self {
        let (width, height) = (f64::from(corners.width()), f64::from(corners.height()));
        Self { x: f64::from(corners.left), y: f64::from(corners.top), width, height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_by_hand() {
        let a = BoundingBox { x: 0.0, y: 0.0, width: 4.0, height: 2.0 };
        let b = BoundingBox { x: 2.0, y: 1.0, width: 4.0, height: 2.0 };
        assert_eq!((a.intersection(&b), a.iou(&b), a.iou(&a)), (2.0, 2.0 / 14.0, 1.0));
        let beside = BoundingBox { x: 4.0, ..a };
        assert_eq!((a.intersection(&beside), a.iou(&beside)), (0.0, 0.0));
        assert_eq!(Corners::from(a).iou(&b.into()), 2.0 / 14.0);
        assert_eq!(b.inside(Size::new(3, 9)), Some(BoundingBox { x: 2.0, y: 1.0, width: 1.0, height: 2.0 }));
        assert_eq!(b.inside(Size::new(2, 9)), None);
    }

    #[test]
    fn offsets_by_hand() {
        let anchor = Corners::new([0.0, 0.0, 8.0, 4.0]);
        assert_eq!(anchor.encode(&anchor), [0.0; 4]);
        let offsets = Corners::new([2.0, 0.0, 10.0, 8.0]).encode(&anchor);
        assert_eq!(offsets, [0.25, 0.5, 0.0, 2.0_f32.ln()]);
        let back = anchor.decode(offsets);
        assert!((back.left - 2.0).abs() < 1e-5 && (back.bottom - 8.0).abs() < 1e-5, "{back:?}");
        // A side grows at most 62.5 times.
        assert!((anchor.decode([0.0, 0.0, 100.0, 0.0]).width() - 500.0).abs() < 1e-2);
        assert_eq!(anchor.clipped(Size::new(5, 9)), Corners::new([0.0, 0.0, 5.0, 4.0]));
    }
}
