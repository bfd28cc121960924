//! PASCAL VOC's annotations of boxes: an XML file per image.

use std::path::Path;

use roxmltree::{Document, Node, ParsingOptions};

use super::box_folder::check_bounds;
use crate::detection::{BoundingBox, Object, Role};
use crate::image::{MAX_SIDE, Size};
use crate::{DataError, OnError, files};

/// Longest annotation that is read.
const MAX_FILE: u64 = 4 << 20;

/// Reads an annotation: the size of its image, and the objects. `classes` are the names of the classes.
///
/// # Errors
/// If the file cannot be read or is not such an XML file, or has no size (with its line); and with [`OnError::Fail`]
/// for an object without name or box, an unknown class, and a box without area or outside of the image. With
/// [`OnError::Skip`] these are logged, counted and skipped.
pub(super) fn read(
    path: &Path,
    classes: &[String],
    on_error: OnError,
    skipped: &mut usize,
) -> Result<(Size, Vec<Object>), DataError> {
    let refuse = |line: u32, reason: String| DataError::line(path, line as usize, reason);
    let text = files::read_text_lossy(path, MAX_FILE)?;
    let options = ParsingOptions { allow_dtd: false, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&text, options).map_err(|error| {
        // A file that is cut off ends in its last line.
        let line =
            if let roxmltree::Error::UnclosedRootNode = error { text.lines().count() as u32 } else { error.pos().row };
        refuse(line.max(1), error.to_string())
    })?;
    let root = document.root_element();
    let line = |node: Node<'_, '_>| document.text_pos_at(node.range().start).row;
    let size = child(root, "size").and_then(|node| {
        let side = |name| number(node, name).map(|side| side as usize).filter(|side| (1..=MAX_SIDE).contains(side));
        Some(Size::new(side("width")?, side("height")?))
    });
    let size = size.ok_or_else(|| refuse(line(root), "no `size` with `width` and `height`".into()))?;
    let mut objects = Vec::new();
    for node in root.children().filter(|node| node.has_tag_name("object")) {
        match object(node, size, classes) {
            Ok(object) => objects.push(object),
            Err(reason) => refuse(line(node), reason).leave_out(on_error, skipped)?,
        }
    }
    Ok((size, objects))
}

/// The first element of a name directly inside another.
fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// The text of the first element of a name.
fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    child(node, name)?.text().map(str::trim)
}

/// The number in the first element of a name; some annotations have fractions.
fn number(node: Node<'_, '_>, name: &str) -> Option<f64> {
    text(node, name)?.parse().ok()
}

fn object(node: Node<'_, '_>, size: Size, classes: &[String]) -> Result<Object, String> {
    let name = text(node, "name").ok_or("an object without `name`")?;
    let class = classes.iter().skip(1).position(|class| class == name).map(|class| class + 1);
    let class = class.ok_or_else(|| {
        format!("the class {name:?} is unknown; `classes.txt` beside the folders can name other classes, one per line")
    })?;
    let side = |name: &str| {
        let bounds = child(node, "bndbox");
        bounds.and_then(|bounds| number(bounds, name)).ok_or_else(|| format!("no number `{name}` in a `bndbox`"))
    };
    // The first and the last pixel, counted from 1 (the development kit of VOC 2012, section 3.3).
    let (x, y) = (side("xmin")? - 1.0, side("ymin")? - 1.0);
    let bounds = BoundingBox { x, y, width: side("xmax")? - x, height: side("ymax")? - y };
    check_bounds(&bounds, size)?;
    let difficult = number(node, "difficult").is_some_and(|flag| flag != 0.0);
    let role = if difficult { Role::Difficult } else { Role::Single };
    Ok(Object { class, bounds, area: bounds.area(), role })
}
