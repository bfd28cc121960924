//! Convolution.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, ops};

use super::layer_norm::normalised;
use super::resolve::Place;
use super::weight_norm::{WeightNorm, weight};
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
        /// Normalises each filter by the mean and the biased variance of its elements, with this number added to the
        /// variance (arXiv 1903.10520).
        #[schemars(range(min = 0, max = 1))]
        pub standardised?: f64,
        /// With `standardised`, filters are multiplied by this number and a parameter `gain`, `[out, 1, 1, 1]` (arXiv
        /// 2101.08692).
        pub gain?: f64,
        /// Whether the weight is a direction times a length, and where these have their names from.
        pub weight_norm?: WeightNorm,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub init: WeightInit = WeightInit::default(),
    }
}

/// In Python.
const STANDARDISED: &str = r#"
class StandardisedConv2d(nn.Conv2d):
    """A convolution by filters that are normalised (arXiv 1903.10520), with a learned factor (arXiv 2101.08692)."""

    def __init__(self, *arguments: Any, eps: float, gain: float | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.eps, self.factor = eps, gain
        self.gain = None if gain is None else nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        gain = None if self.gain is None else (self.gain * self.factor).view(-1)
        rows = functional.batch_norm(rows, None, None, gain, training=True, momentum=0.0, eps=self.eps)
        filters = rows.reshape_as(self.weight)
        return functional.conv2d(x, filters, self.bias, self.stride, self.padding, self.dilation, self.groups)
"#;

impl Conv {
    /// The filters that are used.
    fn filters(&self, at: &mut Builder<'_, '_>, weight: ValueId) -> Result<ValueId, GraphError> {
        let Some(eps) = self.standardised else { return Ok(weight) };
        let (shape, out) = (at.shape(weight).clone(), self.out.0);
        let size: usize = shape[1..].iter().product();
        let rows = at.add_part("filters", ops::Reshape { shape: [out, size].into() }, &[weight])?;
        let rows = match self.gain {
            Some(factor) => {
                let gain = at.parameter("gain", VariableRole::Weight, &[out, 1, 1, 1], &Init::Constant(1.0))?;
                let gain = at.add_part("gains", ops::Reshape { shape: [out, 1].into() }, &[gain])?;
                let formula = Formula::define(1, |[x, gain]| [normalised(x, eps) * (gain * factor)]);
                at.unnamed_part("standardised", formula, &[rows, gain])?
            }
            None => at.unnamed_part("standardised", Formula::define(1, |[x]| [normalised(x, eps)]), &[rows])?,
        };
        at.add_part("as_filters", ops::Reshape { shape }, &[rows])
    }
}

impl Word for Conv {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.init = self.init.or(&at.init().conv);
        if self.gain.is_some() && self.standardised.is_none() {
            at.error("gain", "a factor of filters that are normalised: it needs `standardised`");
            return None;
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let channels = at.shape(x).get(1).copied().unwrap_or(0);
        let Pair([kh, kw]) = self.kernel;
        let window = ops::Window { dilation: self.dilation.0, ..window::window(self.kernel, self.stride, self.pad) };
        let shape = [self.out.0, channels / self.groups.0.max(1), kh, kw];
        let weight = weight(self.weight_norm, at, &shape, &self.init.weight())?;
        let mut operands = vec![x, self.filters(at, weight)?];
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
        let mut class = "nn.Conv2d";
        if let Some(eps) = self.standardised {
            class = "StandardisedConv2d";
            at.helper(STANDARDISED);
            arguments.push(Code::named("eps", Code::number(at.real("standardised", eps))));
            if let Some(gain) = self.gain {
                arguments.push(Code::named("gain", Code::number(at.real("gain", gain))));
            }
        }
        let out = at.size("out", self.out.0);
        at.gives(out);
        let conv = Code::call(class, arguments);
        at.module_on(x, self.weight_norm.map_or(conv.clone(), |norm| norm.around(conv)))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let mut text = format!("conv {}", window::text(self.kernel, self.stride, self.pad, Pair::ONES));
        if self.dilation != Pair::ONES {
            text += &format!(", dilation {}", one(self.dilation));
        }
        if self.groups != Size(1) {
            text += &format!(", groups {}", self.groups.0);
        }
        if self.standardised.is_some() {
            text += ", standardised";
        }
        Step::new(Work::Conv, text).into()
    }
}
