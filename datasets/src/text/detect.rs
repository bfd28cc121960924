//! From DB's probability map to boxes or polygons (`SegDetectorRepresenter`).

use crate::DataError;
use crate::geometry::{
    Pixel, Point, Polygon, fill_polygon, find_contours, min_area_rect, offset_polygon, simplify_closed,
};
use crate::grid::Grid;
use crate::image::{MAX_PIXELS, MAX_SIDE, Size, check_size};
use zoo_settings::{TextDetection, TextShape};

/// How much outlines grow where the settings do not say it: by `area * ratio / perimeter`.
const BOX_UNCLIP: f64 = 1.5;
const POLYGON_UNCLIP: f64 = 2.0;

/// A text that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    /// Its outline in pixels of the image.
    pub polygon: Polygon,
    /// Mean probability inside the outline before it was grown, 0 to 1.
    pub score: f32,
}

/// Finds text in a probability map (HW, 0 to 1); outlines are scaled to an image of size `to`.
///
/// Values that are no numbers count as no text.
pub fn detect(probability: &Grid<f32>, to: Size, settings: &TextDetection) -> Vec<Detection> {
    let mask = probability.map(|p| p > settings.threshold as f32);
    let candidates = find_contours(&mask);
    let outlines = candidates.iter().take(settings.max_candidates).map(|contour| contour.points());
    outlines
        .filter_map(|outline| match settings.shape {
            TextShape::Box => find_box(probability, &outline, settings),
            TextShape::Polygon => find_polygon(probability, &outline, settings),
        })
        .map(|found| Detection { polygon: scaled(&found.polygon, probability.size(), to), ..found })
        .collect()
}

/// The size to which DB resizes an image for evaluation: `height` rows, and columns in proportion, rounded up to a
/// multiple of 32. [`detect`] takes outlines back to the image's own size. `name` is that of the image.
///
/// # Errors
/// A size beyond the limits of images: a line of pixels would become thousands of times as large.
pub fn evaluation_size(name: &str, image: Size, height: usize) -> Result<Size, DataError> {
    let width = image.width as f64 * height as f64 / image.height.max(1) as f64;
    let resized = Size::new(((width / 32.0).ceil().max(1.0) as usize).saturating_mul(32), height);
    check_size(resized).map_err(|_| {
        let limits = format!("{MAX_SIDE} per side and {MAX_PIXELS} in total");
        DataError::unusable(
            name,
            format!("an image of {image} pixels would be evaluated at {resized}, beyond the limits of {limits}"),
        )
    })
}

fn find_box(probability: &Grid<f32>, outline: &[Point], settings: &TextDetection) -> Option<Detection> {
    let small = min_area_rect(outline).filter(|rect| rect.shorter >= settings.min_side)?;
    let score = score(probability, &small.corners);
    if score < settings.min_score as f32 {
        return None;
    }
    let grown = grow(&small.polygon(), settings.unclip.unwrap_or(BOX_UNCLIP));
    let points: Vec<Point> = grown.iter().flatten().map(|&p| p.into()).collect();
    let rect = min_area_rect(&points).filter(|rect| rect.shorter >= settings.min_side + 2.0)?;
    Some(Detection { polygon: rect.polygon(), score })
}

fn find_polygon(probability: &Grid<f32>, outline: &[Point], settings: &TextDetection) -> Option<Detection> {
    let next = outline.iter().cycle().skip(1);
    let length: f64 = outline.iter().zip(next).map(|(a, &b)| a.distance(b)).sum();
    let corners = simplify_closed(outline, 0.01 * length);
    if corners.len() < 4 {
        return None;
    }
    let score = score(probability, &corners);
    if score < settings.min_score as f32 {
        return None;
    }
    let grown = grow(&Polygon::new(corners).ok()?, settings.unclip.unwrap_or(POLYGON_UNCLIP));
    let [one] = &grown[..] else { return None };
    let points: Vec<Point> = one.iter().map(|&p| p.into()).collect();
    min_area_rect(&points).filter(|rect| rect.shorter >= settings.min_side + 2.0)?;
    Some(Detection { polygon: Polygon::new(points).ok()?, score })
}

/// The outline moved outwards by `area * ratio / perimeter`.
fn grow(polygon: &Polygon, ratio: f64) -> Vec<Vec<Pixel>> {
    offset_polygon(polygon, polygon.area() * ratio / polygon.perimeter())
}

/// Mean probability inside an outline (`box_score_fast`).
fn score(probability: &Grid<f32>, outline: &[Point]) -> f32 {
    let limit = |value: f64, length: usize| value.clamp(0.0, length as f64 - 1.0) as i32;
    let (width, height) = (probability.width(), probability.height());
    let fold =
        |pick: fn(&Point) -> f64, start: f64, choose: fn(f64, f64) -> f64| outline.iter().map(pick).fold(start, choose);
    let left = limit(fold(|p| p.x, f64::INFINITY, f64::min).floor(), width);
    let right = limit(fold(|p| p.x, f64::NEG_INFINITY, f64::max).ceil(), width);
    let top = limit(fold(|p| p.y, f64::INFINITY, f64::min).floor(), height);
    let bottom = limit(fold(|p| p.y, f64::NEG_INFINITY, f64::max).ceil(), height);
    let size = Size::new((right - left + 1).max(1) as usize, (bottom - top + 1).max(1) as usize);
    let mut inside = Grid::filled(size, false);
    let corner = Point::new(left.into(), top.into());
    let corners: Vec<Pixel> = outline.iter().map(|&p| (p - corner).truncated()).collect();
    fill_polygon(&mut inside, &corners, true);
    let (mut sum, mut count) = (0.0, 0);
    for y in 0..size.height {
        let row = &probability.row(top as usize + y)[left as usize..][..size.width];
        for (&p, _) in row.iter().zip(inside.row(y)).filter(|(_, inside)| **inside) {
            sum += f64::from(p);
            count += 1;
        }
    }
    if count == 0 { 0.0 } else { (sum / f64::from(count)) as f32 }
}

/// The outline in whole pixels of the image, limited to it.
fn scaled(polygon: &Polygon, from: Size, to: Size) -> Polygon {
    let scale = |value: f64, from: usize, to: usize| {
        // numpy rounds halves to even.
        (value / from as f64 * to as f64).round_ties_even().clamp(0.0, to as f64)
    };
    polygon.map(|p| Point::new(scale(p.x, from.width, to.width), scale(p.y, from.height, to.height)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fill: &[(usize, usize, usize, usize, f32)]) -> Grid<f32> {
        let mut map = Grid::filled(Size::new(80, 60), 0.1);
        for &(x, y, width, height, value) in fill {
            for row in y..y + height {
                map.row_mut(row)[x..x + width].fill(value);
            }
        }
        map
    }

    /// Pixels 20..=49 x 20..=29: a rectangle of 29 x 9 grows by 261 * 1.5 / 76 = 5.15 on each side.
    #[test]
    fn a_box_by_hand() {
        let map = map(&[(20, 20, 30, 10, 0.9)]);
        let found = detect(&map, Size::new(160, 120), &TextDetection::default());
        assert_eq!(found.len(), 1);
        assert!((found[0].score - 0.9).abs() < 1e-6);
        let bounds = found[0].polygon.bounds();
        assert_eq!((bounds.low, bounds.high), (Point::new(30.0, 30.0), Point::new(108.0, 68.0)));
    }

    #[test]
    fn images_are_evaluated_at_a_fixed_height() {
        // 1280 * 736 / 720 = 1308.4.
        let size = |image, height| evaluation_size("a.png", image, height);
        assert_eq!(size(Size::new(1280, 720), 736).unwrap(), Size::new(1312, 736));
        assert_eq!(size(Size::new(1, 720), 32).unwrap(), Size::new(32, 32));
        let line = size(Size::new(20_000, 1), 800).unwrap_err().to_string();
        assert!(line.starts_with("a.png: an image of 20000x1 pixels would be evaluated at 16000000x800"), "{line}");
    }

    #[test]
    fn faint_and_tiny_spots_are_left_out() {
        let map = map(&[(5, 5, 30, 10, 0.5), (50, 10, 3, 20, 0.9), (10, 35, 40, 12, 0.8)]);
        let settings = TextDetection::default();
        assert_eq!(detect(&map, map.size(), &settings).len(), 1);
        assert_eq!(detect(&map, map.size(), &TextDetection { min_score: 0.4, ..settings.clone() }).len(), 2);
        assert_eq!(
            detect(&map, map.size(), &TextDetection { min_score: 0.4, min_side: 2.0, ..settings.clone() }).len(),
            3
        );
        assert_eq!(detect(&map, map.size(), &TextDetection { max_candidates: 0, ..settings }).len(), 0);
    }

    #[test]
    fn a_bent_text_keeps_its_shape_as_a_polygon() {
        let map = map(&[(10, 10, 8, 40, 0.9), (10, 42, 50, 8, 0.9)]);
        let settings = TextDetection { shape: TextShape::Polygon, ..Default::default() };
        let found = detect(&map, map.size(), &settings);
        assert_eq!(found.len(), 1);
        let area = found[0].polygon.area();
        // The angle has 656 pixels before it grows by six on each side; its rectangle would grow to more than 3000.
        assert!((1500.0..2100.0).contains(&area), "{area}");
    }

    #[test]
    fn empty_and_broken_maps_have_no_text() {
        for value in [0.0, f32::NAN] {
            let map = Grid::filled(Size::new(32, 32), value);
            assert!(detect(&map, map.size(), &TextDetection::default()).is_empty());
        }
    }
}
