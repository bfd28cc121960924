//! Translates the node of each operator.

use super::window::pool_attributes;
use super::{OnnxError, Translation, refuse};
use crate::message::Attribute;
use zoo_graph::ops::{Indices, MatMul, Rectifier, Slice, Split};
use zoo_graph::{Graph, Node, Op};

impl Translation<'_> {
    /// Adds the ONNX nodes of a node.
    pub(super) fn node(&mut self, node: &Node) -> Result<(), OnnxError> {
        match &node.op {
            Op::Conv2D(conv) => self.conv(node, conv)?,
            Op::Conv2DBackpropInput(conv) => {
                let input = node.inputs.first().map(|value| self.graph.ty(*value).shape.clone());
                self.conv_transpose(node, &conv.conv, &conv.input, input.as_deref().unwrap_or_default())?;
            }
            Op::BiasAdd(_) => self.bias(node),
            Op::BnInfer(bn) => self.plain(node, "BatchNormalization", vec![Attribute::float("epsilon", bn.eps)]),
            Op::Relu(op) if op.rectifier == Rectifier::Relu => self.plain(node, "Relu", vec![]),
            Op::Relu(_) => {
                let bounds = [("low", 0.0), ("high", 6.0)].map(|(what, value)| self.floats(node, what, &[], &[value]));
                let inputs = self.operands(node).into_iter().chain(bounds).collect();
                self.push("Clip", &node.name, inputs, self.result(node), vec![]);
            }
            Op::Add(_) => self.plain(node, "Add", vec![]),
            Op::WeightedSum(sum) => self.weighted_sum(node, &sum.weights),
            Op::Scale(scale) => {
                let factor = self.floats(node, "factor", &[], &[scale.factor as f32]);
                let inputs = self.operands(node).into_iter().chain([factor]).collect();
                self.push("Mul", &node.name, inputs, self.result(node), vec![]);
            }
            Op::Fill(fill) => {
                let value = self.floats(node, "value", &[], &[fill.value as f32]);
                let extents: Vec<i64> = fill.ty.shape.iter().map(|extent| *extent as i64).collect();
                let extents = self.integers(node, "extents", &extents);
                self.push("Expand", &node.name, vec![value, extents], self.result(node), vec![]);
            }
            Op::Concat(concat) => self.plain(node, "Concat", vec![Attribute::int("axis", concat.axis)]),
            Op::Cumsum(cumsum) => {
                let axis = self.integers(node, "axis", &[cumsum.axis as i64]);
                // ONNX wants a number, not a list of one.
                self.initializers.last_mut().into_iter().for_each(|axis| axis.dims.clear());
                let inputs = self.operands(node).into_iter().chain([axis]).collect();
                let reverse = Attribute::int("reverse", usize::from(cumsum.reverse));
                self.push("CumSum", &node.name, inputs, self.result(node), vec![reverse]);
            }
            Op::MaxPool(pool) => {
                let pads = self.closed_pads(node, &pool.window);
                self.plain(node, "MaxPool", pool_attributes(&pool.window, pads));
            }
            Op::AvgPool(pool) => self.average_pool(node, pool),
            Op::AdaptiveAvgPool(pool) => self.adaptive_pool(node, pool),
            Op::Lrn(lrn) if lrn.size.is_multiple_of(2) => {
                let reason = format!(
                    "of an even number of channels ({}), ONNX sums one more after the channel, and this network one \
                     more before it",
                    lrn.size
                );
                return Err(refuse(node, &reason));
            }
            Op::Lrn(lrn) => {
                let numbers = [("alpha", lrn.alpha), ("beta", lrn.beta), ("bias", lrn.k)];
                let size = Attribute::int("size", lrn.size);
                let attributes = numbers.map(|(name, value)| Attribute::float(name, value)).into_iter().chain([size]);
                self.plain(node, "LRN", attributes.collect());
            }
            Op::Map(map) => self.formula(node, map)?,
            Op::MatMul(matmul) => self.products(node, matmul),
            Op::Pad(pad) => {
                let pads: Vec<i64> = pad.before.iter().chain(&pad.after).map(|extent| *extent as i64).collect();
                let pads = self.integers(node, "pads", &pads);
                let inputs = self.operands(node).into_iter().chain([pads]).collect();
                self.push("Pad", &node.name, inputs, self.result(node), vec![]);
            }
            Op::Reshape(reshape) => {
                let shape = self.shape(node, &reshape.shape);
                let shape = self.integers(node, "shape", &shape);
                let inputs = self.operands(node).into_iter().chain([shape]).collect();
                self.push("Reshape", &node.name, inputs, self.result(node), vec![]);
            }
            Op::Resize(resize) => self.resize(node, resize),
            Op::Slice(slice) => self.slice(node, slice),
            Op::Split(split) => self.split(node, split),
            Op::Gather(gather) => {
                let mut inputs = self.operands(node);
                match &gather.indices {
                    Indices::Operand => {}
                    Indices::Column(place) => {
                        let (place, column) = (self.integer(node, "place", *place), self.unique(&node.name));
                        let all = inputs.pop().into_iter().chain([place]).collect();
                        let last = self.graph.ty(node.inputs[1]).shape.len().saturating_sub(1);
                        self.push("Gather", &column, all, column.clone(), vec![Attribute::int("axis", last)]);
                        inputs.push(column);
                    }
                    Indices::Fixed(numbers) => {
                        let numbers: Vec<i64> = numbers.iter().map(|number| i64::from(*number)).collect();
                        inputs.push(self.integers(node, "indices", &numbers));
                    }
                }
                self.push("Gather", &node.name, inputs, self.result(node), vec![Attribute::int("axis", 0)]);
            }
            Op::Transpose(transpose) => {
                self.plain(node, "Transpose", vec![Attribute::ints("perm", &transpose.permutation)])
            }
            Op::DepthwiseCorrelation(_) => self.correlation(node),
            Op::TopK(_) | Op::Dispatch(_) | Op::Combine(_) | Op::GroupedMatMul(_) => {
                return Err(refuse(node, "ONNX has no operator that gives each expert the rows of its tokens"));
            }
            Op::ExtractPatches(_) => return Err(refuse(node, "ONNX has no operator that turns windows into a batch")),
            Op::AdaptiveAvgPoolGrad(_)
            | Op::AllReduce(_)
            | Op::Assign(_)
            | Op::AvgPoolGrad(_)
            | Op::BalancedBce(_)
            | Op::BiasAddGrad(_)
            | Op::BnInferGrad(_)
            | Op::BnRunningUpdate(_)
            | Op::BnTrainingGrad(_)
            | Op::BnTrainingReduce(_)
            | Op::BnTrainingReduceGrad(_)
            | Op::BnTrainingUpdate(_)
            | Op::BnTrainingUpdateGrad(_)
            | Op::Cast(_)
            | Op::ClipByGlobalNorm(_)
            | Op::ClipByValue(_)
            | Op::Collective(_)
            | Op::Conv2DBackpropFilter(_)
            | Op::DepthwiseCorrelationGrad(_)
            | Op::Dropout(_)
            | Op::ExtractPatchesGrad(_)
            | Op::Eye(_)
            | Op::GatherStatistics(_)
            | Op::L2Loss(_)
            | Op::LossScale(_)
            | Op::LrnGrad(_)
            | Op::MaskSoftMargin(_)
            | Op::MaxPoolGrad(_)
            | Op::ReluGrad(_)
            | Op::ResizeGrad(_)
            | Op::ScaleBy(_)
            | Op::ScatterAdd(_)
            | Op::SoftmaxCrossEntropy(_)
            | Op::CombineGrad(_)
            | Op::GroupedMatMulWeights(_)
            | Op::TransData(_) => return Err(refuse(node, "it belongs to training or to a device")),
        }
        Ok(())
    }

    /// One value per channel: reshapes the bias to `[c, 1, ...]`, which broadcasts.
    fn bias(&mut self, node: &Node) {
        let [x, bias] = [0, 1].map(|index| self.names[node.inputs[index].0].clone());
        let axes = self.graph.ty(node.inputs[0]).shape.len().saturating_sub(2);
        let shape: Vec<i64> = std::iter::once(-1).chain(std::iter::repeat_n(1, axes)).collect();
        let shape = self.integers(node, "shape", &shape);
        let bias = self.part(node, "per_channel", "Reshape", vec![bias, shape], vec![]);
        self.push("Add", &node.name, vec![x, bias], self.result(node), vec![]);
    }

    fn weighted_sum(&mut self, node: &Node, weights: &[f64]) {
        if *weights == [1.0, -1.0] {
            return self.plain(node, "Sub", vec![]);
        }
        let operands = self.operands(node);
        let mut terms = Vec::new();
        for (index, (operand, weight)) in operands.into_iter().zip(weights).enumerate() {
            let factor = self.floats(node, &format!("weight{index}"), &[], &[*weight as f32]);
            terms.push(self.part(node, &format!("term{index}"), "Mul", vec![operand, factor], vec![]));
        }
        self.push("Sum", &node.name, terms, self.result(node), vec![]);
    }

    /// `Gemm` multiplies two matrices; `MatMul` multiplies stacks of matrices, but neither transposes nor adds a
    /// bias.
    fn products(&mut self, node: &Node, matmul: &MatMul) {
        let rank = |graph: &Graph, i: usize| graph.ty(node.inputs[i]).shape.len();
        let flags = [("a", matmul.transpose_a), ("b", matmul.transpose_b)];
        if rank(self.graph, 0) == 2 && rank(self.graph, 1) == 2 {
            let flag = |name: &str, on: bool| Attribute::int(name, usize::from(on));
            return self.plain(
                node,
                "Gemm",
                vec![flag("transA", matmul.transpose_a), flag("transB", matmul.transpose_b)],
            );
        }
        let mut operands = self.operands(node);
        for (i, (name, _)) in flags.into_iter().enumerate().filter(|(_, (_, transposed))| *transposed) {
            let mut order: Vec<usize> = (0..rank(self.graph, i)).collect();
            let last = order.len() - 1;
            order.swap(last - 1, last);
            let (part, given) = (format!("{name}_transposed"), operands[i].clone());
            operands[i] = self.part(node, &part, "Transpose", vec![given], vec![Attribute::ints("perm", &order)]);
        }
        let bias = operands.get(2).cloned();
        operands.truncate(2);
        match bias {
            None => self.push("MatMul", &node.name, operands, self.result(node), vec![]),
            Some(bias) => {
                let product = self.part(node, "product", "MatMul", operands, vec![]);
                self.push("Add", &node.name, vec![product, bias], self.result(node), vec![]);
            }
        }
    }

    fn slice(&mut self, node: &Node, slice: &Slice) {
        self.cut(node, slice, self.result(node));
    }

    /// Writes a slice for each part.
    fn split(&mut self, node: &Node, split: &Split) {
        let mut start = vec![0; self.graph.ty(node.inputs[0]).shape.len()];
        for (part, extent) in node.outputs.iter().zip(&split.sizes) {
            let size = self.graph.ty(*part).shape.to_vec();
            self.cut(node, &Slice { start: start.clone(), size }, self.names[part.0].clone());
            start[split.axis] += extent;
        }
    }

    fn cut(&mut self, node: &Node, slice: &Slice, result: String) {
        let shape = &self.graph.ty(node.inputs[0]).shape;
        let cut: Vec<usize> = (0..shape.len()).filter(|axis| slice.size[*axis] != shape[*axis]).collect();
        let of = |value: &dyn Fn(usize) -> usize| cut.iter().map(|axis| value(*axis) as i64).collect::<Vec<_>>();
        let (starts, ends) = (of(&|axis| slice.start[axis]), of(&|axis| slice.start[axis] + slice.size[axis]));
        let axes = of(&|axis| axis);
        let mut inputs = self.operands(node);
        for (what, values) in [("starts", starts), ("ends", ends), ("axes", axes)] {
            inputs.push(self.integers(node, what, &values));
        }
        self.push("Slice", &node.name, inputs, result, vec![]);
    }
}
