//! Masks: which pixels of a frame belong to a target.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::folder::read_file;
use crate::DataError;
use crate::grid::{Grid, Mask};
use crate::image::{self, Size, decode_labels};

/// Reads a mask of one target: all pixels that are not black.
pub(super) fn read_mask(path: &Path) -> Result<Mask, DataError> {
    Ok(read_objects(path)?.map(|object| object != NOTHING))
}

/// Refuses a mask of another size than its image.
pub(super) fn check_mask_size<T: Copy>(mask: &Grid<T>, expected: Size, path: &Path) -> Result<(), DataError> {
    if mask.size() == expected {
        return Ok(());
    }
    let found = mask.size();
    Err(DataError::unusable(path.display(), format!("a mask of {found} pixels for an image of {expected}")))
}

/// An object of a mask: its entry in the palette or its grey level, otherwise its colour and [`COLOUR`].
type ObjectId = u32;

/// Black pixels.
const NOTHING: ObjectId = 0;

/// What marks colours, so that they differ from numbers.
const COLOUR: ObjectId = 1 << 24;

/// The object of each pixel.
fn read_objects(path: &Path) -> Result<Grid<ObjectId>, DataError> {
    let bytes = read_file(path)?;
    let image = image::decode(&bytes).map_err(DataError::decode(path))?;
    // Masks in colours have no numbers.
    let numbers = decode_labels(&bytes).ok();
    let object = |(place, &[red, green, blue]): (usize, &[u8; 3])| {
        if [red, green, blue] == [0; 3] {
            return NOTHING;
        }
        let number = numbers.as_ref().and_then(|numbers| numbers.values().get(place)).copied();
        match number {
            Some(number @ 1..) => number.into(),
            Some(0) | None if red == green && green == blue => red.into(),
            Some(0) | None => COLOUR | ObjectId::from_be_bytes([0, red, green, blue]),
        }
    };
    let objects = image.pixels().as_chunks::<3>().0.iter().enumerate().map(object).collect();
    // One value per pixel, so there is always a grid.
    Ok(Grid::new(image.size(), objects).unwrap_or_else(|| Grid::filled(image.size(), NOTHING)))
}

/// The target of a video among the objects of its masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// This object, whatever else the masks show.
    Chosen(ObjectId),
    /// This object; no mask may show another one.
    Only(ObjectId),
    /// No mask shows an object.
    Unseen,
}

impl Target {
    /// The object with the number `chosen`; without one, the only object of the first mask that shows any.
    ///
    /// # Errors
    /// Several objects in that mask.
    pub fn of<'a>(chosen: Option<u8>, masks: impl Iterator<Item = &'a PathBuf>) -> Result<Self, DataError> {
        if let Some(chosen) = chosen {
            return Ok(Self::Chosen(chosen.into()));
        }
        // A file that cannot be read is an error where its frame is used.
        let objects = masks.filter_map(|path| Some((path, distinct(&read_objects(path).ok()?))));
        for (path, objects) in objects {
            match Vec::from_iter(&objects)[..] {
                [] => {}
                [only] => return Ok(Self::Only(*only)),
                _ => return Err(several(path, &objects)),
            }
        }
        Ok(Self::Unseen)
    }

    /// Its pixels in a mask.
    ///
    /// # Errors
    /// A file that cannot be read, and another object unless the target was chosen.
    pub fn pixels(self, path: &Path) -> Result<Mask, DataError> {
        let objects = read_objects(path)?;
        let own = match self {
            Self::Chosen(own) => own,
            Self::Unseen => return Ok(objects.map(|object| object != NOTHING)),
            Self::Only(own) => {
                let mut found = distinct(&objects);
                found.insert(own);
                if found.len() > 1 {
                    return Err(several(path, &found));
                }
                own
            }
        };
        Ok(objects.map(|object| object == own))
    }
}

/// The objects that occur.
fn distinct(objects: &Grid<ObjectId>) -> BTreeSet<ObjectId> {
    objects.values().iter().copied().filter(|object| *object != NOTHING).collect()
}

fn several(path: &Path, objects: &BTreeSet<ObjectId>) -> DataError {
    const SHOWN: usize = 8;
    let name = |object: &ObjectId| match object {
        colour if *colour >= COLOUR => format!("#{:06x}", colour - COLOUR),
        number => number.to_string(),
    };
    let mut names: Vec<String> = objects.iter().take(SHOWN).map(name).collect();
    if objects.len() > SHOWN {
        names.push(format!("... ({} in all)", objects.len()));
    }
    let reason = format!(
        "objects {}, but a video has one target: choose it by its number in the masks (`object` of `frame_folder`)",
        names.join(", ")
    );
    DataError::unusable(path.display(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A mask of one row: entries of a palette whose entry 0 is black.
    fn mask(dir: &Path, name: &str, entries: &[u8]) -> PathBuf {
        let path = dir.join(name);
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, entries.len() as u32, 1);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(vec![0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0]);
        encoder.write_header().unwrap().write_image_data(entries).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn a_target_is_the_only_object_or_the_chosen_one() {
        let dir = tempfile::tempdir().unwrap();
        let mask = |name, entries: &[u8]| mask(dir.path(), name, entries);
        let (none, one, two, both) =
            (mask("n", &[0, 0, 0]), mask("1", &[0, 1, 1]), mask("2", &[2, 0, 0]), mask("b", &[0, 1, 2]));
        let only = Target::of(None, [&none, &one].into_iter()).unwrap();
        assert_eq!(only, Target::Only(1));
        assert_eq!(only.pixels(&one).unwrap().values(), [false, true, true]);
        assert_eq!(only.pixels(&none).unwrap().count(), 0);
        for other in [&two, &both] {
            let error = only.pixels(other).unwrap_err().to_string();
            assert!(error.contains("objects 1, 2"), "{error}");
        }
        let error = Target::of(None, [&none, &both].into_iter()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}: objects", both.display())), "{error}");
        let chosen = Target::of(Some(2), [&both].into_iter()).unwrap();
        assert_eq!(chosen.pixels(&both).unwrap().values(), [false, false, true]);
        assert_eq!(chosen.pixels(&one).unwrap().count(), 0);
        assert_eq!(Target::of(None, [&none].into_iter()).unwrap(), Target::Unseen);
    }

    #[test]
    fn colours_are_objects_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mask.png");
        let mut image = crate::Image::filled(Size::new(3, 1), [0; 3]);
        image.pixels_mut()[..6].copy_from_slice(&[128, 0, 0, 0, 128, 0]);
        image::write_png(&image, &path).unwrap();
        let error = Target::of(None, std::iter::once(&path)).unwrap_err().to_string();
        assert!(error.contains("objects #008000, #800000"), "{error}");
        assert_eq!(read_mask(&path).unwrap().count(), 2);
    }
}
