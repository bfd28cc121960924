//! Windows of a text, with the next token for each position.

use std::sync::Arc;

use super::Text;
use crate::{DataError, Rng, Samples};

/// Tokens in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// For each of them the one that comes after it.
    pub next: Vec<u32>,
}

impl Window {
    fn at(text: &Text, start: usize, length: usize) -> Self {
        let piece = |start: usize| text.tokens[start..start + length].to_vec();
        Self { tokens: piece(start), next: piece(start + 1) }
    }
}

/// Refuses texts that are shorter than a window, and empty windows.
fn expect_window(text: &Text, length: usize) -> Result<(), DataError> {
    match length {
        0 => Err(DataError::Config("windows of no tokens".to_owned())),
        _ if text.tokens.len() > length => Ok(()),
        _ => {
            let (tokens, needed) = (text.tokens.len(), length + 1);
            let reason = format!("{tokens} tokens are too few: a window and the token after it take {needed}");
            Err(DataError::malformed(&text.name, reason))
        }
    }
}

/// Windows from random places of a text, as nanoGPT's `get_batch` draws them.
#[derive(Debug, Clone)]
pub struct RandomWindows {
    text: Arc<Text>,
    length: usize,
    count: usize,
}

impl RandomWindows {
    /// Windows of `length` tokens, `count` per epoch.
    ///
    /// # Errors
    /// A text that is shorter than a window and the token after it.
    pub fn new(text: Arc<Text>, length: usize, count: usize) -> Result<Self, DataError> {
        expect_window(&text, length)?;
        Ok(Self { text, length, count })
    }
}

impl Samples for RandomWindows {
    type Sample = Window;

    fn len(&self) -> usize {
        self.count
    }

    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<Window, DataError> {
        let start = Rng::new(seed, epoch, index as u64).below(self.text.tokens.len() - self.length);
        Ok(Window::at(&self.text, start, self.length))
    }
}

/// Windows side by side: each token but the first is predicted once. An incomplete rest is ignored.
#[derive(Debug, Clone)]
pub struct ConsecutiveWindows {
    text: Arc<Text>,
    length: usize,
}

impl ConsecutiveWindows {
    /// All windows of `length` tokens.
    ///
    /// # Errors
    /// A text that is shorter than a window and the token after it.
    pub fn new(text: Arc<Text>, length: usize) -> Result<Self, DataError> {
        expect_window(&text, length)?;
        Ok(Self { text, length })
    }

    /// How many windows of `length` tokens a text has.
    pub fn count(text: &Text, length: usize) -> usize {
        text.tokens.len().saturating_sub(1) / length.max(1)
    }
}

impl Samples for ConsecutiveWindows {
    type Sample = Window;

    fn len(&self) -> usize {
        Self::count(&self.text, self.length)
    }

    fn sample(&self, _seed: u64, _epoch: u64, index: usize) -> Result<Window, DataError> {
        Ok(Window::at(&self.text, index * self.length, self.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(tokens: usize) -> Arc<Text> {
        Arc::new(Text { name: "t".to_owned(), tokens: (0..tokens as u32).collect(), characters: tokens })
    }

    #[test]
    fn windows_side_by_side_by_hand() {
        let windows = ConsecutiveWindows::new(text(12), 4).unwrap();
        assert_eq!(windows.len(), 2);
        assert_eq!(windows.sample(0, 0, 1).unwrap(), Window { tokens: vec![4, 5, 6, 7], next: vec![5, 6, 7, 8] });
        assert_eq!(ConsecutiveWindows::new(text(13), 4).unwrap().len(), 3);
    }

    #[test]
    fn a_text_has_to_have_a_window_and_one_more() {
        let error = ConsecutiveWindows::new(text(4), 4).unwrap_err().to_string();
        assert_eq!(error, "t: 4 tokens are too few: a window and the token after it take 5");
        assert!(RandomWindows::new(text(4), 4, 1).is_err() && RandomWindows::new(text(4), 0, 1).is_err());
        let only = RandomWindows::new(text(5), 4, 3).unwrap();
        assert_eq!(only.sample(1, 2, 0).unwrap().tokens, [0, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn each_token_is_predicted_once(tokens in 2usize..200, length in 1usize..40) {
            prop_assume!(tokens > length);
            let windows = ConsecutiveWindows::new(text(tokens), length).unwrap();
            let all = (0..windows.len()).map(|index| windows.sample(0, 0, index).unwrap());
            let predicted: Vec<u32> = all.flat_map(|window| window.next).collect();
            prop_assert!(predicted.iter().copied().eq(1..=predicted.len() as u32));
            prop_assert!(tokens - 1 - predicted.len() < length);
        }

        #[test]
        fn random_windows_follow_from_seed_epoch_and_index(seed: u64, epoch in 0u64..9, index in 0usize..99) {
            let windows = RandomWindows::new(text(50), 7, 99).unwrap();
            let window = windows.sample(seed, epoch, index).unwrap();
            prop_assert_eq!(&window, &windows.sample(seed, epoch, index).unwrap());
            prop_assert!(window.tokens.iter().zip(&window.next).all(|(now, next)| now + 1 == *next));
            prop_assert!(window.next[6] < 50);
        }
    }

    #[test]
    fn every_place_is_drawn_as_often() {
        let windows = RandomWindows::new(text(20), 4, 16_000).unwrap();
        let mut starts = [0u32; 16];
        for index in 0..windows.len() {
            starts[windows.sample(3, 1, index).unwrap().tokens[0] as usize] += 1;
        }
        // 1000 each; six deviations of a binomial are 184.
        assert!(starts.iter().all(|count| count.abs_diff(1000) < 184), "{starts:?}");
    }
}
