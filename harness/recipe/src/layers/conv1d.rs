//! Convolution along one axis.

use zoo_graph::{GraphError, ValueId, VariableRole, ops};

use super::resolve::Place;
use super::weight_norm::{WeightNorm, weight};
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Count, Size, WeightInit};

zoo_settings::settings! {
    /// 1-D convolution of `[C, L]` with a weight `[out, C/groups, kernel]` (PyTorch's Conv1d).
    pub struct Conv1d {
        /// Number of filters.
        pub out: Size,
        /// Length of the window.
        pub kernel: Size,
        /// Step of the window.
        pub stride: Size = Size(1),
        /// Zeros at both ends.
        pub pad: Count = Count::default(),
        /// Distance between adjacent taps of the window.
        pub dilation: Size = Size(1),
        /// Number of groups of input and output channels.
        pub groups: Size = Size(1),
        /// Whether a bias is added.
        pub bias: bool = true,
        /// Whether the weight is a direction times a length, and where these have their names from.
        pub weight_norm?: WeightNorm,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub init: WeightInit = WeightInit::default(),
    }
}

impl Word for Conv1d {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.init = self.init.or(&at.init().conv);
        Some(())
    }

    /// A convolution of maps of height 1.
    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [n, channels, length] = at.shape(x)[..] else {
            return Err(at.refuse(format!("it reads [C, L], not {} axes", at.shape(x).len().saturating_sub(1))));
        };
        let own = channels / self.groups.0;
        let weight = weight(self.weight_norm, at, &[self.out.0, own, self.kernel.0], &self.init.weight())?;
        let bias = match self.bias {
            true => Some(at.parameter("bias", VariableRole::Bias, &[self.out.0], &self.init.bias())?),
            false => None,
        };
        let map = at.add_part("map", ops::Reshape { shape: [n, channels, 1, length].into() }, &[x])?;
        let filters = ops::Reshape { shape: [self.out.0, own, 1, self.kernel.0].into() };
        let filters = at.add_part("filters", filters, &[weight])?;
        let window = ops::Window {
            pad: [0, 0, self.pad.0, self.pad.0],
            dilation: [1, self.dilation.0],
            ..ops::Window::new([1, self.kernel.0], [1, self.stride.0])
        };
        let operands: Vec<ValueId> = [map, filters].into_iter().chain(bias).collect();
        let map = at.add_part("convolution", ops::Conv2D::new(window, self.groups.0), &operands)?;
        let shape = at.shape(map);
        let shape = [shape[0], shape[1], shape[3]];
        at.add(ops::Reshape { shape: shape.into() }, &[map])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let out = at.size("out", self.out.0);
        let mut arguments = vec![Code::number(at.extent(1)), Code::number(out.clone())];
        arguments.push(Code::named("kernel_size", Code::number(at.size("kernel", self.kernel.0))));
        for (key, name, value, usual) in [
            ("stride", "stride", self.stride.0, 1),
            ("pad", "padding", self.pad.0, 0),
            ("dilation", "dilation", self.dilation.0, 1),
            ("groups", "groups", self.groups.0, 1),
        ] {
            if value != usual || at.is_written(key) {
                arguments.push(Code::named(name, Code::number(at.size(key, value))));
            }
        }
        if !self.bias {
            arguments.push(Code::text("bias=False"));
        }
        at.gives(out);
        let conv = Code::call("nn.Conv1d", arguments);
        at.module(self.weight_norm.map_or(conv.clone(), |norm| norm.around(conv)))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let mut text = format!("conv1d {}", self.kernel.0);
        for (word, value, usual) in [
            ("stride", self.stride.0, 1),
            ("pad", self.pad.0, 0),
            ("dilation", self.dilation.0, 1),
            ("groups", self.groups.0, 1),
        ] {
            if value != usual {
                text += &format!(", {word} {value}");
            }
        }
        Step::new(Work::Conv, text).into()
    }
}
