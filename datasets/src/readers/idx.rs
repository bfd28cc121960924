//! IDX files of images and their labels, as MNIST is published in them (<http://yann.lecun.com/exdb/mnist/>).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::layout::expect_folder;
use super::parts::{Part, name};
use crate::{DataError, Dataset, Image, Size, Source, files};

/// Most bytes that a file may have; MNIST's largest has 47 MB.
const MAX_FILE: u64 = 4 << 30;

/// The content of an IDX file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Levels `[n, height, width]`.
    Images,
    /// Classes `[n]`.
    Labels,
}

impl Content {
    /// Number of dimensions, the last byte of the magic number.
    fn dimensions(self) -> usize {
        match self {
            Self::Images => 3,
            Self::Labels => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Labels => "labels",
        }
    }
}

/// The file of a part in `dir`: `train-images-idx3-ubyte`, or `t10k-images-idx3-ubyte` of the held-out images; some
/// unpack it with a dot for the second dash.
fn file_of(part: Part, dir: &Path, content: Content) -> PathBuf {
    let (prefix, name, dimensions) = (part.of(["train", "t10k"]), content.name(), content.dimensions());
    let [dash, dot] = ["-", "."].map(|mark| dir.join(format!("{prefix}-{name}{mark}idx{dimensions}-ubyte")));
    if !dash.is_file() && dot.is_file() { dot } else { dash }
}

/// A file's sizes, and its elements.
struct Idx {
    dimensions: Vec<usize>,
    bytes: Vec<u8>,
    start: usize,
}

impl Idx {
    /// Reads a file of bytes: `00 00 08 D`, D sizes as big-endian u32, the elements in row-major order.
    fn read(path: &Path, content: Content) -> Result<Self, DataError> {
        let wrong = |reason: String| DataError::malformed(path.display(), reason);
        let bytes = match files::read(path, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(source) => {
                let packed = path.with_added_extension("gz");
                let name = name(&packed);
                let missing = source.kind() == std::io::ErrorKind::NotFound && packed.is_file();
                return Err(match missing {
                    true => wrong(format!("only {name} exists: unpack it first (gunzip -k {name})")),
                    false => DataError::io(path)(source),
                });
            }
        };
        let (dimensions, start) = header(&bytes, content).map_err(wrong)?;
        Ok(Self { dimensions, bytes, start })
    }

    fn elements(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Sizes, and where the elements begin.
fn header(bytes: &[u8], content: Content) -> Result<(Vec<usize>, usize), String> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let (words, _) = bytes.as_chunks::<4>();
    let dimensions = content.dimensions();
    if bytes.starts_with(&GZIP) {
        return Err("this is a gzip file: unpack it first (mv FILE FILE.gz; gunzip FILE.gz)".to_owned());
    }
    let no_header = || format!("{} bytes are too few for a header", bytes.len());
    let (magic, rest) = words.split_first().ok_or_else(no_header)?;
    let start = 4 * (1 + dimensions);
    let (found, expected) = (u32::from_be_bytes(*magic), 0x0800 + dimensions as u32);
    if found != expected {
        return Err(format!(
            "magic number {found:#010x}, expected {expected:#010x} (bytes in {dimensions} dimensions)"
        ));
    }
    let sizes: Vec<u32> = rest.iter().take(dimensions).map(|word| u32::from_be_bytes(*word)).collect();
    if sizes.len() < dimensions {
        return Err(no_header());
    }
    let elements = sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(u64::from(*size)));
    let Some(expected) = elements.filter(|elements| *elements > 0) else {
        return Err(format!("dimensions {sizes:?}"));
    };
    let found = (bytes.len() - start) as u64;
    if found != expected {
        return Err(format!("the header announces {sizes:?}, which are {expected} bytes, but {found} follow"));
    }
    Ok((sizes.into_iter().map(|size| size as usize).collect(), start))
}

/// Grey images and labels of a pair of IDX files, kept in memory as they are in the files.
pub struct IdxImages {
    images: Idx,
    labels: Idx,
    path: PathBuf,
    size: Size,
    classes: Vec<String>,
}

impl IdxImages {
    /// A part of the data set in `dir`. Classes are named by their numbers, from 0 to the largest label.
    ///
    /// # Errors
    /// If a file is missing, still packed, of another type, shorter or longer than its header says, or if there are
    /// not as many labels as images.
    pub fn open(dir: &Path, part: Part) -> Result<Self, DataError> {
        expect_folder(
            dir,
            "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, \
             unpacked",
        )?;
        let [path, of_labels] = [Content::Images, Content::Labels].map(|content| file_of(part, dir, content));
        let (images, labels) = (Idx::read(&path, Content::Images)?, Idx::read(&of_labels, Content::Labels)?);
        let (count, found) = (images.dimensions[0], labels.dimensions[0]);
        if count != found {
            let reason = format!("{found} labels, but {count} images in {}", path.display());
            return Err(DataError::malformed(of_labels.display(), reason));
        }
        let size = Size::new(images.dimensions[2], images.dimensions[1]);
        let largest = labels.elements().iter().copied().max().unwrap_or(0);
        let classes = (0..=largest).map(|class| class.to_string()).collect();
        Ok(Self { images, labels, path, size, classes })
    }

    /// Both parts of the data set in `dir`, with the classes of the training part.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the test part has a label that the training part lacks.
    pub fn open_parts(dir: &Path) -> Result<[Self; 2], DataError> {
        let (train, mut test) = (Self::open(dir, Part::Train)?, Self::open(dir, Part::Val)?);
        let labels = |set: &Self| set.labels.elements().iter().copied().collect::<BTreeSet<u8>>();
        let labels: Vec<u8> = labels(&test).difference(&labels(&train)).copied().collect();
        if !labels.is_empty() {
            let [train, path] = [Part::Train, Part::Val].map(|part| file_of(part, dir, Content::Labels));
            let reason = format!("the labels {labels:?} do not occur in {}", train.display());
            return Err(DataError::malformed(path.display(), reason));
        }
        test.classes.clone_from(&train.classes);
        Ok([train, test])
    }

    /// Whether `dir` holds the images to train on, packed or not.
    pub fn lie_in(dir: &Path) -> bool {
        let file = file_of(Part::Train, dir, Content::Images);
        file.is_file() || file.with_added_extension("gz").is_file()
    }
}

impl Dataset for IdxImages {
    fn len(&self) -> usize {
        self.labels.elements().len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> u32 {
        self.labels.elements()[index].into()
    }

    fn name(&self, index: usize) -> String {
        format!("{}[{index}]", self.path.display())
    }

    fn image_size(&self) -> Option<Size> {
        Some(self.size)
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        let area = self.size.area();
        let levels = &self.images.elements()[index * area..][..area];
        let mut image = Image::filled(self.size, [0; 3]);
        for (pixel, level) in image.pixels_mut().as_chunks_mut::<3>().0.iter_mut().zip(levels) {
            *pixel = [*level; 3];
        }
        Ok(Source::Decoded(image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn idx(sizes: &[u32], elements: &[u8]) -> Vec<u8> {
        let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
        [&[0, 0, 8, (sizes.clone().count() / 4) as u8][..], &sizes.collect::<Vec<_>>(), elements].concat()
    }

    /// Two images of 3x2 pixels, classes 4 and 1.
    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let levels: Vec<u8> = (0..12).map(|level| 20 * level).collect();
        fs::write(dir.path().join("train-images-idx3-ubyte"), idx(&[2, 2, 3], &levels)).unwrap();
        fs::write(dir.path().join("train-labels-idx1-ubyte"), idx(&[2], &[4, 1])).unwrap();
        dir
    }

    fn refused(dir: &Path) -> String {
        IdxImages::open(dir, Part::Train).err().unwrap().to_string()
    }

    #[test]
    fn levels_become_grey_images() {
        let dir = folder();
        for (from, to) in [("train-images-idx3-ubyte", "train-images.idx3-ubyte"), ("train-labels-idx1-ubyte", "none")]
        {
            let set = IdxImages::open(dir.path(), Part::Train).unwrap();
            assert_eq!((set.len(), set.classes().len(), set.label(0), set.label(1)), (2, 5, 4, 1));
            assert_eq!(set.image_size(), Some(Size::new(3, 2)));
            // Row 1 of the second image: levels 9, 10 and 11 of the file.
            assert_eq!(set.image(1).unwrap().row(1), [180, 180, 180, 200, 200, 200, 220, 220, 220]);
            assert!(set.name(1).ends_with("idx3-ubyte[1]"));
            fs::rename(dir.path().join(from), dir.path().join(to)).unwrap();
        }
        assert!(refused(dir.path()).contains("train-labels-idx1-ubyte: No such file"));
        let nowhere = refused(&dir.path().join("mnist"));
        assert!(nowhere.contains("not found. Expected train-images-idx3-ubyte"), "{nowhere}");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let dir = folder();
        let (images, labels) = (dir.path().join("train-images-idx3-ubyte"), dir.path().join("train-labels-idx1-ubyte"));
        for (bytes, reason) in [
            (idx(&[2], &[0; 2]), "magic number 0x00000801, expected 0x00000803 (bytes in 3 dimensions)"),
            (idx(&[2, 2, 3], &[0; 11]), "the header announces [2, 2, 3], which are 12 bytes, but 11 follow"),
            (idx(&[2, 2, 3], &[0; 13]), "which are 12 bytes, but 13 follow"),
            (idx(&[2, 0, 3], &[]), "dimensions [2, 0, 3]"),
            (idx(&[u32::MAX; 3], &[0; 9]), "dimensions [4294967295"),
            (vec![0, 0, 8, 3, 0], "5 bytes are too few for a header"),
            (vec![], "0 bytes are too few for a header"),
            (vec![0x1f, 0x8b, 8, 0], "this is a gzip file"),
        ] {
            fs::write(&images, bytes).unwrap();
            let message = refused(dir.path());
            assert!(message.starts_with(images.to_str().unwrap()) && message.contains(reason), "{message}");
        }
        fs::write(&images, idx(&[3, 1, 1], &[0; 3])).unwrap();
        let message = refused(dir.path());
        assert!(
            message.starts_with(labels.to_str().unwrap()) && message.contains("2 labels, but 3 images in"),
            "{message}"
        );
        fs::rename(&images, dir.path().join("train-images-idx3-ubyte.gz")).unwrap();
        assert!(refused(dir.path()).contains("only train-images-idx3-ubyte.gz exists: unpack it first"));
    }

    #[test]
    fn both_parts_have_the_classes_of_the_training_part() {
        let dir = folder();
        fs::write(dir.path().join("t10k-images-idx3-ubyte"), idx(&[1, 1, 1], &[7])).unwrap();
        for (label, expected) in [(1, None), (3, Some("labels [3] do not occur in")), (5, Some("labels [5] do not"))] {
            fs::write(dir.path().join("t10k-labels-idx1-ubyte"), idx(&[1], &[label])).unwrap();
            match (IdxImages::open_parts(dir.path()), expected) {
                (Ok([train, test]), None) => assert_eq!((test.classes(), test.len()), (train.classes(), 1)),
                (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (found, _) => panic!("{label}: {:?}", found.err()),
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64), sound in any::<bool>()) {
            let bytes = if sound { [&[0, 0, 8, 1, 0, 0, 0][..], &[bytes.len() as u8], &bytes].concat() } else { bytes };
            match header(&bytes, Content::Labels) {
                Ok((sizes, start)) => prop_assert_eq!(sizes.iter().product::<usize>(), bytes.len() - start),
                Err(_) => prop_assert!(!sound || bytes.len() == 8),
            }
        }
    }
}
