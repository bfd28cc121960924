//! Softmax and cross entropy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{
    GraphError, Shape,
    formula::Formula,
    ops::{self, DeviceName, Reshape, Scale},
};

use super::{Code, Diagnostic, Judged, LossTerm, Terms};
use crate::builder::{LABEL, LABEL_SHARE, LOGITS, MIXED_LABEL};

zoo_settings::settings! {
    /// Softmax and cross entropy, mean over the samples of a batch, or over their tokens or pixels: logits are `[K]`,
    /// `[T, K]` or `[K, H, W]`.
    pub struct SoftmaxCrossEntropy {
        /// Output of the model with the logits, if the model names its outputs.
        pub prediction?: String,
        /// Input of the step that contains the true classes. The default `label` are the labels of the data, which have
        /// `model.classes` classes.
        #[serde(skip_serializing_if = "is_label")]
        pub label: String = LABEL.to_owned(),
        /// Share s of the probability that is taken from the true class (arXiv 1512.00567, section 7).
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub label_smoothing: f64 = 0.0,
        /// The classes that get this share.
        pub smoothing_over: SmoothingOver = SmoothingOver::AllClasses,
        /// Label of the tokens or pixels that are ignored (PyTorch's `ignore_index`); 255 in the label maps of PASCAL
        /// VOC.
        #[schemars(range(max = 4294967295u32))]
        pub ignore?: u32,
        /// Factor in the total.
        #[schemars(range(min = 0))]
        #[serde(skip_serializing_if = "is_one")]
        pub weight: f64 = 1.0,
    }
}

fn is_label(name: &String) -> bool {
    name == LABEL
}

fn is_one(weight: &f64) -> bool {
    *weight == 1.0
}

/// The classes, of K, that get the share s of label smoothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SmoothingOver {
    /// s/K for each of the K classes, including the true one (PyTorch, TensorFlow).
    #[default]
    AllClasses,
    /// s/(K-1) for each class except the true one (migration guide of MindSpore).
    OtherClasses,
}

impl SoftmaxCrossEntropy {
    /// Adds the term as a component of this name.
    pub(crate) fn build_as(&self, name: &str, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let mut logits = at.prediction(self.prediction.as_deref().unwrap_or(LOGITS))?;
        if at.shape(logits).nchw().is_some() {
            logits = at.add(
                format!("loss/{name}/classes_last"),
                ops::Transpose { permutation: vec![0, 2, 3, 1] },
                &[logits],
            )?;
        }
        let (width, classes) = (at.shape(logits).last().copied(), at.classes);
        if let Some(width) = width.filter(|width| *width < classes && is_label(&self.label)) {
            return Err(at.refuse(format!(
                "the network has {width} logits for {classes} classes: set `out: $classes` in its last layer"
            )));
        }
        let shape = at.shape(logits).clone();
        let known = (width.unwrap_or(classes), self.ignore);
        let labels = at.labels(&self.label, &shape, known)?;
        let over = match self.smoothing_over {
            SmoothingOver::AllClasses => ops::SmoothingOver::AllClasses,
            SmoothingOver::OtherClasses => ops::SmoothingOver::OtherClasses,
        };
        let op = ops::SoftmaxCrossEntropy { smoothing: self.label_smoothing, over, ignored: self.ignore };
        if !(at.mixed && is_label(&self.label)) {
            at.term((name, self.weight), op, &[logits, labels])?;
            return Ok(());
        }
        // Cross entropy is linear in the label, and all images of a batch have one share.
        let others = at.labels(MIXED_LABEL, &shape, known)?;
        let share = at.input(LABEL_SHARE, [at.batch()])?;
        let own = at.add_several(format!("loss/{name}/own_class"), op.clone(), &[logits, labels])?[0];
        let other = at.add_several(format!("loss/{name}/other_class"), op, &[logits, others])?[0];
        let both = Formula::define(0, |[share, own, other]| [share * own + (1.0 - share) * other]).summed(vec![0]);
        let operands = [share, own, other];
        let device = DeviceName::new("LossFormula", "LossFormulaGrad");
        let sum = at.formula(format!("loss/{name}/sum"), both, device, &operands)?;
        let sum = at.add(format!("loss/{name}/scalar"), Reshape { shape: Shape::scalar() }, &[sum])?;
        at.term((name, self.weight), Scale { factor: 1.0 / at.batch() as f64 }, &[sum])?;
        Ok(())
    }
}

impl SoftmaxCrossEntropy {
    /// How it is written in PyTorch, as a component of this name.
    pub(crate) fn emit_as(&self, name: &str, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let (logits, shape) = at.output(self.prediction.as_deref().unwrap_or(LOGITS))?;
        let classes = if shape.nchw().is_some() { shape[1] } else { shape.last().copied().unwrap_or(1) } as f64;
        let smoothing = match self.smoothing_over {
            SmoothingOver::AllClasses => self.label_smoothing,
            // With s*K/(K-1) over all classes, the true one keeps 1 - s, and each other one gets s/(K-1).
            SmoothingOver::OtherClasses => self.label_smoothing * classes / (classes - 1.0),
        };
        if smoothing > 1.0 {
            return Err(at.refuse("PyTorch's cross entropy cannot leave the true class less than 1/K"));
        }
        let rows = shape.nchw().is_none() && shape.len() > 2;
        let entropy = |label: &str| {
            let label = format!("batch[\"{label}\"]{}", if rows { ".flatten()" } else { "" });
            let logits = if rows { format!("{logits}.flatten(0, -2)") } else { logits.clone() };
            let mut arguments = vec![Code::text(logits), Code::text(label)];
            arguments.extend(self.ignore.map(|ignored| Code::named("ignore_index", Code::count(ignored as usize))));
            arguments.extend((smoothing != 0.0).then(|| Code::named("label_smoothing", Code::real(smoothing))));
            Code::call("functional.cross_entropy", arguments)
        };
        let code = match at.mixed && is_label(&self.label) {
            false => entropy(&self.label),
            true => {
                at.function(MIXED);
                Code::call("mixed", vec![Code::text(SHARE), entropy(LABEL), entropy(MIXED_LABEL)])
            }
        };
        at.term(name, self.weight, code);
        Ok(())
    }
}

/// The share of the own class of all images of a batch.
const SHARE: &str = "batch[\"label_share\"]";

const MIXED: &str = r#"
def mixed(share: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """The loss of mixed images, from the losses with their own classes and with those that were mixed in."""
    share = share.mean()
    return share * own + (1 - share) * other
"#;

impl LossTerm for SoftmaxCrossEntropy {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        self.build_as("cross_entropy", at)
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        self.emit_as("cross_entropy", at)
    }

    fn prediction(&self) -> Option<&str> {
        self.prediction.as_deref()
    }
}
