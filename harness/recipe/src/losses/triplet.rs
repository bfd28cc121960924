//! Distances of an anchor to something like it, and to something else.

use zoo_graph::{GraphError, formula::Formula};

use super::{Code, Diagnostic, Judged, LossTerm, Terms};
use crate::python::real;

term! {
    /// Mean of max(0, margin + |a - p| - |a - n|) over the samples, where the anchor a, something like it p and
    /// something else n are outputs of the model, and distances are Euclidean along the last axis (arXiv 1503.03832;
    /// PyTorch's TripletMarginLoss, which adds 1e-6 to each difference).
    pub struct Triplet called "triplet" {
        /// Output of the model.
        pub anchor: String,
        /// Output of the model.
        pub positive: String,
        /// Output of the model.
        pub negative: String,
        /// By how much the second distance must be the larger one.
        #[schemars(range(min = 0))]
        pub margin: f64 = 1.0,
    }
}

impl LossTerm for Triplet {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let [a, p, n] = [&self.anchor, &self.positive, &self.negative];
        let operands = [at.prediction(a)?, at.prediction(p)?, at.prediction(n)?];
        let [first, ..] = operands.map(|operand| at.shape(operand).clone());
        if operands.iter().any(|operand| *at.shape(*operand) != first) {
            return Err(at.refuse(format!("`{a}`, `{p}` and `{n}` have different shapes")));
        }
        let (rows, margin) = (first.numel() / first.last().copied().unwrap_or(1).max(1), self.margin);
        let hinge = Formula::define(1, |[a, p, n]| {
            let distance = |other| (a - other + 1e-6).square().row_sum().sqrt();
            [(margin + distance(p) - distance(n)).max(0.0)]
        });
        at.sum_term((&self.name, self.weight), hinge, &operands, rows)
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let outputs = [&self.anchor, &self.positive, &self.negative].map(|output| at.output(output));
        let mut arguments =
            outputs.into_iter().map(|output| Ok(Code::text(output?.0))).collect::<Result<Vec<_>, Diagnostic>>()?;
        arguments.push(Code::named("margin", Code::text(real(self.margin))));
        at.term(&self.name, self.weight, Code::call("functional.triplet_margin_loss", arguments));
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.anchor)
    }
}
