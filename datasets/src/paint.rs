//! Rendering of generated images: fonts, coverage, textured backgrounds. All functions are pure.

mod canvas;
mod coverage;
mod font;

pub(crate) use canvas::{Canvas, contrasting_colour, random_colour};
pub(crate) use coverage::Coverage;
pub(crate) use font::{Face, Outline, embedded_faces};
