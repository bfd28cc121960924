//! Rows of comma-separated values (RFC 4180), one at a time.

use crate::{
    MeasuredError,
    error::{LONGEST, Problem},
};
use std::io::{BufRead, Read};
use std::path::Path;

/// A table that is read from start to end.
pub(crate) struct Table<'p, R> {
    path: &'p Path,
    reader: R,
    /// The lines that were read.
    line: usize,
    row: Vec<u8>,
    /// The names of the columns.
    pub header: Vec<String>,
}

impl<'p, R: BufRead> Table<'p, R> {
    /// Reads the header; it is empty if the file is.
    pub fn new(path: &'p Path, reader: R) -> Result<Self, MeasuredError> {
        let mut table = Self { path, reader, line: 0, row: Vec::new(), header: Vec::new() };
        if table.read()? {
            let header = table.fields()?;
            table.header = header.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
        }
        Ok(table)
    }

    /// The fields of the next row; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Vec<String>>, MeasuredError> {
        if !self.read()? {
            return Ok(None);
        }
        let fields = self.fields()?;
        let (found, expected) = (fields.len(), self.header.len());
        if found != expected {
            return Err(self.error(Problem::Fields { found, expected }));
        }
        Ok(Some(fields))
    }

    /// An error at the row that was read last.
    pub fn error(&self, problem: Problem) -> MeasuredError {
        MeasuredError::Line { path: self.path.to_owned(), line: self.line, problem }
    }

    /// Reads the next row that is not empty; a quotation may have several lines.
    fn read(&mut self) -> Result<bool, MeasuredError> {
        self.row.clear();
        loop {
            let rest = LONGEST - (self.row.len() as u64).min(LONGEST);
            let read = self.reader.by_ref().take(rest).read_until(b'\n', &mut self.row);
            let read = read.map_err(|source| MeasuredError::Read { path: self.path.to_owned(), source })?;
            self.line += usize::from(read > 0);
            let is_open = self.row.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
            match (read > 0, is_open) {
                (true, false) if self.row.ends_with(b"\n") || (self.row.len() as u64) < LONGEST => {
                    if !self.row.trim_ascii().is_empty() {
                        return Ok(true);
                    }
                    self.row.clear();
                }
                (true, true) if self.row.ends_with(b"\n") => {}
                (false, false) if self.row.is_empty() => return Ok(false),
                (true | false, _) => return Err(self.error(Problem::Long)),
            }
        }
    }

    fn fields(&self) -> Result<Vec<String>, MeasuredError> {
        let text = std::str::from_utf8(&self.row).map_err(|_| self.error(Problem::Encoding))?;
        let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
        let mut rest = text.trim_end_matches(['\r', '\n']).chars().peekable();
        while let Some(char) = rest.next() {
            match char {
                '"' if quoted && rest.peek() == Some(&'"') => field.extend(rest.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(std::mem::take(&mut field)),
                _ => field.push(char),
            }
        }
        fields.push(field);
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(text: &[u8]) -> Result<Vec<Vec<String>>, MeasuredError> {
        let mut table = Table::new(Path::new("table.csv"), text)?;
        let mut rows = vec![table.header.clone()];
        while let Some(row) = table.next()? {
            rows.push(row);
        }
        Ok(rows)
    }

    #[test]
    fn quotations_hold_commas_quotes_and_lines() {
        let text = b"\xef\xbb\xbfName,Shapes\r\nadd,\"\"\"1,2\"\"\"\n\nmul,\"3\n4\"\n";
        let expected = [["Name", "Shapes"], ["add", "\"1,2\""], ["mul", "3\n4"]];
        assert_eq!(rows(text).unwrap(), expected);
    }

    #[test]
    fn errors_have_lines() {
        let message = |text: &[u8]| rows(text).unwrap_err().to_string();
        assert_eq!(message(b"a,b\n1,2\n3\n"), "table.csv:3: 1 fields, but the header has 2; is the file cut off?");
        assert_eq!(message(b"a,b\n1,\xff\n"), "table.csv:2: not UTF-8");
        assert!(message(b"a,b\n1,\"2\n").contains("a quotation that does not end"));
        assert!(message(&[b'a'; 3 << 20]).contains("longer than 1024 KiB"));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_rows_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Err(error) = rows(&bytes) {
                prop_assert!(error.to_string().starts_with("table.csv:"));
            }
        }

        #[test]
        fn fields_come_back(fields in proptest::collection::vec("[a-z,\"\n]{1,8}", 1..5)) {
            let quoted: Vec<String> = fields.iter().map(|f| format!("\"{}\"", f.replace('"', "\"\""))).collect();
            let line = quoted.join(",");
            let read = rows(format!("{line}\n{line}\n").as_bytes()).unwrap();
            prop_assert_eq!(&read[1], &fields);
        }
    }
}
