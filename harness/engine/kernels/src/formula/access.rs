//! Elements of a tensor in the order of a larger space that it is broadcast to.

/// Extents and strides of a tensor along the axes of a space, axes merged where they can be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Access {
    /// Extent and stride, outermost axis first; at least one.
    axes: Vec<(usize, usize)>,
}

/// Elements in a row of the space that lie in a row of the tensor, too.
pub(super) struct Run {
    /// Place in the tensor of the first one.
    pub at: usize,
    /// How many.
    pub len: usize,
    /// Distance in the tensor from one to the next.
    pub stride: usize,
    /// How many times they follow in the space: the lanes of a block of channels, for all pixels.
    pub times: usize,
}

impl Run {
    /// Elements of the space.
    pub fn elements(&self) -> usize {
        self.len * self.times
    }

    /// The place in the tensor of each element.
    pub fn places(self) -> impl Iterator<Item = usize> {
        (0..self.times).flat_map(move |_| (0..self.len).map(move |i| self.at + i * self.stride))
    }
}

impl Access {
    /// A tensor with these strides along the axes of a space; 0 where it is broadcast.
    pub fn new(space: &[usize], strides: &[usize]) -> Self {
        let mut axes: Vec<(usize, usize)> = Vec::new();
        for (&extent, &stride) in space.iter().zip(strides).filter(|(extent, _)| **extent != 1) {
            match axes.last_mut() {
                Some((outer, outer_stride)) if *outer_stride == stride * extent => {
                    (*outer, *outer_stride) = (*outer * extent, stride);
                }
                _ => axes.push((extent, stride)),
            }
        }
        if axes.is_empty() {
            axes.push((1, 0));
        }
        Self { axes }
    }

    /// Whether it has the elements of the space in their order.
    pub fn is_whole(&self) -> bool {
        matches!(self.axes[..], [(_, 1)])
    }

    /// The runs of `len` elements of the space from `start`.
    pub fn runs(&self, start: usize, len: usize) -> impl Iterator<Item = Run> + '_ {
        let (inner, stride) = self.axes[self.axes.len() - 1];
        let outer = &self.axes[..self.axes.len() - 1];
        let (mut next, end) = (start, start + len);
        std::iter::from_fn(move || {
            if next == end {
                return None;
            }
            let (mut rest, within) = (next / inner, next % inner);
            let mut at = within * stride;
            for (extent, stride) in outer.iter().rev() {
                at += rest % extent * stride;
                rest /= extent;
            }
            let len = (inner - within).min(end - next);
            let times = match outer.last() {
                Some((extent, 0)) if len == inner => {
                    let here = next / inner % extent;
                    (extent - here).min((end - next) / inner)
                }
                _ => 1,
            };
            next += len * times;
            Some(Run { at, len, stride, times })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn axes_merge() {
        assert!(Access::new(&[2, 3, 4], &[12, 4, 1]).is_whole());
        assert_eq!(Access::new(&[2, 3, 4], &[0, 0, 0]).axes, [(24, 0)]);
        assert_eq!(Access::new(&[2, 3, 4, 1], &[0, 4, 1, 9]).axes, [(2, 0), (12, 1)]);
        assert_eq!(Access::new(&[], &[]).axes, [(1, 0)]);
    }

    proptest! {
        #[test]
        fn runs_give_every_element(
            axes in prop::collection::vec((1usize..5, prop::bool::ANY), 0..5), cut in 0usize..40, len in 0usize..40,
        ) {
            let space: Vec<usize> = axes.iter().map(|a| a.0).collect();
            let total: usize = space.iter().product();
            let (start, end) = (cut.min(total), (cut + len).min(total));
            let mut strides = vec![0; space.len()];
            let mut numel = 1;
            for (i, (extent, broadcast)) in axes.iter().enumerate().rev() {
                if !broadcast {
                    strides[i] = numel;
                    numel *= extent;
                }
            }
            let access = Access::new(&space, &strides);
            let found: Vec<usize> = access
                .runs(start, end - start)
                .flat_map(Run::places)
                .collect();
            let expected = (start..end).map(|mut place| {
                let mut at = 0;
                for (extent, stride) in space.iter().zip(&strides).rev() {
                    at += place % extent * stride;
                    place /= extent;
                }
                at
            });
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}
