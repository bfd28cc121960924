//! Maps as tokens.

use zoo_recipe::Layer;
use zoo_recipe::layers::Tokens;
use zoo_recipe::schema::Size;

use crate::view::View;

/// A map `[n, c, h, w]` as tokens of all its channels, or of equal parts of them (the boxes of an anchor); and the
/// number of views.
pub(crate) fn tokens(shape: &[usize], views: &[View]) -> Option<(Layer, usize)> {
    let &[n, c, h, w] = shape else { return None };
    let [View::Reshape(apart), View::Permute(order), rest @ ..] = views else { return None };
    let layer = |size| Layer::Tokens(Tokens { size });
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

#[cfg(test)]
mod tests {
    use super::*;

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
