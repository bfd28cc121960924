//! What a step gets at once.

/// Samples that go through the network together: inputs of the step by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of samples.
    pub n: usize,
    /// One entry per input that the data offer.
    pub fields: Vec<Field>,
}

/// One input of a step for all samples of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its numbers, sample after sample, row-major.
    pub numbers: Numbers,
}

/// Numbers of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Real numbers.
    Real(Vec<f32>),
    /// Classes.
    Class(Vec<u32>),
}

impl Numbers {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Real(values) => values.len(),
            Self::Class(values) => values.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Batch {
    /// Real numbers of all samples, joined per field. `fields` gives the numbers of a sample under each name.
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
        let named = names.into_iter().zip(joined);
        Self {
            n,
            fields: named.map(|(name, values)| Field { name: name.into(), numbers: Numbers::Real(values) }).collect(),
        }
    }
}
