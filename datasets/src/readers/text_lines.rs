//! The lines of text annotation files.

use crate::geometry::{Point, Polygon};
use crate::text::TextRegion;

/// Formats of annotation files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// ICDAR 2015: `x1,y1,x2,y2,x3,y3,x4,y4,text`; the text can contain commas, `###` is ignored.
    Icdar2015,
    /// Total-Text: `x1,y1,...,xn,yn,text` with three or more points, as DB's copy has it, or the original `x: [[...]],
    /// y: [[...]], ornt: [u'c'], transcriptions: [u'...']`; `#` (and `###`) is ignored.
    TotalText,
}

/// The error of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Longest line that is shown in a message.
const SHOWN: usize = 60;

/// Every text of an annotation file, or the error of its line. Byte order marks, CRLF and empty lines are accepted;
/// bytes that are not UTF-8 are replaced.
pub fn parse_text_regions(bytes: &[u8], format: TextFormat) -> Vec<Result<TextRegion, LineError>> {
    let content = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    records(&content)
        .map(|(line, record)| {
            let region = match format {
                TextFormat::Icdar2015 => separated(&record, Some(4)),
                TextFormat::TotalText if record.starts_with("x:") => original(&record),
                TextFormat::TotalText => separated(&record, None),
            };
            region.map_err(|reason| {
                let shown: String = record.chars().take(SHOWN).collect();
                LineError { line, reason: format!("{reason}: '{shown}'") }
            })
        })
        .collect()
}

/// Lines with their numbers, from 1. The original files of Total-Text break long lists; such lines are joined.
fn records(content: &str) -> impl Iterator<Item = (usize, String)> {
    let mut lines = content.lines().enumerate().map(|(i, line)| (i + 1, line.trim())).peekable();
    std::iter::from_fn(move || {
        let (number, first) = lines.by_ref().find(|(_, line)| !line.is_empty())?;
        let mut record = first.to_owned();
        let is_last = |line: &str| line.contains("transcriptions");
        if first.starts_with("x:") && !is_last(first) {
            while let Some((_, more)) = lines.next_if(|(_, line)| !line.starts_with("x:")) {
                record.push(' ');
                record.push_str(more);
                if is_last(more) {
                    break;
                }
            }
        }
        Some((number, record))
    })
}

/// Coordinates and text between commas: `corners` points, or as many as there are before the text.
fn separated(record: &str, corners: Option<usize>) -> Result<TextRegion, String> {
    let fields: Vec<&str> = record.split(',').collect();
    let numbers = match corners {
        Some(corners) => 2 * corners,
        None => fields.len().saturating_sub(1) / 2 * 2,
    };
    if fields.len() <= numbers {
        return Err(format!("{} fields, expected {numbers} coordinates and a text", fields.len()));
    }
    if numbers < 6 {
        return Err(format!("{} fields, expected three points or more and a text", fields.len()));
    }
    let values = fields[..numbers].iter().map(|field| number(field)).collect::<Result<Vec<f64>, String>>()?;
    let points = values.as_chunks::<2>().0.iter().map(|&[x, y]| Point::new(x, y)).collect();
    region(points, &fields[numbers..].join(","))
}

/// A record of Total-Text's original files.
fn original(record: &str) -> Result<TextRegion, String> {
    let list = |name: &str| {
        let rest = record.split_once(name).map(|(_, rest)| rest).ok_or_else(|| format!("no list `{name}`"))?;
        let inside = rest.split_once("[[").and_then(|(_, rest)| rest.split_once("]]"));
        let (numbers, _) = inside.ok_or_else(|| format!("no list in double brackets after `{name}`"))?;
        numbers.split([' ', ',']).filter(|word| !word.is_empty()).map(number).collect::<Result<Vec<f64>, String>>()
    };
    let (x, y) = (list("x:")?, list("y:")?);
    if x.len() != y.len() {
        return Err(format!("{} x coordinates but {} y coordinates", x.len(), y.len()));
    }
    let text = record.split_once("transcriptions:").map_or("", |(_, text)| text).trim();
    let text = text.trim_start_matches('[').trim_end_matches(']').trim_start_matches('u').trim_matches(['\'', '"']);
    region(x.into_iter().zip(y).map(|(x, y)| Point::new(x, y)).collect(), text)
}

fn number(field: &str) -> Result<f64, String> {
    let value = field.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    value.ok_or_else(|| format!("'{}' is not a coordinate", field.trim().chars().take(SHOWN).collect::<String>()))
}

fn region(points: Vec<Point>, text: &str) -> Result<TextRegion, String> {
    let polygon = Polygon::new(points).map_err(|error| error.to_string())?;
    if !polygon.is_simple() {
        return Err("the polygon crosses itself or encloses nothing".to_owned());
    }
    let text = text.trim().to_owned();
    Ok(TextRegion { polygon, ignore: matches!(text.as_str(), "###" | "#"), text })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(line: &str, format: TextFormat) -> Result<TextRegion, LineError> {
        let mut all = parse_text_regions(line.as_bytes(), format);
        assert_eq!(all.len(), 1, "{line}");
        all.remove(0)
    }

    #[test]
    fn a_file_of_icdar_2015() {
        let file = b"\xef\xbb\xbf377,117,463,117,465,130,378,130,Genaxis, Theatre\r\n\r\n374,155,409,155,409,170,374,170,###\r\n";
        let all: Vec<TextRegion> =
            parse_text_regions(file, TextFormat::Icdar2015).into_iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].text.as_str(), all[0].ignore, all[1].ignore), ("Genaxis, Theatre", false, true));
        assert_eq!(all[0].polygon.points()[2], Point::new(465.0, 130.0));
    }

    /// A list that a million lines are joined to.
    #[test]
    fn joining_is_linear() {
        let file = format!("x: [[1 2 3]], y: [[1\n{}", "2\n\n".repeat(1_000_000));
        assert!(one(&file, TextFormat::TotalText).is_err());
    }

    #[test]
    fn both_kinds_of_total_text() {
        let plain = one("10,10,20,8,30,10,30,20,20,18,10,20,cafe", TextFormat::TotalText).unwrap();
        assert_eq!((plain.polygon.points().len(), plain.text.as_str()), (6, "cafe"));
        let file = "x: [[206 251 386\n 542]], y: [[633 811\n 931 951]], ornt: [u'c'], transcriptions: [u'ASRAMA']\nx: [[1 9 9]], y: [[1 1 9]], ornt: [u'#'], transcriptions: [u'#']\n";
        let all = parse_text_regions(file.as_bytes(), TextFormat::TotalText);
        let first = all[0].as_ref().unwrap();
        assert_eq!(
            (first.text.as_str(), first.ignore, first.polygon.points()[3]),
            ("ASRAMA", false, Point::new(542.0, 951.0))
        );
        assert!(all[1].as_ref().unwrap().ignore && all.len() == 2);
    }

    #[test]
    fn wrong_lines_are_named() {
        let cases = [
            ("1,2,3,4,5,6,7,8", TextFormat::Icdar2015, "8 fields"),
            ("1,2,3,4,5,six,7,8,a", TextFormat::Icdar2015, "'six' is not a coordinate"),
            ("1,2,3,4,5,inf,7,8,a", TextFormat::Icdar2015, "'inf' is not a coordinate"),
            ("0,0,9,9,9,0,0,9,a", TextFormat::Icdar2015, "crosses itself"),
            ("0,0,1e9,0,9,9,0,9,a", TextFormat::Icdar2015, "point 1"),
            ("1,2,3,4,a", TextFormat::TotalText, "three points"),
            ("x: [[1 2 3]], y: [[1 2]], ornt: [u'h']", TextFormat::TotalText, "3 x coordinates but 2"),
            ("x: [1 2 3], y: 4", TextFormat::TotalText, "no list in double brackets after `x:`"),
        ];
        for (line, format, expected) in cases {
            let file = format!("0,0,9,0,9,9,0,9,sound\n\n{line}\n");
            let all = parse_text_regions(file.as_bytes(), format);
            assert!(all[0].is_ok(), "{line}");
            let error = all[1].as_ref().unwrap_err();
            assert!(error.line == 3 && error.reason.contains(expected), "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for format in [TextFormat::Icdar2015, TextFormat::TotalText] {
                let lines = String::from_utf8_lossy(&bytes).lines().count();
                prop_assert!(parse_text_regions(&bytes, format).len() <= lines);
            }
        }

        #[test]
        fn lines_of_likely_characters_are_read_or_refused(line in "[-0-9,.xyu:#e \\[\\]'\n]{0,120}") {
            for format in [TextFormat::Icdar2015, TextFormat::TotalText] {
                for region in parse_text_regions(line.as_bytes(), format).into_iter().flatten() {
                    prop_assert!(region.polygon.is_simple());
                }
            }
        }

        #[test]
        fn what_is_written_is_read(
            x in -500..2000_i32, y in -500..2000_i32, w in 1..400_i32, h in 1..300_i32, text in "[A-Za-z,#]{0,9}",
        ) {
            let (r, b) = (x + w, y + h);
            let line = format!("{x},{y},{r},{y},{r},{b},{x},{b},{text}");
            let region = one(&line, TextFormat::Icdar2015).unwrap();
            prop_assert_eq!(region.polygon.area(), f64::from(w * h));
            prop_assert_eq!(region.text, text);
        }
    }
}
