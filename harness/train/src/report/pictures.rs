//! Pictures of what an evaluation found, small enough to be embedded in a page.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::Path;
use zoo_datasets::drawing::strip;
use zoo_datasets::image::write_png;
use zoo_datasets::transforms::{Filter, resize};
use zoo_datasets::{Image, Size, atomic, files};
use zoo_tasks::{Found, Place, Sight};

use super::page::{Picture, Section};
use crate::event::ListenError;

/// Images or sequences that are kept.
const KEPT: usize = 6;
/// The longer side of an image, at most.
const IMAGE: usize = 480;
/// The longer side of a frame in a strip, at most.
const FRAME: usize = 160;
/// Frames of a strip.
const STRIP: usize = 8;
/// Bytes of a picture that is embedded, at most.
const LARGEST: u64 = 400 << 10;
/// What is to be seen in which picture.
const INDEX: &str = "index.json";

/// Pictures of the evaluation that is going on.
#[derive(Default)]
pub(crate) struct Pictures {
    drawn: Vec<Drawn>,
    sequences: Vec<Sequence>,
}

struct Drawn {
    image: Image,
    wide: bool,
    caption: String,
    alt: String,
}

/// Frames of a sequence: every `step`th so far, never more than twice those of a strip.
struct Sequence {
    number: usize,
    name: String,
    shows: String,
    step: usize,
    seen: usize,
    frames: Vec<Image>,
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
    /// Draws what is looked at, if there is room for it.
    pub fn see(&mut self, sight: &Sight<'_>) {
        let Sight::Found(Found { name, place, shows, draw }) = sight else { return };
        match *place {
            Place::Alone { summary } if self.drawn.len() < KEPT => {
                let alt = format!("The image {name} with {shows}.");
                let caption = format!("{name}: {summary}");
                self.drawn.push(Drawn { image: fitted(&draw(), IMAGE), wide: false, caption, alt });
            }
            Place::Alone { .. } => {}
            Place::Frame { sequence, .. } => {
                let known = self.sequences.iter().position(|known| known.number == sequence);
                let known = match known {
                    Some(known) => known,
                    None if self.sequences.len() == KEPT => return,
                    None => {
                        let (name, shows) = ((*name).to_owned(), (*shows).to_owned());
                        let (step, seen, frames) = (1, 0, Vec::new());
                        self.sequences.push(Sequence { number: sequence, name, shows, step, seen, frames });
                        self.sequences.len() - 1
                    }
                };
                self.sequences[known].add(|| fitted(&draw(), FRAME));
            }
        }
    }

    /// Writes what was drawn, in place of what was written before, and forgets it; nothing if there was nothing to see.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&mut self, folder: &Path) -> Result<(), ListenError> {
        let mut drawn = std::mem::take(&mut self.drawn);
        drawn.extend(std::mem::take(&mut self.sequences).into_iter().map(Sequence::drawn));
        if drawn.is_empty() {
            return Ok(());
        }
        fs::create_dir_all(folder).map_err(ListenError::at(folder))?;
        let mut entries = Vec::new();
        for (number, Drawn { image, wide, caption, alt }) in drawn.into_iter().enumerate() {
            let file = format!("{number:03}.png");
            let path = folder.join(&file);
            let source = |error| ListenError { path: path.clone(), source: std::io::Error::other(error) };
            write_png(&image, &path).map_err(source)?;
            entries.push(Entry { file, wide, caption, alt });
        }
        let index = folder.join(INDEX);
        let write = |out: &mut dyn Write| Ok(serde_json::to_writer_pretty(out, &entries)?);
        atomic::replace(&index, write).map_err(ListenError::at(&index))
    }
}

impl Sequence {
    fn add(&mut self, frame: impl FnOnce() -> Image) {
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
        let Self { name, shows, seen, frames, .. } = self;
        let every = frames.len().div_ceil(STRIP).max(1);
        let some: Vec<Image> = frames.into_iter().step_by(every).collect();
        let count = some.len();
        let alt = format!("{count} frames of the sequence {name} side by side, with {shows}.");
        let caption = format!("{name}: {count} of {seen} frames");
        Drawn { image: strip(&some, STRIP), wide: true, caption, alt }
    }
}

/// The image, smaller if a side is longer than `longest`.
fn fitted(image: &Image, longest: usize) -> Image {
    let (width, height) = (image.width(), image.height());
    let longer = width.max(height);
    if longer <= longest {
        return image.clone();
    }
    let side = |side: usize| (side * longest / longer).max(1);
    resize(image, Size::new(side(width), side(height)), Filter::Bilinear)
}

/// The pictures of a folder as a section; `None` if it has none. What is too large, or gone, is left out.
pub(super) fn section(folder: &Path) -> Option<Section> {
    let index = files::read(&folder.join(INDEX), LARGEST).ok()?;
    let entries: Vec<Entry> = serde_json::from_slice(&index).ok()?;
    let pictures: Vec<Picture> = entries
        .into_iter()
        .filter_map(|Entry { file, wide, caption, alt }| {
            // A name, not a path to somewhere else.
            let path = folder.join(Path::new(&file).file_name()?);
            let bytes = files::read(&path, LARGEST).ok()?;
            Some(Picture { base64: BASE64.encode(&bytes), alt, caption, wide })
        })
        .collect();
    let notes = vec![
        "Some of what the last evaluation looked at: thin yellow outlines are the truth, thick green ones were found."
            .into(),
    ];
    (!pictures.is_empty()).then(|| Section {
        id: "pictures".into(),
        title: "What was found".into(),
        notes,
        pictures,
        ..Section::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_few_small_and_embedded() {
        let dir = tempfile::tempdir().unwrap();
        let image = Image::filled(Size::new(1000, 500), [10, 20, 30]);
        let mut pictures = Pictures::default();
        pictures.write(dir.path()).unwrap();
        assert!(section(dir.path()).is_none());
        let place = Place::Alone { summary: "0 found, 0 to find" };
        let draw = || image.clone();
        let sight = Sight::Found(Found { name: "scene <1>", place, shows: "no outlines", draw: &draw });
        (0..2 * KEPT).for_each(|_| pictures.see(&sight));
        pictures.write(dir.path()).unwrap();
        let found = section(dir.path()).unwrap();
        assert_eq!(found.pictures.len(), KEPT);
        assert_eq!(found.pictures[0].caption, "scene <1>: 0 found, 0 to find");
        let png = BASE64.decode(found.pictures[0].base64.as_bytes()).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        let small = fitted(&image, IMAGE);
        assert_eq!((small.width(), small.height()), (480, 240));
        // Too large a file is left out.
        fs::write(dir.path().join("000.png"), vec![0; LARGEST as usize + 1]).unwrap();
        assert_eq!(section(dir.path()).unwrap().pictures.len(), KEPT - 1);
    }

    #[test]
    fn long_sequences_are_thinned_evenly() {
        let (name, shows) = ("s".into(), "outlines".into());
        let mut sequence = Sequence { number: 0, name, shows, step: 1, seen: 0, frames: Vec::new() };
        for n in 0..100u8 {
            sequence.add(|| Image::filled(Size::new(1, 1), [n; 3]));
        }
        let kept: Vec<u8> = sequence.frames.iter().map(|frame| frame.row(0)[0]).collect();
        assert_eq!(kept, [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96]);
        assert_eq!(sequence.drawn().caption, "s: 7 of 100 frames");
    }
}
