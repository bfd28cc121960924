//! Batch normalisation.

use zoo_graph::{GraphError, Init, Phase, ValueId, VariableRole, ops};

use super::resolve::Place;
use super::{Module, Word};
use crate::builder::{Builder, Mode};
use crate::diagnostic::Diagnostic;
use crate::lints::Lints;
use crate::python::{At, Code, Var};
use crate::values::{BnInit, Statistics};

zoo_settings::settings! {
    /// Batch normalisation over batch, height and width, of `[C, L]` over batch and length, of `[C]` over the batch;
    /// normalises with the biased variance and stores the unbiased one in the running statistics (PyTorch's BatchNorm2d
    /// and BatchNorm1d).
    pub struct Bn {
        /// Added to the variance.
        #[schemars(range(min = 0, max = 1))]
        pub eps: f64 = 1e-5,
        /// Weight of the new batch in the running statistics (as in PyTorch; TensorFlow and MindSpore specify 1 minus
        /// this).
        #[schemars(range(min = 0, max = 1))]
        pub momentum: f64 = 0.1,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "BnInit::is_empty")]
        pub init: BnInit = BnInit::default(),
    }
}

impl Word for Bn {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.init = self.init.or(&at.init().bn);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let shape = &[at.shape(x).get(1).copied().unwrap_or(0)];
        let count = at.shape(x).numel() / shape[0].max(1);
        let (scale, shift) = (self.init.gamma.unwrap_or(1.0), self.init.beta.unwrap_or(0.0));
        let gamma = at.parameter("weight", VariableRole::NormWeight, shape, &Init::Constant(scale))?;
        let beta = at.parameter("bias", VariableRole::NormBias, shape, &Init::Constant(shift))?;
        let mean = at.variable("running_mean", VariableRole::RunningMean, shape, &Init::Constant(0.0))?;
        let var = at.variable("running_var", VariableRole::RunningVar, shape, &Init::Constant(1.0))?;
        let running = [mean, var].map(|id| at.graph().variable(id).value);
        if at.mode() == Mode::Eval || at.training().statistics == Statistics::Stored {
            return at.add(ops::BnInfer { eps: self.eps }, &[x, gamma, beta, running[0], running[1]]);
        }
        let batch = at.add_parts("statistics", Phase::Forward, ops::BnTrainingReduce, &[x])?;
        // A second call of the module continues from the values of the first one.
        let [mean_now, var_now] = [mean, var].map(|id| at.graph().variable(id).next);
        let operands = [mean_now.unwrap_or(running[0]), var_now.unwrap_or(running[1]), batch[0], batch[1]];
        let update = ops::BnRunningUpdate { momentum: self.momentum, count };
        let next = at.add_parts("running", Phase::Update, update, &operands)?;
        at.graph().variables[mean.0].next = Some(next[0]);
        at.graph().variables[var.0].next = Some(next[1]);
        let op = ops::BnTrainingUpdate { eps: self.eps, residual: false, relu: None, ranks: Vec::new() };
        at.add(op, &[x, batch[0], batch[1], gamma, beta])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let class = if at.input().len() == 4 { "nn.BatchNorm2d" } else { "nn.BatchNorm1d" };
        let mut arguments = vec![Code::number(at.extent(1))];
        for (key, value, usual) in [("eps", self.eps, 1e-5), ("momentum", self.momentum, 0.1)] {
            if value != usual || at.is_written(key) {
                arguments.push(Code::named(key, Code::number(at.real(key, value))));
            }
        }
        at.module(Code::call(class, arguments))
    }

    fn lint(&self, lints: &mut Lints<'_>) {
        if self.momentum >= 0.5 {
            let message = format!("momentum {} is the weight of the new batch here", self.momentum);
            let hint = "TensorFlow and MindSpore specify the weight of the old statistics: 0.9 there is 0.1 here";
            lints.warn("momentum", message, hint);
        }
        // cifar10-airbench has 1e-12.
        if self.eps > 0.01 || self.eps < 1e-12 {
            let message = format!("eps {} is far from the usual 1e-5", self.eps);
            lints.warn("eps", message, "1e-5 in PyTorch and MindSpore, 1e-3 in Keras");
        }
        // Statistics of two or three samples are noise: arXiv 1803.08494, figure 1.
        if lints.batch < 4 && lints.parts.is_empty() {
            let message =
                format!("the statistics of batch normalisation over {} samples are mostly noise", lints.batch);
            let hint = "use 16 or more per device; the error rises below (arXiv 1803.08494, figure 1)";
            lints.warn_at("train.batch", message, hint);
        }
    }
}
