//! Names of kernels in MindSpore's graph mode, which are the path of the cells around each operator:
//! `Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/Conv2D-op12`, and for gradients
//! `Gradients/Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/gradConv2D/Conv2DBackpropFilter-op34`.
//!
//! `network`, `optimizer`, `_backbone` and `_loss_fn` are attributes of MindSpore's `TrainOneStepCell` and
//! `WithLossCell`.

use crate::{Kernel, LOSS, Names, UPDATE, recording::Part};

/// What the name of a kernel says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope<'t> {
    /// The operator.
    pub operator: &'t str,
    /// The part of the step.
    pub part: Part,
    /// The module, by its dotted name: the cells inside of MindSpore's own.
    pub module: String,
}

impl<'t> Scope<'t> {
    /// The parts of a name; `None` if it is no path of cells.
    pub fn of(name: &'t str) -> Option<Self> {
        let (path, is_gradient) = match name.strip_prefix("Gradients/") {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        let (cells, operator) = path.strip_prefix("Default/")?.rsplit_once('/')?;
        let operator = operator.rsplit_once("-op").map_or(operator, |(operator, _)| operator);
        // Steps of the gradient of a cell have no class.
        let cells: Vec<&str> = cells.split('/').filter_map(|cell| Some(cell.split_once('-')?.0)).collect();
        let is = |name: &str| cells.iter().position(|cell| *cell == name);
        let (part, module) = if cells.first() == Some(&"optimizer") {
            (Part::Update, UPDATE.to_owned())
        } else if is("_loss_fn").is_some() {
            (Part::Loss, LOSS.to_owned())
        } else {
            let outer = is("_backbone").or(is("network").filter(|place| *place == 0)).map_or(0, |place| place + 1);
            (Part::Forward, cells[outer..].join("."))
        };
        Some(Self { operator, part: if is_gradient { Part::Backward } else { part }, module })
    }
}

/// Writes module and part of a kernel with such a name.
pub(crate) fn place(kernel: &mut Kernel, names: &mut Names) {
    let name = names.text(kernel.name).to_owned();
    if let Some(scope) = Scope::of(&name) {
        kernel.part = Some(scope.part);
        kernel.module = names.add(&scope.module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_cells() {
        let cases = [
            ("Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/Cast-op190", ("Cast", Part::Forward, "conv1")),
            (
                "Gradients/Default/network-WithLossCell/_backbone-LeNet5/relu-ReLU/gradReLU/ReluGradV2-op92",
                ("ReluGradV2", Part::Backward, "relu"),
            ),
            (
                "Gradients/Default/network-Grad/blocks-CellList/0-Block/Grad_BatchMatMul/BatchMatMul-op38",
                ("BatchMatMul", Part::Backward, "blocks.0"),
            ),
            (
                "Default/network-WithLossCell/_loss_fn-SoftmaxCrossEntropyWithLogits/SoftmaxCrossEntropyWithLogits-op5",
                ("SoftmaxCrossEntropyWithLogits", Part::Loss, "@loss"),
            ),
            ("Default/optimizer-Momentum/ApplyMomentum-op12", ("ApplyMomentum", Part::Update, "@update")),
            ("Default/network-WithLossCell/_backbone-LeNet5/Reshape-op3", ("Reshape", Part::Forward, "")),
        ];
        for (name, (operator, part, module)) in cases {
            let expected = Scope { operator, part, module: module.to_owned() };
            assert_eq!(Scope::of(name), Some(expected), "{name}");
        }
        assert_eq!(Scope::of("aclnnMatmul_MatMulV3Common_MatMulV3"), None);
        assert_eq!(Scope::of("Default/TransData-op99"), None);
    }
}
