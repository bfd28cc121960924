//! Evaluation of masks in held-out pairs, and of tracking in held-out sequences.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rayon::prelude::*;
use zoo_datasets::{
    Grid, Image, Mask, Normalize, SampleLoader, Samples, Size,
    drawing::draw_tracked,
    tracking::{Pair, SearchWindow, Tracked, Tracker, TrackerConfig, VideoDataset, VideoFrame},
};
use zoo_recipe::{
    Recipe,
    schema::{Metric, Score},
};

use super::{
    pairs::{HeldOutPairs, SEARCH, TEMPLATE, tracker},
    supervised,
};
use crate::{
    Evaluation, EvaluationError, Field, Found, HeldOut, Network, Output, Place, Sight, Watch, Witness,
    evaluation::output_shape,
    metrics::{MaskIou, Masks, Meter, Overlap, Track, TrackedToTheEnd},
    preprocess::normalized,
};

/// How a target is tracked with the outputs of a network.
pub(super) struct Setting {
    pub tracker: TrackerConfig,
    pub normalize: Normalize,
    pub sequences: Arc<dyn VideoDataset>,
    window: MaskWindow,
}

/// The position of a place's mask in the search image: `size` pixels from `place * stride - pad`.
#[derive(Clone, Copy)]
struct MaskWindow {
    size: usize,
    stride: usize,
    pad: usize,
}

impl Setting {
    /// The setting of a recipe; checks that the outputs of the network fit.
    pub fn new(
        recipe: &Recipe,
        network: &dyn Network,
        sequences: Arc<dyn VideoDataset>,
    ) -> Result<Self, EvaluationError> {
        let names = recipe.postprocess.track.clone().unwrap_or_default();
        let (class, boxes) = (output_shape(network, &names.class)?, output_shape(network, &names.boxes)?);
        let mask = output_shape(network, &names.mask)?;
        let fits = match (class.as_slice(), boxes.as_slice(), mask.as_slice()) {
            (&[a, h, w, 2], &[b, bh, bw], &[m, mh, mw]) => {
                let side = m.isqrt();
                (h == w && [bh, bw] == [h, w] && [mh, mw] == [h, w] && b == 4 * a && side * side == m)
                    .then_some((w, side))
            }
            _ => None,
        };
        let (grid, side) = fits.ok_or_else(|| {
            let message = format!(
                "tracking needs classes [A, G, G, 2], boxes [4A, G, G] and masks [M*M, G, G], but `{}` is {class:?}, \
                 `{}` {boxes:?}, `{}` {mask:?}",
                names.class, names.boxes, names.mask
            );
            EvaluationError::Mismatch(message)
        })?;
        let (tracker, normalize) = tracker(recipe, grid, side)?;
        let anchors = tracker.anchors.ratios.len() * tracker.anchors.scales.len();
        if anchors != class[0] {
            let message = format!("{anchors} anchor shapes, but `{}` has {}", names.class, class[0]);
            return Err(EvaluationError::Mismatch(message));
        }
        let window = match &recipe.loss.mask_soft_margin {
            Some(loss) => MaskWindow { size: loss.size, stride: loss.stride, pad: loss.pad },
            None => MaskWindow {
                size: tracker.template,
                stride: tracker.anchors.stride,
                pad: tracker.margin / 2 * tracker.anchors.stride,
            },
        };
        Ok(Self { tracker, normalize, sequences, window })
    }

    /// Places along a side of the network's outputs.
    pub fn grid(&self) -> usize {
        self.tracker.grid()
    }

    /// An image as the network's input.
    pub fn pixels(&self, image: &Image) -> Vec<f32> {
        normalized(image, &self.normalize)
    }
}

/// The network's outputs for several samples.
pub(super) struct Seen {
    n: usize,
    class: Vec<f32>,
    boxes: Vec<f32>,
    mask: Vec<f32>,
}

impl Seen {
    /// Runs the network on templates and search images, sample after sample.
    pub fn new(
        network: &mut dyn Network,
        setting: &Setting,
        n: usize,
        (templates, searches): (Vec<f32>, Vec<f32>),
    ) -> Result<Self, EvaluationError> {
        let mut outputs = network.run(n, vec![Field::real(TEMPLATE, templates), Field::real(SEARCH, searches)])?;
        let mut values = |name: &str| Output::take(&mut outputs, name).map(|output| output.values);
        let names = &setting.tracker.settings;
        Ok(Self { n, class: values(&names.class)?, boxes: values(&names.boxes)?, mask: values(&names.mask)? })
    }

    fn of<'a>(&self, values: &'a [f32], sample: usize) -> &'a [f32] {
        let len = values.len() / self.n;
        &values[sample * len..][..len]
    }

    /// Class logits of a sample in the tracker's order: background of all anchors, then target of all anchors.
    pub fn class(&self, sample: usize) -> Vec<f32> {
        let pairs = self.of(&self.class, sample).as_chunks::<2>().0;
        (0..2).flat_map(|side| pairs.iter().map(move |pair| pair[side])).collect()
    }

    /// Boxes of a sample.
    pub fn boxes(&self, sample: usize) -> &[f32] {
        self.of(&self.boxes, sample)
    }

    /// The mask of a place.
    pub fn mask(&self, sample: usize, grid: usize, (row, column): (usize, usize)) -> Vec<f32> {
        self.of(&self.mask, sample).iter().skip(row * grid + column).step_by(grid * grid).copied().collect()
    }

    /// The place with the highest confidence in the target; the first of equal ones.
    fn surest(&self, sample: usize, grid: usize) -> (usize, usize) {
        let pairs = self.of(&self.class, sample).as_chunks::<2>().0;
        let margin = |pair: &[f32; 2]| pair[1] - pair[0];
        let best = (0..pairs.len()).reduce(|best, i| if margin(&pairs[i]) > margin(&pairs[best]) { i } else { best });
        let place = best.unwrap_or(0) % (grid * grid);
        (place / grid, place % grid)
    }
}

/// All held-out pairs, and all held-out sequences.
pub(super) struct HeldOutTargets {
    pub loader: SampleLoader<HeldOutPairs>,
    pub setting: Setting,
}

impl HeldOut for HeldOutTargets {
    fn evaluate(&self, network: &mut dyn Network, watch: Watch<'_>) -> Result<Option<Evaluation>, EvaluationError> {
        let Self { loader, setting } = self;
        let of = loader.samples().len();
        let mut masks = MaskIou::default();
        let mut samples = 0;
        for pairs in loader.epoch(0, 0)? {
            if watch.is_cancelled() {
                return Ok(None);
            }
            let pairs = pairs?;
            if pairs.is_empty() {
                continue;
            }
            let join =
                |part: fn(&Pair) -> &Vec<f32>| pairs.iter().flat_map(|pair| part(pair).iter().copied()).collect();
            let images = (join(|pair| &pair.template), join(|pair| &pair.search));
            let seen = Seen::new(network, setting, pairs.len(), images)?;
            let ious = pairs.par_iter().enumerate().filter(|(_, pair)| pair.mask_is_known()).map(|(i, pair)| {
                let place = seen.surest(i, setting.grid());
                let found = setting.mask_in_search(&seen.mask(i, setting.grid(), place), place);
                (found, truth_of(pair, setting.tracker.search))
            });
            for (found, truth) in ious.collect::<Vec<_>>() {
                masks.add(&Masks { found: &found, truth: &truth });
            }
            samples += pairs.len() as u64;
            (watch.witness)(&Sight::Progress { what: "samples", done: samples as usize, of });
        }
        let mut scores = vec![masks.score(Metric::MaskIou)];
        if !network.computes() {
            // Where to look in a frame depends on what was found in the frame before.
            return Ok(Some(Evaluation { samples, loss: None, scores }));
        }
        let Some(tracks) = follow_all(network, setting, watch.cancel, watch.witness)? else { return Ok(None) };
        let (mut tracked, mut overlap) = (TrackedToTheEnd::default(), Overlap::default());
        for overlaps in tracks.iter().filter(|overlaps| !overlaps.is_empty()) {
            let track = Track { overlaps };
            tracked.add(&track);
            overlap.add(&track);
        }
        scores.extend([tracked.score(Metric::Tracked), overlap.score(Metric::Overlap)]);
        match supervised::expected_overlap(network, setting, watch.cancel)? {
            supervised::Found::Cancelled => return Ok(None),
            supervised::Found::TooShort => {}
            supervised::Found::Overlap(value) => scores.push(Score { metric: Metric::Eao, value, of: None }),
        }
        // Frames without annotation are not measured.
        scores.retain(|score| !score.value.is_nan());
        Ok(Some(Evaluation { samples, loss: None, scores }))
    }
}

/// The true mask of a pair.
pub(super) fn truth_of(pair: &Pair, side: usize) -> Mask {
    let inside = pair.mask.iter().map(|&value| value > 0.0).collect();
    Mask::new(Size::square(side), inside).unwrap_or_else(|| Mask::filled(Size::square(side), false))
}

impl Setting {
    /// The mask of a place in the search image, from its logits; enlarged with aligned corners as in the loss.
    fn mask_in_search(&self, logits: &[f32], (row, column): (usize, usize)) -> Mask {
        let (side, MaskWindow { size, stride, pad }) = (self.tracker.mask, self.window);
        let threshold = self.tracker.settings.mask_threshold as f32;
        // The logistic function is increasing, so logits can be compared.
        let least = libm::logf(threshold / (1.0 - threshold));
        let Some(map) = Grid::new(Size::square(side), logits.to_vec()) else {
            return Mask::filled(Size::square(self.tracker.search), false);
        };
        let zoom = (side - 1) as f32 / (size - 1).max(1) as f32;
        let along = |i: usize| {
            let place = i as f32 * zoom;
            let low = (place as usize).min(side.saturating_sub(2));
            (low, place - low as f32)
        };
        let mut mask = Mask::filled(Size::square(self.tracker.search), false);
        let inside =
            |corner: usize, i: usize| (corner * stride + i).checked_sub(pad).filter(|at| *at < self.tracker.search);
        for y in 0..size {
            let Some(to) = inside(row, y) else { continue };
            let (low, share) = along(y);
            let (above, below) = (map.row(low), map.row((low + 1).min(side - 1)));
            for x in 0..size {
                let Some(to_x) = inside(column, x) else { continue };
                let (left, part) = along(x);
                let right = (left + 1).min(side - 1);
                let mix = |row: &[f32]| row[left] * (1.0 - part) + row[right] * part;
                mask.row_mut(to)[to_x] = mix(above) * (1.0 - share) + mix(below) * share > least;
            }
        }
        mask
    }
}

/// The state of tracking one sequence.
struct Walk {
    sequence: usize,
    name: String,
    frames: usize,
    tracker: Tracker,
    template: Vec<f32>,
    overlaps: Vec<f64>,
}

/// Tracks the targets of all sequences, several at a time. Returns the overlaps of each; empty if the target is
/// unknown in all frames after the first. `None` if it was cancelled.
fn follow_all(
    network: &mut dyn Network,
    setting: &Setting,
    cancel: &AtomicBool,
    witness: &mut Witness<'_>,
) -> Result<Option<Vec<Vec<f64>>>, EvaluationError> {
    let numbers: Vec<usize> = (0..setting.sequences.len()).collect();
    let mut tracks = Vec::with_capacity(numbers.len());
    for group in numbers.chunks(network.batch()) {
        let mut walks =
            group.par_iter().map(|&i| Walk::start(setting, i)).collect::<Result<Vec<_>, EvaluationError>>()?;
        let longest = walks.iter().map(|walk| walk.frames).max().unwrap_or(0);
        for number in 1..longest {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let mut going: Vec<&mut Walk> = walks.iter_mut().filter(|walk| number < walk.frames).collect();
            let views = going.par_iter().map(|walk| walk.look(setting, number)).collect::<Result<Vec<View>, _>>()?;
            let templates = going.iter().flat_map(|walk| walk.template.iter().copied()).collect();
            let searches = views.iter().flat_map(|view| view.pixels.iter().copied()).collect();
            let seen = Seen::new(network, setting, going.len(), (templates, searches))?;
            let steps = going
                .par_iter_mut()
                .zip(&views)
                .enumerate()
                .map(|(i, (walk, view))| walk.step(setting, &seen, i, view));
            let tracked: Vec<Tracked> = steps.collect();
            for ((walk, view), tracked) in going.iter().zip(&views).zip(&tracked) {
                let outline = setting.sequences.outline(walk.sequence, number);
                let truth = outline.or_else(|| view.frame.target.map(|target| target.polygon()));
                let (sequence, name, image) = (walk.sequence, walk.name.as_str(), &view.frame.image);
                witness(&Sight::Found(Found {
                    name,
                    place: Place::Frame { sequence, number },
                    shows: "the true and the predicted outline of the target",
                    key: Some("thin yellow outlines: ground truth; thick green outlines: prediction"),
                    badness: view.frame.target.map(|truth| 1.0 - tracked.target.iou(&truth)),
                    draw: &|| draw_tracked(image, tracked, truth.as_ref()),
                }));
            }
            // Progress counts as if all sequences were as long as those of this group.
            let (done, of) = (tracks.len() * longest + number * group.len(), numbers.len() * longest);
            witness(&Sight::Progress { what: "frames", done, of });
        }
        tracks.extend(walks.into_iter().map(|walk| walk.overlaps));
    }
    Ok(Some(tracks))
}

/// The search image of a tracker in a frame.
struct View {
    frame: VideoFrame,
    pixels: Vec<f32>,
    window: SearchWindow,
}

impl Walk {
    fn start(setting: &Setting, sequence: usize) -> Result<Self, EvaluationError> {
        let videos = &setting.sequences;
        let name = videos.name(sequence);
        let first = videos.frame(sequence, 0)?;
        let target = first.target.ok_or_else(|| {
            let message = format!("{name}: the target is not given in the first frame, so it cannot be tracked");
            EvaluationError::Mismatch(message)
        })?;
        let tracker = Tracker::new(setting.tracker.clone(), &first.image, target);
        let template = setting.pixels(&tracker.template(&first.image));
        let frames = videos.frames(sequence);
        Ok(Self { sequence, name, frames, tracker, template, overlaps: Vec::new() })
    }

    fn look(&self, setting: &Setting, number: usize) -> Result<View, EvaluationError> {
        let frame = setting.sequences.frame(self.sequence, number)?;
        let (search, window) = self.tracker.search(&frame.image);
        Ok(View { pixels: setting.pixels(&search), frame, window })
    }

    fn step(&mut self, setting: &Setting, seen: &Seen, sample: usize, view: &View) -> Tracked {
        let choice = self.tracker.choose(&view.window, &seen.class(sample), seen.boxes(sample));
        let mask = seen.mask(sample, setting.grid(), (choice.row, choice.column));
        let tracked = self.tracker.follow(&view.window, &choice, Some(&mask), view.frame.image.size());
        self.overlaps.extend(view.frame.target.map(|truth| tracked.target.iou(&truth)));
        tracked
    }
}
