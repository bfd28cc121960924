//! From maps to tokens.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Piece, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// `[C, H, W]` to `[H*W, C]`: each pixel becomes a token, row by row; or several tokens of `size` numbers.
    pub struct Tokens {
        /// Numbers per token, if a pixel becomes several tokens: for example, what a detector predicts for each anchor.
        pub size?: Size,
    }
}

impl Word for Tokens {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([n, c, h, w]) = at.shape(x).nchw() else {
            return Err(at.refuse(format!("expected [C, H, W] to make tokens; this value has {} axes", at.rank(x))));
        };
        let flat = at.add_part("flat", ops::Reshape { shape: [n, c, h * w].into() }, &[x])?;
        let tokens = at.transposed("tokens", &[0, 2, 1], flat)?;
        match self.size {
            None => Ok(tokens),
            Some(Size(size)) if c % size == 0 => {
                at.add_part("split", ops::Reshape { shape: [n, h * w * (c / size), size].into() }, &[tokens])
            }
            Some(Size(size)) => Err(at.refuse(format!(
                "{c} channels are not a multiple of {size}, the numbers per \
                                                       token"
            ))),
        }
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let tokens = Code::of(at.x(), ".flatten(2).transpose(1, 2)");
        match self.size {
            None => at.pure(tokens),
            Some(size) => {
                let size = Code::number(at.size("size", size.0));
                let mut split = tokens;
                split.pieces.push(Piece::Text(".unflatten(2, (-1, ".into()));
                split.pieces.extend(size.pieces);
                split.pieces.push(Piece::Text(")).flatten(1, 2)".into()));
                at.pure(split)
            }
        }
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let size = self.size.map(|Size(size)| format!(" of {size}"));
        Step::new(Work::Size, format!("tokens{}", size.unwrap_or_default())).into()
    }
}
