//! Logarithms of softmax.

use zoo_recipe::Layer;
use zoo_recipe::layers::PairLogSoftmax;

use crate::Refusal;
use crate::arguments::{At, wrapped};
use crate::operation::What;
use crate::reader::Reader;
use crate::trace::Argument;
use crate::view::View;
use crate::word::Word;

impl Reader<'_> {
    /// Over pairs of channels, `[n, A, H, W, 2]`; any other is a formula.
    pub(crate) fn log_softmax(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (input, made) = (at.input(), at.made()?);
        let axis = at.argument(1, &["dim"]).and_then(Argument::int).and_then(|axis| wrapped(axis, made.shape.len()));
        let ([n, a, h, w, 2], Some(4)) = (&made.shape[..], axis) else {
            return self.softmax(at, Word::formula("log_softmax(x)".to_owned()));
        };
        let maps = [View::Permute(vec![0, 4, 1, 2, 3]), View::Reshape(vec![*n, 2 * a, *h, *w])];
        let x = self.operand_viewed(at, input, &maps)?;
        let what = What::Layer(Word::of(&Layer::PairLogSoftmax(PairLogSoftmax {})));
        self.gives(at, what, vec![x], None)
    }
}
