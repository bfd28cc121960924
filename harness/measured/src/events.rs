//! Events of a Chrome trace, one at a time: the JSON array or the JSON object form, plain or with gzip.

use crate::{MeasuredError, Nanos, time};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

/// The longest event, in bytes. Longer ones are no events: memory would grow with them.
const LONGEST: usize = 16 << 20;

/// An event, with the arguments that are read of any profiler.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Event {
    /// Its kind: `X` complete, `M` metadata, `s`, `t` and `f` of flows.
    pub ph: String,
    /// Its category.
    pub cat: String,
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: Key,
    /// Its thread, or stream.
    pub tid: Key,
    /// Its start.
    pub ts: Time,
    /// Its length.
    pub dur: Time,
    /// What ties the ends of a flow together.
    pub id: Key,
    /// Further values.
    pub args: Args,
}

/// Arguments of an event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Args {
    /// Of metadata: the name of a process or a thread.
    pub name: Option<String>,
    /// Of PyTorch: ties a kernel to the operator that launched it.
    #[serde(rename = "External id")]
    pub external: Option<Key>,
    /// Of CUDA: ties a kernel to the call that launched it.
    pub correlation: Option<Key>,
    /// Of PyTorch: ties an operator to its gradient.
    #[serde(rename = "Sequence number")]
    pub sequence: Option<i64>,
    /// Shapes of the operands.
    #[serde(rename = "Input Dims")]
    pub shapes: Option<serde_json::Value>,
    /// Element types of the operands.
    #[serde(rename = "Input type")]
    pub types: Option<serde_json::Value>,
    /// Of Ascend: what ran the kernel.
    #[serde(rename = "Task Type")]
    pub task: Option<String>,
    /// Of memory events: bytes that are allocated now.
    #[serde(rename = "Total Allocated")]
    pub allocated: Option<f64>,
}

/// A number or a text, as a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Key(pub String);

/// A time: a number or a text, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Time(pub Option<Nanos>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Scalar).map(|scalar| Self(scalar.text))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = deserializer.deserialize_any(Scalar)?;
        let nanos = match scalar.float {
            Some(micros) => time::of_float(micros),
            None => time::of_text(scalar.text.trim()),
        };
        let invalid = || D::Error::custom(format!("`{}` is no time in microseconds", scalar.text));
        nanos.map(|nanos| Self(Some(nanos))).ok_or_else(invalid)
    }
}

/// Reads a number or a text; a number with decimals stays one.
struct Scalar;

struct Number {
    text: String,
    float: Option<f64>,
}

impl Visitor<'_> for Scalar {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
        Ok(Number { text: value.to_string(), float: None })
    }

    fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
        Ok(Number { text: value.to_string(), float: None })
    }

    fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
        Ok(Number { text: value.to_string(), float: Some(value) })
    }

    fn visit_str<E>(self, value: &str) -> Result<Number, E> {
        Ok(Number { text: value.to_owned(), float: None })
    }
}

/// Hands each event to `seen`, in the order of the file.
pub(crate) fn events<R: Read>(path: &Path, reader: R, seen: &mut dyn FnMut(Event)) -> Result<(), MeasuredError> {
    let json = |source| MeasuredError::Json { path: path.to_owned(), source };
    let left = Rc::new(Cell::new(LONGEST));
    let reader = io::BufReader::with_capacity(1 << 16, Limited { reader, left: Rc::clone(&left) });
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    deserializer.deserialize_any(Top { seen, left: &left }).map_err(json)?;
    deserializer.end().map_err(json)
}

/// A reader that fails where an event is too long.
struct Limited<R> {
    reader: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        match self.left.get().checked_sub(read) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other(format!("an event is longer than {} MiB", LONGEST >> 20))),
        }
        Ok(read)
    }
}

/// The whole file.
struct Top<'s> {
    seen: &'s mut dyn FnMut(Event),
    left: &'s Cell<usize>,
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace: an array of events, or an object with `traceEvents`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            self.left.set(LONGEST);
            if key == "traceEvents" {
                found = true;
                map.next_value_seed(Events { seen: &mut *self.seen, left: self.left })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::custom("no `traceEvents`")) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, events: A) -> Result<(), A::Error> {
        Events { seen: self.seen, left: self.left }.visit_seq(events)
    }
}

/// An array of events.
struct Events<'s> {
    seen: &'s mut dyn FnMut(Event),
    left: &'s Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Event>()? {
            self.left.set(LONGEST);
            (self.seen)(event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Result<Vec<Event>, String> {
        let mut all = Vec::new();
        let result = events(Path::new("t.json"), text, &mut |event| all.push(event));
        result.map(|()| all).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_and_texts_are_times() {
        let text = br#"{"schemaVersion": 1, "traceEvents": [
            {"ph": "X", "name": "a", "pid": 1, "tid": "stream 7", "ts": "1736413971558972.912", "dur": 1.5},
            {"ph": "X", "name": "b", "ts": 12.345, "args": {"Sequence number": 3, "Input Dims": [[2, 3], []]}}]}"#;
        let events = read(text).unwrap();
        assert_eq!((events[0].ts.0, events[0].dur.0), (Some(1_736_413_971_558_972_912), Some(1500)));
        assert_eq!((events[0].pid.0.as_str(), events[0].tid.0.as_str()), ("1", "stream 7"));
        assert_eq!((events[1].ts.0, events[1].args.sequence), (Some(12_345), Some(3)));
        assert_eq!(read(b"[{\"ph\": \"M\"}]").unwrap().len(), 1);
    }

    #[test]
    fn errors_have_lines_and_columns() {
        let message = |text: &[u8]| read(text).unwrap_err();
        assert_eq!(message(b"{\"a\": 1}"), "t.json: no `traceEvents` at line 1 column 8");
        assert_eq!(message(b"[{\"ts\":\n1}, {"), "t.json: EOF while parsing an object at line 2 column 5");
        assert_eq!(message(b"[{\"ts\": \"soon\"}]"), "t.json: `soon` is no time in microseconds at line 1 column 15");
        assert_eq!(message(b"[] []"), "t.json: trailing characters at line 1 column 4");
        let deep = [b"[{\"args\": {\"Input Dims\": ".to_vec(), b"[".repeat(100_000)].concat();
        assert!(message(&deep).contains("recursion limit exceeded"));
    }

    #[test]
    fn an_endless_event_is_refused() {
        let text = [b"[{\"name\": \"".to_vec(), vec![b'a'; LONGEST + (4 << 20)]].concat();
        assert!(read(&text).unwrap_err().contains("an event is longer than 16 MiB"));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_events_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn a_cut_off_trace_is_an_error(length in 0usize..120) {
            let text = br#"{"traceEvents": [{"ph": "X", "name": "a", "ts": 1.5, "dur": 2}, {"ph": "X", "name": "b"}], "z": [1]}"#;
            if length < text.len() {
                prop_assert!(read(&text[..length]).is_err());
            }
        }
    }
}
