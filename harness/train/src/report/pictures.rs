//! Pictures of predictions, small enough to be embedded in a page.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::Path;
use zoo_datasets::drawing::strip;
use zoo_datasets::image::write_png;
use zoo_datasets::transforms::{Filter, resize};
use zoo_datasets::{Image, Size, atomic, files};
use zoo_tasks::metrics::{Confusion, Mistaken};
use zoo_tasks::{Found, Place, Sight};

use crate::event::ListenError;
use zoo_pages::{Cell, Grid, Picture, Section};
use zoo_recipe::schema::Unit;

/// Number of stored images or sequences.
const KEPT: usize = 6;
/// Largest size of an image, in pixels of the longer side.
const IMAGE: usize = 480;
/// Largest size of a frame in a strip, in pixels of the longer side.
const FRAME: usize = 160;
/// Number of frames in a strip.
const STRIP: usize = 8;
/// Largest size of an embedded picture, in bytes.
const LARGEST: u64 = 400 << 10;
/// Largest size of the index, in bytes.
const LARGEST_INDEX: u64 = 64 << 20;
/// CSS classes of cells, by their share of the row, in ninths.
const HEAT: [&str; 10] = ["", "heat1", "heat2", "heat3", "heat4", "heat5", "heat6", "heat7", "heat8", "heat9"];
/// The descriptions of the pictures.
const INDEX: &str = "index.json";

/// Number of sequences that are examined; the worst ones are kept.
const LOOKED_AT: usize = 32;
/// Largest number of classes of a confusion matrix that is shown completely.
const WHOLE: usize = 20;
/// Number of mistakes that are listed if it is not.
const LISTED: usize = 15;

/// Results of the current evaluation: the worst samples, and the confusion matrix.
#[derive(Default)]
pub(crate) struct Pictures {
    drawn: Vec<Drawn>,
    sequences: Vec<Sequence>,
    confusion: Option<Confusion>,
    key: Option<&'static str>,
}

struct Drawn {
    image: Image,
    wide: bool,
    caption: String,
    alt: String,
    badness: f64,
}

/// Frames of a sequence: every `step`th so far, at most twice the number of frames in a strip.
struct Sequence {
    number: usize,
    name: String,
    shows: String,
    step: usize,
    seen: usize,
    frames: Vec<Image>,
    /// Sum over the frames with known truth, and the number of these frames.
    badness: (f64, usize),
}

/// The index of a folder of pictures.
#[derive(Default, Serialize, Deserialize)]
struct Index {
    pictures: Vec<Entry>,
    /// How to read the pictures.
    key: Option<String>,
    confusion: Option<Confusion>,
}

/// A picture in the folder.
#[derive(Serialize, Deserialize)]
struct Entry {
    file: String,
    wide: bool,
    caption: String,
    alt: String,
}

impl Pictures {
    /// Draws a prediction if it is worse than those stored so far.
    pub fn see(&mut self, sight: &Sight<'_>) {
        let Found { name, place, shows, key, badness, draw } = match sight {
            Sight::Found(found) => found,
            Sight::Confusion(confusion) => {
                self.confusion = Some((*confusion).clone());
                return;
            }
            Sight::Progress { .. } => return,
        };
        self.key = *key;
        match *place {
            Place::Alone { summary } => {
                let badness = badness.unwrap_or_default();
                let after = self.drawn.partition_point(|drawn| drawn.badness >= badness);
                if after == KEPT {
                    return;
                }
                let alt = format!("The image {name} with {shows}.");
                let caption = format!("{name}: {summary}");
                let image = fitted(&draw(), IMAGE);
                self.drawn.insert(after, Drawn { image, wide: false, caption, alt, badness });
                self.drawn.truncate(KEPT);
            }
            Place::Frame { sequence, .. } => {
                let known = self.sequences.iter().position(|known| known.number == sequence);
                let known = match known {
                    Some(known) => known,
                    None if self.sequences.len() == LOOKED_AT => return,
                    None => {
                        let (name, shows) = ((*name).to_owned(), (*shows).to_owned());
                        let (step, seen, frames, badness) = (1, 0, Vec::new(), (0.0, 0));
                        self.sequences.push(Sequence { number: sequence, name, shows, step, seen, frames, badness });
                        self.sequences.len() - 1
                    }
                };
                self.sequences[known].add(*badness, || fitted(&draw(), FRAME));
            }
        }
    }

    /// Writes the collected pictures, replaces earlier ones, and resets. Does nothing if there are none.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&mut self, folder: &Path) -> Result<(), ListenError> {
        let Self { mut drawn, sequences, confusion, key } = std::mem::take(self);
        drawn.extend(sequences.into_iter().map(Sequence::drawn));
        drawn.sort_by(|a, b| b.badness.total_cmp(&a.badness));
        drawn.truncate(KEPT);
        if drawn.is_empty() && confusion.is_none() {
            return Ok(());
        }
        fs::create_dir_all(folder).map_err(ListenError::at(folder))?;
        let mut pictures = Vec::new();
        for (number, Drawn { image, wide, caption, alt, .. }) in drawn.into_iter().enumerate() {
            let file = format!("{number:03}.png");
            let path = folder.join(&file);
            let source = |error| ListenError { path: path.clone(), source: std::io::Error::other(error) };
            write_png(&image, &path).map_err(source)?;
            pictures.push(Entry { file, wide, caption, alt });
        }
        let path = folder.join(INDEX);
        let index = Index { pictures, key: key.map(str::to_owned), confusion };
        let write = |out: &mut dyn Write| Ok(serde_json::to_writer_pretty(out, &index)?);
        atomic::replace(&path, write).map_err(ListenError::at(&path))
    }
}

impl Sequence {
    fn add(&mut self, badness: Option<f64>, frame: impl FnOnce() -> Image) {
        if let Some(badness) = badness {
            self.badness = (self.badness.0 + badness, self.badness.1 + 1);
        }
        if self.seen.is_multiple_of(self.step) {
            self.frames.push(frame());
        }
        self.seen += 1;
        if self.frames.len() > 2 * STRIP {
            let mut index = 0;
            self.frames.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.step *= 2;
        }
    }

    fn drawn(self) -> Drawn {
        let Self { name, shows, seen, frames, badness: (sum, known), .. } = self;
        let badness = sum / known.max(1) as f64;
        let every = frames.len().div_ceil(STRIP).max(1);
        let some: Vec<Image> = frames.into_iter().step_by(every).collect();
        let count = some.len();
        let alt = format!("{count} frames of the sequence {name} side by side, with {shows}.");
        let overlap =
            if known > 0 { format!(", mean overlap {:.0} %", 100.0 * (1.0 - badness)) } else { String::new() };
        let caption = format!("{name}: {count} of {seen} frames{overlap}");
        Drawn { image: strip(&some, STRIP), wide: true, caption, alt, badness }
    }
}

/// The image, reduced if a side is longer than `longest`.
fn fitted(image: &Image, longest: usize) -> Image {
    let (width, height) = (image.width(), image.height());
    let longer = width.max(height);
    if longer <= longest {
        return image.clone();
    }
    let side = |side: usize| (side * longest / longer).max(1);
    resize(image, Size::new(side(width), side(height)), Filter::Bilinear)
}

/// The contents of a folder of pictures, as sections. Pictures that are too large or missing are omitted.
pub(super) fn sections(folder: &Path) -> Vec<Section> {
    let Ok(index) = files::read(&folder.join(INDEX), LARGEST_INDEX) else { return Vec::new() };
    let Ok(Index { pictures, key, confusion }) = serde_json::from_slice(&index) else { return Vec::new() };
    let pictures: Vec<Picture> = pictures
        .into_iter()
        .filter_map(|Entry { file, wide, caption, alt }| {
            // Only the file name, so that the path cannot leave the folder.
            let path = folder.join(Path::new(&file).file_name()?);
            let bytes = files::read(&path, LARGEST).ok()?;
            Some(Picture { base64: BASE64.encode(&bytes), alt, caption, wide })
        })
        .collect();
    let mut notes = vec!["The worst predictions of the last evaluation.".to_owned()];
    notes.extend(key.map(|key| format!("In the pictures {key}.")));
    let worst = (!pictures.is_empty()).then(|| Section {
        id: "worst".into(),
        title: "Worst predictions".into(),
        notes,
        pictures,
        ..Section::default()
    });
    confusion.as_ref().map(confused).into_iter().chain(worst).collect()
}

/// The confusion of classes, as a section.
fn confused(confusion: &Confusion) -> Section {
    let mistakes = confusion.mistakes();
    let (id, title) = ("confusion".into(), "Confusion matrix".into());
    let mut notes = Vec::new();
    if let Some(&Mistaken { class, found, count }) = mistakes.first() {
        let (name, other, of) = (confusion.name(class), confusion.name(found), confusion.samples(class));
        notes.push(format!(
            "The most frequent mistake in the last evaluation: {count} of {of} samples of {name} were \
                            classified as {other}."
        ));
    }
    let classes = confusion.classes.len();
    let grid = if classes <= WHOLE {
        let columns =
            std::iter::once(("class", false)).chain(confusion.classes.iter().map(|name| (name.as_str(), true)));
        let mut grid = Grid::new("Rows: true classes; columns: predicted classes", columns);
        for class in 0..classes {
            let of = confusion.samples(class);
            let cells = (0..classes).map(|found| {
                let count = confusion.count(class, found);
                let text = if count == 0 { String::new() } else { count.to_string() };
                let heat = (9 * count).div_ceil(of.max(1)).min(9) as usize;
                Cell::classed(text, HEAT[heat])
            });
            grid.rows.push(std::iter::once(confusion.name(class).into()).chain(cells).collect());
        }
        grid
    } else {
        let columns = [("class", false), ("predicted", false), ("samples", true), ("of the class", true)];
        let mut grid = Grid::new("The most frequent mistakes", columns);
        for Mistaken { class, found, count } in mistakes.into_iter().take(LISTED) {
            let share = Unit::Share.format(count as f64 / confusion.samples(class).max(1) as f64);
            grid.rows.push(vec![
                confusion.name(class).into(),
                confusion.name(found).into(),
                count.to_string().into(),
                share.into(),
            ]);
        }
        grid
    };
    Section { id, title, notes, grids: vec![grid], ..Section::default() }
}

/// The pictures of a folder as PNG files, with their names. Pictures that are too large or missing are omitted.
pub(crate) fn read(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let index = files::read(&folder.join(INDEX), LARGEST_INDEX).ok();
    let index: Index = index.and_then(|index| serde_json::from_slice(&index).ok()).unwrap_or_default();
    let named = index.pictures.into_iter().enumerate().filter_map(|(number, Entry { file, .. })| {
        let bytes = files::read(&folder.join(Path::new(&file).file_name()?), LARGEST).ok()?;
        Some((format!("worst/{number}"), bytes))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(name: &'a str, badness: f64, draw: &'a dyn Fn() -> Image) -> Sight<'a> {
        let place = Place::Alone { summary: "0 found, 0 to find" };
        Sight::Found(Found { name, place, shows: "no outlines", key: None, badness: Some(badness), draw })
    }

    #[test]
    fn pictures_are_the_worst_few_small_and_embedded() {
        let dir = tempfile::tempdir().unwrap();
        let image = Image::filled(Size::new(1000, 500), [10, 20, 30]);
        let mut pictures = Pictures::default();
        pictures.write(dir.path()).unwrap();
        assert!(sections(dir.path()).is_empty());
        let draw = || image.clone();
        for n in 0..2 * KEPT {
            pictures.see(&found(&format!("scene <{n}>"), n as f64, &draw));
        }
        pictures.write(dir.path()).unwrap();
        let worst = |dir: &Path| sections(dir).into_iter().find(|section| section.id == "worst").unwrap();
        let shown = worst(dir.path());
        assert_eq!(shown.pictures.len(), KEPT);
        assert_eq!(shown.pictures[0].caption, "scene <11>: 0 found, 0 to find");
        let png = BASE64.decode(shown.pictures[0].base64.as_bytes()).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        assert_eq!(read(dir.path()).len(), KEPT);
        let small = fitted(&image, IMAGE);
        assert_eq!((small.width(), small.height()), (480, 240));
        // Files that are too large are omitted.
        fs::write(dir.path().join("000.png"), vec![0; LARGEST as usize + 1]).unwrap();
        assert_eq!(worst(dir.path()).pictures.len(), KEPT - 1);
    }

    #[test]
    fn a_confusion_matrix_is_shown_whole_or_as_its_mistakes() {
        let shown = |classes: usize| {
            let names: Vec<String> = (0..classes).map(|class| format!("class {class}")).collect();
            let mut confusion = Confusion::new(&names);
            confusion.counts.entry(0).or_default().extend([(0, 2), (1, 3)]);
            confused(&confusion)
        };
        let whole = shown(3);
        assert_eq!(
            whole.notes,
            ["The most frequent mistake in the last evaluation: 3 of 5 samples of class 0 were classified as class 1."]
        );
        let row: Vec<(&str, &str)> =
            whole.grids[0].rows[0].iter().map(|cell| (cell.text.as_str(), cell.class)).collect();
        assert_eq!(row, [("class 0", ""), ("2", "heat4"), ("3", "heat6"), ("", "")]);
        let listed: Vec<String> = shown(100).grids[0].rows[0].iter().map(|cell| cell.text.clone()).collect();
        assert_eq!(listed, ["class 0", "class 1", "3", "60 %"]);
    }

    #[test]
    fn long_sequences_are_thinned_evenly() {
        let (name, shows) = ("s".into(), "outlines".into());
        let badness = (0.0, 0);
        let mut sequence = Sequence { number: 0, name, shows, step: 1, seen: 0, frames: Vec::new(), badness };
        for n in 0..100u8 {
            sequence.add(Some(0.25), || Image::filled(Size::new(1, 1), [n; 3]));
        }
        let kept: Vec<u8> = sequence.frames.iter().map(|frame| frame.row(0)[0]).collect();
        assert_eq!(kept, [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96]);
        assert_eq!(sequence.drawn().caption, "s: 7 of 100 frames, mean overlap 75 %");
    }
}
