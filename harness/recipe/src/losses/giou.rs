//! Generalised intersection over union of boxes.

use zoo_graph::{
    GraphError, ValueId,
    formula::{Expression, Formula},
    ops::Slice,
};

use super::{
    Diagnostic, Judged, LossTerm, Terms,
    sigmoid_focal::{PER_ANCHOR, anchor_labels, positives},
};

term! {
    /// 1 - GIoU of the boxes of the anchors with a class (arXiv 1902.09630; torchvision's `generalized_box_iou_loss`):
    /// GIoU = I/(U + eps) - (C - U)/(C + eps), with the areas I of the intersection, U of the union and C of the
    /// smallest box around both. It is summed, divided by the number of such anchors of the sample (at least 1), and
    /// averaged over the samples. Boxes are corners: left, top, right, bottom.
    pub struct Giou called "bbox_regression" {
        /// Output of the model: `[T, 4]`, a box for each of T anchors.
        pub prediction: String,
        /// Input of the step: `[T, 4]`.
        pub target: String,
        /// Input of the step: the class of each anchor, `[T]`; anchors with negative values are ignored.
        pub label: String,
        /// Added to areas in denominators.
        #[schemars(range(min = 0))]
        pub eps: f64 = 1e-7,
    }
}

impl LossTerm for Giou {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let label = anchor_labels(at, &self.name, prediction, &self.label)?;
        if at.shape(prediction).last() != Some(&4) {
            let message = format!("needs boxes of 4 numbers, [T, 4]; this prediction is {}", at.shape(prediction));
            return Err(at.refuse(message));
        }
        let target = at.input(&self.target, at.shape(prediction).clone())?;
        let positives = positives(at, &self.name, label)?;
        let eps = self.eps;
        let loss = Formula::define(0, |[a, b, c, d, e, f, g, h, label, positives]| {
            let (own, other) = ([a, b, c, d], [e, f, g, h]);
            let [left, top, right, bottom] = [0, 1, 2, 3].map(|side| match side {
                0 | 1 => own[side].max(other[side]),
                _ => own[side].min(other[side]),
            });
            let intersection = (right - left).max(0.0) * (bottom - top).max(0.0);
            let union = area(own) + area(other) - intersection;
            let around = area([0, 1, 2, 3].map(|side| match side {
                0 | 1 => own[side].min(other[side]),
                _ => own[side].max(other[side]),
            }));
            let giou = intersection / (union + eps) - (around - union) / (around + eps);
            [label.at_least(0.0).select(1.0 - giou, 0.0) / positives]
        });
        let mut operands = sides(at, &self.name, "prediction", prediction)?;
        operands.extend(sides(at, &self.name, "target", target)?);
        operands.extend([label, positives]);
        at.sum_term((&self.name, self.weight), loss, &operands, at.batch())
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        at.function(PER_ANCHOR);
        let inputs = [self.target.as_str(), &self.label];
        at.call((&self.name, self.weight), TEXT, &[&self.prediction], &inputs, &[("eps", self.eps)])
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

const TEXT: &str = r#"
def giou(p: Tensor, target: Tensor, label: Tensor, eps: float) -> Tensor:
    """Generalised intersection over union of the boxes of anchors with a class."""
    losses = ops.generalized_box_iou_loss(p, target, eps=eps)
    return per_anchor(torch.where(label >= 0, losses, 0), label)
"#;

fn area([left, top, right, bottom]: [Expression<'_>; 4]) -> Expression<'_> {
    (right - left) * (bottom - top)
}

/// The four columns of boxes, `[N, T, 1]` each.
fn sides(at: &mut Terms<'_>, term: &str, of: &str, boxes: ValueId) -> Result<Vec<ValueId>, GraphError> {
    let [n, anchors] = [0, 1].map(|axis| at.shape(boxes)[axis]);
    let side = |(column, side): (usize, &str)| {
        let cut = Slice { start: vec![0, 0, column], size: vec![n, anchors, 1] };
        at.add(format!("loss/{term}/{of}/{side}"), cut, &[boxes])
    };
    ["left", "top", "right", "bottom"].into_iter().enumerate().map(side).collect()
}
