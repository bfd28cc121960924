//! Linear biases of attention scores: the farther away a key is, the smaller its score.

use std::f64::consts::LN_2;

use zoo_graph::formula::Expression;

/// Heads of the first row of slopes: the power of two that is not larger than their number.
fn whole(heads: usize) -> usize {
    1 << heads.max(1).ilog2()
}

/// By head, how much a step further away costs (arXiv 2108.12409, section 3): powers of 2 that end with `-most`, and,
/// if their number is no power of two, every second one of twice as many heads.
pub fn slopes(heads: usize, most: f64) -> Vec<f64> {
    let whole = whole(heads);
    let power = |head: usize| if head < whole { head as f64 + 1.0 } else { (head - whole) as f64 + 0.5 };
    (0..heads).map(|head| (-most * power(head) / whole as f64).exp2()).collect()
}

/// The same for the head of each element, in a formula.
pub(super) fn slope(head: Expression<'_>, heads: usize, most: f64) -> Expression<'_> {
    let first = whole(heads) as f64;
    let rate = -most * LN_2 / first;
    let slope = ((head + 1.0) * rate).exp();
    match first as usize == heads {
        true => slope,
        false => head.at_least(first).select(((head - first + 0.5) * rate).exp(), slope),
    }
}

/// In Python.
pub(super) const ALIBI: &str = r#"
def alibi_bias(q: Tensor, k: Tensor, most: float) -> Tensor:
    """A bias `[heads, T, T]` of scores that grows with the distance of a key (arXiv 2108.12409)."""
    heads, (t, s) = q.shape[-3], (q.shape[-2], k.shape[-2])
    whole = 2 ** (heads.bit_length() - 1)
    powers = torch.tensor([head + 1.0 if head < whole else head - whole + 0.5 for head in range(heads)]).to(q)
    places = torch.arange(s - t, s).to(q)[:, None] - torch.arange(s).to(q)
    return -torch.exp2(powers * (-most / whole))[:, None, None] * places.abs()
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// The slopes of the paper for 8 heads, and those of BLOOM and MPT for 6.
    #[test]
    fn slopes_of_the_paper() {
        let powers = |heads| slopes(heads, 8.0).into_iter().map(f64::log2).collect::<Vec<_>>();
        assert_eq!(powers(8), [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0]);
        assert_eq!(powers(6), [-2.0, -4.0, -6.0, -8.0, -1.0, -3.0]);
    }
}
