//! Drawing generated images: faces, covered pixels, textured canvases. Everything is a pure function of its inputs.

mod canvas;
mod coverage;
mod font;

pub(crate) use canvas::{Canvas, contrasting_colour, random_colour};
pub(crate) use coverage::Coverage;
pub(crate) use font::{Face, Outline, embedded_faces};
