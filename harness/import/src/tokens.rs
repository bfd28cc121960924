//! Maps as tokens, and tokens as maps.

use zoo_recipe::Layer;
use zoo_recipe::layers::{Grid, Tokens};
use zoo_recipe::schema::Size;

use crate::view::View;

/// A map `[n, c, h, w]` as tokens of all its channels, or of equal parts of them (the boxes of an anchor); and the
/// number of views.
pub(crate) fn tokens(shape: &[usize], views: &[View]) -> Option<(Layer, usize)> {
    let &[n, c, h, w] = shape else { return None };
    let layer = |size| Layer::Tokens(Tokens { size });
    if let [View::Permute(order), View::Reshape(joined), ..] = views
        && let &[samples, count, size] = &joined[..]
        && order[..] == [0, 2, 3, 1]
        && samples == n
        && size > 0
        && c.is_multiple_of(size)
        && count == h * w * (c / size)
    {
        return Some((layer(Some(Size(size)).filter(|_| size < c)), 2));
    }
    let [View::Reshape(apart), View::Permute(order), rest @ ..] = views else { return None };
    let joined = match rest {
        [View::Reshape(joined), ..] => &joined[..],
        _ => &[],
    };
    let of_parts = match joined {
        [samples, count, size] => *size > 0 && c.is_multiple_of(*size) && [*samples, *count] == [n, h * w * (c / size)],
        _ => false,
    };
    let is_flat = apart[..] == [n, c, h * w] && order[..] == [0, 2, 1];
    match (&apart[..], joined) {
        (_, &[_, _, size]) if is_flat && of_parts && size < c => Some((layer(Some(Size(size))), 3)),
        (&[_, parts, size, ..], _) if of_parts && *apart == [n, parts, size, h, w] && order[..] == [0, 3, 4, 1, 2] => {
            Some((layer(Some(Size(size))), 3))
        }
        _ => is_flat.then_some((layer(None), 2)),
    }
}

/// Tokens `[n, t, c]` as a map `[n, c, h, w]`; and the number of views.
pub(crate) fn grid(shape: &[usize], views: &[View]) -> Option<(Layer, usize)> {
    let &[n, t, c] = shape else { return None };
    let map = match views {
        [View::Permute(order), View::Reshape(map), ..] if order[..] == [0, 2, 1] && map.starts_with(&[n, c]) => {
            map.get(2..)?
        }
        [View::Reshape(map), View::Permute(order), ..]
            if order[..] == [0, 3, 1, 2] && map.first() == Some(&n) && map.last() == Some(&c) =>
        {
            map.get(1..map.len() - 1)?
        }
        _ => return None,
    };
    let &[h, w] = map else { return None };
    (h.checked_mul(w) == Some(t)).then(|| (Layer::Grid(Grid { rows: Some(Size(h)).filter(|_| h != w) }), 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_become_maps() {
        let views = |h: usize, w: usize| {
            [
                [View::Permute(vec![0, 2, 1]), View::Reshape(vec![5, 8, h, w])],
                [View::Reshape(vec![5, h, w, 8]), View::Permute(vec![0, 3, 1, 2])],
            ]
        };
        for (h, w, rows) in [(6, 6, None), (4, 9, Some(Size(4))), (1, 36, Some(Size(1)))] {
            for form in views(h, w) {
                assert_eq!(grid(&[5, 36, 8], &form), Some((Layer::Grid(Grid { rows }), 2)), "{h} {w}");
            }
        }
        // Channels that become rows.
        assert_eq!(grid(&[5, 36, 8], &[View::Permute(vec![0, 2, 1]), View::Reshape(vec![5, 4, 8, 9])]), None);
        assert_eq!(grid(&[5, 36, 8], &[View::Reshape(vec![5, 6, 6, 8]), View::Permute(vec![0, 3, 2, 1])]), None);
    }

    #[test]
    fn channels_may_be_the_last_axis_before_pixels_are_joined() {
        let views = |size: usize| [View::Permute(vec![0, 2, 3, 1]), View::Reshape(vec![5, 12 * 8 / size, size])];
        let layer = |size| Layer::Tokens(Tokens { size });
        assert_eq!(tokens(&[5, 8, 3, 4], &views(8)), Some((layer(None), 2)));
        assert_eq!(tokens(&[5, 8, 3, 4], &views(4)), Some((layer(Some(Size(4))), 2)));
    }

    #[test]
    fn tokens_may_be_parts_of_channels() {
        let last = View::Reshape(vec![5, 24, 4]);
        let flat = [View::Reshape(vec![5, 8, 12]), View::Permute(vec![0, 2, 1]), last.clone()];
        let apart = [View::Reshape(vec![5, 2, 4, 3, 4]), View::Permute(vec![0, 3, 4, 1, 2]), last];
        let layer = |size| Layer::Tokens(Tokens { size });
        assert_eq!(tokens(&[5, 8, 3, 4], &flat), Some((layer(Some(Size(4))), 3)));
        assert_eq!(tokens(&[5, 8, 3, 4], &apart), Some((layer(Some(Size(4))), 3)));
        assert_eq!(tokens(&[5, 8, 3, 4], &flat[..2]), Some((layer(None), 2)));
        assert_eq!(tokens(&[5, 8, 3, 4], &apart[..2]), None);
        // Rows of all tokens together.
        assert_eq!(
            tokens(&[5, 8, 3, 4], &[flat[0].clone(), flat[1].clone(), View::Reshape(vec![5, 8, 12])]),
            Some((layer(None), 2))
        );
    }
}
