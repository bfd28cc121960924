//! Convolutions whose filters are normalised: PyTorch's batch_norm of the filters as channels of one sample.

use crate::Refusal;
use crate::arguments::At;
use crate::cosine::Computed;
use crate::reader::{Reader, Seen};
use crate::trace::{Argument, Made};
use crate::view::View;

/// Normalised filters.
#[derive(Clone, Debug)]
pub(crate) struct Standardised {
    /// The parameter.
    pub weight: String,
    pub eps: f64,
    /// A parameter and a number that they are multiplied by.
    pub gain: Option<(String, f64)>,
    /// Its present shape.
    shape: Vec<usize>,
}

impl Standardised {
    /// The same in another shape, if each filter stays a row.
    pub fn viewed(&self, made: &Made, views: &[View]) -> Option<Self> {
        let is_shape = views.iter().all(|view| matches!(view, View::Reshape(_)));
        is_shape.then(|| Self { shape: made.shape.clone(), ..self.clone() })
    }
}

impl Reader<'_> {
    /// Normalised filters. `None` if something else is normalised.
    pub(crate) fn standardised(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let Some(Seen::Reshaped(weight, shape)) = self.given(at.input()).cloned() else { return Ok(None) };
        let out = self.trace.shape(&weight).first().copied().unwrap_or_default();
        let nearest = "`conv` has `standardised`: filters normalised by their own mean and variance";
        let is_rows = matches!(shape[..], [1, rows, _] if rows == out) && self.trace.shape(&weight).len() == 4;
        let has_statistics = [(1, "running_mean"), (2, "running_var")].map(|(place, key)| at.argument(place, &[key]));
        let gain = match at.argument(3, &["weight"]) {
            None => None,
            Some(gain) => match self.computed(Some(gain)) {
                Some(Computed::Multiple(name, by)) if self.trace.shape(name) == [out, 1, 1, 1] => {
                    Some((name.clone(), *by))
                }
                _ => return Err(at.refuse("normalised filters are multiplied by something else", nearest)),
            },
        };
        let bias = at.argument(4, &["bias"]);
        let of_batch = at.flag(5, "training", false)?;
        at.argument(6, &["momentum"]);
        let eps = at.float(7, "eps", 1e-5)?;
        if !is_rows || has_statistics.iter().any(Option::is_some) || bias.is_some() || !of_batch {
            return Err(at.refuse(format!("it normalises the parameter `{weight}`"), nearest));
        }
        let filters = Standardised { weight, eps, gain, shape };
        self.is_computed(at, Computed::Standardised(filters)).map(Some)
    }

    /// A parameter times a number. `None` if the operands are others.
    pub(crate) fn multiple(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        match (at.input(), at.argument(1, &["other"])) {
            (Some(Argument::Parameter(name)), Some(by)) | (Some(by), Some(Argument::Parameter(name))) => {
                match by.number() {
                    Some(by) => self.is_computed(at, Computed::Multiple(name.clone(), by)).map(Some),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// The filters of a convolution, if they are normalised.
    pub(crate) fn standardised_filters(&self, argument: Option<&Argument>) -> Option<Standardised> {
        match self.computed(argument)? {
            Computed::Standardised(filters) if filters.shape == self.trace.shape(&filters.weight) => {
                Some(filters.clone())
            }
            _ => None,
        }
    }
}
