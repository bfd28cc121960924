//! Pages: self-contained HTML files for any screen width, with light, dark and print layouts.
//!
//! A [`Page`] consists of a verdict, [`Section`]s (notes, figures, pictures, tables) and facts. One template renders
//! all pages, so that the pages of a run, a comparison and a profile look alike. A [`Chart`] or a [`Timeline`] is a
//! figure.
//!
//! ```
//! use zoo_pages::{Page, Section, Verdict};
//!
//! let verdict = Verdict { class: "met", short: "target met".to_owned(), lines: Vec::new() };
//! let notes = vec!["Text is escaped: 1 < 2.".to_owned()];
//! let section = Section { id: "notes".to_owned(), title: "Notes".to_owned(), notes, ..Section::default() };
//! let page = Page { title: "a run".to_owned(), verdict, sections: vec![section], ..Page::default() };
//! assert!(page.render()?.contains("Text is escaped: 1 &lt; 2."));
//! # Ok::<(), minijinja::Error>(())
//! ```

mod chart;
mod numbers;
mod page;
mod timeline;

pub use chart::{Chart, Level, Series};
pub use numbers::{counted, duration, grouped};
pub use page::{Cell, Column, Facts, Grid, Link, Page, Picture, Section, Verdict};
pub use timeline::{BOUNDS, Lane, Span, Timeline, bound_class};

/// Escapes text for SVG and HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
