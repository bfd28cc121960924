//! Python's pickles, of any protocol, as untrusted files hold them.
//!
//! Nothing is called: objects of classes keep the name of what makes them, and their reader decides whether it knows
//! it. Each instruction adds at most one value, texts and bytes stay in the pickle, and what the pickle names twice is
//! one value here, so memory grows with the pickle alone. Values refer to each other by place, so that neither depth
//! nor cycles matter to this reader.

mod machine;

use machine::interpret;
use std::ops::Range;

/// Most bytes of instructions: enough for names and shapes of a million tensors, of which each takes about 200.
pub(crate) const MOST_BYTES: usize = 256 << 20;

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(u32);

/// A value.
#[derive(Debug)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A text in UTF-8: its place in the pickle.
    Text(Range<u32>),
    Bytes(Range<u32>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Class(Box<Class>),
    Object(Box<Object>),
    /// What the file stores outside of the pickle.
    Persistent(Id),
    /// A number or text that no tensor needs: a fraction, an integer of more than 64 bits, a set.
    Opaque,
    /// What several values are counted from.
    Mark,
}

/// A class or function, by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub module: String,
    pub name: String,
}

/// What a call makes.
#[derive(Debug)]
pub(crate) struct Object {
    /// What is called.
    pub class: Id,
    pub args: Id,
    /// What its attributes are set from.
    pub state: Option<Id>,
    /// The items of a dictionary, if it is one.
    pub items: Vec<(Id, Id)>,
}

/// A pickle that was read.
#[derive(Debug)]
pub(crate) struct Pickle {
    bytes: Vec<u8>,
    values: Vec<Value>,
    root: Id,
}

impl Pickle {
    /// Reads a pickle.
    pub(crate) fn read(bytes: Vec<u8>) -> Result<Self, String> {
        let (values, root, _) = interpret(&bytes)?;
        Ok(Self { bytes, values, root })
    }

    /// Reads the first of several pickles; returns the place behind it.
    pub(crate) fn first(mut bytes: Vec<u8>) -> Result<(Self, usize), String> {
        let (values, root, end) = interpret(&bytes)?;
        bytes.truncate(end);
        Ok((Self { bytes, values, root }, end))
    }

    /// The object that was pickled.
    pub(crate) fn root(&self) -> Id {
        self.root
    }

    /// Bytes of the pickle.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What the file stores outside of the pickle.
    pub(crate) fn persistent(&self) -> impl Iterator<Item = Id> {
        let persistent = |(place, value): (usize, &Value)| matches!(value, Value::Persistent(_)).then_some(place);
        self.values.iter().enumerate().filter_map(persistent).map(|place| Id(place as u32))
    }

    pub(crate) fn value(&self, id: Id) -> &Value {
        // Places are handed out by the interpreter alone.
        self.values.get(id.0 as usize).unwrap_or(&Value::Opaque)
    }

    pub(crate) fn text(&self, id: Id) -> Option<&str> {
        let Value::Text(range) = self.value(id) else { return None };
        std::str::from_utf8(self.slice(range)).ok()
    }

    /// The bytes at a place of the pickle.
    pub(crate) fn slice(&self, range: &Range<u32>) -> &[u8] {
        self.bytes.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// A number that is not negative.
    pub(crate) fn extent(&self, id: Id) -> Option<usize> {
        let Value::Int(number) = self.value(id) else { return None };
        usize::try_from(*number).ok()
    }

    pub(crate) fn tuple(&self, id: Id) -> Option<&[Id]> {
        let Value::Tuple(parts) = self.value(id) else { return None };
        Some(parts)
    }

    /// Keys and values of a dictionary, also of one of a class of its own.
    pub(crate) fn items(&self, id: Id) -> Option<&[(Id, Id)]> {
        match self.value(id) {
            Value::Dict(items) => Some(items),
            Value::Object(object) if !object.items.is_empty() => Some(&object.items),
            _ => None,
        }
    }

    /// The value of a key of a dictionary.
    pub(crate) fn get(&self, dictionary: Id, key: &str) -> Option<Id> {
        let items = self.items(dictionary)?;
        items.iter().rev().find(|(name, _)| self.text(*name) == Some(key)).map(|(_, value)| *value)
    }

    pub(crate) fn class(&self, id: Id) -> Option<&Class> {
        let Value::Class(class) = self.value(id) else { return None };
        Some(class)
    }

    /// What made an object, and its arguments.
    pub(crate) fn call(&self, id: Id) -> Option<(&Class, &[Id])> {
        let Value::Object(object) = self.value(id) else { return None };
        Some((self.class(object.class)?, self.tuple(object.args)?))
    }

    /// What the attributes of an object are set from.
    pub(crate) fn state(&self, id: Id) -> Option<Id> {
        let Value::Object(object) = self.value(id) else { return None };
        object.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `import torch` objects aside: `{"a": (1, 2)}`, as Python's `pickle.dumps(..., protocol=2)` writes it.
    const DICT: &[u8] = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01K\x01K\x02\x86q\x02s.";

    fn read(bytes: &[u8]) -> Result<Pickle, String> {
        Pickle::read(bytes.to_vec())
    }

    /// The numbers of a tuple at `key` of the pickled dictionary.
    fn numbers(pickle: &Pickle, key: &str) -> Vec<Option<usize>> {
        let tuple = pickle.tuple(pickle.get(pickle.root(), key).unwrap()).unwrap();
        tuple.iter().map(|id| pickle.extent(*id)).collect()
    }

    #[test]
    fn every_protocol_is_read() {
        assert_eq!(numbers(&read(DICT).unwrap(), "a"), [Some(1), Some(2)]);
        // `{"a": (1, 2)}` in the protocols 0, 1 and 5.
        let others: [&[u8]; 3] = [
            b"(dp0\nVa\np1\n(I1\nI2\ntp2\ns.",
            b"}q\x00X\x01\x00\x00\x00aq\x01(K\x01K\x02tq\x02s.",
            b"\x80\x05\x95\x0d\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01K\x02\x86\x94s.",
        ];
        for pickle in others {
            assert_eq!(numbers(&read(pickle).unwrap(), "a"), [Some(1), Some(2)]);
        }
    }

    #[test]
    fn what_is_named_twice_is_one_value() {
        // `d = {}; ({"a": d}, d)`, and `d` gets its key afterwards.
        let shared = read(b"\x80\x02}q\x00X\x01\x00\x00\x00a}q\x01sh\x01X\x01\x00\x00\x00bK\x07s\x86.").unwrap();
        let parts = shared.tuple(shared.root()).unwrap();
        let inner = shared.get(parts[0], "a").unwrap();
        assert_eq!(inner, parts[1]);
        assert_eq!(shared.get(inner, "b").and_then(|seven| shared.extent(seven)), Some(7));
    }

    #[test]
    fn classes_are_kept_by_name_and_not_called() {
        // `os.system("ls")`, as a pickle that runs it on loading.
        let evil = read(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.").unwrap();
        let (class, args) = evil.call(evil.root()).unwrap();
        assert_eq!((class.module.as_str(), class.name.as_str()), ("os", "system"));
        assert_eq!(evil.text(args[0]), Some("ls"));
    }

    #[test]
    fn every_truncation_is_an_error() {
        for end in 0..DICT.len() {
            assert!(read(&DICT[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn lengths_beyond_the_file_are_refused_and_depth_is_no_matter() {
        assert!(read(b"\x80\x02X\xff\xff\xff\xffabc.").unwrap_err().contains("truncated"));
        assert!(read(b"\x80\x02\x8a\xff.").unwrap_err().contains("truncated"));
        let nested = [b"\x80\x02N".as_slice(), &[0x85].repeat(1_000_000), b"."].concat();
        assert_eq!(read(&nested).unwrap().values.len(), 1_000_005);
        // A pair of itself twice, repeated thirty times: a thousand million values if they were copied.
        let doubling = [b"\x80\x02]q\x00".as_slice(), &b"h\x00h\x00\x86q\x00".repeat(30), b"."].concat();
        assert_eq!(read(&doubling).unwrap().values.len(), 5 + 31);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn no_changed_byte_panics(place in 0..DICT.len(), byte: u8) {
            let mut bytes = DICT.to_vec();
            bytes[place] = byte;
            let _ = read(&bytes);
        }
    }
}
