//! The correlation of maps with maps: a convolution whose filters are computed, with one group for each channel of each
//! sample.

use zoo_recipe::Layer;
use zoo_recipe::layers::Xcorr;

use crate::Refusal;
use crate::arguments::At;
use crate::operation::What;
use crate::reader::{Reader, Seen};
use crate::trace::Argument;
use crate::view::View;
use crate::word::Word;

const NEAREST: &str = "`xcorr` correlates each channel of each sample with the same channel of a tap, `[1, N*C, H, W]` \
                       with `[N*C, 1, H, W]` in N*C groups";

impl Reader<'_> {
    /// A convolution with computed filters. `None` if this is another function, or its filters are no tensor of
    /// samples.
    pub(crate) fn correlated(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (input, weight) = (at.input(), at.argument(1, &["weight"]));
        if at.call.name() != "conv2d" || !matches!(self.given(weight), Some(Seen::Of(..))) {
            return Ok(None);
        }
        let shape =
            |argument: Option<&Argument>| argument.and_then(Argument::value).and_then(|value| self.shape(value));
        let (n, made) = (self.trace.batch, at.made()?);
        let (Some([1, maps, h, w]), Some([filters, 1, kh, kw])) =
            (shape(input).as_deref().and_then(four), shape(weight).as_deref().and_then(four))
        else {
            return Err(at.refuse("its filters are computed", NEAREST));
        };
        // The number of groups depends on that of samples.
        let groups = match at.argument(6, &["groups"]) {
            Some(Argument::Batch(text)) => text.parse().ok(),
            Some(groups) => groups.int().and_then(|groups| usize::try_from(groups).ok()),
            None => None,
        };
        let settings = (at.pair(3, "stride", Some([1, 1]))?, at.pair(4, "padding", Some([0, 0]))?);
        let dilation = at.pair(5, "dilation", Some([1, 1]))?;
        let is_plain = at.argument(2, &["bias"]).is_none() && (settings, dilation) == (([1, 1], [0, 0]), [1, 1]);
        if !is_plain || groups != Some(maps) || maps != filters || !maps.is_multiple_of(n) {
            return Err(at.refuse("its filters are computed, with other settings", NEAREST));
        }
        let Some([_, _, oh, ow]) = four(&made.shape) else { return Err(at.refuse("it gives no map", NEAREST)) };
        let c = maps / n;
        let x = self.operand_viewed(at, input, &[View::Reshape(vec![n, c, h, w])])?;
        let kernel = self.operand_viewed(at, weight, &[View::Reshape(vec![n, c, kh, kw])])?;
        let what = What::Layer(Word::of(&Layer::Xcorr(Xcorr { kernel: String::new() })));
        let joined = View::Reshape(made.shape.clone());
        self.gives_viewed(at, what, vec![x, kernel], None, vec![n, c, oh, ow], vec![joined]).map(Some)
    }
}

fn four(shape: &[usize]) -> Option<[usize; 4]> {
    shape.try_into().ok()
}
