//! Numbers from which everything is drawn. A smaller number is a simpler choice, and a tape that ends gives zeros, so
//! a tape with fewer and smaller numbers draws a simpler recipe: that is how proptest shrinks one.

/// A tape that is being read.
#[derive(Clone)]
pub struct Tape<'t> {
    numbers: &'t [u32],
    at: usize,
}

impl<'t> Tape<'t> {
    /// From its beginning.
    pub fn new(numbers: &'t [u32]) -> Self {
        Self { numbers, at: 0 }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        let number = self.numbers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        ((u64::from(number) * n as u64) >> 32) as usize
    }

    /// A number from `low` to `high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Yes, once in `n` times.
    pub fn rarely(&mut self, n: usize) -> bool {
        self.below(n) + 1 == n
    }

    /// One of these.
    pub fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// A number from `low` to `high` with few digits.
    pub fn number(&mut self, low: f64, high: f64) -> f64 {
        let exact = low + (high - low) * self.below(41) as f64 / 40.0;
        (exact * 1e4).round() / 1e4
    }

    /// A divisor of `n`.
    pub fn divisor(&mut self, n: usize) -> usize {
        let divisors: Vec<usize> = (1..=n).filter(|d| n.is_multiple_of(*d)).collect();
        self.of(&divisors)
    }
}
