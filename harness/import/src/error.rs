//! Errors of an import.

use thiserror::Error;
use zoo_recipe::Diagnostics;

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
    /// The recipe differs from the traced network. This is a defect of the importer, so nothing is written.
    #[error("the resulting recipe differs from the traced network, so nothing is written: {0}")]
    Differs(String),
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

impl From<Refusal> for ImportError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}
