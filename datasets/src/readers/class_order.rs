//! Lists of class folders in the order of class indices.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::folder::ImageFolder;
use super::label_folder::numbered_lines;
use crate::{DataError, Dataset};

/// The order of the classes of an image folder: a file with one class folder per line.
#[derive(Debug)]
pub(super) struct ClassOrder {
    path: PathBuf,
    /// Number of the line, from 1, and the class folder; none is empty.
    lines: Vec<(usize, String)>,
}

impl ClassOrder {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        Ok(Self { path: path.to_owned(), lines: numbered_lines(path)? })
    }

    /// The same samples, with classes in this order.
    ///
    /// # Errors
    /// A line without class folder, a folder without line, and a folder with two lines.
    pub fn apply(&self, folder: ImageFolder) -> Result<ImageFolder, DataError> {
        let mut places = HashMap::with_capacity(self.lines.len());
        for (place, (line, class)) in self.lines.iter().enumerate() {
            let refuse = |reason: String| DataError::line(&self.path, *line, reason);
            if !folder.classes().contains(class) {
                let root = folder.root().display();
                return Err(refuse(format!("{root} has no class folder '{class}' with images")));
            }
            if let Some(before) = places.insert(class.as_str(), place) {
                return Err(refuse(format!("'{class}' is also in line {}", self.lines[before].0)));
            }
        }
        let unlisted =
            |class: &String| DataError::malformed(self.path.display(), format!("class '{class}' is not listed"));
        let place = |class: &String| places.get(class.as_str()).copied().ok_or_else(|| unlisted(class));
        let places = folder.classes().iter().map(place).collect::<Result<Vec<usize>, _>>()?;
        Ok(folder.reordered(&places))
    }
}
