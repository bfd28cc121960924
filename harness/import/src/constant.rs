//! Tensors that are the same in every step: positions, masks, tables of indices.

use serde::{Deserialize, Deserializer, de::Error as _};

/// Largest number of elements, as in golden/export/zoo_golden/trace.py.
const MOST: usize = 1 << 22;

/// The values of a tensor that depends on neither inputs nor parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its extents.
    pub shape: Vec<usize>,
    /// Whether its elements are booleans.
    pub is_bool: bool,
    /// Whether its elements are whole numbers, such as rows of a table.
    pub is_whole: bool,
    /// Its elements, row-major, booleans as 0 and 1: each value with the number of times that it follows itself.
    runs: Vec<(f64, usize)>,
}

impl<'de> Deserialize<'de> for Constant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Runs of equal values, `0*3 1 -100.0*2`.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            shape: Vec<usize>,
            dtype: String,
            values: String,
        }
        let Written { shape, dtype, values: text } = Written::deserialize(deserializer)?;
        let count = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent)).filter(|count| *count <= MOST);
        let count = count.ok_or_else(|| D::Error::custom(format!("a constant of shape {shape:?}")))?;
        let (mut runs, mut left) = (Vec::new(), count);
        for run in text.split_ascii_whitespace() {
            let (value, times) = run.split_once('*').unwrap_or((run, "1"));
            let (Ok(value), Ok(times)) = (value.parse::<f64>(), times.parse::<usize>()) else {
                return Err(D::Error::custom(format!("`{run}` in a constant is not a number")));
            };
            let other = || D::Error::custom(format!("a constant of shape {shape:?} has another number of values"));
            left = left.checked_sub(times).ok_or_else(other)?;
            runs.push((value, times));
        }
        match left {
            0 => Ok(Self { shape, is_bool: dtype == "bool", is_whole: dtype.contains("int"), runs }),
            _ => Err(D::Error::custom(format!("a constant of shape {shape:?} lacks {left} values"))),
        }
    }
}

impl Constant {
    /// Its elements.
    pub fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.runs.iter().flat_map(|(value, times)| std::iter::repeat_n(*value, *times))
    }

    /// The first of its elements, and by how much the next is larger, if all are so along the last axis, and all rows
    /// are the same: positions.
    pub fn counts_up(&self) -> Option<[usize; 2]> {
        let whole = |value: f64| (value >= 0.0 && value.fract() == 0.0 && value < 1e9).then_some(value as usize);
        let length = *self.shape.last()?;
        let mut values = self.values();
        let first = values.next()?;
        let step = if length > 1 { values.next()? - first } else { 1.0 };
        let follows = self.values().enumerate().all(|(n, value)| first + step * (n % length) as f64 == value);
        follows.then_some([whole(first)?, whole(step)?])
    }

    /// Of these values.
    pub fn new(shape: Vec<usize>, values: impl Iterator<Item = f64>) -> Self {
        Self { shape, is_bool: false, is_whole: false, runs: values.map(|value| (value, 1)).collect() }
    }

    /// Times a number.
    pub fn times(&self, by: f64) -> Self {
        let runs = self.runs.iter().map(|(value, times)| (value * by, *times));
        Self { shape: self.shape.clone(), is_bool: false, is_whole: false, runs: runs.collect() }
    }

    /// The number that all its elements are.
    pub fn of_one_number(&self) -> Option<f64> {
        let first = self.values().next()?;
        self.values().all(|value| value == first).then_some(first)
    }

    /// This number wherever an element is not 0.
    pub fn filled(&self, by: f64) -> Self {
        let fill = |(value, times): &(f64, usize)| (if *value == 0.0 { 0.0 } else { by }, *times);
        Self { shape: self.shape.clone(), is_bool: false, is_whole: false, runs: self.runs.iter().map(fill).collect() }
    }

    /// The same as booleans: what is not 0 is true.
    pub fn as_bool(self) -> Self {
        Self { is_bool: true, is_whole: false, ..self }
    }

    /// What a mask of booleans, 1 for what is seen, adds to scores; itself if it is added as it is.
    pub fn added(&self) -> Self {
        let add = |(value, times): &(f64, usize)| (if *value == 0.0 { f64::NEG_INFINITY } else { 0.0 }, *times);
        match self.is_bool {
            true => Self {
                shape: self.shape.clone(),
                is_bool: false,
                is_whole: false,
                runs: self.runs.iter().map(add).collect(),
            },
            false => self.clone(),
        }
    }

    /// Number of its elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(shape: &[usize], values: &str) -> Result<Constant, serde_json::Error> {
        serde_json::from_value(serde_json::json!({"shape": shape, "dtype": "int64", "values": values}))
    }

    #[test]
    fn runs_are_read() {
        let constant = read(&[2, 3], "0*3 1 -2.5*2").unwrap();
        assert_eq!(constant.values().collect::<Vec<_>>(), [0.0, 0.0, 0.0, 1.0, -2.5, -2.5]);
        assert_eq!(constant.counts_up(), None);
        assert_eq!(read(&[1, 4], "0 1 2 3").unwrap().counts_up(), Some([0, 1]));
        assert_eq!(read(&[1, 3], "2 3 4").unwrap().counts_up(), Some([2, 1]));
        assert_eq!(read(&[2, 3], "1*6").unwrap().counts_up(), Some([1, 0]));
        assert!(read(&[0], "").unwrap().is_empty());
        for (shape, values) in
            [(&[3][..], "0 1"), (&[1], "0*2"), (&[1], "x"), (&[1], "0*99999999999999"), (&[1 << 40], "")]
        {
            assert!(read(shape, values).is_err(), "{values}");
        }
    }
}
