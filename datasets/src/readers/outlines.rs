//! VOT's `groundtruth.txt`: one outline per frame.

use std::path::Path;

use crate::geometry::{Point, Polygon};
use crate::{DataError, OnError, files};

/// Longest file that is read.
const MAX_FILE: u64 = 4 << 20;

/// The outline of each frame, in order: four corners `x1,y1,...,x4,y4`, or `x,y,width,height`. Frames after the last
/// line have none. Also returns the number of skipped lines.
///
/// # Errors
/// A file that cannot be read; and with [`OnError::Fail`] a malformed line, with its number. With [`OnError::Skip`] it
/// is logged and counted, and the frame has no outline.
pub(super) fn read_outlines(path: &Path, on_error: OnError) -> Result<(Vec<Option<Polygon>>, usize), DataError> {
    let refuse = |line: usize, reason: String| DataError::Annotation { path: path.to_owned(), line, reason };
    let content = files::read_text_lossy(path, MAX_FILE)?;
    let (mut outlines, mut skipped) = (Vec::new(), 0);
    for (number, line) in content.lines().enumerate() {
        match outline(line) {
            Ok(outline) => outlines.push(Some(outline)),
            Err(reason) => {
                on_error.leave_out(refuse(number + 1, reason), &mut skipped)?;
                outlines.push(None);
            }
        }
    }
    Ok((outlines, skipped))
}

fn outline(line: &str) -> Result<Polygon, String> {
    let number = |field: &str| field.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    let numbers: Option<Vec<f64>> = line.split([',', '\t']).map(number).collect();
    let polygon = match numbers.as_deref() {
        Some(&[x, y, width, height]) => Polygon::rectangle(x, y, width, height),
        Some(&[x1, y1, x2, y2, x3, y3, x4, y4]) => {
            Polygon::quad([(x1, y1), (x2, y2), (x3, y3), (x4, y4)].map(|(x, y)| Point::new(x, y)))
        }
        _ => return Err(format!("not 4 or 8 numbers: '{}'", line.chars().take(60).collect::<String>())),
    };
    if polygon.is_simple() { Ok(polygon) } else { Err("the outline crosses itself or encloses nothing".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lines_are_corners_or_boxes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("groundtruth.txt");
        fs::write(&path, "1,2,3,4\n0,0,4,0,4,4,0,4\nno\n0,0,4,4,4,0,0,4\n").unwrap();
        let (outlines, skipped) = read_outlines(&path, OnError::Skip).unwrap();
        assert_eq!((outlines.len(), skipped), (4, 2));
        assert_eq!(outlines[0].as_ref().unwrap().area(), 12.0);
        assert_eq!(outlines[1].as_ref().unwrap().area(), 16.0);
        assert!(outlines[2].is_none() && outlines[3].is_none());
        let error = read_outlines(&path, OnError::Fail).unwrap_err().to_string();
        assert!(error.ends_with("groundtruth.txt:3: not 4 or 8 numbers: 'no'"), "{error}");
    }
}
