//! Dice coefficient over classes.

use zoo_graph::{
    GraphError, Shape,
    formula::{Expression, Formula},
    ops::{DeviceName, Reshape, Scale, Transpose},
};

use super::{Code, Diagnostic, Judged, LossTerm, Terms, formula::class_numbers};
use crate::builder::LOGITS;

term! {
    /// One minus the soft Dice coefficient of each class in each sample, mean over both (arXiv 1606.04797; MONAI's
    /// `DiceLoss(softmax=True, to_onehot_y=True)`): 1 - (2*I + eps)/(P + G + eps), with the sums over the pixels of the
    /// probability p of the class (P), of the pixels of the class (G), and of p over the pixels of the class (I).
    pub struct SoftmaxDice called "dice" {
        /// Output of the model with the logits `[K, H, W]`, if the model names its outputs. The input `label` contains
        /// the class of each pixel.
        pub prediction?: String,
        /// Label of the pixels that are left out of all sums; 255 in the label maps of PASCAL VOC.
        #[schemars(range(max = 65535))]
        pub ignore?: u32,
        /// Added to numerator and denominator.
        #[schemars(range(min = 0))]
        pub eps: f64 = 1e-5,
    }
}

impl SoftmaxDice {
    /// The value at a pixel, and 0 if its label is ignored.
    fn counted<'f>(&self, label: Expression<'f>, value: Expression<'f>) -> Expression<'f> {
        match self.ignore {
            Some(ignored) => label.equal(f64::from(ignored)).select(0.0, value),
            None => value,
        }
    }
}

impl LossTerm for SoftmaxDice {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let logits = at.prediction(self.prediction.as_deref().unwrap_or(LOGITS))?;
        let Some([n, classes, ..]) = at.shape(logits).nchw() else {
            let message = format!("needs logits per pixel, [K, H, W]; this prediction is {}", at.shape(logits));
            return Err(at.refuse(message));
        };
        let path = |part: &str| format!("loss/{}/{part}", self.name);
        let last = at.add(path("classes_last"), Transpose { permutation: vec![0, 2, 3, 1] }, &[logits])?;
        let rows = at.shape(last).clone();
        let label = class_numbers(at, &self.name, &rows, self.ignore)?;
        let softmax = Formula::define(1, |[x]| [x.softmax()]);
        let p = at.formula(path("probabilities"), softmax, DeviceName::new("SoftmaxV2", "SoftmaxGrad"), &[last])?;
        let term = DeviceName::new("LossFormula", "LossFormulaGrad");
        let inside =
            Formula::define(0, |[p, label]| [self.counted(label, label.equal(p.coordinate(3)).select(p, 0.0))]);
        let both =
            Formula::define(0, |[p, label]| [self.counted(label, p + label.equal(p.coordinate(3)).select(1.0, 0.0))]);
        let inside = at.formula(path("intersections"), inside.summed(vec![1, 2]), term, &[p, label])?;
        let both = at.formula(path("sizes"), both.summed(vec![1, 2]), term, &[p, label])?;
        let eps = self.eps;
        let loss = Formula::define(0, |[inside, both]| [1.0 - (2.0 * inside + eps) / (both + eps)]);
        let sum = at.formula(path("sum"), loss.summed(vec![0, 1, 2, 3]), term, &[inside, both])?;
        let sum = at.add(path("scalar"), Reshape { shape: Shape::scalar() }, &[sum])?;
        at.term((&self.name, self.weight), Scale { factor: 1.0 / (n * classes) as f64 }, &[sum])?;
        Ok(())
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let (logits, shape) = at.output(self.prediction.as_deref().unwrap_or(LOGITS))?;
        if shape.nchw().is_none() {
            return Err(at.refuse("needs logits per pixel, [K, H, W]"));
        }
        let ignored = self.ignore.map_or_else(|| Code::text("None"), |ignored| Code::count(ignored as usize));
        let mut arguments = vec![Code::text(logits), Code::text("batch[\"label\"]")];
        arguments.extend([Code::named("ignored", ignored), Code::named("eps", Code::real(self.eps))]);
        at.function(TEXT);
        at.term(&self.name, self.weight, Code::call("softmax_dice", arguments));
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        self.prediction.as_deref()
    }
}

const TEXT: &str = r#"
def softmax_dice(logits: Tensor, label: Tensor, ignored: int | None, eps: float) -> Tensor:
    """One minus the Dice coefficient of each class in each sample."""
    counted = (label != ignored)[:, None] if ignored is not None else torch.ones_like(label)[:, None]
    classes = torch.arange(logits.shape[1], device=label.device)[:, None, None]
    p, truth = logits.softmax(1) * counted, (label[:, None] == classes) * counted
    both, either = (p * truth).sum((2, 3)), (p + truth).sum((2, 3))
    return (1 - (2 * both + eps) / (either + eps)).mean()
"#;
