//! The documented hash function for weights, inputs, sample positions and orders.
//!
//! Goldens do not store pseudo-random numbers, but define them by a name and an index. [`Rng`](crate::Rng) uses the
//! same function. All integers are 64 bits wide and wrap:
//!
//! ```text
//! fnv1a64      start 0xcbf29ce484222325; per byte: z ^= b; z *= 0x100000001b3        (Fowler, Noll, Vo)
//! splitmix64   z ^= z>>30; z *= 0xBF58476D1CE4E5B9; z ^= z>>27; z *= 0x94D049BB133111EB; z ^= z>>31
//! h(n,i)       splitmix64(fnv1a64(utf8 n) + (i+1)*0x9E3779B97F4A7C15)
//! s(n,i)       2*((h>>40) as f32 * 2^-24) - 1          in [-1,1), exact in f32
//! ```
//!
//! splitmix64 is the output function of Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
//! (OOPSLA 2014), in Stafford's variant 13.

/// The increment of splitmix64: 2^64 divided by the golden ratio, made odd.
pub const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// 64-bit Fowler-Noll-Vo hash (variant 1a) of `bytes`.
pub const fn fnv1a64(bytes: &[u8]) -> u64 {
    let mut z = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        z = (z ^ bytes[i] as u64).wrapping_mul(0x100_0000_01b3);
        i += 1;
    }
    z
}

/// The mixing function of splitmix64: a bijection on 64-bit integers.
#[inline(always)]
pub const fn splitmix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The sequence of hash values that belongs to one name; [`h`] and [`s`] without hashing the name again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHash(u64);

impl NameHash {
    /// Hashes `name`.
    pub const fn new(name: &str) -> Self {
        Self(fnv1a64(name.as_bytes()))
    }

    /// `h(name, index)`: 64 pseudo-random bits.
    #[inline(always)]
    pub const fn h(self, index: u64) -> u64 {
        splitmix64(self.0.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA)))
    }

    /// `s(name, index)`: a multiple of 2^-23 in [-1, 1), exact in f32.
    #[inline(always)]
    pub const fn s(self, index: u64) -> f32 {
        2.0 * ((self.h(index) >> 40) as f32 * (1.0 / (1 << 24) as f32)) - 1.0
    }
}

/// `h(name, index)` of the golden data: 64 pseudo-random bits.
pub const fn h(name: &str, index: u64) -> u64 {
    NameHash::new(name).h(index)
}

/// `s(name, index)` of the golden data: a multiple of 2^-23 in [-1, 1), exact in f32.
pub const fn s(name: &str, index: u64) -> f32 {
    NameHash::new(name).s(index)
}

/// Flat positions at which a golden stores samples of the tensor `key` with `numel` elements:
/// position `j` is `h("sample:" + key, j) mod numel` (repeats can happen).
///
/// A tensor of at most `count` elements is the caller's business: goldens store those in order.
pub fn sample_positions(key: &str, numel: usize, count: usize) -> impl Iterator<Item = usize> {
    let name = NameHash::new(&format!("sample:{key}"));
    (0..count as u64).map(move |j| (name.h(j) % numel as u64) as usize)
}

/// Indices `0..n` sorted by `h("order", index)`: the documented order of the golden trajectory.
///
/// Index `i` is the `i`-th of the paths `CLASS/FILE` sorted bytewise, which is the order of
/// [`ImageFolder`](crate::ImageFolder).
pub fn hash_order(n: usize) -> Vec<usize> {
    let name = NameHash::new("order");
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|&i| (name.h(i as u64), i));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of the golden data (`hash_vectors` in each manifest).
    #[test]
    fn published_vectors() {
        assert_eq!(fnv1a64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(
            [0, 1, 2, 3].map(|i| h("a", i)),
            [0x5f29_c2aa_dd9b_8527, 0xff84_f1bd_b6d3_884f, 0xfdfa_b147_e960_346e, 0xaf99_d206_10c7_4918,]
        );
        assert_eq!(fnv1a64(b"conv1.weight"), 0x69a2_9a2c_ee47_d254);
        assert_eq!(h("conv1.weight", 2), 0x05de_32ee_ed3c_84ab);
        assert_eq!(s("a", 0), -0.256_538_15);
        assert_eq!(s("input.image", 3), -0.478_965_16);
        assert_eq!(h("input.image", 3), 0x42b1_456a_ca94_ed58);
    }

    #[test]
    fn a_hash_order_is_a_permutation() {
        let mut order = hash_order(1000);
        assert_ne!(order[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<_>>());
    }
}
