//! The page: one HTML file without scripts or anything from elsewhere, for one run as for several.

use minijinja::{AutoEscape, Environment, value::Serde};
use serde::Serialize;

/// What the template fills in. All text is escaped but that of figures.
#[derive(Serialize)]
pub struct Page<'a> {
    /// What it is about.
    pub title: String,
    /// More of that, a line each.
    pub subtitle: Vec<String>,
    /// The box at the top.
    pub verdict: Verdict,
    /// What there is to see, in order.
    pub sections: Vec<Section>,
    /// Facts, side by side.
    pub tables: Vec<Facts>,
    /// Long texts behind their titles.
    pub details: Vec<(String, &'a str)>,
}

/// The box at the top of the page.
#[derive(Serialize)]
pub struct Verdict {
    /// `met`, `missed`, or nothing.
    pub class: &'static str,
    /// In a line.
    pub short: String,
    /// What is to be said besides.
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
    /// An `<svg>` element.
    pub figure: Option<String>,
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// Tables.
    pub grids: Vec<Grid>,
}

/// A picture, embedded.
#[derive(Serialize)]
pub struct Picture {
    /// The PNG file.
    pub base64: String,
    /// What is to be seen, for who does not see it.
    pub alt: String,
    /// A name.
    pub caption: String,
    /// Whether it needs the whole width.
    pub wide: bool,
}

/// A table with columns.
#[derive(Serialize)]
pub struct Grid {
    /// What it holds.
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
    /// What it says.
    pub text: String,
    /// `good`, `bad`, `faint`, or nothing.
    pub class: &'static str,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), class: "" }
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
        environment.render_str(include_str!("page.html"), Serde(self))
    }
}
