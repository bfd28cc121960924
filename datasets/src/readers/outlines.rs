//! The outlines of a video's target: VOT's `groundtruth.txt` and its kin.

use std::path::Path;

use crate::geometry::{Point, Polygon};
use crate::{DataError, OnError, files};

/// Longest file that is read.
const MAX_FILE: u64 = 4 << 20;

/// The outline of each frame, in order: four corners `x1,y1,...,x4,y4`, or `x,y,width,height`, divided by commas or
/// white space. There is none in frames after the last line, and in those where the target is absent: an empty line, or
/// one whose numbers are all NaN or all -1, or a box with the sides 0. Also returns the number of skipped lines.
///
/// # Errors
/// A file that cannot be read; and with [`OnError::Fail`] a malformed line, with its number. With [`OnError::Skip`] it
/// is logged and counted, and the frame has no outline.
pub(super) fn read_outlines(path: &Path, on_error: OnError) -> Result<(Vec<Option<Polygon>>, usize), DataError> {
    let content = files::read_text_lossy(path, MAX_FILE)?;
    let (mut outlines, mut skipped) = (Vec::new(), 0);
    for (number, line) in content.lines().enumerate() {
        outlines.push(outline(line).or_else(|reason| {
            DataError::line(path, number + 1, reason).leave_out(on_error, &mut skipped)?;
            Ok(None)
        })?);
    }
    Ok((outlines, skipped))
}

/// Whether the target is absent in each frame, in order: a 1 in GOT-10k's `absence.label`, or in LaSOT's
/// `full_occlusion.txt` and `out_of_view.txt`; else 0. There are as many as `frames`.
///
/// # Errors
/// A file that cannot be read, contains anything else (with its line), or has another number of flags.
pub(super) fn read_absences(path: &Path, frames: usize) -> Result<Vec<bool>, DataError> {
    let content = files::read_text_lossy(path, MAX_FILE)?;
    let mut absences = Vec::with_capacity(frames);
    for (number, line) in content.lines().enumerate() {
        for field in fields(line) {
            absences.push(match field {
                "0" => false,
                "1" => true,
                _ => return Err(DataError::line(path, number + 1, format!("neither 0 nor 1: '{}'", shown(field)))),
            });
        }
    }
    if absences.len() == frames {
        return Ok(absences);
    }
    Err(DataError::line(path, content.lines().count().max(1), format!("{} flags for {frames} frames", absences.len())))
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

/// What stands between commas, or between white space.
fn fields(line: &str) -> impl Iterator<Item = &str> {
    let by_comma = line.contains(',');
    let is_between = move |c: char| if by_comma { c == ',' } else { c.is_whitespace() };
    line.split(is_between).map(str::trim).filter(move |field| by_comma || !field.is_empty())
}

/// The outline in a line; `None` if the target is absent.
fn outline(line: &str) -> Result<Option<Polygon>, String> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(None);
    }
    let numbers: Option<Vec<f64>> = fields(line).map(|field| field.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| matches!(numbers.len(), 4 | 8));
    let numbers = numbers.ok_or_else(|| format!("not 4 or 8 numbers: '{}'", shown(line)))?;
    let all = |is: fn(f64) -> bool| numbers.iter().all(|value| is(*value));
    if all(f64::is_nan) || all(|value| value == -1.0) || all(|value| value == 0.0) {
        return Ok(None);
    }
    if !all(f64::is_finite) {
        let reason = "only some of the numbers are finite, but all are NaN where the target is absent";
        return Err(format!("{reason}: '{}'", shown(line)));
    }
    let polygon = match *numbers {
        [x1, y1, x2, y2, x3, y3, x4, y4] => {
            Polygon::quad([(x1, y1), (x2, y2), (x3, y3), (x4, y4)].map(|(x, y)| Point::new(x, y)))
        }
        [_, _, 0.0, 0.0] => return Ok(None),
        [x, y, width, height] if width > 0.0 && height > 0.0 => Polygon::rectangle(x, y, width, height),
        _ => return Err(format!("a box without area: '{}'", shown(line))),
    };
    if !polygon.is_simple() {
        return Err("the outline crosses itself or encloses nothing".to_owned());
    }
    Ok(Some(polygon))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(name: &str, content: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[test]
    fn lines_are_corners_or_boxes() {
        let (_dir, path) = file("groundtruth.txt", "1,2,3,4\n0,0,4,0,4,4,0,4\nno\n0,0,4,4,4,0,0,4\n");
        let (outlines, skipped) = read_outlines(&path, OnError::Skip).unwrap();
        assert_eq!((outlines.len(), skipped), (4, 2));
        assert_eq!(outlines[0].as_ref().unwrap().area(), 12.0);
        assert_eq!(outlines[1].as_ref().unwrap().area(), 16.0);
        assert!(outlines[2].is_none() && outlines[3].is_none());
        let error = read_outlines(&path, OnError::Fail).unwrap_err().to_string();
        assert!(error.ends_with("groundtruth.txt:3: not 4 or 8 numbers: 'no'"), "{error}");
    }

    #[test]
    fn numbers_are_divided_by_commas_tabs_or_spaces() {
        for line in ["1,2,3,4", "1, 2, 3,\t4", "1\t2\t3\t4", " 1  2 3 4 ", "1.0 2.0\t3.0 4.0\r"] {
            assert_eq!(outline(line).unwrap().unwrap(), Polygon::rectangle(1.0, 2.0, 3.0, 4.0), "{line:?}");
        }
    }

    #[test]
    fn absent_targets_have_no_outline() {
        for line in
            ["", "  ", "nan,nan,nan,nan", "NaN\tNaN\tNaN\tNaN", "0,0,0,0", "0 0 0 0.0", "10,20,0,0", "-1,-1,-1,-1"]
        {
            assert_eq!(outline(line), Ok(None), "{line:?}");
        }
        for number in ["nan", "0", "-1"] {
            assert_eq!(outline(&[number; 8].join(",")), Ok(None));
        }
        let (_dir, path) = file("groundtruth.txt", "1,2,3,4\r\n\r\nnan,nan,nan,nan\r\n5,6,7,8\r\n");
        let (outlines, skipped) = read_outlines(&path, OnError::Fail).unwrap();
        assert_eq!(
            (outlines.iter().map(Option::is_some).collect::<Vec<_>>(), skipped),
            (vec![true, false, false, true], 0)
        );
    }

    #[test]
    fn other_numbers_are_refused() {
        for (line, reason) in [
            ("nan,20,20,20", "only some of the numbers are finite"),
            ("inf,inf,inf,inf", "only some of the numbers are finite"),
            ("1,2,inf,4", "only some of the numbers are finite"),
            ("10,20,0,5", "a box without area"),
            ("nan,nan,0,0", "only some of the numbers are finite"),
            ("10,20,-5,5", "a box without area"),
            ("0,0,4,4,4,0,0,4", "crosses itself"),
            ("1,2,3", "not 4 or 8 numbers"),
            ("1,2,,4", "not 4 or 8 numbers"),
            ("1,2,3,4,5", "not 4 or 8 numbers"),
            ("nan", "not 4 or 8 numbers"),
        ] {
            let error = outline(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn absences_are_flags_per_frame() {
        for content in ["0\n1\n0\n", "0,1,0", "0 1\n0"] {
            let (_dir, path) = file("absence.label", content);
            assert_eq!(read_absences(&path, 3).unwrap(), [false, true, false]);
        }
        let (_dir, path) = file("absence.label", "0\n2\n");
        let error = read_absences(&path, 2).unwrap_err().to_string();
        assert!(error.ends_with("absence.label:2: neither 0 nor 1: '2'"), "{error}");
        let (_dir, path) = file("absence.label", "0\n1\n");
        let error = read_absences(&path, 3).unwrap_err().to_string();
        assert!(error.ends_with("absence.label:2: 2 flags for 3 frames"), "{error}");
    }
}
