//! A custom formula.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::formula::parse;
use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};

/// Computes a formula, element by element: `- map: "x * sigmoid(1.702 * x)"`. `x` is the current value; taps are
/// further operands, with broadcasting as in NumPy.
///
/// Numbers, `+ - * / ^`, brackets, comparisons (`>`, `>=`, `<`, `<=`, `==`: 1 or 0), `abs`, `sign`, `exp`, `expm1`,
/// `log`, `sqrt`, `rsqrt`, `tanh`, `sigmoid`, `softplus`, `erf`, `sin`, `cos`, `floor`, `detach` (the
/// same number, without a gradient), `max(a, b)`, `min(a, b)`, `select(condition, yes, no)`; over the last axis
/// `row_sum`, `row_mean`, `row_max`, `row_log_sum_exp`, `softmax`, `log_softmax`, and `row_index`. Its gradient follows
/// from it. Where two operands of `max` or `min` are equal, the gradient goes to the second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Map {
    /// The formula.
    pub formula: String,
    /// By name in the formula, the full name of the tap.
    #[serde(skip)]
    taps: IndexMap<String, String>,
}

impl Map {
    /// The operands: the present value, and the taps.
    fn operands(&self) -> Vec<&str> {
        std::iter::once("x").chain(self.taps.keys().map(String::as_str)).collect()
    }
}

impl Word for Map {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        for name in zoo_graph::formula::names(&self.formula).into_iter().filter(|name| name != "x") {
            if let Some(tap) = at.known_tap(&name) {
                self.taps.insert(name, tap);
            }
        }
        match parse(&self.formula, &self.operands(), 1) {
            Ok(_) => Some(()),
            Err(error) => {
                at.error_in_text(&self.formula, error.at, error.message);
                None
            }
        }
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let taps = self.taps.values().map(|tap| at.tapped(tap));
        let operands = std::iter::once(Ok(x)).chain(taps).collect::<Result<Vec<_>, _>>()?;
        let rank = operands.iter().map(|value| at.shape(*value).len()).max().unwrap_or(0);
        let formula = parse(&self.formula, &self.operands(), rank).map_err(|error| at.refuse(error.to_string()))?;
        at.unnamed(formula, &operands)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let taps: Vec<Var> = self.taps.values().map(|tap| at.tap(tap)).collect();
        let operands: Vec<Var> = std::iter::once(at.x()).chain(taps).collect();
        let rank = operands.iter().map(|value| at.dims(*value).len()).max().unwrap_or(0);
        let formula = parse(&self.formula, &self.operands(), rank).map_err(|error| at.refuse(error.to_string()))?;
        at.formula(&formula, &operands)
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step {
            reads: self.taps.values().map(String::as_str).collect(),
            rides: self.taps.is_empty(),
            ..Step::new(Work::Other, self.formula.clone())
        }
        .into()
    }
}
