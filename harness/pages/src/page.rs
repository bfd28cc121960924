//! The parts of a page.

use minijinja::{AutoEscape, Environment, value::Serde};
use serde::Serialize;

/// The values for the template. All text is escaped except figures.
#[derive(Default, Serialize)]
pub struct Page<'a> {
    /// Where else one can go; empty for a page that is a file.
    pub links: Vec<Link>,
    /// Whether the page is served. Then its main part is reloaded while a run is active; pages in files have no script.
    pub served: bool,
    /// Its title.
    pub title: String,
    /// More of that, a line each.
    pub subtitle: Vec<String>,
    /// The box at the top.
    pub verdict: Verdict,
    /// Its sections, in order.
    pub sections: Vec<Section>,
    /// Facts, side by side.
    pub tables: Vec<Facts>,
    /// Long texts behind their titles.
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
    /// `met`, `missed`, or nothing.
    pub class: &'static str,
    /// In a line.
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
    /// Sentences below it.
    pub notes: Vec<String>,
    /// HTML of a chart or a timeline.
    pub figure: Option<String>,
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// Tables.
    pub grids: Vec<Grid>,
    /// Whether its ticked boxes can be sent to `/compare`.
    pub compares: bool,
}

/// A picture, embedded.
#[derive(Serialize)]
pub struct Picture {
    /// The PNG file.
    pub base64: String,
    /// A textual description, for screen readers.
    pub alt: String,
    /// A name.
    pub caption: String,
    /// Whether it needs the whole width.
    pub wide: bool,
}

/// A table with columns.
#[derive(Serialize)]
pub struct Grid {
    /// Its content.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows: a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// A table without rows; columns of numbers are flagged.
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
    /// Whether it holds numbers.
    pub number: bool,
}

/// A cell.
#[derive(Serialize)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// `good`, `bad`, `faint`, `heat1` to `heat9`, or nothing.
    pub class: &'static str,
    /// Where it leads to, if anywhere.
    pub href: Option<String>,
    /// The value of a box to tick, if it has one: the page's boxes are sent to `/compare`.
    pub tick: Option<String>,
}

impl Cell {
    /// In a class.
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
    /// A template that does not render.
    pub fn render(&self) -> Result<String, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.add_global("style", include_str!("page.css"));
        environment.render_str(include_str!("page.html"), Serde(self))
    }
}
