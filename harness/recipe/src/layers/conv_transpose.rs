//! Transposed convolution.

use zoo_graph::{GraphError, ValueId, VariableRole, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work, window};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Padding, Pair, Size, WeightInit};

zoo_settings::settings! {
    /// Transposed 2-D convolution (the input gradient of a convolution) with a weight `[in, out, kernel h, kernel w]`.
    pub struct ConvTranspose {
        /// Number of output channels.
        pub out: Size,
        /// Size of the window.
        pub kernel: Pair,
        /// Step of the window in the output.
        pub stride: Pair = Pair::ONES,
        /// Rows and columns removed from the output.
        pub pad: Padding = Padding::default(),
        /// Whether a bias is added.
        pub bias: bool = true,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub init: WeightInit = WeightInit::default(),
    }
}

impl Word for ConvTranspose {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.init = self.init.or(&at.init().conv);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([n, channels, h, w]) = at.shape(x).nchw() else {
            return Err(at.refuse(format!("a transposed convolution of {}", at.shape(x))));
        };
        let Pair([kh, kw]) = self.kernel;
        let extent = |size: usize, axis: usize| {
            let whole = size.saturating_sub(1).checked_mul(self.stride.0[axis])?.checked_add(self.kernel.0[axis])?;
            let [before, after] = [self.pad.0[2 * axis], self.pad.0[2 * axis + 1]];
            whole.checked_sub(before)?.checked_sub(after).filter(|size| *size > 0)
        };
        let (Some(oh), Some(ow)) = (extent(h, 0), extent(w, 1)) else {
            return Err(at.refuse(format!("padding {:?} leaves nothing of the output", self.pad.0)));
        };
        let shape = [channels, self.out.0, kh, kw];
        let weight = at.parameter("weight", VariableRole::Weight, &shape, &self.init.weight())?;
        let forward = ops::Conv2D::new(window::window(self.kernel, self.stride, self.pad), 1);
        let op = ops::Conv2DBackpropInput { conv: forward, input: [n, self.out.0, oh, ow].into() };
        if !self.bias {
            return at.add(op, &[x, weight]);
        }
        let y = at.add_part("product", op, &[x, weight])?;
        let bias = at.parameter("bias", VariableRole::Bias, &[self.out.0], &self.init.bias())?;
        at.add(ops::BiasAdd, &[y, bias])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let out = at.size("out", self.out.0);
        let mut arguments = vec![Code::number(at.extent(1)), Code::number(out.clone())];
        arguments.push(Code::named("kernel_size", window::pair(at, "kernel", self.kernel)));
        // What stays at the end is output padding there, which is less than the step.
        let Padding([top, bottom, left, right]) = self.pad;
        let more = [top.checked_sub(bottom), left.checked_sub(right)];
        let ([Some(below), Some(beside)], Pair([down, across])) = (more, self.stride) else {
            return Err(at.refuse("nn.ConvTranspose2d removes at least as much before as behind"));
        };
        if (below, beside) != (0, 0) && (below >= down || beside >= across) {
            return Err(at.refuse("nn.ConvTranspose2d removes before at most a step more than behind"));
        }
        arguments.extend(window::options(at, self.stride, Padding([top, top, left, left]), Pair::ONES));
        if (below, beside) != (0, 0) {
            arguments.push(Code::named("output_padding", Code::tuple([below, beside].map(Code::count).to_vec())));
        }
        if !self.bias {
            arguments.push(Code::text("bias=False"));
        }
        at.gives(out);
        at.module(Code::call("nn.ConvTranspose2d", arguments))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let window = window::text(self.kernel, self.stride, self.pad, Pair::ONES);
        Step::new(Work::Conv, format!("conv_transpose {window}")).into()
    }
}
