//! Draws results on their images.

use super::{colours, draw_polygon, draw_rectangle, tint};
use crate::detection::{BoundingBox, Object, Role};
use crate::geometry::Polygon;
use crate::image::Image;
use crate::segmentation::{LabelMap, VOID};
use crate::text::{Detection, TextRegion};
use crate::tracking::{Tracked, VideoFrame};

/// An image with the true text (ignored text in another colour) and the detected text.
pub fn draw_text(image: &Image, regions: &[TextRegion], found: &[Detection]) -> Image {
    let mut drawn = image.clone();
    for region in regions {
        let colour = if region.ignore { colours::IGNORED } else { colours::TRUTH };
        draw_polygon(&mut drawn, &region.polygon, colour, 1);
    }
    for detection in found {
        draw_polygon(&mut drawn, &detection.polygon, colours::FOUND, 2);
    }
    drawn
}

/// An image with the true boxes (crowds and difficult objects in another colour) and the detected boxes, with whether
/// they are right.
pub fn draw_boxes(image: &Image, objects: &[Object], found: &[(BoundingBox, bool)]) -> Image {
    let mut drawn = image.clone();
    let mut draw = |&BoundingBox { x, y, width, height }: &BoundingBox, colour, line| {
        // Whole numbers are the edges of pixels in boxes, and their centres in drawings.
        draw_rectangle(&mut drawn, (x - 0.5, y - 0.5), (width, height), colour, line);
    };
    for (bounds, right) in found {
        draw(bounds, if *right { colours::FOUND } else { colours::WRONG }, 2);
    }
    for object in objects {
        let colour = if object.role == Role::Single { colours::TRUTH } else { colours::IGNORED };
        draw(&object.bounds, colour, 1);
    }
    drawn
}

/// A frame with the target's mask and outline as the tracker sees them, and the true outline where it is known.
pub fn draw_tracked(frame: &Image, tracked: &Tracked, truth: Option<&Polygon>) -> Image {
    let mut drawn = frame.clone();
    if let Some(mask) = &tracked.mask {
        tint(&mut drawn, mask, colours::FOUND, 0.4);
    }
    if let Some(truth) = truth {
        draw_polygon(&mut drawn, truth, colours::TRUTH, 1);
    }
    draw_polygon(&mut drawn, &tracked.outline, colours::FOUND, 2);
    drawn
}

/// A frame with the mask and the box of its target, as far as they are known.
pub fn draw_target(frame: &VideoFrame) -> Image {
    let mut drawn = frame.image.clone();
    if let Some(mask) = &frame.mask {
        tint(&mut drawn, mask, colours::TRUTH, 0.4);
    }
    if let Some(target) = &frame.target {
        draw_polygon(&mut drawn, &target.polygon(), colours::TRUTH, 1);
    }
    drawn
}

/// Colour of a class, that of PASCAL VOC's palette: bits 0, 3 and 6 of the label are the highest of red, bits 1, 4 and
/// 7 those of green, 2 and 5 those of blue (`VOClabelcolormap`).
fn class_colour(class: u8) -> [u8; 3] {
    std::array::from_fn(|channel| {
        (0..3)
            .filter(|i| class.checked_shr(channel as u32 + 3 * i).is_some_and(|bits| bits & 1 == 1))
            .fold(0, |sum, i| sum | 0x80 >> i)
    })
}

/// An image tinted by its classes, all but the first, in the colours of PASCAL VOC; pixels without class are dark.
pub fn draw_labels(image: &Image, labels: &LabelMap) -> Image {
    let mut drawn = image.clone();
    let pixels = drawn.pixels_mut().as_chunks_mut::<3>().0.iter_mut();
    for (pixel, label) in pixels.zip(labels.values()).filter(|(_, label)| **label != 0) {
        let colour = if *label == VOID { [0; 3] } else { class_colour(*label) };
        pixel
            .iter_mut()
            .zip(colour)
            .for_each(|(value, colour)| *value = ((u16::from(*value) + u16::from(colour)) / 2) as u8);
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Point;
    use crate::grid::Mask;
    use crate::image::Size;
    use crate::tracking::TargetBox;

    fn count(image: &Image, colour: [u8; 3]) -> usize {
        image.pixels().chunks(3).filter(|pixel| *pixel == colour).count()
    }

    #[test]
    fn truth_and_findings_have_their_colours() {
        let image = Image::filled(Size::new(40, 30), [0; 3]);
        let region = |x: f64, ignore: bool| TextRegion {
            polygon: Polygon::rectangle(x, 2.0, 8.0, 8.0),
            text: String::new(),
            ignore,
        };
        let found = Detection { polygon: Polygon::rectangle(20.0, 15.0, 8.0, 8.0), score: 1.0 };
        let drawn = draw_text(&image, &[region(2.0, false), region(20.0, true)], &[found]);
        assert_eq!((count(&drawn, colours::TRUTH), count(&drawn, colours::IGNORED)), (32, 32));
        assert_eq!(count(&drawn, colours::FOUND), 10 * 10 - 6 * 6);
    }

    #[test]
    fn boxes_have_their_colours() {
        let image = Image::filled(Size::new(40, 30), [0; 3]);
        let bounds = |x: f64| BoundingBox { x, y: 2.5, width: 8.0, height: 8.0 };
        let object = |x, role| Object { class: 1, bounds: bounds(x), area: 64.0, role };
        let objects = [object(2.5, Role::Single), object(14.5, Role::Crowd)];
        let drawn = draw_boxes(&image, &objects, &[(bounds(26.5), true), (bounds(2.5), false)]);
        assert_eq!((count(&drawn, colours::TRUTH), count(&drawn, colours::IGNORED)), (32, 32));
        assert_eq!((count(&drawn, colours::FOUND), count(&drawn, colours::WRONG)), (64, 32));
    }

    /// The first colours of PASCAL VOC's palette.
    #[test]
    fn classes_have_their_colours() {
        let voc = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128], [128, 0, 128], [0, 128, 128]];
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(class_colour), voc);
        assert_eq!([15, 20].map(class_colour), [[192, 128, 128], [0, 64, 128]]);
        let image = Image::filled(Size::new(3, 1), [100; 3]);
        let labels = LabelMap::new(image.size(), vec![0, 1, VOID]).unwrap();
        assert_eq!(draw_labels(&image, &labels).pixels(), [100, 100, 100, 114, 50, 50, 50, 50, 50]);
    }

    #[test]
    fn a_tracked_frame_shows_mask_and_outlines() {
        let image = Image::filled(Size::new(40, 30), [0; 3]);
        let target = TargetBox { centre: Point::new(20.0, 15.0), width: 8.0, height: 8.0 };
        let mask = Some(Mask::filled(image.size(), true));
        let tracked = Tracked { target, outline: target.polygon(), mask, score: 1.0 };
        let drawn = draw_tracked(&image, &tracked, Some(&Polygon::rectangle(2.0, 2.0, 5.0, 5.0)));
        assert_eq!((count(&drawn, colours::TRUTH), count(&drawn, colours::FOUND)), (20, 64));
        assert_eq!(count(&drawn, [0, 92, 0]), 40 * 30 - 84);
    }
}
