//! Pickled objects of untrusted files: candle's reader with limits.
//!
//! candle copies memo values, allocates by stored lengths, shifts by stored counts, and recurses into nested values, so
//! a malicious file could exhaust memory or the stack. Here each instruction is checked before candle executes it, and
//! its result is measured afterwards.

use candle_core::pickle::{Object, Stack};

/// Most bytes of instructions: enough for names and shapes of a million tensors.
pub(crate) const MOST_BYTES: usize = 64 << 20;
/// Deepest nesting. A state_dict in a training checkpoint needs about ten levels.
const DEEPEST: usize = 64;
/// Most values that are counted; a value counts each time an instruction leaves it on top of the stack.
const MOST_VALUES: usize = 8_000_000;

/// The object that `bytes` describe.
pub(crate) fn read(bytes: &[u8]) -> Result<Object, String> {
    if bytes.len() > MOST_BYTES {
        return Err(format!("its description of tensors has {} bytes, more than {MOST_BYTES}", bytes.len()));
    }
    let mut rest = bytes;
    let mut stack = Stack::empty();
    let mut budget = MOST_VALUES;
    loop {
        foresee(rest)?;
        let place = bytes.len() - rest.len();
        let done = stack.read(&mut rest).map_err(|error| format!("at byte {place} of data.pkl: {error}"))?;
        if let Some(top) = stack.stack().last() {
            measure(top, DEEPEST, &mut budget)?;
        }
        if done {
            return stack.finalize().map_err(|error| error.to_string());
        }
    }
}

/// Refuses instructions whose operand claims more bytes than remain.
fn foresee(rest: &[u8]) -> Result<(), String> {
    match rest {
        // BINUNICODE: a length of four bytes, little-endian, and the text.
        [b'X', a, b, c, d, text @ ..] if u32::from_le_bytes([*a, *b, *c, *d]) as usize > text.len() => {
            Err("truncated in a text".to_owned())
        }
        // LONG1: a count and that number of bytes of an integer, of which candle keeps 64 bits.
        [0x8a, count, ..] if *count > 8 => Err("a number of more than 64 bits".to_owned()),
        _ => Ok(()),
    }
}

/// Counts the values of an object against the budget, no deeper than allowed.
fn measure(object: &Object, deeper: usize, budget: &mut usize) -> Result<(), String> {
    let Some(deeper) = deeper.checked_sub(1) else { return Err(format!("nested deeper than {DEEPEST} levels")) };
    *budget = budget.checked_sub(1).ok_or_else(|| format!("more than {MOST_VALUES} values"))?;
    match object {
        Object::Tuple(list) | Object::List(list) => list.iter().try_for_each(|value| measure(value, deeper, budget)),
        Object::Dict(pairs) => pairs.iter().try_for_each(|(key, value)| {
            measure(key, deeper, budget)?;
            measure(value, deeper, budget)
        }),
        Object::Reduce { callable, args } | Object::Build { callable, args } => {
            measure(callable, deeper, budget)?;
            measure(args, deeper, budget)
        }
        Object::PersistentLoad(id) => measure(id, deeper, budget),
        Object::Class { .. }
        | Object::Int(_)
        | Object::Long(_)
        | Object::Float(_)
        | Object::Unicode(_)
        | Object::Bool(_)
        | Object::None
        | Object::Mark => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `import torch` objects aside: `{"a": (1, 2)}`, as Python's `pickle.dumps(..., protocol=2)` writes it.
    const DICT: &[u8] = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01K\x01K\x02\x86q\x02s.";

    #[test]
    fn what_python_writes_is_read() {
        let pair = Object::Tuple(vec![Object::Int(1), Object::Int(2)]);
        assert_eq!(read(DICT).unwrap(), Object::Dict(vec![(Object::Unicode("a".into()), pair)]));
    }

    #[test]
    fn every_truncation_is_an_error() {
        for end in 0..DICT.len() {
            assert!(read(&DICT[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn lengths_beyond_the_file_nesting_and_copies_without_end_are_refused() {
        assert!(read(b"\x80\x02X\xff\xff\xff\xffabc.").unwrap_err().contains("truncated"));
        assert!(read(b"\x80\x02\x8a\x0aaaaaaaaaaa.").unwrap_err().contains("64 bits"));
        let nested = [b"\x80\x02N".as_slice(), &[0x85].repeat(1_000_000), b"."].concat();
        assert!(read(&nested).unwrap_err().contains("nested deeper"));
        // A list that contains itself twice, repeated thirty times: a thousand million values in two hundred bytes.
        let doubling = [b"\x80\x02]q\x00".as_slice(), &b"h\x00h\x00\x86q\x00".repeat(30), b"."].concat();
        assert!(read(&doubling).unwrap_err().contains("more than 8000000 values"));
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
