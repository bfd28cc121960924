//! Neighbouring pixels of a map that become one, with all their channels.

use zoo_recipe::Layer;
use zoo_recipe::layers::MergePatches;
use zoo_recipe::schema::Pair;

use crate::view::View;

/// A map `[n, h, w, c]` whose pixels are merged, their channels column by column: filled up with zeros, cut, moved,
/// joined; and the number of views.
pub(crate) fn merged(shape: &[usize], views: &[View]) -> Option<(Layer, usize)> {
    let &[n, height, width, c] = shape else { return None };
    let (filled, rest) = match views {
        [View::Fill(after), rest @ ..] => (&after[..], rest),
        _ => (&[0; 4][..], views),
    };
    let [View::Reshape(apart), View::Permute(order), View::Reshape(together), ..] = rest else { return None };
    let &[_, rows, down, columns, across, _] = &apart[..] else { return None };
    let [below, beside] = [(rows, down, height), (columns, across, width)]
        .map(|(count, size, extent)| count.checked_mul(size)?.checked_sub(extent).filter(|more| *more < size));
    let fits = apart[..] == [n, rows, down, columns, across, c]
        && order == &[0, 1, 3, 4, 2, 5]
        && together == &[n, rows, columns, across * down * c]
        && filled == [0, below?, beside?, 0];
    let layer = Layer::MergePatches(MergePatches { size: Pair([down, across]) });
    fits.then_some((layer, views.len() - rest.len() + 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_pixels_are_merged_column_by_column() {
        let views = [
            View::Fill(vec![0, 1, 2, 0]),
            View::Reshape(vec![5, 4, 2, 4, 3, 6]),
            View::Permute(vec![0, 1, 3, 4, 2, 5]),
            View::Reshape(vec![5, 4, 4, 36]),
            View::Slice(1, 0, 2),
        ];
        let layer = Layer::MergePatches(MergePatches { size: Pair([2, 3]) });
        assert_eq!(merged(&[5, 7, 10, 6], &views), Some((layer.clone(), 4)));
        assert_eq!(merged(&[5, 8, 12, 6], &views[1..]), Some((layer, 3)));
        // Filled up by more than is needed, or not at all; row by row.
        assert_eq!(merged(&[5, 7, 9, 6], &views), None);
        assert_eq!(merged(&[5, 7, 10, 6], &views[1..]), None);
        let rows = View::Permute(vec![0, 1, 3, 2, 4, 5]);
        assert_eq!(merged(&[5, 8, 12, 6], &[views[1].clone(), rows, views[3].clone()]), None);
    }
}
