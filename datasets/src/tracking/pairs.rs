//! Training pairs: a template and a search image from two frames of a video (`DataSets`).

use std::sync::Arc;

use super::crop::{Crop, crop};
use super::{AnchorLabels, Anchors, TargetBox, VideoDataset, VideoFrame};
use crate::{DataError, Rng, Samples};
use zoo_settings::{ChannelOrder, CropVariation, PairPreparation};

/// How pairs are made. The defaults are those of SiamMask's base stage.
#[derive(Debug, Clone, PartialEq)]
pub struct PairConfig {
    /// Side of the template image.
    pub template: usize,
    /// Side of the search image.
    pub search: usize,
    /// Places along a side of the network's output.
    pub grid: usize,
    /// Order of the channels in the arrays.
    pub channels: ChannelOrder,
    /// Anchors, their labels, and how crops are varied. The original neither flips nor permutes.
    pub settings: PairPreparation,
}

impl Default for PairConfig {
    fn default() -> Self {
        let (channels, settings) = (ChannelOrder::Bgr, PairPreparation::default());
        Self { template: 127, search: 255, grid: 25, channels, settings }
    }
}

/// A pair with its labels: T and S are the sides of template and search image, A shapes of anchors on G x G places.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Template, (3, T, T), 0 to 255.
    pub template: Vec<f32>,
    /// Search image, (3, S, S), 0 to 255.
    pub search: Vec<f32>,
    /// Labels of the anchors.
    pub labels: AnchorLabels,
    /// Where the target is in the search image; `None` in a negative pair.
    pub target: Option<TargetBox>,
    /// 1 on pixels of the target, else -1; (1, S, S).
    pub mask: Vec<f32>,
    /// Where the mask is learnt: 1, else 0 or -1; (1, G, G). All 0 in a negative pair, or if the mask is not known.
    pub mask_weight: Vec<f32>,
}

impl Pair {
    /// True if pixels of the target can be seen and are known.
    pub fn mask_is_known(&self) -> bool {
        self.mask.iter().any(|&inside| inside > 0.0)
    }
}

/// Pairs from videos: pair `index` of an epoch is a pure function of the seed, the epoch and the index.
#[derive(Clone)]
pub struct Pairs {
    videos: Arc<dyn VideoDataset>,
    config: PairConfig,
    anchors: Anchors,
    len: usize,
}

/// Attempts to find frames that show the target.
const ATTEMPTS: usize = 16;

impl Pairs {
    /// `len` pairs per epoch; pair `i` has its template from video `i` modulo the number of videos.
    ///
    /// # Errors
    /// If there are no videos, a side is 0 or above 2048, the anchors have no or impossible shapes, or a part is not
    /// within 0 to 1.
    pub fn new(videos: Arc<dyn VideoDataset>, config: PairConfig, len: usize) -> Result<Self, DataError> {
        let PairPreparation { anchors, grey, negative, flip, permute, .. } = &config.settings;
        let parts = [grey, negative, flip, permute];
        let sides = [config.template, config.search, config.grid, anchors.stride];
        let shapes = anchors.ratios.iter().chain(&anchors.scales);
        let sane = !videos.is_empty()
            && sides.into_iter().all(|side| (1..=2048).contains(&side))
            && parts.into_iter().all(|part| (0.0..=1.0).contains(part))
            && shapes.into_iter().all(|&value| value > 0.0 && value.is_finite());
        let anchors = Anchors::new(anchors, config.grid, (config.search / 2) as f64);
        if !sane || anchors.is_empty() || anchors.iter().any(|anchor| anchor.width * anchor.height <= 0.0) {
            return Err(DataError::Config(format!("pairs of {} videos: {config:?}", videos.len())));
        }
        Ok(Self { videos, config, anchors, len })
    }

    /// The anchors that labels belong to.
    pub fn anchors(&self) -> &Anchors {
        &self.anchors
    }

    fn pair(&self, seed: u64, epoch: u64, index: usize) -> Result<Pair, DataError> {
        let mut rng = Rng::new(seed, epoch, index as u64);
        let (config, settings) = (&self.config, &self.config.settings);
        let grey = rng.chance(settings.grey);
        let negative = self.videos.len() > 1 && rng.chance(settings.negative);
        let video = index % self.videos.len();
        let first = rng.below(self.videos.frames(video));
        let (template, near) = self.visible(video, first, &mut rng)?;
        let search = if negative {
            let other = (video + 1 + rng.below(self.videos.len() - 1)) % self.videos.len();
            let frame = rng.below(self.videos.frames(other));
            self.visible(other, frame, &mut rng)?.0
        } else {
            let range = self.videos.frame_range(video).unwrap_or(settings.frame_range);
            let low = near.saturating_sub(range);
            let high = near.saturating_add(range).min(self.videos.frames(video) - 1);
            let frame = low + rng.below(high - low + 1);
            self.visible(video, frame, &mut rng)?.0
        };
        let mut cut = |(frame, target): &(VideoFrame, TargetBox), size: usize, augment: &CropVariation| {
            let mask = frame.mask.as_ref();
            crop((&frame.image, mask), target, (size, config.template), augment, &mut rng)
        };
        let mut template_crop = cut(&template, config.template, &settings.template);
        let mut search_crop = cut(&search, config.search, &settings.search);
        let flip = rng.chance(settings.flip);
        let order = if rng.chance(settings.permute) { rng.below(6) } else { 0 };
        for (crop, side) in [(&mut template_crop, config.template), (&mut search_crop, config.search)] {
            if flip {
                mirror(crop, side);
            }
            recolour(&mut crop.pixels, grey, order, config.channels);
        }
        let target = (!negative).then_some(search_crop.target);
        let labels = AnchorLabels::new(&self.anchors, target.as_ref(), settings, &mut rng);
        let masked = !negative && search.0.mask.is_some();
        let mask_weight = if masked {
            labels.mask_weight(&self.anchors)
        } else {
            vec![0.0; self.anchors.side() * self.anchors.side()]
        };
        let mask = search_crop.mask.values().iter().map(|&inside| if inside && masked { 1.0 } else { -1.0 }).collect();
        Ok(Pair { template: template_crop.pixels, search: search_crop.pixels, labels, target, mask, mask_weight })
    }

    /// `frame` of `video`, or another one if the target cannot be seen there, and its number.
    fn visible(
        &self,
        video: usize,
        frame: usize,
        rng: &mut Rng,
    ) -> Result<((VideoFrame, TargetBox), usize), DataError> {
        let mut number = frame;
        for _ in 0..ATTEMPTS {
            let frame = self.videos.frame(video, number)?;
            if let Some(target) = frame.target.filter(|target| target.width > 0.0 && target.height > 0.0) {
                return Ok(((frame, target), number));
            }
            number = rng.below(self.videos.frames(video));
        }
        // Where a target is known in few frames, the first is one of them.
        let first = self.videos.frame(video, 0)?;
        if let Some(target) = first.target.filter(|target| target.width > 0.0 && target.height > 0.0) {
            return Ok(((first, target), 0));
        }
        let reason = format!(
            "no target in the first frame, nor in {ATTEMPTS} sampled frames. Add masks, or a groundtruth.txt next to \
             the frames (one line, for the first frame, is enough for tracking)"
        );
        Err(DataError::malformed(self.videos.name(video), reason))
    }
}

impl Samples for Pairs {
    type Sample = Pair;

    fn len(&self) -> usize {
        self.len
    }

    /// # Errors
    /// If a frame cannot be read, or none of a video's frames that were tried shows its target.
    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<Pair, DataError> {
        self.pair(seed, epoch, index)
    }
}

/// Left and right swapped.
fn mirror(crop: &mut Crop, side: usize) {
    crop.pixels.chunks_exact_mut(side).for_each(<[f32]>::reverse);
    crop.mask.values_mut().chunks_exact_mut(side).for_each(<[bool]>::reverse);
    crop.target.centre.x = side as f64 - 1.0 - crop.target.centre.x;
}

/// Takes the colour out, changes the places of channels, and puts them into their order.
fn recolour(pixels: &mut Vec<f32>, grey: bool, order: usize, channels: ChannelOrder) {
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let area = pixels.len() / 3;
    if grey {
        for i in 0..area {
            // ITU-R BT.601, as OpenCV.
            let luminance = 0.299 * pixels[i] + 0.587 * pixels[area + i] + 0.114 * pixels[2 * area + i];
            (0..3).for_each(|channel| pixels[channel * area + i] = luminance);
        }
    }
    let mut order = ORDERS[order];
    match channels {
        ChannelOrder::Rgb => {}
        ChannelOrder::Bgr => order.reverse(),
    }
    if order != ORDERS[0] {
        *pixels = order.iter().flat_map(|channel| &pixels[channel * area..(channel + 1) * area]).copied().collect();
    }
}
