//! The lines of text annotation files.

use crate::geometry::{Point, Polygon};
use crate::text::TextRegion;
use zoo_settings::TextFormat;

/// The error of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
    /// Where the text is, as far as the line says so; the polygon may cross itself or enclose nothing.
    pub place: Option<Polygon>,
}

/// Why a line cannot be used, and where its text is as far as that is known.
struct Refused {
    reason: String,
    place: Option<Polygon>,
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self { reason, place: None }
    }
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
                TextFormat::Icdar2015 => quadrilateral(&record),
                TextFormat::TotalText if record.starts_with("x:") => original(&record),
                TextFormat::TotalText => polygon(&record),
            };
            region.map_err(|Refused { reason, place }| {
                let shown: String = record.chars().take(SHOWN).collect();
                LineError { line, reason: format!("{reason}: '{}'", shown.trim_end()), place }
            })
        })
        .collect()
}

/// Lines with their numbers, from 1. The original files of Total-Text break long lists; such lines are joined.
fn records(content: &str) -> impl Iterator<Item = (usize, String)> {
    // White space at the end belongs to the text.
    let mut lines = content.lines().enumerate().map(|(i, line)| (i + 1, line.trim_start())).peekable();
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

/// A line of ICDAR 2015: eight coordinates and a text between commas.
fn quadrilateral(record: &str) -> Result<TextRegion, Refused> {
    const COORDINATES: usize = 8;
    let fields: Vec<&str> = record.split(',').collect();
    if fields.len() > COORDINATES {
        return region(points(&fields[..COORDINATES])?, &fields[COORDINATES..].join(","), &["###"]);
    }
    let reason = format!("{} fields, expected {COORDINATES} coordinates and a text", fields.len());
    Err(Refused { reason, place: points(&fields).and_then(outline).ok() })
}

/// A line of DB's copy of Total-Text: the coordinates of three or more points and a text between commas. The text can
/// contain commas, so coordinates end where a field is no coordinate; in a line of numbers alone the text begins as
/// late as possible.
fn polygon(record: &str) -> Result<TextRegion, Refused> {
    let fields: Vec<&str> = record.split(',').collect();
    let leading = fields.iter().take_while(|field| is_coordinate(field)).count().min(fields.len() - 1);
    let is_number = |field: &&str| number(field).is_ok();
    let text = &fields[leading..];
    let text_is_numeric = text.iter().all(is_number);
    // A broken coordinate, with the second one of its point and more behind it.
    if let [first, second, _, ..] = text
        && number(second).is_ok()
    {
        number(first)?;
    }
    // The first number of a text of numbers, such as the 1 of `1,000,000`.
    let coordinates = if text_is_numeric { leading / 2 * 2 } else { leading };
    if coordinates < 6 {
        return Err(format!("{leading} coordinates, expected those of three points or more and a text").into());
    }
    let points = points(&fields[..coordinates / 2 * 2])?;
    let refuse = |reason: String| Err(Refused { reason, place: outline(points.clone()).ok() });
    if coordinates % 2 == 1 {
        return refuse(format!("{coordinates} coordinates before the text, an odd number"));
    }
    // Seven points and a number, or six and a text such as `3,14,15`.
    if text_is_numeric && fields.len() - coordinates == 1 && points.len() > 3 && points.len() % 2 == 1 {
        return refuse(format!(
            "numbers alone, so the text can begin after {} coordinates or after {coordinates}. Put the text between \
             quotation marks",
            coordinates - 2
        ));
    }
    region(points, &fields[coordinates..].join(","), &["#", "###"])
}

/// A record of Total-Text's original files.
fn original(record: &str) -> Result<TextRegion, Refused> {
    let list = |name: &str| {
        let rest = record.split_once(name).map(|(_, rest)| rest).ok_or_else(|| format!("no list `{name}`"))?;
        let inside = rest.split_once("[[").and_then(|(_, rest)| rest.split_once("]]"));
        let (numbers, _) = inside.ok_or_else(|| format!("no list in double brackets after `{name}`"))?;
        numbers.split([' ', ',']).filter(|word| !word.is_empty()).map(number).collect::<Result<Vec<f64>, String>>()
    };
    let (x, y) = (list("x:")?, list("y:")?);
    if x.len() != y.len() {
        return Err(format!("{} x coordinates but {} y coordinates", x.len(), y.len()).into());
    }
    let text = record.split_once("transcriptions:").map_or("", |(_, text)| text).trim();
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let quoted = text.strip_prefix('u').unwrap_or(text);
    let between = |quote: char| quoted.strip_prefix(quote)?.strip_suffix(quote);
    let text = between('\'').or_else(|| between('"')).unwrap_or(text);
    region(x.into_iter().zip(y).map(|(x, y)| Point::new(x, y)).collect(), text, &["#", "###"])
}

/// The points of coordinates in turn.
fn points(fields: &[&str]) -> Result<Vec<Point>, String> {
    let values = fields.iter().map(|field| number(field)).collect::<Result<Vec<f64>, String>>()?;
    Ok(values.as_chunks::<2>().0.iter().map(|&[x, y]| Point::new(x, y)).collect())
}

fn number(field: &str) -> Result<f64, String> {
    let value = field.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    value.ok_or_else(|| format!("'{}' is not a coordinate", field.trim().chars().take(SHOWN).collect::<String>()))
}

/// True for a number that can be a coordinate. Those of a text can begin with zeros: `1,000,000`.
fn is_coordinate(field: &str) -> bool {
    let digits = field.trim().trim_start_matches('-');
    let has_leading_zero = digits.starts_with('0') && digits[1..].starts_with(|c: char| c.is_ascii_digit());
    !has_leading_zero && number(field).is_ok()
}

fn outline(points: Vec<Point>) -> Result<Polygon, String> {
    Polygon::new(points).map_err(|error| error.to_string())
}

/// The text between some points; those in `ignored` are not to be read.
fn region(points: Vec<Point>, text: &str, ignored: &[&str]) -> Result<TextRegion, Refused> {
    let polygon = outline(points)?;
    if !polygon.is_simple() {
        let reason = "the polygon crosses itself or encloses nothing".to_owned();
        return Err(Refused { reason, place: Some(polygon) });
    }
    Ok(TextRegion { polygon, ignore: ignored.contains(&text.trim()), text: text.to_owned() })
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
            ("1,2,3,4,a", TextFormat::TotalText, "4 coordinates, expected those of three points or more"),
            ("4,4,20,3,40,4,40,20,20,21,4,20,5,word", TextFormat::TotalText, "13 coordinates before the text, an odd"),
            ("4,4,20,3,40,4,40,20,20,21,4,20,3,14,15", TextFormat::TotalText, "after 12 coordinates or after 14"),
            ("4,4,20,3,40,4,40,20,nan,21,4,20,a", TextFormat::TotalText, "'nan' is not a coordinate"),
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

    #[test]
    fn a_text_is_kept_whole() {
        for text in
            ["1,000,000", "12,50", "2014", "007", "000", "a,b", "\"quoted\", twice ", "end ", "", "###", "\u{65e5}"]
        {
            let line = format!("4,4,20,3,40,4,40,20,20,21,4,20,{text}");
            let curved = one(&line, TextFormat::TotalText).unwrap();
            assert_eq!((curved.polygon.points().len(), curved.text.as_str()), (6, text), "{line}");
            let straight = one(&format!("4,4,40,4,40,20,4,20,{text}"), TextFormat::Icdar2015).unwrap();
            assert_eq!((straight.polygon.points().len(), straight.text.as_str()), (4, text));
            assert_eq!((curved.ignore, straight.ignore), (text == "###", text == "###"));
        }
        assert!(!one("4,4,40,4,40,20,4,20,#", TextFormat::Icdar2015).unwrap().ignore);
        for (quoted, text) in [("[u'a,b']", "a,b"), ("[u\"'TIS\"]", "'TIS"), ("['x]']", "x]"), ("[u'u']", "u")] {
            let line = format!("x: [[1 9 9]], y: [[1 1 9]], ornt: [u'h'], transcriptions: {quoted}");
            assert_eq!(one(&line, TextFormat::TotalText).unwrap().text, text);
        }
    }

    #[test]
    fn a_refused_line_says_where_its_text_is_if_it_can() {
        for (line, format, points) in [
            ("0,0,9,9,9,0,0,9,a", TextFormat::Icdar2015, Some(4)),
            ("0,0,9,0,9,9,0,9", TextFormat::Icdar2015, Some(4)),
            ("0,0,9,0,9,x,0,9,a", TextFormat::Icdar2015, None),
            ("4,4,20,3,40,4,40,20,20,21,4,20,5,word", TextFormat::TotalText, Some(6)),
            ("1,2,3,4,a", TextFormat::TotalText, None),
        ] {
            let place = one(line, format).unwrap_err().place;
            assert_eq!(place.map(|polygon| polygon.points().len()), points, "{line}");
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
