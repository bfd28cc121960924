//! The supervised protocol of VOT: a tracker that loses its target is restarted.

use std::sync::atomic::{AtomicBool, Ordering};
use zoo_datasets::{
    geometry::Polygon,
    tracking::{Tracker, expected_average_overlap, run_supervised},
};

use super::evaluate::{Seen, Setting};
use crate::{EvaluationError, Network};

/// Lengths of sequences over which the overlap is averaged: those of VOT2016, on which SiamMask is evaluated
/// (`eao_benchmark.py` of pysot's toolkit). VOT2017 and 2018 have 100 to 356.
const LENGTHS: std::ops::RangeInclusive<usize> = 108..=371;

/// The result of a supervised evaluation.
pub(super) enum Found {
    /// It was cancelled.
    Cancelled,
    /// No sequence with an outline in every frame is long enough.
    TooShort,
    /// The expected average overlap.
    Overlap(f64),
}

/// The expected average overlap over all sequences that have an outline in each frame, if one is long enough.
pub(super) fn expected_overlap(
    network: &mut dyn Network,
    setting: &Setting,
    cancel: &AtomicBool,
) -> Result<Found, EvaluationError> {
    let videos = &setting.sequences;
    let truths = (0..videos.len()).map(|i| (0..videos.frames(i)).map(|frame| videos.outline(i, frame)).collect());
    let truths: Vec<Option<Vec<Polygon>>> = truths.collect();
    if !truths.iter().flatten().any(|truth| truth.len() >= *LENGTHS.start()) {
        return Ok(Found::TooShort);
    }
    let mut results = Vec::new();
    for (sequence, truth) in truths.iter().enumerate() {
        let Some(truth) = truth else { continue };
        let size = videos.frame(sequence, 0)?.image.size();
        let mut state: Option<(Tracker, Vec<f32>)> = None;
        let result = run_supervised(truth, size, |number, start| {
            if cancel.load(Ordering::Relaxed) {
                return Err(None);
            }
            let frame = videos.frame(sequence, number).map_err(|error| Some(error.into()))?.image;
            if let Some(target) = start {
                let tracker = Tracker::new(setting.tracker.clone(), &frame, target);
                let template = setting.pixels(&tracker.template(&frame));
                state = Some((tracker, template));
                return Ok(truth[number].clone());
            }
            let Some((tracker, template)) = &mut state else { return Ok(truth[number].clone()) };
            let (search, window) = tracker.search(&frame);
            let images = (template.clone(), setting.pixels(&search));
            let seen = Seen::new(network, setting, 1, images).map_err(Some)?;
            let choice = tracker.choose(&window, &seen.class(0), seen.boxes(0));
            let mask = seen.mask(0, setting.grid(), (choice.row, choice.column));
            Ok(tracker.follow(&window, &choice, Some(&mask), frame.size()).outline)
        });
        match result {
            Ok(result) => results.push(result),
            Err(None) => return Ok(Found::Cancelled),
            Err(Some(error)) => return Err(error),
        }
    }
    Ok(expected_average_overlap(&results, LENGTHS).map_or(Found::TooShort, Found::Overlap))
}
