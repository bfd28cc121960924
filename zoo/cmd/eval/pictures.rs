//! `zoo eval --draw`: pictures of predictions.

use crate::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use zoo_datasets::drawing::{strip, write_gif};
use zoo_datasets::image::write_png;
use zoo_datasets::{DataError, Image, read_image};
use zoo_tasks::{Found, Place, Sight};

/// Draws predictions into a folder: `000-NAME.png` for images, and a table of what was found in each, `index.tsv`; for
/// each sequence a folder of frames, an animation and a strip of some frames.
pub(super) struct Pictures {
    folder: PathBuf,
    /// How many images or sequences to draw.
    limit: usize,
    seen: usize,
    /// The rows of the table: picture, sample, what was found.
    rows: Vec<[String; 3]>,
    /// The sequences drawn so far.
    sequences: Vec<Sequence>,
    /// The first error; nothing is drawn after it.
    failed: Option<Failure>,
}

struct Sequence {
    number: usize,
    name: String,
    frames: Vec<PathBuf>,
}

/// Number of frames in a strip.
const STRIP: usize = 8;
/// Time per frame of an animation, in hundredths of a second.
const DELAY: u16 = 10;

impl Pictures {
    /// Creates the folder.
    ///
    /// # Errors
    /// A folder that cannot be created, or a task without drawings (`undrawn` is the reason).
    pub fn new(folder: &Path, limit: usize, undrawn: Option<&str>) -> Result<Self, Failure> {
        if let Some(why) = undrawn {
            return Err(Failure::Usage(format!("--draw: {why}")));
        }
        create(folder)?;
        Ok(Self { folder: folder.to_owned(), limit, seen: 0, rows: Vec::new(), sequences: Vec::new(), failed: None })
    }

    /// Draws predictions.
    pub fn see(&mut self, sight: &Sight<'_>) {
        if self.failed.is_none() {
            self.failed = self.draw(sight).err();
        }
    }

    fn draw(&mut self, sight: &Sight<'_>) -> Result<(), Failure> {
        let Sight::Found(Found { name, place, draw, .. }) = sight else { return Ok(()) };
        match *place {
            Place::Alone { summary } => {
                let number = self.seen;
                self.seen += 1;
                if number < self.limit {
                    let file = format!("{number:03}-{}.png", plain(name));
                    write_png(&draw(), &self.folder.join(&file)).map_err(unwritable)?;
                    self.rows.push([file, one_line(name), one_line(summary)]);
                }
            }
            Place::Frame { sequence, .. } if sequence >= self.limit => {}
            Place::Frame { sequence, number } => {
                let folder = self.folder.join(format!("{sequence:03}-{}", plain(name)));
                create(&folder)?;
                let file = folder.join(format!("{number:05}.png"));
                write_png(&draw(), &file).map_err(unwritable)?;
                match self.sequences.iter_mut().find(|known| known.number == sequence) {
                    Some(known) => known.frames.push(file),
                    None => self.sequences.push(Sequence { number: sequence, name: plain(name), frames: vec![file] }),
                }
            }
        }
        Ok(())
    }

    /// Writes the table, animations and strips.
    pub fn finish(self) -> Result<(), Failure> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.rows.is_empty() {
            let rows: Vec<String> = self.rows.iter().map(|row| row.join("\t") + "\n").collect();
            let path = self.folder.join("index.tsv");
            let table = format!("picture\tsample\tfound\n{}", rows.concat());
            fs::write(&path, table).map_err(|source| Failure::Unwritable { path, source })?;
        }
        for Sequence { number, name, frames } in &self.sequences {
            let file = |ending: &str| self.folder.join(format!("{number:03}-{name}.{ending}"));
            let frames = frames.iter().map(|frame| read_image(frame)).collect::<Result<Vec<Image>, _>>()?;
            write_gif(&frames, DELAY, &file("gif")).map_err(unwritable)?;
            let every = frames.len().div_ceil(STRIP).max(1);
            let some: Vec<Image> = frames.iter().step_by(every).cloned().collect();
            write_png(&strip(&some, STRIP), &file("png")).map_err(unwritable)?;
        }
        Ok(())
    }
}

/// Text for a cell of the table.
fn one_line(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

fn create(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|source| Failure::Unwritable { path: folder.to_owned(), source })
}

/// The error of a file that was to be written.
fn unwritable(error: DataError) -> Failure {
    match error {
        DataError::Io { path, source } => Failure::Unwritable { path, source },
        other => other.into(),
    }
}

/// The last part of a path without its extension, reduced to characters that are suitable for file names.
fn plain(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let last = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
    let kept: String = last.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    kept.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
