//! The values of a recording, and other statements of the recording about them.

use super::{malformed, rank_facts::Held};
use crate::GoldenError;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use zoo_datasets::files;
use zoo_graph::parallel::MeshAxis;
use zoo_tensors::{Array, ElementType, format, npy, npz::Npz, pth, safetensors::Reader};

/// Largest file that holds one tensor.
const MOST_BYTES: u64 = 16 << 30;
/// If two statements about one number differ by more than this (relatively), they belong to different tensors.
/// Recorders compute statistics in the tensor's own type and in their own order.
const SAME: f64 = 0.02;

/// Four statistics of a tensor, in place of its elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// The largest element.
    pub max: f64,
    /// The smallest element.
    pub min: f64,
    /// Mean of the elements.
    pub mean: f64,
    /// Euclidean norm.
    pub norm: f64,
}

impl Statistics {
    /// Whether all of them are.
    pub(crate) fn is_finite(&self) -> bool {
        [self.max, self.min, self.mean, self.norm].into_iter().all(f64::is_finite)
    }

    /// Statistics of these elements; NaN if one is NaN, as recorders do it.
    pub fn of(values: &[f64]) -> Self {
        let fold = |pick: fn(f64, f64) -> bool| {
            let pick = |best: f64, x: &f64| if best.is_nan() || pick(best, *x) { best } else { *x };
            values.iter().skip(1).fold(values.first().copied().unwrap_or(f64::NAN), pick)
        };
        Self {
            max: fold(|best, x| best >= x),
            min: fold(|best, x| best <= x),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            norm: values.iter().map(|x| x * x).sum::<f64>().sqrt(),
        }
    }
}

/// Where values are stored.
#[derive(Debug)]
pub(crate) enum Content {
    /// In a safetensors file, under a name.
    Safetensors(Arc<Reader>, String),
    /// In an `.npz` archive, under a name.
    Npz(Arc<Mutex<Npz>>, PathBuf, String),
    /// Alone in an `.npy` file.
    Npy(PathBuf),
    /// Alone in a file of `torch.save`.
    Torch(PathBuf),
    /// Already read, from this file.
    Kept(PathBuf, Array),
    /// Not stored: there are only these statistics, and the shape.
    Statistics(Statistics, Vec<usize>),
}

impl Content {
    /// Reads the tensor, and returns it with its file. `None` for statistics.
    pub(super) fn array(&self) -> Result<Option<(PathBuf, Array)>, GoldenError> {
        Ok(Some(match self {
            Self::Safetensors(reader, name) => (reader.path().to_owned(), reader.read(name)?),
            Self::Npz(archive, path, name) => {
                let mut archive = archive.lock().map_err(|_| malformed(path, "another reader has failed"))?;
                (path.clone(), archive.read(name).map_err(|reason| malformed(path, reason))?)
            }
            Self::Npy(path) => (path.clone(), npy::parse(&bytes(path)?).map_err(|reason| malformed(path, reason))?),
            Self::Torch(path) => {
                let mut arrays = torch(path)?;
                match (arrays.len(), arrays.pop()) {
                    (1, Some((_, array))) => (path.clone(), array),
                    (count, _) => return Err(malformed(path, format!("it holds {count} tensors, not one"))),
                }
            }
            Self::Kept(path, array) => (path.clone(), array.clone()),
            Self::Statistics(..) => return Ok(None),
        }))
    }
}

impl Content {
    /// Whether there are only statistics.
    pub(crate) fn is_statistics(&self) -> bool {
        self.statistics().is_some()
    }

    /// Statistics and shape, if there is nothing else.
    pub(crate) fn statistics(&self) -> Option<(Statistics, &[usize])> {
        match self {
            Self::Statistics(statistics, shape) => Some((*statistics, shape)),
            Self::Safetensors(..) | Self::Npz(..) | Self::Npy(_) | Self::Torch(_) | Self::Kept(..) => None,
        }
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, GoldenError> {
    files::read(path, MOST_BYTES).map_err(GoldenError::unreadable(path))
}

/// All tensors of a file of `torch.save`.
pub(super) fn torch(path: &Path) -> Result<Vec<(String, Array)>, GoldenError> {
    let unreadable = GoldenError::unreadable(path);
    let (file, _) = files::open(path).map_err(unreadable)?;
    if !pth::is_one(&file).map_err(unreadable)? {
        let told = format::foreign(path).map_err(unreadable)?.map(|foreign| foreign.to_string());
        return Err(malformed(path, told.unwrap_or_else(|| "not written by torch.save, or cut off".to_owned())));
    }
    pth::read_all(file).map_err(|reason| malformed(path, reason))
}

/// What a recording states about a tensor in another file than its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claim {
    /// Its shape.
    pub shape: Option<Vec<usize>>,
    /// Its element type in the step; the file may store it in a wider one.
    pub dtype: Option<ElementType>,
    /// Its statistics.
    pub statistics: Option<Statistics>,
    /// What the rank that recorded it has of it; `None`: its program does not say.
    pub placed: Option<BTreeMap<MeshAxis, Held>>,
}

impl Claim {
    /// Whether the tensor is said to have elements that are not finite.
    pub(super) fn is_unsound(&self) -> bool {
        let is_empty = self.shape.as_ref().is_some_and(|shape| shape.contains(&0));
        !is_empty && self.statistics.is_some_and(|statistics| !statistics.is_finite())
    }

    /// Refuses a tensor that contradicts the statements: then the files belong to different runs.
    pub(super) fn expect(&self, array: &Array) -> Result<(), String> {
        let different = |what: &str, said: String, found: String| {
            format!("its {what} is {found}, and the recording says {said}: files of different runs, or a damaged one")
        };
        if let Some(shape) = self.shape.as_ref().filter(|shape| **shape != array.shape) {
            return Err(different("shape", format!("{shape:?}"), format!("{:?}", array.shape)));
        }
        let Some(said) = self.statistics else { return Ok(()) };
        let found = Statistics::of(&array.values);
        let size = found.max.abs().max(found.min.abs());
        let same = |a: f64, b: f64, scale: f64| !(a.is_finite() && b.is_finite()) || (a - b).abs() <= SAME * scale;
        for (what, said, found, scale) in [
            ("norm", said.norm, found.norm, found.norm),
            ("largest element", said.max, found.max, size),
            ("smallest element", said.min, found.min, size),
        ] {
            if !same(said, found, scale) {
                return Err(different(what, said.to_string(), found.to_string()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_by_hand() {
        let statistics = Statistics::of(&[3.0, -4.0, 1.0]);
        assert_eq!(statistics, Statistics { max: 3.0, min: -4.0, mean: 0.0, norm: 26f64.sqrt() });
        let of_nan = Statistics::of(&[1.0, f64::NAN, 2.0]);
        assert!(of_nan.max.is_nan() && of_nan.min.is_nan() && of_nan.mean.is_nan() && of_nan.norm.is_nan());
    }

    #[test]
    fn a_file_of_another_run_contradicts_the_recording() {
        let array = Array { dtype: ElementType::F32, shape: vec![2], values: vec![3.0, -4.0] };
        let claim = |norm: f64| Claim {
            shape: Some(vec![2]),
            dtype: None,
            statistics: Some(Statistics { max: 3.0, min: -4.0, mean: -0.5, norm }),
            placed: None,
        };
        assert_eq!(claim(5.01).expect(&array), Ok(()));
        assert!(claim(5.2).expect(&array).unwrap_err().contains("different runs"));
        let shaped = Claim { shape: Some(vec![1, 2]), ..Claim::default() };
        assert!(shaped.expect(&array).unwrap_err().contains("shape"));
    }
}
