//! Logistic loss of masks at selected positions.

use super::balanced_bce::scale_own_gradient;
use super::{OpError, Operand, OperandLayout, Operator, Rounding, expect_float, expect_shape, feature_map, operands};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: logits, windows of the mask `[n * h * w, 1, size, size]` (1 inside, -1 outside, 0 unknown), select `[n,
/// 1, h, w]`. Logits are `[n, s * s, h, w]`, where the map of s x s logits of a position is enlarged to `size` by
/// bilinear interpolation, or one row per position, `[n * h * w, size * size]`.
///
/// Results: the mean of `log(1 + exp(-mask * logit))` over the pixels of the positions whose `select` is 1 (0 if
/// there are none); the gradient of the logits; and as scalars, over these positions, the mean intersection over
/// union of `logit >= 0` and `mask = 1`, and the shares of positions where it exceeds 0.5 and 0.7.
///
/// Only selected positions are enlarged: a few dozen of 625 per sample.
///
/// Source: `select_mask_logistic_loss` and `iou_measure` of the SiamMask authors.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskSoftMargin {
    /// Height and width of a window.
    pub size: usize,
    /// Whether upsampling aligns the centres of the corner pixels instead of their corners.
    pub align_corners: bool,
}

/// The layout of the logits of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitLayout {
    /// Maps of `side * side` logits along the channels.
    Channels {
        /// Height and width of such a map.
        side: usize,
    },
    /// A row per position, with the size of the windows.
    Rows,
}

impl MaskSoftMargin {
    /// The layout of the logits, from their shape and the shape of `select`.
    ///
    /// # Errors
    /// The shapes do not fit each other.
    pub fn logit_layout(&self, logits: &Shape, [n, _, h, w]: [usize; 4]) -> Result<LogitLayout, OpError> {
        let wrong = |expected: String| OpError::Shape { operand: "logits", expected, found: logits.clone() };
        match logits[..] {
            [rows, pixels] if rows == n * h * w && pixels == self.size * self.size => Ok(LogitLayout::Rows),
            [rows, channels, height, width] if [rows, height, width] == [n, h, w] => {
                let side = channels.isqrt();
                if side * side != channels || side < 2 {
                    return Err(wrong("a square number of channels, at least 4".into()));
                }
                Ok(LogitLayout::Channels { side })
            }
            _ => Err(wrong(format!("[{n}, side * side, {h}, {w}] or [{}, {}]", n * h * w, self.size * self.size))),
        }
    }
}

impl Operator for MaskSoftMargin {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [logits, windows, select] = operands(inputs, "logits, windows and select")?;
        expect_float("logits", logits)?;
        let [n, one, h, w] = feature_map("select", select)?;
        expect_shape("select", select, &[n, 1, h, w])?;
        self.logit_layout(&logits.shape, [n, one, h, w])?;
        expect_shape("windows", windows, &[n * h * w, 1, self.size, self.size])?;
        let scalar = TensorType::plain(Shape::scalar(), logits.dtype);
        Ok(vec![scalar.clone(), logits.clone(), scalar.clone(), scalar.clone(), scalar])
    }

    /// Counts every position as selected, since shapes do not show the selection.
    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(20 * inputs[1].shape.numel() as u64)
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 { Operand::in_layout(OperandLayout::Any) } else { Operand::PLAIN }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::MaskSoftMargin(self)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        scale_own_gradient(grad)
    }
}
