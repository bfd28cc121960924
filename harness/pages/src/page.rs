//! The parts of a page.

use minijinja::{AutoEscape, Environment, value::Serde};
use serde::Serialize;

/// The values for the template. All text is escaped except figures.
#[derive(Default, Serialize)]
pub struct Page<'a> {
    /// Links to other pages of the server; empty for a page in a file.
    pub links: Vec<Link>,
    /// Whether the page is served. Then its main part is reloaded while a run is active; pages in files have no script.
    pub served: bool,
    /// Its title.
    pub title: String,
    /// Lines below the title.
    pub subtitle: Vec<String>,
    /// The box at the top.
    pub verdict: Verdict,
    /// Its sections, in order.
    pub sections: Vec<Section>,
    /// Facts, side by side.
    pub tables: Vec<Facts>,
    /// Long texts, folded under their titles.
    pub details: Vec<(String, &'a str)>,
}

/// A link to another page of the same server.
#[derive(Serialize)]
pub struct Link {
    /// Its text.
    pub text: String,
    /// Path and query.
    pub href: String,
}

/// The box at the top of the page.
#[derive(Default, Serialize)]
pub struct Verdict {
    /// `met`, `missed`, or empty.
    pub class: &'static str,
    /// The verdict in one line.
    pub short: String,
    /// Further notes.
    pub lines: Vec<String>,
}

/// A part of the page under a heading.
#[derive(Default, Serialize)]
pub struct Section {
    /// Unique within the page.
    pub id: String,
    /// The heading.
    pub title: String,
    /// Sentences below the heading.
    pub notes: Vec<String>,
    /// HTML of a chart or a timeline.
    pub figure: Option<String>,
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// Tables.
    pub grids: Vec<Grid>,
    /// Whether the section has a button that sends its ticked boxes to `/compare`.
    pub compares: bool,
}

/// A picture, embedded.
#[derive(Serialize)]
pub struct Picture {
    /// The PNG file.
    pub base64: String,
    /// A textual description, for screen readers.
    pub alt: String,
    /// Its caption.
    pub caption: String,
    /// Whether it takes the whole width of the page.
    pub wide: bool,
}

/// A table with columns.
#[derive(Serialize)]
pub struct Grid {
    /// Its caption.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// A table without rows. Each column has a name and a flag for numbers.
    pub fn new<'c>(caption: impl Into<String>, columns: impl IntoIterator<Item = (&'c str, bool)>) -> Self {
        let columns = columns.into_iter().map(|(name, number)| Column { name: name.to_owned(), number });
        Self { caption: caption.into(), columns: columns.collect(), rows: Vec::new() }
    }
}

/// A column.
#[derive(Serialize)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// Whether it contains numbers.
    pub number: bool,
}

/// A cell.
#[derive(Serialize)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// CSS class: `good`, `bad`, `faint`, `heat1` to `heat9`, or empty.
    pub class: &'static str,
    /// Target of its link, if it has one.
    pub href: Option<String>,
    /// The value of its checkbox, if it has one; ticked values are sent to `/compare`.
    pub tick: Option<String>,
}

impl Cell {
    /// A cell with a CSS class.
    pub fn classed(text: impl Into<String>, class: &'static str) -> Self {
        Self { class, ..text.into().into() }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), class: "", href: None, tick: None }
    }
}

/// A table of facts.
#[derive(Serialize)]
pub struct Facts {
    /// The heading.
    pub title: &'static str,
    /// Names and values.
    pub rows: Vec<(&'static str, String)>,
}

impl Page<'_> {
    /// The page as HTML.
    ///
    /// # Errors
    /// The template cannot be rendered.
    pub fn render(&self) -> Result<String, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.add_global("style", include_str!("page.css"));
        environment.render_str(include_str!("page.html"), Serde(self))
    }
}
