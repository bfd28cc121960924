//! The tracker of SiamMask around the network (`siamese_init`, `siamese_track`): its inputs, and the interpretation of
//! its outputs.
//!
//! For each frame: [`Tracker::search`] crops the search image, the network runs, [`Tracker::choose`] selects a position
//! from its class and box outputs, and [`Tracker::follow`] moves the target there and extracts its mask. Between the
//! last two, a network with a refinement stage computes the mask of the selected position only.

use super::crop::{CONTEXT, context_side, mean_colour};
use super::{Anchors, TargetBox};
use crate::geometry::{Affine, ContourKind, Point, Polygon, find_contours, min_area_rect};
use crate::grid::{Grid, Mask};
use crate::image::{Image, Size, warp, warp_grid};
use zoo_settings::{self as settings, Tracking};

/// Settings of the tracker. The defaults are those of SiamMask's base stage.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackerConfig {
    /// Side of the template image.
    pub template: usize,
    /// Side of the search image.
    pub search: usize,
    /// Places along a side of the network's output beyond `(search - template) / stride + 1` (`base_size`).
    pub margin: usize,
    /// Side of the network's mask output; 127 after refinement.
    pub mask: usize,
    /// Anchors.
    pub anchors: settings::Anchors,
    /// Penalties, and how fast the size follows.
    pub settings: Tracking,
}

impl Default for TrackerConfig {
    fn default() -> Self {
        Self {
            template: 127,
            search: 255,
            margin: 8,
            mask: 63,
            anchors: settings::Anchors::default(),
            settings: Tracking::default(),
        }
    }
}

impl TrackerConfig {
    /// Places along a side of the network's output.
    pub fn grid(&self) -> usize {
        self.search.saturating_sub(self.template) / self.anchors.stride + 1 + self.margin
    }
}

/// Smallest side of a target, in pixels of the frame.
const MIN_SIDE: f64 = 10.0;

/// Least area of a mask's outline from which a box is read off, in pixels of the frame (exceeded).
const MIN_MASK_AREA: f64 = 100.0;

/// The state of a tracker: where the target was last.
#[derive(Debug, Clone)]
pub struct Tracker {
    config: TrackerConfig,
    /// Around the middle of the search image.
    anchors: Anchors,
    /// One weight per anchor, 1 in the middle of the grid.
    window: Vec<f64>,
    target: TargetBox,
    /// Mean colour of the first frame, which fills the area outside its border.
    fill: [u8; 3],
}

/// The part of a frame that a search image shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchWindow {
    /// Its upper left corner.
    corner: Point,
    /// Its side.
    side: f64,
    /// Pixels of the search image per pixel of the frame, by the target's context.
    scale: f64,
}

impl SearchWindow {
    /// A box of the frame in pixels of the search image, which has `side` pixels a side.
    pub fn to_search(&self, target: &TargetBox, side: usize) -> TargetBox {
        let zoom = side as f64 / self.side;
        TargetBox {
            centre: (target.centre - self.corner) * zoom,
            width: target.width * zoom,
            height: target.height * zoom,
        }
    }
}

/// The place that the tracker picked from the network's outputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Number of the anchor, by shape, row and column.
    pub anchor: usize,
    /// Row on the grid.
    pub row: usize,
    /// Column on the grid.
    pub column: usize,
    /// Probability that the anchor is the target.
    pub score: f64,
    /// 1 for no change of size and shape, down to 0.
    pub penalty: f64,
    /// Centre relative to the search image's middle, width and height, in pixels of the search image.
    target: TargetBox,
}

/// Where the target is in a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracked {
    /// The smoothed upright box.
    pub target: TargetBox,
    /// The rotated rectangle around the mask, or the upright box where the mask is too small.
    pub outline: Polygon,
    /// Its pixels; `None` where no mask was given.
    pub mask: Option<Mask>,
    /// Probability that this is the target.
    pub score: f64,
}

impl Tracker {
    /// Starts on the first frame, where `target` is known.
    pub fn new(config: TrackerConfig, frame: &Image, target: TargetBox) -> Self {
        let side = config.grid();
        let anchors = Anchors::new(&config.anchors, side, 0.0);
        // numpy's hanning: 0.5 - 0.5 cos(2 pi n / (M - 1)).
        let last = (side as f64 - 1.0).max(1.0);
        let hann: Vec<f64> =
            (0..side).map(|i| 0.5 - 0.5 * libm::cos(std::f64::consts::TAU * i as f64 / last)).collect();
        let window = (0..anchors.len()).map(|i| hann[i / side % side] * hann[i % side]).collect();
        Self { anchors, window, target, fill: mean_colour(frame), config }
    }

    /// Where the target was last.
    pub fn target(&self) -> TargetBox {
        self.target
    }

    /// The template image: the target and its context in the first frame.
    pub fn template(&self, frame: &Image) -> Image {
        let side = context_side(self.target.width, self.target.height, CONTEXT).round_ties_even();
        subwindow(frame, self.target.centre, self.config.template, side, self.fill)
    }

    /// The search image around the target's last place, and the part of the frame that it shows.
    pub fn search(&self, frame: &Image) -> (Image, SearchWindow) {
        let context = context_side(self.target.width, self.target.height, CONTEXT);
        let scale = self.config.template as f64 / context;
        let margin = (self.config.search as f64 - self.config.template as f64) / 2.0 / scale;
        let side = (context + 2.0 * margin).round_ties_even();
        let centre = self.target.centre;
        let window = SearchWindow { corner: centre - Point::new(side / 2.0, side / 2.0), side, scale };
        (subwindow(frame, centre, self.config.search, side, self.fill), window)
    }

    /// Picks a place. `class` is (2, A, G, G), background before target, not yet normalised; `boxes` is (4, A, G, G),
    /// as the deltas of [`AnchorLabels`](super::AnchorLabels).
    ///
    /// # Panics
    /// If an output has another length.
    pub fn choose(&self, window: &SearchWindow, class: &[f32], boxes: &[f32]) -> Choice {
        let (n, side) = (self.anchors.len(), self.anchors.side());
        assert_eq!((class.len(), boxes.len()), (2 * n, 4 * n), "one class pair and one box per anchor");
        let (width, height) = (self.target.width * window.scale, self.target.height * window.scale);
        let size = |width: f64, height: f64| context_side(width, height, CONTEXT);
        let change = |ratio: f64| ratio.max(1.0 / ratio);
        let mut best: Option<(f64, Choice)> = None;
        for (i, anchor) in self.anchors.iter().enumerate() {
            let score = 1.0 / (1.0 + libm::exp(f64::from(class[i]) - f64::from(class[n + i])));
            let delta = |part: usize| f64::from(boxes[part * n + i]);
            let target = TargetBox {
                centre: Point::new(
                    delta(0) * anchor.width + anchor.centre.x,
                    delta(1) * anchor.height + anchor.centre.y,
                ),
                width: libm::exp(delta(2)) * anchor.width,
                height: libm::exp(delta(3)) * anchor.height,
            };
            let scale_change = change(size(target.width, target.height) / size(width, height));
            let shape_change = change((width / height) / (target.width / target.height));
            let penalty = libm::exp(-(shape_change * scale_change - 1.0) * self.config.settings.penalty);
            let influence = self.config.settings.window_influence;
            let total = penalty * score * (1.0 - influence) + self.window[i] * influence;
            // Outputs that are no numbers lose against all others.
            if best.is_none_or(|(most, _)| total > most || most.is_nan()) {
                let (row, column) = (i / side % side, i % side);
                best = Some((total, Choice { anchor: i, row, column, score, penalty, target }));
            }
        }
        let nowhere = Choice { anchor: 0, row: 0, column: 0, score: 0.0, penalty: 0.0, target: self.target };
        best.map_or(nowhere, |(_, choice)| choice)
    }

    /// Moves to the chosen place in a frame of size `frame`. `mask` holds the network's M x M mask output at that
    /// place, not yet through the sigmoid.
    ///
    /// # Panics
    /// If the mask has another length.
    pub fn follow(&mut self, window: &SearchWindow, choice: &Choice, mask: Option<&[f32]>, frame: Size) -> Tracked {
        let rate = choice.penalty * choice.score * self.config.settings.rate;
        let finite = |value: f64, otherwise: f64| if value.is_finite() { value } else { otherwise };
        let last = self.target;
        let toward = |from: f64, to: f64| finite(from * (1.0 - rate) + to / window.scale * rate, from);
        let centre = last.centre + choice.target.centre * (1.0 / window.scale);
        let smoothed = TargetBox {
            centre: Point::new(finite(centre.x, last.centre.x), finite(centre.y, last.centre.y)),
            width: toward(last.width, choice.target.width),
            height: toward(last.height, choice.target.height),
        };
        let mask = mask.map(|logits| self.paste(window, choice, logits, frame));
        // A box is read off before the target is limited to the frame.
        let outline = mask.as_ref().and_then(rotated_box).unwrap_or_else(|| smoothed.polygon());
        let (width, height) = (frame.width as f64, frame.height as f64);
        self.target = TargetBox {
            centre: Point::new(smoothed.centre.x.clamp(0.0, width), smoothed.centre.y.clamp(0.0, height)),
            width: smoothed.width.clamp(MIN_SIDE, width.max(MIN_SIDE)),
            height: smoothed.height.clamp(MIN_SIDE, height.max(MIN_SIDE)),
        };
        Tracked { target: self.target, outline, mask, score: choice.score }
    }

    /// The mask of a place, brought to the frame (`crop_back`).
    fn paste(&self, window: &SearchWindow, choice: &Choice, logits: &[f32], frame: Size) -> Mask {
        let side = self.config.mask;
        assert_eq!(logits.len(), side * side, "one number per pixel of the mask");
        let probability: Vec<f32> = logits.iter().map(|&v| 1.0 / (1.0 + libm::expf(-v))).collect();
        let Some(probability) = Grid::new(Size::square(side), probability) else { return Mask::filled(frame, false) };
        // Pixels of the frame per pixel of the search image.
        let scale = window.side / self.config.search as f64;
        let place = |i: usize| (i as f64 - self.config.margin as f64 / 2.0) * self.config.anchors.stride as f64 * scale;
        let corner = window.corner + Point::new(place(choice.column), place(choice.row));
        let mask_scale = side as f64 / (scale * self.config.template as f64);
        // OpenCV's map from frame to mask, with the original's ratio of (side - 1) to side.
        let axis = |length: usize, corner: f64| {
            let zoom = (length as f64 - 1.0) / (length as f64 * mask_scale);
            let shift = zoom * corner * mask_scale;
            (1.0 / zoom, -shift / zoom)
        };
        let ((xx, dx), (yy, dy)) = (axis(frame.width, corner.x), axis(frame.height, corner.y));
        let map = Affine { dx, dy, ..Affine::scaling(xx, yy) };
        warp_grid(&probability, frame, &map, -1.0).map(|p| p > self.config.settings.mask_threshold as f32)
    }
}

/// The rotated rectangle of least area around the largest part of a mask; `None` if that is too small.
fn rotated_box(mask: &Mask) -> Option<Polygon> {
    let outer = find_contours(mask).into_iter().filter(|contour| contour.kind == ContourKind::Outer);
    let largest = outer.max_by(|a, b| a.area().total_cmp(&b.area()))?;
    if largest.area() <= MIN_MASK_AREA {
        return None;
    }
    Some(min_area_rect(&largest.points())?.polygon())
}

/// A square of `side` pixels around `centre`, scaled to `to` x `to`; beyond the border everything is `fill`
/// (`get_subwindow_tracking`).
fn subwindow(frame: &Image, centre: Point, to: usize, side: f64, fill: [u8; 3]) -> Image {
    let half = (side + 1.0) / 2.0;
    let (left, top) = ((centre.x - half).round_ties_even(), (centre.y - half).round_ties_even());
    // As in OpenCV's resize: borders are half a pixel outside the centres of pixels.
    let zoom = side / to as f64;
    let shift = zoom / 2.0 - 0.5;
    let map = Affine { dx: left + shift, dy: top + shift, ..Affine::scaling(zoom, zoom) };
    warp(frame, Size::square(to), &map, fill)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Size = Size::new(320, 240);

    fn tracker() -> (Tracker, SearchWindow) {
        let target = TargetBox { centre: Point::new(160.0, 120.0), width: 64.0, height: 64.0 };
        let frame = Image::filled(FRAME, [10, 20, 30]);
        let tracker = Tracker::new(TrackerConfig::default(), &frame, target);
        let (_, window) = tracker.search(&frame);
        (tracker, window)
    }

    /// Outputs that leave every anchor as it is, certain of the anchor `sure` alone.
    fn outputs(sure: usize) -> (Vec<f32>, Vec<f32>) {
        let n = 5 * 625;
        let mut class = vec![0.0; 2 * n];
        class[..n].fill(20.0);
        class[n + sure] = 40.0;
        (class, vec![0.0; 4 * n])
    }

    #[test]
    fn sizes_by_hand() {
        let (tracker, window) = tracker();
        assert_eq!(tracker.config.grid(), 25);
        // Context 128, so 127/128 pixels per pixel of the frame, and a window of 128 + 128 * 128/127 = 257.008.
        assert!((window.scale - 127.0 / 128.0).abs() < 1e-12);
        assert_eq!((window.side, window.corner), (257.0, Point::new(31.5, -8.5)));
        let frame = Image::filled(FRAME, [10, 20, 30]);
        let (search, _) = tracker.search(&frame);
        assert_eq!((search.size(), search.row(0)[..3].to_vec()), (Size::square(255), vec![10, 20, 30]));
        assert_eq!(tracker.template(&frame).size(), Size::square(127));
    }

    #[test]
    fn the_middle_leaves_the_target_where_it_is() {
        let (mut tracker, window) = tracker();
        let middle = 2 * 625 + 12 * 25 + 12;
        let (class, boxes) = outputs(middle);
        let choice = tracker.choose(&window, &class, &boxes);
        assert_eq!((choice.anchor, choice.row, choice.column), (middle, 12, 12));
        // 64 * 127/128 = 63.5 against the anchor's 64: change of scale 64/63.5.
        let penalty = (-(64.0_f64 / 63.5 - 1.0) * 0.09).exp();
        assert!((choice.penalty - penalty).abs() < 1e-9 && choice.score > 0.999);
        let tracked = tracker.follow(&window, &choice, None, FRAME);
        assert_eq!((tracked.target.centre, tracked.mask), (Point::new(160.0, 120.0), None));
        let rate = penalty * choice.score * 0.38;
        let width = 64.0 * (1.0 - rate) + 64.0 / window.scale * rate;
        assert!((tracked.target.width - width).abs() < 1e-9);
    }

    #[test]
    fn another_place_moves_the_target_and_its_mask() {
        let (mut tracker, window) = tracker();
        let place = 2 * 625 + 12 * 25 + 15;
        let (class, mut boxes) = outputs(place);
        boxes[place] = 0.25;
        let choice = tracker.choose(&window, &class, &boxes);
        // Three places of 8 pixels and a quarter of the anchor's 64.
        let moved = (24.0 + 16.0) / window.scale;
        // A square of half the mask's side in its middle.
        let logits: Vec<f32> = (0..63 * 63)
            .map(|i| if (16..47).contains(&(i / 63)) && (16..47).contains(&(i % 63)) { 9.0 } else { -9.0 })
            .collect();
        let tracked = tracker.follow(&window, &choice, Some(&logits), FRAME);
        assert!((tracked.target.centre.x - (160.0 + moved)).abs() < 1e-9);
        // The mask's corner is eleven and eight places of 8 pixels from the window's, in frame pixels of 257/255; its
        // middle, pixel 31, lies 31 pixels of 128.008/63 further, and everything is 319/320 or 239/240 of that: the
        // original maps 320 pixels to 319.
        let corner = Point::new(31.5 + 88.0 * 257.0 / 255.0, -8.5 + 64.0 * 257.0 / 255.0);
        let middle = corner + Point::new(1.0, 1.0) * (31.0 * 127.0 / 63.0 * 257.0 / 255.0);
        let expected = Point::new(middle.x * 319.0 / 320.0, middle.y * 239.0 / 240.0);
        let bounds = tracked.outline.bounds();
        let centre = (bounds.low + bounds.high) * 0.5;
        assert!(centre.distance(expected) < 0.5, "{centre:?} {expected:?}");
        assert!(centre.distance(Point::new(160.0 + 24.0 / window.scale, 120.0)) < 2.5, "{centre:?}");
        // 31 of 63 pixels of a mask that covers 128 pixels of the frame.
        assert!((bounds.width() - 63.0).abs() < 3.0 && (bounds.height() - 63.0).abs() < 3.0, "{bounds:?}");
        assert!(tracked.mask.unwrap().count() > 3000);
    }

    #[test]
    fn an_empty_mask_leaves_the_upright_box() {
        let (mut tracker, window) = tracker();
        let (class, boxes) = outputs(2 * 625 + 12 * 25 + 12);
        let choice = tracker.choose(&window, &class, &boxes);
        let tracked = tracker.follow(&window, &choice, Some(&[-9.0; 63 * 63]), FRAME);
        assert_eq!(tracked.outline, tracked.target.polygon());
        assert_eq!(tracked.mask.unwrap().count(), 0);
    }

    #[test]
    fn outputs_that_are_no_numbers_do_no_harm() {
        let (mut tracker, window) = tracker();
        let choice = tracker.choose(&window, &[f32::NAN; 6250], &[f32::NAN; 12500]);
        let tracked = tracker.follow(&window, &choice, Some(&[f32::NAN; 63 * 63]), FRAME);
        assert_eq!((tracked.target.centre, tracked.target.width), (Point::new(160.0, 120.0), 64.0));
        let (class, mut boxes) = outputs(0);
        boxes[2 * 3125..].fill(1e30);
        let choice = tracker.choose(&window, &class, &boxes);
        let tracked = tracker.follow(&window, &choice, None, FRAME);
        assert!(tracked.target.width <= 320.0 && tracked.target.height <= 240.0);
        assert!(tracker.search(&Image::filled(FRAME, [0; 3])).0.size() == Size::square(255));
    }
}
