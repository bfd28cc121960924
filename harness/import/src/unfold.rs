//! Windows of maps as samples of their own.

use zoo_recipe::Layer;
use zoo_recipe::layers::Patches;
use zoo_recipe::schema::Pair;

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
        self.gives_viewed(at, what, vec![x], None, vec![n.saturating_mul(windows), c, height, width], views)
    }
}
