//! Weights and inputs of a golden step: computed from a name and an index, and never distributed.

use crate::golden::Golden;
use crate::manifest::Init;
use rayon::prelude::*;
use zoo_datasets::hash::{NameHash, fnv1a64};
use zoo_engine::{Isa, Loops};

/// Initial values of a parameter or buffer: row-major, with one f32 rounding per operation.
pub fn initial(init: &Init, salt: &str, name: &str, numel: usize) -> Vec<f32> {
    let hash = NameHash::new(&format!("{salt}{name}"));
    match *init {
        Init::Uniform { bound } => drawn(hash, numel, |s| s * bound as f32),
        Init::OnePlus { bound, gain } => drawn(hash, numel, |s| gain as f32 * (1.0 + bound as f32 * s)),
        Init::Const { value } => vec![value as f32; numel],
    }
}

/// Applies a function to the hash's numbers in [-1, 1).
fn drawn(hash: NameHash, numel: usize, of: impl Fn(f32) -> f32 + Copy + Sync) -> Vec<f32> {
    const CHUNK: usize = 1 << 14;
    let (isa, mut values) = (Isa::best(), vec![0.0; numel]);
    let chunks = values.par_chunks_mut(CHUNK).enumerate();
    chunks.for_each(|(n, values)| isa.run(Draw { hash, first: (n * CHUNK) as u64, values, of }));
    values
}

/// Consecutive numbers of a hash.
struct Draw<'a, F> {
    hash: NameHash,
    first: u64,
    values: &'a mut [f32],
    of: F,
}

impl<F: Fn(f32) -> f32> Loops for Draw<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (index, value) in (self.first..).zip(self.values) {
            *value = (self.of)(self.hash.s(index));
        }
    }
}

/// The addend of the `lifted` variant for the shift of a normalisation whose scale has the initial values `scale`:
/// `f32(bias + f32(4 * gain))`, so that almost no ReLU input is near zero.
pub fn lift(bias: &mut [f32], scale: &Init) {
    let gain = match scale {
        Init::OnePlus { gain, .. } => *gain,
        Init::Uniform { .. } | Init::Const { .. } => 1.0,
    };
    let by = (4.0 * gain) as f32;
    for b in bias {
        *b += by;
    }
}

/// The input `name` of a golden, generated or read, in row-major order. Classes and the like are exact in f64; pixels
/// are f32 values.
///
/// # Errors
/// An unknown rule, or a stored input that does not exist.
pub fn input(golden: &Golden, name: &str) -> Result<Vec<f64>, crate::GoldenError> {
    let malformed = |message: String| crate::error::malformed(&golden.path, message);
    let input = golden.manifest.inputs.get(name).ok_or_else(|| malformed(format!("no input `{name}`")))?;
    let numel: usize = input.shape.iter().product();
    if input.stored {
        let values = golden.stored(&format!("input/{name}"))?;
        if values.len() != numel {
            return Err(malformed(format!("input `{name}` has {} values for {:?}", values.len(), input.shape)));
        }
        return Ok(values);
    }
    let rule = input.rule.as_deref().unwrap_or_default();
    match rule.strip_prefix("image[-2,2) of '").and_then(|rest| rest.strip_suffix('\'')) {
        Some(hashed) => {
            let hash = NameHash::new(&format!("{}{hashed}", golden.manifest.salt));
            Ok((0..numel as u64).map(|i| f64::from(2.0 * hash.s(i))).collect())
        }
        None => Err(malformed(format!("input `{name}` is not stored and its rule `{rule}` is not known"))),
    }
}

/// Names of the test vectors of the hash that do not match.
pub fn broken_hash_vectors(golden: &Golden) -> Vec<String> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let vectors = golden.manifest.hash_vectors.iter();
    let broken = vectors.filter(|(name, v)| {
        let hash = NameHash::new(name);
        let same_h = v.h.iter().enumerate().all(|(i, h)| hex(h) == Some(hash.h(i as u64)));
        let same_s = v.s_f32.iter().enumerate().all(|(i, s)| *s == f64::from(hash.s(i as u64)));
        hex(&v.fnv1a64) != Some(fnv1a64(name.as_bytes())) || !same_h || !same_s
    });
    broken.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_values_are_rounded_once_per_operation() {
        let bound = 0.2020305097103119f64;
        let values = initial(&Init::Uniform { bound }, "", "conv1.weight", 2);
        assert_eq!(values, [0.090_149_88_f32 * bound as f32, 0.490_323_43_f32 * bound as f32]);
        let mut shift = vec![0.5f32, -1.0];
        lift(&mut shift, &Init::OnePlus { bound: 0.1, gain: 0.1 });
        assert_eq!(shift, [0.5 + 0.4, -1.0 + 0.4]);
    }
}
