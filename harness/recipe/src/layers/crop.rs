//! Crops margins.

use zoo_graph::{GraphError, ValueId, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Crops the same margin from all four sides, or crops the centre to the height and width of a tap.
    pub struct Crop {
        /// Rows and columns to remove on each side.
        pub margin?: Size,
        /// A tap or an input of the model with the height and width of the result.
        pub like?: String,
        /// Only crop maps that are narrower than this.
        pub narrower_than?: Size,
    }
}

/// In Python.
const CROP_LIKE: &str = r#"
def crop_like(x: Tensor, like: Tensor) -> Tensor:
    """The centre of a map, with the height and width of another."""
    top, left = (x.shape[-2] - like.shape[-2]) // 2, (x.shape[-1] - like.shape[-1]) // 2
    return x[..., top : top + like.shape[-2], left : left + like.shape[-1]]
"#;

/// In Python.
const CROP: &str = r#"
def crop(x: Tensor, margin: int, narrower_than: int | None = None) -> Tensor:
    """Removes a margin on all sides, of maps that are narrower than a limit if there is one."""
    if margin == 0 or (narrower_than is not None and x.shape[-1] >= narrower_than):
        return x
    return x[..., margin:-margin, margin:-margin]
"#;

impl Word for Crop {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if self.margin.is_some() == self.like.is_some() {
            at.error("", "needs either `margin` or `like`").hint = Some("for example `margin: 4`".to_owned());
            return None;
        }
        if let Some(like) = &mut self.like {
            *like = at.tap("like", like)?;
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([n, c, h, w]) = at.shape(x).nchw() else {
            return Err(at.refuse(format!("expected a value with height and width, found {}", at.shape(x))));
        };
        if self.narrower_than.is_some_and(|limit| w >= limit.0) {
            return Ok(x);
        }
        let (oh, ow) = match (&self.like, self.margin) {
            (Some(like), _) => {
                let other = at.shape(at.tapped(like)?);
                let Some([_, _, oh, ow]) = other.nchw().filter(|[_, _, oh, ow]| *oh <= h && *ow <= w) else {
                    return Err(at.refuse(format!("{other} of `{like}` is not within {h}x{w}")));
                };
                (oh, ow)
            }
            (None, margin) => {
                let margin = margin.map_or(0, |margin| margin.0);
                let left = |size: usize| size.checked_sub(2 * margin).filter(|size| *size > 0);
                let (Some(oh), Some(ow)) = (left(h), left(w)) else {
                    return Err(at.refuse(format!("a margin of {margin} leaves nothing of {h}x{w}")));
                };
                (oh, ow)
            }
        };
        if (oh, ow) == (h, w) {
            return Ok(x);
        }
        at.add(ops::Slice { start: vec![0, 0, (h - oh) / 2, (w - ow) / 2], size: vec![n, c, oh, ow] }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        if let Some(like) = &self.like {
            at.helper(CROP_LIKE);
            let like = Code::value(at.tap(like));
            return Ok(at.function(Code::applied("crop_like", at.x(), vec![like])));
        }
        let margin = self.margin.map_or(0, |margin| margin.0);
        let mut arguments = vec![Code::number(at.size("margin", margin))];
        if let Some(limit) = self.narrower_than {
            arguments.push(Code::named("narrower_than", Code::number(at.size("narrower_than", limit.0))));
        }
        at.helper(CROP);
        at.pure(Code::applied("crop", at.x(), arguments))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let by = self.margin.map(|margin| margin.0.to_string());
        let like = self.like.as_ref().map(|like| format!("like {like}"));
        Step::new(Work::Size, format!("crop {}", by.or(like).unwrap_or_default())).into()
    }
}
