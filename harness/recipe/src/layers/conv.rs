//! Convolution.

use zoo_graph::{GraphError, ValueId, VariableRole, ops};

use super::resolve::Place;
use super::window::{self, one};
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Padding, Pair, Size, WeightInit};

zoo_settings::settings! {
    /// 2-D convolution of `[C, H, W]` with a weight `[out, C/groups, kernel h, kernel w]`.
    pub struct Conv {
        /// Number of filters.
        pub out: Size,
        /// Size of the window.
        pub kernel: Pair,
        /// Step of the window.
        pub stride: Pair = Pair::ONES,
        /// Zeros around the image.
        pub pad: Padding = Padding::default(),
        /// Distance between adjacent taps of the window.
        pub dilation: Pair = Pair::ONES,
        /// Number of groups of input and output channels.
        pub groups: Size = Size(1),
        /// Whether a bias is added.
        pub bias: bool = true,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub init: WeightInit = WeightInit::default(),
    }
}

impl Word for Conv {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.init = self.init.or(&at.init().conv);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let channels = at.shape(x).get(1).copied().unwrap_or(0);
        let Pair([kh, kw]) = self.kernel;
        let window = ops::Window { dilation: self.dilation.0, ..window::window(self.kernel, self.stride, self.pad) };
        let shape = [self.out.0, channels / self.groups.0.max(1), kh, kw];
        let mut operands = vec![x, at.parameter("weight", VariableRole::Weight, &shape, &self.init.weight())?];
        if self.bias {
            operands.push(at.parameter("bias", VariableRole::Bias, &[self.out.0], &self.init.bias())?);
        }
        at.add(ops::Conv2D::new(window, self.groups.0), &operands)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let x = window::padded(at, self.pad, "");
        let channels = at.extent(1);
        let mut arguments = vec![Code::number(channels), Code::number(at.size("out", self.out.0))];
        arguments.push(Code::named("kernel_size", window::pair(at, "kernel", self.kernel)));
        arguments.extend(window::options(at, self.stride, self.pad, Pair::ONES));
        if self.dilation != Pair::ONES {
            arguments.push(Code::named("dilation", window::pair(at, "dilation", self.dilation)));
        }
        if self.groups != Size(1) || at.is_written("groups") {
            arguments.push(Code::named("groups", Code::number(at.size("groups", self.groups.0))));
        }
        if !self.bias {
            arguments.push(Code::text("bias=False"));
        }
        let out = at.size("out", self.out.0);
        at.gives(out);
        at.module_on(x, Code::call("nn.Conv2d", arguments))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let mut text = format!("conv {}", window::text(self.kernel, self.stride, self.pad, Pair::ONES));
        if self.dilation != Pair::ONES {
            text += &format!(", dilation {}", one(self.dilation));
        }
        if self.groups != Size(1) {
            text += &format!(", groups {}", self.groups.0);
        }
        Step::new(Work::Conv, text).into()
    }
}
