//! Which rows of a table belong to which choices of a routing ([`zoo_graph::ops::Dispatch`]).

use crate::KernelError;
use std::ops::Range;

/// The rows of the choices of a routing, ordered by expert and then by token.
pub(crate) struct Rows {
    /// Token of each row.
    tokens: Vec<usize>,
    /// Rows of each expert.
    groups: Vec<Range<usize>>,
}

impl Rows {
    /// Those of a routing `[tokens, experts]`, the operand at this place; `is_choice` of the index of a weight.
    ///
    /// # Errors
    /// A token has more than `top` choices.
    pub fn of(
        place: usize,
        [tokens, experts]: [usize; 2],
        top: usize,
        is_choice: impl Fn(usize) -> bool,
    ) -> Result<Self, KernelError> {
        let mut choices = vec![0; tokens];
        let mut rows = Self { tokens: Vec::with_capacity(tokens * top), groups: Vec::with_capacity(experts) };
        for expert in 0..experts {
            let start = rows.tokens.len();
            for token in (0..tokens).filter(|token| is_choice(token * experts + expert)) {
                choices[token] += 1;
                rows.tokens.push(token);
            }
            rows.groups.push(start..rows.tokens.len());
        }
        match choices.iter().all(|choices| *choices <= top) {
            true => Ok(rows),
            false => Err(KernelError::Operand { place, expected: "a routing with at most `top` choices of a token" }),
        }
    }

    /// Token of each row.
    pub fn tokens(&self) -> &[usize] {
        &self.tokens
    }

    /// The rows of each expert.
    pub fn groups(&self) -> &[Range<usize>] {
        &self.groups
    }

    /// Expert of each row.
    pub fn experts(&self) -> Vec<usize> {
        let each = self.groups.iter().enumerate();
        each.flat_map(|(expert, group)| std::iter::repeat_n(expert, group.len())).collect()
    }

    /// For each token, its rows with their experts, in the order of the experts.
    pub fn of_tokens(&self, tokens: usize) -> Vec<Vec<(usize, usize)>> {
        let mut of_tokens = vec![Vec::new(); tokens];
        for (expert, group) in self.groups.iter().enumerate() {
            group.clone().for_each(|row| of_tokens[self.tokens[row]].push((row, expert)));
        }
        of_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ordered_by_expert_and_token() {
        let routing = [0.0, 0.5, 0.5, 0.25, 0.75, 0.0];
        let rows = Rows::of(1, [2, 3], 2, |at| routing[at] != 0.0).unwrap();
        assert_eq!((rows.tokens(), rows.groups()), (&[1, 0, 1, 0][..], &[0..1, 1..3, 3..4][..]));
        assert_eq!(rows.experts(), [0, 1, 1, 2]);
        assert_eq!(rows.of_tokens(2), [[(1, 1), (3, 2)], [(0, 0), (2, 1)]]);
        assert!(Rows::of(1, [2, 3], 1, |at| routing[at] != 0.0).is_err());
    }
}
