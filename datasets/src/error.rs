//! Errors of data, always with the path (or generated sample) and the reason.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::image::{DecodeError, MAX_PIXELS, MAX_SIDE, Size};
use crate::readers::IdxError;
use zoo_settings::OnError;

/// What is at a path instead of the data.
fn instead(path: &Path) -> &'static str {
    let packed = path.extension().and_then(OsStr::to_str);
    match packed.map(str::to_ascii_lowercase).as_deref() {
        _ if !path.exists() => "not found",
        Some("zip" | "tar" | "gz" | "tgz" | "bz2" | "xz") => "an archive, not a folder: unpack it first",
        _ => "not a folder",
    }
}

/// A data set that is missing, malformed or unreadable.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// An image file that cannot be decoded.
    #[error("{name}: {source}")]
    Decode {
        /// Path of the file.
        name: String,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// Data that are not at their place.
    #[error("{}: {}. Expected {expected}", path.display(), instead(path))]
    Absent {
        /// The file or folder.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
    },
    /// A folder in none of the known layouts.
    #[error(
        "{}: no known layout. Expected {expected}. Found {found}{}",
        root.display(),
        advice.as_ref().map_or_else(String::new, |advice| format!(". {advice}"))
    )]
    UnknownLayout {
        /// The folder.
        root: PathBuf,
        /// The files of the known layouts.
        expected: &'static str,
        /// Its actual content.
        found: String,
        /// What the content is, or what can be done.
        advice: Option<String>,
    },
    /// Data that are absent, or in no known layout, with advice.
    #[error(
        "{error}.{}{}",
        if *named { "" } else { " Use --data PATH for another place." },
        from.as_ref().map_or_else(String::new, |from| format!(" Download: {from}"))
    )]
    Unavailable {
        /// What is wrong.
        error: Box<DataError>,
        /// Whether the user named the place.
        named: bool,
        /// Where the data are published.
        from: Option<String>,
    },
    /// An image folder without class folders.
    #[error("{}: no class folders (expected one folder of images per class)", .0.display())]
    NoClasses(PathBuf),
    /// A class folder without a single image.
    #[error("{}: class folder without images (.png, .jpg, .jpeg)", .0.display())]
    EmptyClass(PathBuf),
    /// A file or folder that does not belong into an image folder.
    #[error("{}: {reason}", path.display())]
    Stray {
        /// The stray entry.
        path: PathBuf,
        /// Why it does not belong.
        reason: &'static str,
    },
    /// The training and validation parts do not have the same classes.
    #[error("{}: class '{class}' is only in {}/", root.display(), only_in.display())]
    ClassMismatch {
        /// Folder that holds both parts.
        root: PathBuf,
        /// The class without counterpart.
        class: String,
        /// The part that has it.
        only_in: PathBuf,
    },
    /// Several files or folders of which only one can be used.
    #[error("several fit {wanted}: {}. Keep one of them", found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// What was looked for.
        wanted: String,
        /// What fits.
        found: Vec<PathBuf>,
    },
    /// Held-out labels that do not occur in training.
    #[error("{}: the labels {labels:?} do not occur in {}", path.display(), train.display())]
    UnseenLabels {
        /// The file of the held-out labels.
        path: PathBuf,
        /// The labels.
        labels: Vec<u8>,
        /// The file of the labels to train on.
        train: PathBuf,
    },
    /// A class folder that the list of classes does not contain.
    #[error("{}: class '{class}' is not listed", list.display())]
    UnlistedClass {
        /// The list.
        list: PathBuf,
        /// The class.
        class: String,
    },
    /// A CIFAR binary file of a length that is not a positive multiple of a record.
    #[error("{}: {size} bytes, not a positive multiple of {record} (one label and 3x32x32 bytes)", path.display())]
    CifarSize {
        /// The file.
        path: PathBuf,
        /// Its length.
        size: u64,
        /// Length of a record.
        record: u64,
    },
    /// A CIFAR record whose label is not in 0..=9.
    #[error("{}: record {record} has label {label}, expected 0..=9", path.display())]
    CifarLabel {
        /// The file.
        path: PathBuf,
        /// Number of the record, from 0.
        record: usize,
        /// The label found.
        label: u8,
    },
    /// An IDX file that cannot be used.
    #[error("{}: {reason}", path.display())]
    Idx {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: IdxError,
    },
    /// A deterministic split that left one side without samples.
    #[error(
        "{}: splitting {total} images by hash leaves no {empty} sample; use train/ and val/ folders",
        root.display()
    )]
    EmptySplit {
        /// The folder.
        root: PathBuf,
        /// Number of images in it.
        total: usize,
        /// The side without samples.
        empty: &'static str,
    },
    /// A folder in which images were expected.
    #[error("{}: no usable image (.png, .jpg, .jpeg)", .0.display())]
    NoImages(PathBuf),
    /// A folder whose entries were all left out.
    #[error(
        "{}: no image is left, because {skipped} entr{} cannot be used. Each is named in a warning; with \
         data.on_error=fail the first is the error",
        path.display(),
        if *skipped == 1 { "y" } else { "ies" }
    )]
    NoneLeft {
        /// The folder.
        path: PathBuf,
        /// Number of entries left out.
        skipped: usize,
    },
    /// Images to train on without anything to learn.
    #[error("{}: nothing to learn: {reason}", path.display())]
    NothingToLearn {
        /// The folder, or the file with annotations.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// An image without annotation file.
    #[error("{}: no annotation (gt_NAME.txt, NAME.txt) in {}", image.display(), folder.display())]
    NoAnnotation {
        /// The image.
        image: PathBuf,
        /// Where its annotation should be.
        folder: PathBuf,
    },
    /// An image without label map.
    #[error(
        "{}: no label map {} in {}{}",
        image.display(),
        Path::new(image.file_name().unwrap_or_default()).with_extension("png").display(),
        folder.display(),
        other.as_ref().map_or_else(String::new, |other| format!(" (found {other}; label maps are PNG files)"))
    )]
    NoLabelMap {
        /// The image.
        image: PathBuf,
        /// Where its label map should be.
        folder: PathBuf,
        /// A file of the same name in another format.
        other: Option<String>,
    },
    /// A line of an annotation file, or of a list of classes, that cannot be used.
    #[error("{}:{line}: {reason}", path.display())]
    Annotation {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// An entry of an index that cannot be used.
    #[error("{}: {entry}: {reason}", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Names on the way to the entry, divided by slashes.
        entry: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An image of another size than its annotation says.
    #[error("{}: {found} pixels, but {expected} according to {}", image.display(), annotation.display())]
    ImageSize {
        /// The image.
        image: PathBuf,
        /// Its size.
        found: Size,
        /// The file with its annotation.
        annotation: PathBuf,
        /// The size there.
        expected: Size,
    },
    /// An image that would be too large at the height of an evaluation.
    #[error(
        "{name}: an image of {size} pixels would be evaluated at {resized}, beyond the limits of {MAX_SIDE} per side \
         and {MAX_PIXELS} in total"
    )]
    Stretched {
        /// The image.
        name: String,
        /// Its size.
        size: Size,
        /// The size at which it would be evaluated.
        resized: Size,
    },
    /// A pixel of a label map that belongs to no class.
    #[error(
        "{}: label {label} at column {x}, row {y} is {}, nor 255 (no class)",
        path.display(),
        values.as_ref().map_or_else(
            || format!("not below {classes}, the number of classes"),
            |values| format!("not among the values {values:?} of the classes")
        )
    )]
    Label {
        /// The label map.
        path: PathBuf,
        /// Column of the pixel, from 0.
        x: usize,
        /// Row of the pixel, from 0.
        y: usize,
        /// Its label.
        label: u8,
        /// Number of classes.
        classes: usize,
        /// The values of the classes, if they are not their numbers.
        values: Option<Vec<u8>>,
    },
    /// A video whose target cannot be seen.
    #[error(
        "{video}: no target in the first frame, nor in {frames} sampled frames. Add masks, or a groundtruth.txt next \
         to the frames (one line, for the first frame, is enough for tracking)"
    )]
    NoTarget {
        /// The video.
        video: String,
        /// Frames tried.
        frames: usize,
    },
    /// A mask that does not belong to its image.
    #[error("{}: a mask of {found} pixels for an image of {expected}", path.display())]
    MaskSize {
        /// The mask.
        path: PathBuf,
        /// Its size.
        found: Size,
        /// Size of the image.
        expected: Size,
    },
    /// A mask that shows another object than the target of its video.
    #[error(
        "{}: objects {objects}, but a video has one target: choose it by its number in the masks (`object` of \
         `frame_folder`)",
        path.display()
    )]
    SeveralTargets {
        /// The mask.
        path: PathBuf,
        /// Numbers or colours of the objects.
        objects: String,
    },
    /// A frame without a file, or with a missing number.
    #[error("{}: {reason}", path.display())]
    MissingFrame {
        /// Where the frame should be.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A text file without any text.
    #[error("{}: the file is empty", .0.display())]
    EmptyText(PathBuf),
    /// A text file with bytes that are no characters.
    #[error("{}:{line}: invalid UTF-8 at byte {byte}", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Place of the first such byte, from 0.
        byte: usize,
    },
    /// A text in an encoding of several bytes per character.
    #[error("{}: a text in {encoding}, expected UTF-8: convert it (iconv -f {encoding} -t UTF-8)", path.display())]
    Encoding {
        /// The file.
        path: PathBuf,
        /// Name of the encoding.
        encoding: &'static str,
    },
    /// A character outside the vocabulary of the network.
    #[error("{name}:{line}:{column}: {character:?} is not in the vocabulary of {known} characters")]
    UnknownCharacter {
        /// The text.
        name: String,
        /// Number of the line, from 1.
        line: usize,
        /// Number of the character in its line, from 1.
        column: usize,
        /// The character.
        character: char,
        /// How many characters are known.
        known: usize,
    },
    /// A folder without text files.
    #[error("{}: no files *.txt found in this folder", .0.display())]
    NoTexts(PathBuf),
    /// Too few documents for pairs of sentences.
    #[error(
        "{name}: {documents} document{}; pairs of sentences take at least 2: a sentence per line, an empty line after \
         each document",
        if *documents == 1 { "" } else { "s" }
    )]
    FewDocuments {
        /// The text.
        name: String,
        /// How many documents it has.
        documents: usize,
    },
    /// A tokenizer that cannot be used.
    #[error("{}: invalid tokenizer: {message}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A text that is shorter than the window of a network.
    #[error("{name}: {tokens} tokens are too few: a window and the token after it take {needed}")]
    ShortText {
        /// The text.
        name: String,
        /// How many tokens it has.
        tokens: usize,
        /// How many it should have at least.
        needed: usize,
    },
    /// A configuration that no data can satisfy.
    #[error("data configuration: {0}")]
    Config(String),
    /// Every candidate for a slot of a batch was unreadable.
    #[error("no readable sample found after {attempts} attempts; the last error was: {last}")]
    NothingReadable {
        /// Number of samples tried.
        attempts: usize,
        /// The last failure.
        last: Box<DataError>,
    },
}

impl DataError {
    /// The error for a folder without usable images, of which some entries may have been left out.
    pub(crate) fn empty(path: &Path, skipped: usize) -> Self {
        let path = path.to_owned();
        if skipped == 0 { Self::NoImages(path) } else { Self::NoneLeft { path, skipped } }
    }

    /// Whether [`OnError::Skip`] leaves such an entry out.
    pub fn can_be_left_out(&self) -> bool {
        matches!(
            self,
            Self::Stray { .. }
                | Self::EmptyClass(_)
                | Self::Decode { .. }
                | Self::NoAnnotation { .. }
                | Self::NoLabelMap { .. }
                | Self::Entry { .. }
                | Self::ImageSize { .. }
                | Self::Stretched { .. }
                | Self::Label { .. }
                | Self::MaskSize { .. }
                | Self::SeveralTargets { .. }
                | Self::MissingFrame { .. }
        )
    }

    /// Adds advice to an error about the place of the data: whether the user `named` it, and where the data are
    /// published. Other errors stay as they are.
    #[must_use]
    pub fn advised(self, named: bool, from: Option<String>) -> Self {
        let not_found = matches!(&self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
        let in_no_layout = matches!(
            &self,
            Self::Absent { .. }
                | Self::UnknownLayout { .. }
                | Self::NoClasses(_)
                | Self::NoImages(_)
                | Self::NoTexts(_)
        );
        if not_found || in_no_layout { Self::Unavailable { error: Box::new(self), named, from } } else { self }
    }
}

impl DataError {
    /// Skips an unusable entry: logs the reason and counts it.
    ///
    /// # Errors
    /// The reason itself with [`OnError::Fail`].
    pub(crate) fn leave_out(self, on_error: OnError, skipped: &mut usize) -> Result<(), Self> {
        match on_error {
            OnError::Fail => Err(self),
            OnError::Skip => {
                tracing::warn!("left out: {self}");
                *skipped += 1;
                Ok(())
            }
        }
    }
}
