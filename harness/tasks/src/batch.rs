//! A batch of inputs for a step.

use zoo_recipe::Recipe;

use crate::InputError;

/// Samples that are computed together: the inputs of the step by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of samples.
    pub n: usize,
    /// One entry per input that the data provide.
    pub fields: Vec<Field>,
}

/// One input of a step for all samples of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its elements, sample after sample, row-major.
    pub numbers: Numbers,
}

/// The elements of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Real numbers.
    Real(Vec<f32>),
    /// Classes, or other indices.
    Index(Vec<u32>),
}

/// The element type of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Real numbers.
    Real,
    /// Classes, or other indices.
    Index,
}

/// An input as a graph declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its shape without the batch, of any rank.
    pub shape: Vec<usize>,
    /// The type of its elements.
    pub element: Element,
}

impl Field {
    /// Real numbers.
    pub fn real(name: impl Into<String>, values: Vec<f32>) -> Self {
        Self { name: name.into(), numbers: Numbers::Real(values) }
    }

    /// Classes, or other indices.
    pub fn index(name: impl Into<String>, values: Vec<u32>) -> Self {
        Self { name: name.into(), numbers: Numbers::Index(values) }
    }
}

impl Numbers {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Real(values) => values.len(),
            Self::Index(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Batch {
    /// Real numbers of all samples, concatenated per field. `fields` returns the numbers of a sample for each name.
    pub(crate) fn join<S, const N: usize>(
        samples: Vec<S>,
        names: [&str; N],
        fields: impl Fn(S) -> [Vec<f32>; N],
    ) -> Self {
        let n = samples.len();
        let mut joined: [Vec<f32>; N] = std::array::from_fn(|_| Vec::new());
        for sample in samples {
            for (all, mut own) in joined.iter_mut().zip(fields(sample)) {
                if all.is_empty() {
                    all.reserve_exact(n * own.len());
                }
                all.append(&mut own);
            }
        }
        Self { n, fields: names.into_iter().zip(joined).map(|(name, values)| Field::real(name, values)).collect() }
    }
}

/// The network's first input.
pub(crate) fn first<'a>(recipe: &Recipe, inputs: &'a [Input]) -> Result<&'a Input, InputError> {
    inputs.first().ok_or_else(|| InputError::at(recipe, "model", "the network has no input"))
}

/// Refuses inputs that the data do not provide.
pub(crate) fn offer(recipe: &Recipe, inputs: &[Input], offered: &[(&str, Element)]) -> Result<(), InputError> {
    let data = recipe.data.source.kind().describe();
    for Input { name, element, .. } in inputs {
        let message = match offered.iter().find(|(offered, _)| offered == name) {
            Some((_, offered)) if offered == element => continue,
            Some((_, offered)) => {
                let word = |element: &Element| match element {
                    Element::Real => "real numbers",
                    Element::Index => "indices",
                };
                format!("the network needs `{name}` as {}, but {data} provide it as {}", word(element), word(offered))
            }
            None => {
                let list = offered.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                format!("the network needs `{name}`, which {data} do not provide; they provide {list}")
            }
        };
        return Err(InputError::at(recipe, "data.source", message));
    }
    Ok(())
}
