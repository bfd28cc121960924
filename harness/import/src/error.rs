//! Errors of an import.

use thiserror::Error;
use zoo_graph::GraphError;
use zoo_recipe::{ConfigPath, Diagnostics, Recipe};

use crate::Trace;

/// Errors of an import.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file is not a trace.
    #[error("not a trace that this version can read: {0}")]
    Malformed(String),
    /// The network uses something that is not supported.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The network has sizes or names that recipes cannot have.
    #[error("the resulting recipe is not valid, so nothing is written:\n{0}")]
    Invalid(Box<Diagnostics>),
    /// The recipe differs from the traced network, or from what the trace says of it.
    #[error("the resulting recipe differs from the traced network, so nothing is written: {0}")]
    Differs(String),
    /// The recipe cannot be written to a temporary file, from which it is read again.
    #[error("the recipe cannot be checked: {path}: {source}", path = std::env::temp_dir().display())]
    Temporary {
        /// The reason.
        source: std::io::Error,
    },
}

/// An unsupported operation, its position, and the closest alternative.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot import {}: {what}\n --> {at}\n  = `{operator}`: {nearest}", module_text(module))]
pub struct Refusal {
    /// Path of the module.
    pub module: String,
    /// The function or module.
    pub operator: String,
    /// File and line.
    pub at: String,
    /// What is not supported.
    pub what: String,
    /// The closest alternative.
    pub nearest: String,
}

impl Refusal {
    /// An unsupported use of a parameter; its position is the class of its module, or of the network.
    pub(crate) fn of_parameter(trace: &Trace, name: &str, what: String, nearest: &str) -> Self {
        let path = name.rsplit_once('.').map_or("", |(module, _)| module);
        let module = trace.modules.get(path);
        let source = module.and_then(|module| module.source.as_ref());
        let network = || trace.modules.get("")?.source.as_ref();
        Self {
            module: path.to_owned(),
            operator: module.map_or("", |module| module.class.as_str()).to_owned(),
            at: source.or_else(network).unwrap_or(&trace.model).clone(),
            what,
            nearest: nearest.to_owned(),
        }
    }
}

fn module_text(module: &str) -> String {
    if module.is_empty() { "the network".to_owned() } else { format!("`{module}`") }
}

/// Whether a recipe may have this name of a module or parameter.
fn is_name(name: &str) -> bool {
    name.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)))
}

/// Refuses names of modules and parameters that recipes cannot have.
pub(crate) fn check_names(trace: &Trace) -> Result<(), Refusal> {
    let modules = trace.modules.keys().filter(|path| !path.is_empty());
    match modules.chain(trace.parameters.keys()).find(|name| !is_name(name)) {
        Some(name) => {
            let what = format!("a module or parameter is called `{}`", name.escape_debug());
            let nearest = "names in recipes have letters, digits, `_` and `-`: rename it";
            Err(Refusal::of_parameter(trace, name, what, nearest))
        }
        None => Ok(()),
    }
}

/// A recipe that is written, but whose graph cannot be built.
pub(crate) fn unbuildable(recipe: &Recipe, error: GraphError) -> ImportError {
    let (origin, message) = match error {
        GraphError::Shape { name, origin, source } => (origin, format!("{name}: {source}")),
        GraphError::Model { origin, message } => (origin, message),
        error @ GraphError::Invariant { .. } => return ImportError::Differs(error.to_string()),
    };
    let diagnostic = match origin {
        Some(origin) => recipe.error_made_at(origin.span, &ConfigPath::from(origin.path.as_str()), message),
        None => recipe.error_at(&ConfigPath::from("model"), message),
    };
    ImportError::Invalid(Box::new(Diagnostics::from(diagnostic)))
}

impl From<Refusal> for ImportError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}
