//! One folder of images per class.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::layout::expect_folder;
use super::stems::has_extension;
use crate::files::{self, Leftovers, entries};
use crate::image::{self, MAX_PIXELS};
use crate::{DataError, Dataset, Image, OnError, Size, Source};

/// Longest file that is read: an uncompressed image of the largest size, and some room for headers.
const MAX_FILE: u64 = 4 * MAX_PIXELS as u64;

/// Images in `ROOT/CLASS/**/*.{png,jpg,jpeg}`; classes are the names of the folders, sorted unless another order is
/// given ([`open_divided`](crate::open_divided)).
///
/// Samples are sorted bytewise by their path below the root. Files are read when they are used; opening only lists
/// them. What file systems, editors and archives leave behind is ignored ([`files::is_leftover`]).
#[derive(Debug, Clone)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<String>,
    /// Class, and path below the root, sorted by path.
    samples: Vec<(u32, Box<str>)>,
    skipped: usize,
}

impl ImageFolder {
    /// Lists the images below `root`.
    ///
    /// # Errors
    /// If `root` is not a folder or has no class folders; and with [`OnError::Fail`] for a class without images, a file
    /// that is not an image or not in a class folder, a name that is not UTF-8, and a loop of links. With
    /// [`OnError::Skip`] these are logged and counted.
    pub fn open(root: &Path, on_error: OnError) -> Result<Self, DataError> {
        expect_folder(root, "a folder of images for each class")?;
        let mut listing = Listing { root, on_error, paths: Vec::new(), classes: BTreeMap::new(), skipped: 0 };
        listing.walk()?;
        listing.finish()
    }

    /// Number of entries skipped when the folder was listed.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Path of sample `index` below the root.
    pub fn relative_path(&self, index: usize) -> &str {
        &self.samples[index].1
    }

    /// The samples whose path below the root `keep` wants, with the same classes and labels.
    pub(super) fn filter(&self, keep: impl Fn(&str) -> bool) -> Self {
        let samples = self.samples.iter().filter(|(_, path)| keep(path)).cloned().collect();
        Self { samples, ..self.clone() }
    }

    /// The folder of the class folders.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The same samples with the classes in another order: class `i` moves to `places[i]`. All places differ.
    pub(super) fn reordered(self, places: &[usize]) -> Self {
        let mut classes: Vec<(usize, String)> = places.iter().copied().zip(self.classes).collect();
        classes.sort_unstable();
        let samples = self.samples.into_iter().map(|(class, path)| (places[class as usize] as u32, path)).collect();
        Self { classes: classes.into_iter().map(|(_, class)| class).collect(), samples, ..self }
    }

    fn path(&self, index: usize) -> PathBuf {
        self.root.join(&*self.samples[index].1)
    }
}

/// The state of one walk through an image folder.
struct Listing<'a> {
    root: &'a Path,
    on_error: OnError,
    paths: Vec<Box<str>>,
    /// Class folders with their number of images.
    classes: BTreeMap<String, usize>,
    skipped: usize,
}

impl Listing<'_> {
    fn walk(&mut self) -> Result<(), DataError> {
        let mut leftovers = Leftovers::below(self.root);
        let walk = WalkDir::new(self.root).min_depth(1).follow_links(true).into_iter();
        let mut walk = walk.filter_entry(move |entry| !leftovers.take(entry.path()));
        let mut linked = HashSet::new();
        while let Some(entry) = walk.next() {
            let result = match entry {
                // Links to folders that hold links to folders would multiply.
                Ok(entry)
                    if entry.depth() > 1
                        && entry.path_is_symlink()
                        && entry.file_type().is_dir()
                        && !linked.insert(entry.path().canonicalize().ok()) =>
                {
                    walk.skip_current_dir();
                    Err(DataError::unusable(entry.path().display(), "a second link to the same folder"))
                }
                Ok(entry) => self.add(&entry),
                Err(error) => {
                    let path = error.path().unwrap_or(self.root).to_owned();
                    Err(DataError::Io { path, source: io::Error::from(error) })
                }
            };
            if let Err(error) = result {
                error.leave_out(self.on_error, &mut self.skipped)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: &walkdir::DirEntry) -> Result<(), DataError> {
        let stray = |reason: &str| Err(DataError::unusable(entry.path().display(), reason));
        let Some(path) = entry.path().strip_prefix(self.root).ok().and_then(Path::to_str) else {
            return stray("the name is not UTF-8");
        };
        if entry.file_type().is_dir() {
            if entry.depth() == 1 {
                self.classes.insert(path.to_owned(), 0);
            }
            return Ok(());
        }
        if entry.depth() == 1 {
            return stray("a file next to the class folders");
        }
        if !entry.file_type().is_file() || !is_image(entry.path()) {
            return stray("not an image (.png, .jpg, .jpeg)");
        }
        let path = if cfg!(windows) { path.replace('\\', "/") } else { path.to_owned() };
        // A folder is listed before its contents.
        if let Some(images) = self.classes.get_mut(class_of(&path)) {
            *images += 1;
        }
        self.paths.push(path.into());
        Ok(())
    }

    fn finish(mut self) -> Result<ImageFolder, DataError> {
        let (empty, classes): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.classes).into_iter().partition(|(_, images)| *images == 0);
        for (class, _) in empty {
            let reason = "class folder without images (.png, .jpg, .jpeg)";
            DataError::unusable(self.root.join(class).display(), reason).leave_out(self.on_error, &mut self.skipped)?;
        }
        if classes.is_empty() {
            let reason = "no class folders (expected one folder of images per class)".to_owned();
            return Err(DataError::Absent { path: self.root.to_owned(), reason });
        }
        let classes: Vec<String> = classes.into_iter().map(|(class, _)| class).collect();
        self.paths.sort_unstable();
        let label = |path: &str| classes.partition_point(|class| class.as_str() < class_of(path)) as u32;
        let samples = self.paths.into_iter().map(|path| (label(&path), path)).collect();
        Ok(ImageFolder { root: self.root.to_owned(), classes, samples, skipped: self.skipped })
    }
}

/// The first component of a path below the root.
fn class_of(path: &str) -> &str {
    path.split_once('/').map_or(path, |(class, _)| class)
}

/// The images in a folder, sorted by name.
pub(super) fn images_in(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    Ok(entries(folder)?.into_iter().filter(|path| is_image(path)).collect())
}

/// The file extensions of images.
pub(super) const IMAGES: [&str; 3] = ["jpg", "jpeg", "png"];

fn is_image(path: &Path) -> bool {
    has_extension(path, &IMAGES)
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> u32 {
        self.samples[index].0
    }

    fn name(&self, index: usize) -> String {
        self.path(index).display().to_string()
    }

    fn image_size(&self) -> Option<Size> {
        None
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        Ok(Source::Encoded(Cow::Owned(read_file(&self.path(index))?)))
    }
}

/// The bytes of an image file, unless it is too long to be one.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, DataError> {
    files::read(path, MAX_FILE).map_err(DataError::io(path))
}

/// Reads and decodes an image file.
pub fn read_image(path: &Path) -> Result<Image, DataError> {
    image::decode(&read_file(path)?).map_err(DataError::decode(path))
}
