//! Constants that are added to tokens: sines and cosines of positions.

use std::f64::consts::TAU;

use zoo_recipe::Layer;
use zoo_recipe::layers::{Pairs, SinePositions};
use zoo_recipe::schema::Count;

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::operation::What;
use crate::reader::{Reader, Seen};
use crate::trace::Argument;
use crate::turned::rounded;
use crate::word::Word;

/// The positions that a table `[tokens, channels]` is of.
fn positions(table: &[f64], [t, e]: [usize; 2]) -> Option<SinePositions> {
    let (half, last) = (e / 2, t.checked_sub(1)?);
    if e % 2 == 1 || half < 2 || last == 0 {
        return None;
    }
    let at = |token: usize, channel: usize| table.get(token * e + channel).copied().unwrap_or(f64::NAN);
    [Pairs::Adjacent, Pairs::Halves].into_iter().find_map(|pairs| {
        let place = |pair: usize| match pairs {
            Pairs::Adjacent => [2 * pair, 2 * pair + 1],
            Pairs::Halves => [pair, pair + half],
        };
        let angle = |token: usize, pair: usize| {
            let [sine, cosine] = place(pair);
            at(token, sine).atan2(at(token, cosine))
        };
        // How far the slowest pair turns from one token to the next: the farther apart two are, the nearer is what is
        // found.
        let turned = |token: usize| angle(token, half - 1) - angle(0, half - 1);
        let rate =
            (0..).map(|power| 1usize << power).take_while(|token| *token <= last).fold(turned(1), |rate, token| {
                let turns = (rate * token as f64 - turned(token)) / TAU;
                (turned(token) + turns.round() * TAU) / token as f64
            });
        let from = (angle(0, half - 1) / rate).round();
        if !(rate > 0.0 && rate < 1.0 && (0.0..1e9).contains(&from)) {
            return None;
        }
        // Both ways to divide the wavelengths give the same with other bases: one of them was typed.
        let base = |steps: usize| rounded((-rate.ln() * steps as f64 / (half - 1) as f64).exp());
        let typed = [(false, base(half)), (true, base(half - 1))];
        let (closed, base) = typed.into_iter().min_by_key(|(_, base)| format!("{base:e}").len())?;
        let own = SinePositions { base, from: Count(from as usize), pairs, closed };
        // The table may be one of f32.
        let near = |token: usize, channel: usize| {
            let size = (token as f64 + from).max(1.0);
            (at(token, channel) - own.value(token, channel, e)).abs() <= 1e-6 * size
        };
        (0..t).all(|token| (0..e).all(|channel| near(token, channel))).then_some(own)
    })
}

impl Reader<'_> {
    /// A tensor plus a constant one. `None` if there is no such operand.
    pub(crate) fn plus_table(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (Some(first), Some(second)) = (at.input(), at.argument(1, &["other"])) else { return Ok(None) };
        let varies = |table: &&Constant| table.of_one_number().is_none();
        let table = |argument: &Argument| self.trace.constant(argument).filter(varies).cloned();
        let (x, table) = match (table(first), table(second)) {
            (None, Some(table)) => (first, table),
            (Some(table), None) => (second, table),
            (None, None) | (Some(_), Some(_)) => return Ok(None),
        };
        let shape = match self.given(Some(x)) {
            Some(Seen::Of(..) | Seen::Times(..)) => x.value().and_then(|value| self.shape(value)),
            _ => None,
        };
        let Some(shape) = shape else { return Ok(None) };
        let &[first, second, e] = &shape[..] else { return Ok(None) };
        let n = self.trace.batch;
        // Samples may be the second axis.
        let rows = match first == n {
            true => of_tokens(&table, &shape),
            false => (second == n && table.shape == [first, 1, e]).then(|| table.values().collect()),
        };
        let Some(rows) = rows else { return Ok(None) };
        match positions(&rows, [if first == n { second } else { first }, e]) {
            Some(positions) => {
                let (x, views) = self.rows(at, Some(x), None)?;
                let (what, shape) =
                    (What::Layer(Word::of(&Layer::SinePositions(positions))), self.shape_of(x).to_vec());
                self.gives_viewed(at, what, vec![x], None, shape, views).map(Some)
            }
            // Any other constant.
            None => Ok(None),
        }
    }
}

/// The rows of a constant by token, if they are the same for all samples of this shape.
fn of_tokens(table: &Constant, shape: &[usize]) -> Option<Vec<f64>> {
    let sample: usize = shape.get(1..)?.iter().product();
    let own = shape.ends_with(&table.shape) || table.shape[..] == [&[1], &shape[1..]].concat();
    let values: Vec<f64> = table.values().collect();
    let first =
        values.get(..sample).filter(|first| own && sample > 0 && values.chunks(sample).all(|other| other == *first))?;
    Some(first.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_known_in_every_order() {
        let (t, e) = (7, 8);
        for pairs in [Pairs::Adjacent, Pairs::Halves] {
            for (closed, from, base) in [(false, 0, 10000.0), (true, 2, 10000.0), (true, 0, 500.0)] {
                let own = SinePositions { base, from: Count(from), pairs, closed };
                let table: Vec<f64> = (0..t * e).map(|n| own.value(n / e, n % e, e)).collect();
                assert_eq!(positions(&table, [t, e]), Some(own));
                let mut other = table;
                other[3 * e + 1] += 1e-3;
                assert_eq!(positions(&other, [t, e]), None);
            }
        }
    }
}
