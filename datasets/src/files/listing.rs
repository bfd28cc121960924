//! The entries of a folder, and the order of numbered names.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use super::Leftovers;
use crate::DataError;

/// The entries of a folder, sorted bytewise, without [leftovers](super::is_leftover).
///
/// # Errors
/// A folder that cannot be read.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let io = DataError::io(folder);
    let mut leftovers = Leftovers::below(folder);
    let mut paths = std::fs::read_dir(folder)
        .map_err(io)?
        .map(|entry| entry.map(|entry| entry.path()))
        .filter(|path| !path.as_ref().is_ok_and(|path| leftovers.take(path)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(io)?;
    paths.sort();
    Ok(paths)
}

/// The order of names in which `img2` comes before `img10`: digits in a row count as one number. Names that differ in
/// leading zeros alone follow each other.
pub fn natural(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    loop {
        let order = match (number(left), number(right)) {
            (Some((a, after_a)), Some((b, after_b))) => {
                (left, right) = (after_a, after_b);
                a.len().cmp(&b.len()).then_with(|| a.cmp(b))
            }
            _ => match (left.split_first(), right.split_first()) {
                (Some((a, after_a)), Some((b, after_b))) => {
                    (left, right) = (after_a, after_b);
                    a.cmp(b)
                }
                (None, None) => return one.cmp(other),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The digits at the beginning of a text, without leading zeros, and what follows them.
fn number(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (digits, rest) = text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count());
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    (!digits.is_empty()).then_some((&digits[zeros..], rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_in_names_are_ordered_by_value() {
        let sorted = [
            "",
            "0",
            "01",
            "1",
            "2",
            "10",
            "99999999999999999999999",
            "a",
            "a1b",
            "a1b2",
            "a1b10",
            "a01c",
            "b0",
            "img2",
            "img10",
            "img10a",
        ];
        for pair in sorted.windows(2) {
            assert!(natural(pair[0], pair[1]).is_lt(), "{pair:?}");
        }
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in "[ab0-2]{0,5}", b in "[ab0-2]{0,5}", c in "[ab0-2]{0,5}") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            prop_assert_eq!(natural(&a, &b).is_eq(), a == b);
            if natural(&a, &b).is_lt() && natural(&b, &c).is_lt() {
                prop_assert!(natural(&a, &c).is_lt());
            }
        }
    }

    #[test]
    fn leftovers_are_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.jpg", ".DS_Store", "a.jpg", "._a.jpg", "Thumbs.db"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(entries(dir.path()).unwrap(), ["a.jpg", "b.jpg"].map(|name| dir.path().join(name)));
        assert!(matches!(entries(&dir.path().join("none")), Err(DataError::Io { .. })));
    }
}
