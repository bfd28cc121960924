//! Smoothing before a stride.

use zoo_graph::{GraphError, TensorType, ValueId, formula::Formula, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Smooths each channel with a binomial filter and then takes every `stride`-th pixel, so that a shift of the image
    /// changes the result little (arXiv 1904.11486; timm's BlurPool2d). A filter of 3 taps has the weights 1/4, 1/2,
    /// 1/4 along each axis. It is a depthwise convolution with fixed weights and without padding; timm pads by
    /// reflection: `- pad: {size: 1, mode: reflect}`.
    pub struct BlurPool {
        /// Taps of the filter along each axis.
        pub kernel: Size = Size(3),
        /// Step of the filter.
        pub stride: Size = Size(2),
    }
}

impl BlurPool {
    /// Most taps along an axis. A binomial filter of this length has a standard deviation of two pixels.
    pub const MOST: usize = 17;

    /// The weights along an axis, `C(taps - 1, k) / 2^(taps - 1)`: rows of Pascal's triangle. All are exact.
    pub fn weights(taps: usize) -> Vec<f64> {
        let mut row = vec![1.0];
        for _ in 1..taps {
            let shifted = [0.0].into_iter().chain(row.iter().copied());
            row = row.iter().copied().chain([0.0]).zip(shifted).map(|(a, b)| (a + b) / 2.0).collect();
        }
        row
    }
}

/// In Python.
const BLUR: &str = r#"
def blur(x: Tensor, weights: list[float], stride: int) -> Tensor:
    """Smooths each channel with a binomial filter before a stride (arXiv 1904.11486)."""
    row = torch.tensor(weights, dtype=x.dtype, device=x.device)
    kernel = torch.outer(row, row).expand(x.shape[1], 1, -1, -1)
    return functional.conv2d(x, kernel, stride=stride, groups=x.shape[1])
"#;

impl Word for BlurPool {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if self.kernel.0 > Self::MOST {
            at.error("kernel", format!("a filter of {} taps; at most {} are possible", self.kernel.0, Self::MOST));
            return None;
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let (ty, taps) = (at.graph().ty(x).clone(), self.kernel.0);
        let [_, channels, _, _] = ty.shape[..] else {
            return Err(at.refuse(format!("expected [C, H, W], found {}", ty.shape)));
        };
        let filters = TensorType::plain([channels, 1, taps, taps], ty.dtype);
        let zeros = at.add_part("zeros", ops::Fill { value: 0.0, ty: filters }, &[])?;
        let weights = Self::weights(taps);
        let filters = Formula::define(0, |[zero]| {
            let along = |axis: usize| {
                let place = zero.coordinate(axis);
                (0..)
                    .zip(&weights)
                    .fold(zero, |before, (tap, weight)| place.at_least(f64::from(tap)).select(zero + *weight, before))
            };
            [along(2) * along(3)]
        });
        let filters = at.unnamed_part("filters", filters, &[zeros])?;
        let window = ops::Window::new([taps, taps], [self.stride.0, self.stride.0]);
        at.add(ops::Conv2D::new(window, channels), &[x, filters])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let weights: Vec<Code> = Self::weights(self.kernel.0).into_iter().map(Code::real).collect();
        let stride = Code::number(at.size("stride", self.stride.0));
        at.helper(BLUR);
        at.pure(Code::applied("blur", at.x(), vec![Code::list(weights), stride]))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, format!("blur_pool {}/{}", self.kernel.0, self.stride.0)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_binomial_coefficients() {
        assert_eq!(BlurPool::weights(1), [1.0]);
        assert_eq!(BlurPool::weights(3), [0.25, 0.5, 0.25]);
        assert_eq!(BlurPool::weights(5), [0.0625, 0.25, 0.375, 0.25, 0.0625]);
        assert_eq!(BlurPool::weights(BlurPool::MOST).iter().sum::<f64>(), 1.0);
    }
}
