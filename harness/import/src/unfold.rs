//! Windows of maps as samples of their own.

use zoo_recipe::Layer;
use zoo_recipe::layers::Patches;
use zoo_recipe::schema::{Padding, Pair};

use crate::Refusal;
use crate::arguments::At;
use crate::operation::What;
use crate::reader::Reader;
use crate::view::View;
use crate::word::Word;

impl Reader<'_> {
    /// The elements of each window as channels, `[n, c*h*w, windows]`: a view of the windows as maps.
    pub(crate) fn unfold(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let [height, width] = at.pair(1, "kernel_size", None)?;
        let dilation = at.pair(2, "dilation", Some([1, 1]))?;
        at.only("dilation", dilation, [1, 1])?;
        let (pad, stride) = (at.padding(3, "padding")?, Pair(at.pair(4, "stride", Some([1, 1]))?));
        let (&[n, c, ..], &[_, elements, windows]) = (self.shape_of(x), &at.made()?.shape[..]) else {
            return Err(at.unknown_form("input"));
        };
        let what = What::Layer(Word::of(&Layer::Patches(Patches { kernel: Pair([height, width]), stride, pad })));
        let views = vec![View::Reshape(vec![n, windows, elements]), View::Permute(vec![0, 2, 1])];
        let shape = vec![n.saturating_mul(windows), c, height, width];
        let map = [self.shape_of(x)[2], self.shape_of(x)[3]];
        self.gives_viewed(at, what, vec![x], None, shape.clone(), views)?;
        if stride.0 == [height, width]
            && pad == Padding::default()
            && map[0].is_multiple_of(height)
            && map[1].is_multiple_of(width)
        {
            let apart = vec![n, c, map[0] / height, height, map[1] / width, width];
            let views = [View::Reshape(apart), View::Permute(vec![0, 2, 4, 1, 3, 5]), View::Reshape(shape)];
            self.tiles.extend(at.units.last().map(|unit| (unit.result(), (x, views.to_vec()))));
        }
        Ok(())
    }
}
