//! Which label map belongs to which image, by their names.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::parts::{name, only};
use super::stems::{has_extension, stem};
use crate::{DataError, OnError, files};

/// Words that mark label maps, before or after the name of the image; longer ones first.
const OF_LABELS: [&str; 20] = [
    "gtfine_labeltrainids",
    "gtfine_labelids",
    "gtcoarse_labelids",
    "labeltrainids",
    "segmentation",
    "ground_truth",
    "groundtruth",
    "annotation",
    "labelids",
    "trainids",
    "labels",
    "label",
    "masks",
    "mask",
    "anno",
    "seg",
    "gt",
    "lbl",
    "ann",
    "l",
];

/// Words that mark images.
const OF_IMAGES: [&str; 8] = ["leftimg8bit", "satellite", "image", "photo", "img", "rgb", "sat", "im"];

/// A name without the word that marks its kind, if there is one: `a` for `a_mask`, `mask-a`, `a.gt`.
fn unmarked<'a>(name: &'a str, words: &[&str]) -> Option<&'a str> {
    let separated = |rest: &'a str, is_end: bool| {
        let separators = ['_', '-', '.', ' '];
        let rest = if is_end { rest.strip_suffix(separators) } else { rest.strip_prefix(separators) };
        rest.filter(|rest| !rest.is_empty())
    };
    let strip = |word: &&str| {
        let before = name.strip_suffix(*word).and_then(|rest| separated(rest, true));
        before.or_else(|| name.strip_prefix(*word).and_then(|rest| separated(rest, false)))
    };
    words.iter().find_map(strip)
}

/// Finds the label map of each image in the folder `labels`: the PNG file of the same name without extension; if there
/// is none, the only one that fits without regard to case and to words that mark images and label maps (`a_mask`,
/// `gt_a`, `a_leftImg8bit` with `a_gtFine_labelIds`).
///
/// # Errors
/// A folder that cannot be read; and with [`OnError::Fail`] an image without label map, with several ones, or with the
/// one of another image. With [`OnError::Skip`] these are logged, counted and skipped.
pub(super) fn paired(
    images: Vec<PathBuf>,
    labels: &Path,
    on_error: OnError,
    skipped: &mut usize,
) -> Result<Vec<(PathBuf, PathBuf)>, DataError> {
    let (maps, others): (Vec<PathBuf>, Vec<PathBuf>) = files::entries(labels)?
        .into_iter()
        .filter(|path| path.is_file())
        .partition(|path| has_extension(path, &["png"]));
    let mut same: HashMap<String, Vec<&PathBuf>> = HashMap::new();
    let mut alike: HashMap<String, Vec<&PathBuf>> = HashMap::new();
    let own: HashSet<String> = images.iter().map(|image| stem(image)).collect();
    for map in &maps {
        let stem = stem(map);
        // A map of the same name belongs to that image and to no other.
        if !own.contains(&stem) {
            let lower = stem.to_lowercase();
            alike.entry(unmarked(&lower, &OF_LABELS).unwrap_or(&lower).to_owned()).or_default().push(map);
        }
        same.entry(stem).or_default().push(map);
    }
    let find = |image: &PathBuf| {
        let wanted = || format!("the image {}", image.display());
        if let Some(found) = same.get(&stem(image)) {
            return only(found.clone(), wanted);
        }
        let (lower, whole) = (stem(image).to_lowercase(), name(image).to_lowercase());
        let names: HashSet<&str> =
            [Some(&*lower), Some(&*whole), unmarked(&lower, &OF_IMAGES)].into_iter().flatten().collect();
        only(names.into_iter().filter_map(|name| alike.get(name)).flatten().copied().collect(), wanted)
    };
    let mut taken: HashMap<PathBuf, PathBuf> = HashMap::new();
    let mut pairs = Vec::with_capacity(images.len());
    for image in images {
        let other = || others.iter().find(|other| stem(other) == stem(&image)).map(|other| name(other));
        let map = find(&image).and_then(|map| {
            let map = map.ok_or_else(|| no_label_map(&image, labels, other()))?;
            match taken.get(&map) {
                Some(first) => {
                    let found = vec![first.clone(), image.clone()];
                    Err(DataError::Ambiguous { wanted: format!("the label map {}", map.display()), found })
                }
                None => Ok(map),
            }
        });
        match map {
            Ok(map) => {
                taken.insert(map.clone(), image.clone());
                pairs.push((image, map));
            }
            Err(error) => error.leave_out(on_error, skipped)?,
        }
    }
    if maps.len() > pairs.len() {
        tracing::debug!("{}: {} label maps belong to no image", labels.display(), maps.len() - pairs.len());
    }
    Ok(pairs)
}

/// An image without a label map; `other` has its name, but is no PNG file.
pub(super) fn no_label_map(image: &Path, folder: &Path, other: Option<String>) -> DataError {
    let wanted = Path::new(image.file_name().unwrap_or_default()).with_extension("png");
    let other = other.map_or_else(String::new, |other| format!(" (found {other}; label maps are PNG files)"));
    let reason = format!("no label map {} in {}{other}", wanted.display(), folder.display());
    DataError::unusable(image.display(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The label map that each image gets, or the error of the first one that gets none.
    fn pairs(images: &[&str], labels: &[&str]) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        labels.iter().for_each(|label| std::fs::write(dir.path().join(label), "").unwrap());
        let images = images.iter().map(|image| Path::new("images").join(image)).collect();
        let pairs = paired(images, dir.path(), OnError::Fail, &mut 0);
        let error = |error: DataError| error.to_string().replace(&format!("{}/", dir.path().display()), "");
        pairs.map(|pairs| pairs.iter().map(|(_, map)| name(map)).collect()).map_err(error)
    }

    #[test]
    fn names_pair_images_and_label_maps() {
        for (image, label) in [
            ("a.jpg", "a.png"),
            ("scan.000.jpg", "scan.000.png"),
            ("a.b.c.JPG", "a.b.c.PNG"),
            ("a.jpg", "a.jpg.png"),
            ("IMG_1.JPG", "img_1.png"),
            ("a.jpg", "a_mask.png"),
            ("a.jpg", "A-Mask.png"),
            ("a.jpg", "gt_a.png"),
            ("a.jpg", "a.gt.png"),
            ("0016E5.png", "0016E5_L.png"),
            ("ISIC_01.jpg", "ISIC_01_segmentation.png"),
            ("12_sat.jpg", "12_mask.png"),
            ("aachen_000_leftImg8bit.png", "aachen_000_gtFine_labelIds.png"),
            ("image_1.png", "label_1.png"),
        ] {
            // Other files must not disturb: that of a longer and of a shorter name, and colours.
            for others in [&[][..], &["a.b.png", "scan.png", "a_color.png", "1_2.png"]] {
                let labels = [&[label], others].concat();
                assert_eq!(pairs(&[image], &labels).unwrap(), [label], "{image}");
            }
        }
        // What has the own name is never taken for another image.
        assert_eq!(pairs(&["a.jpg", "a_mask.jpg"], &["a.png", "a_mask.png"]).unwrap(), ["a.png", "a_mask.png"]);
        assert_eq!(pairs(&["a.jpg"], &["a.png", "a_mask.png"]).unwrap(), ["a.png"]);
    }

    #[test]
    fn pairs_are_not_guessed() {
        for (images, labels, expected) in [
            (&["scan.000.jpg"][..], &["scan.png"][..], "no label map scan.000.png in"),
            (&["a.jpg"], &["a.jpg", "b.png"], "(found a.jpg; label maps are PNG files)"),
            (&["a.jpg"], &["a_mask.png", "a_gt.png"], "several fit the image images/a.jpg: "),
            (&["a.jpg"], &["a.png", "a.PNG"], "several fit the image images/a.jpg: a.PNG, a.png"),
            (&["a.jpg", "a.png"], &["a.png"], "several fit the label map a.png: images/a.jpg, images/a.png"),
            (&["a.jpg", "a_img.jpg"], &["a_mask.png"], "several fit the label map a_mask.png: "),
            (&["a.jpg", "a_mask.jpg"], &["a_mask.png"], "images/a.jpg: no label map"),
        ] {
            let message = pairs(images, labels).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
