//! Resizes maps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::resolve::Place;
use super::window::one;
use super::{Description, Module, Step, Word, Work, window};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Pair;

zoo_settings::settings! {
    /// Resizes height and width by `scale`, to `size`, or to those of a tap or an input of the model, `like`.
    pub struct Upsample {
        /// Scale factor.
        pub scale?: Pair,
        /// Height and width of the output.
        pub size?: Pair,
        /// A tap or an input of the model with the height and width of the output.
        pub like?: String,
        /// Interpolation.
        pub mode: UpsampleMode = UpsampleMode::default(),
        /// For `bilinear`: align the centres of the corner pixels instead of their corners.
        pub align_corners: bool = false,
    }
}

/// Interpolation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpsampleMode {
    /// The pixel at floor(position / scale).
    #[default]
    Nearest,
    /// The four nearest pixels, weighted by distance.
    Bilinear,
}

impl Word for Upsample {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if [self.scale.is_some(), self.size.is_some(), self.like.is_some()].into_iter().filter(|said| *said).count()
            != 1
        {
            at.error("", "needs one of `scale`, `size` and `like`").hint = Some("for example `scale: 2`".to_owned());
            return None;
        }
        if let Some(like) = &mut self.like {
            *like = at.tap("like", like)?;
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([_, _, h, w]) = at.shape(x).nchw() else {
            return Err(at.refuse(format!("expected a value with height and width, found {}", at.shape(x))));
        };
        let Pair([by_h, by_w]) = self.scale.unwrap_or(Pair::ONES);
        let out = match &self.like {
            Some(like) => {
                let other = at.shape(at.tapped(like)?);
                let Some([.., h, w]) = other.nchw() else {
                    return Err(at.refuse(format!("`{like}` is {other} and has no height and width")));
                };
                [h, w]
            }
            None => self.size.map_or([h.saturating_mul(by_h), w.saturating_mul(by_w)], |size| size.0),
        };
        let interpolation = match self.mode {
            UpsampleMode::Nearest => ops::Interpolation::Nearest,
            UpsampleMode::Bilinear => ops::Interpolation::Bilinear { align_corners: self.align_corners },
        };
        at.add(ops::Resize { out, interpolation }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut options = match self.mode {
            UpsampleMode::Nearest => Vec::new(),
            UpsampleMode::Bilinear => vec![Code::text("mode=\"bilinear\"")],
        };
        if self.align_corners && self.mode == UpsampleMode::Bilinear {
            options.push(Code::text("align_corners=True"));
        }
        if let Some(like) = &self.like {
            let size = Code::of(at.tap(like), ".shape[-2:]");
            options.insert(0, Code::named("size", size));
            return Ok(at.function(Code::applied("functional.interpolate", at.x(), options)));
        }
        let by = match (self.scale, self.size) {
            (Some(scale), _) => Code::named("scale_factor", window::pair(at, "scale", scale)),
            (None, Some(size)) => Code::named("size", window::pair(at, "size", size)),
            (None, None) => return Ok(at.x()),
        };
        options.insert(0, by);
        at.either(Code::call("nn.Upsample", options.clone()), Code::applied("functional.interpolate", at.x(), options))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let mode = match (self.mode, self.align_corners) {
            (UpsampleMode::Nearest, _) => "nearest",
            (UpsampleMode::Bilinear, true) => "bilinear, aligned corners",
            (UpsampleMode::Bilinear, false) => "bilinear",
        };
        let by = self.scale.map(|by| format!("x{}", one(by)));
        let to = self.size.map(|size| format!("to {size}"));
        let like = self.like.as_ref().map(|like| format!("like {like}"));
        Step::new(Work::Size, format!("upsample {}, {mode}", by.or(to).or(like).unwrap_or_default())).into()
    }
}
