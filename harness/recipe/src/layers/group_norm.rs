//! Normalisation of groups of channels.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, ops};

use super::layer_norm::normalised;
use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{BnInit, Size};

zoo_settings::settings! {
    /// Normalises each group of channels of each sample with its mean and biased variance, with a scale and a shift per
    /// channel (arXiv 1803.08494; PyTorch's GroupNorm). Parameters `weight` and `bias`.
    pub struct GroupNorm {
        /// Number of groups of channels.
        pub groups: Size,
        /// Added to the variance.
        #[schemars(range(min = 0, max = 1))]
        pub eps: f64 = 1e-5,
        /// Whether there is a shift.
        pub bias: bool = true,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "BnInit::is_empty")]
        pub init: BnInit = BnInit::default(),
    }
}

impl Word for GroupNorm {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let shape = at.shape(x).clone();
        let [n, c, ..] = shape[..] else {
            return Err(at.refuse(format!("{shape} has no channels to group")));
        };
        let (groups, eps) = (self.groups.0, self.eps);
        if !c.is_multiple_of(groups) {
            return Err(at.refuse(format!("{c} channels cannot be split in {groups} equal groups")));
        }
        let places: usize = shape[2..].iter().product();
        let weight =
            at.parameter("weight", VariableRole::NormWeight, &[c], &Init::Constant(self.init.gamma.unwrap_or(1.0)))?;
        let shift = Init::Constant(self.init.beta.unwrap_or(0.0));
        let bias = if self.bias { Some(at.parameter("bias", VariableRole::NormBias, &[c], &shift)?) } else { None };
        let per_channel = [groups, c / groups, 1];
        let weight = at.add_part("weight_by_group", ops::Reshape { shape: per_channel.into() }, &[weight])?;
        let grouped = [n, groups, c / groups, places].into();
        let name = ops::DeviceName::new("GroupNorm", "GroupNormGrad");
        let y = match bias {
            Some(bias) => {
                let bias = at.add_part("bias_by_group", ops::Reshape { shape: per_channel.into() }, &[bias])?;
                let x = at.add_part("groups", ops::Reshape { shape: grouped }, &[x])?;
                let formula = Formula::define(2, |[x, weight, bias]| [normalised(x, eps) * weight + bias]);
                at.formula_part("norm", formula, name, &[x, weight, bias])?
            }
            None => {
                let x = at.add_part("groups", ops::Reshape { shape: grouped }, &[x])?;
                let formula = Formula::define(2, |[x, weight]| [normalised(x, eps) * weight]);
                at.formula_part("norm", formula, name, &[x, weight])?
            }
        };
        at.add(ops::Reshape { shape }, &[y])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut arguments = vec![Code::number(at.size("groups", self.groups.0)), Code::number(at.extent(1))];
        if self.eps != 1e-5 {
            arguments.push(Code::named("eps", Code::number(at.real("eps", self.eps))));
        }
        if !self.bias {
            arguments.push(Code::text("bias=False"));
        }
        at.module(Code::call("nn.GroupNorm", arguments))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(format!("group_norm {}", self.groups.0)).into()
    }
}
