//! Translates an evaluation graph to the nodes of a model.

mod formula;

use crate::message::{
    Attribute, Dimension, Element, Entry, Graph as GraphMessage, Model, Node as NodeMessage, OperatorSet, Shape,
    Tensor, TensorType, Type, ValueInfo,
};
use crate::{About, IR_VERSION, OPSET, constant};
use prost::Message;
use std::collections::HashSet;
use thiserror::Error;
use zoo_graph::ops::{
    AdaptiveAvgPool, AvgPool, Conv2D, Indices, Interpolation, MatMul, Rectifier, Reshape, Resize, Slice, Split, Window,
};
use zoo_graph::{Graph, Node, Op, Origin, Source, ValueId};

/// Why a network cannot be written as an ONNX model.
#[derive(Debug, Error)]
pub enum OnnxError {
    /// An operator that ONNX does not support in this form.
    #[error("`{node}` ({operator}) cannot be written as ONNX: {reason}")]
    Operator {
        /// The node.
        node: String,
        /// The name of its operator on the device.
        operator: &'static str,
        /// The reason.
        reason: String,
        /// The recipe entry from which the node was built.
        origin: Option<Origin>,
    },
    /// A variable without values.
    #[error("there are no weights for `{0}`")]
    Variable(String),
    /// The model exceeds the size limit of its file format.
    #[error("the model has {0} bytes, and a protobuf file cannot have more than 2 GiB")]
    TooLarge(usize),
}

/// Most bytes of a protobuf message (<https://protobuf.dev/programming-guides/proto-limits>).
const MOST_BYTES: usize = i32::MAX as usize;

/// The batch size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Any number; the dimension is called `batch`.
    Any,
    /// The batch size that the graph was built for.
    Fixed,
}

/// Operators of training or of a device. It is a pattern, so that the compiler reports an operator that is in no
/// list.
macro_rules! not_of_inference {
    () => {
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
            | Op::Conv2DBackpropFilter(_)
            | Op::DepthwiseCorrelationGrad(_)
            | Op::DiceLoss(_)
            | Op::Dropout(_)
            | Op::ExtractPatchesGrad(_)
            | Op::Eye(_)
            | Op::GatherStatistics(_)
            | Op::L2Loss(_)
            | Op::LossScale(_)
            | Op::LrnGrad(_)
            | Op::MaskSoftMargin(_)
            | Op::MaskedL1(_)
            | Op::MaxPoolGrad(_)
            | Op::PairLogSoftmaxGrad(_)
            | Op::ReluGrad(_)
            | Op::ResizeGrad(_)
            | Op::ScaleBy(_)
            | Op::ScatterAdd(_)
            | Op::SelectCrossEntropy(_)
            | Op::SigmoidGrad(_)
            | Op::SoftmaxCrossEntropy(_)
            | Op::TransData(_)
            | Op::WeightedL1(_)
    };
}

/// Whether a network can be computed for any batch size: only if no operator mixes the batch with another dimension
/// or depends on the index of a sample.
pub fn batch(graph: &Graph) -> Batch {
    let of_samples = of_samples(graph);
    let mut of_a_batch = graph.nodes.iter().filter(|node| node.outputs.iter().any(|value| of_samples[value.0]));
    if of_a_batch.any(|node| mixes_samples(graph, node)) { Batch::Fixed } else { Batch::Any }
}

/// Whether the first dimension of a result differs from the operand's, or is more than a batch dimension to the
/// operator.
fn mixes_samples(graph: &Graph, node: &Node) -> bool {
    let samples = || node.inputs.first().and_then(|input| graph.ty(*input).shape.first().copied());
    match &node.op {
        Op::DepthwiseCorrelation(_) | Op::ExtractPatches(_) => true,
        Op::Concat(concat) => concat.axis == 0,
        Op::Map(map) => map.formula.coordinates().any(|axis| axis == 0),
        Op::Reshape(Reshape { shape }) => shape.first().copied() != samples(),
        Op::Slice(slice) => slice.size.first().copied() != samples(),
        Op::Split(split) => split.axis == 0,
        Op::Transpose(transpose) => transpose.permutation.first() != Some(&0),
        Op::AdaptiveAvgPool(_)
        | Op::Add(_)
        | Op::AvgPool(_)
        | Op::BiasAdd(_)
        | Op::BnInfer(_)
        | Op::Conv2D(_)
        | Op::Conv2DBackpropInput(_)
        | Op::Fill(_)
        | Op::Gather(_)
        | Op::Lrn(_)
        | Op::MatMul(_)
        | Op::MaxPool(_)
        | Op::Pad(_)
        | Op::PairLogSoftmax(_)
        | Op::Relu(_)
        | Op::Resize(_)
        | Op::Scale(_)
        | Op::Sigmoid(_)
        | Op::WeightedSum(_) => false,
        // These are refused.
        not_of_inference!() => true,
    }
}

/// A model in ONNX format.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The content of its file.
    pub bytes: Vec<u8>,
    /// The names of its outputs, in the order of the graph. They are the graph's, unless an input has the same name.
    pub outputs: Vec<String>,
}

/// Writes the model. `values` returns the values of a variable by name, row-major.
///
/// # Errors
/// An operator that ONNX cannot express, a variable without values, or a model that exceeds the size limit.
pub fn export(
    graph: &Graph,
    batch: Batch,
    about: &About,
    values: impl Fn(&str) -> Option<Vec<f32>>,
) -> Result<Exported, OnnxError> {
    let mut translation = Translation {
        graph,
        batch,
        of_samples: of_samples(graph),
        names: vec![String::new(); graph.values.len()],
        taken: HashSet::new(),
        called: HashSet::new(),
        nodes: Vec::new(),
        initializers: Vec::new(),
    };
    translation.name_values();
    translation.weights(values)?;
    graph.nodes.iter().try_for_each(|node| translation.node(node))?;
    let graph = translation.finish(&about.name);
    let outputs = graph.output.iter().map(|output| output.name.clone()).collect();
    let metadata = about.metadata.iter().map(|(key, value)| Entry { key: key.clone(), value: value.clone() });
    let model = Model {
        ir_version: IR_VERSION,
        producer_name: "zoo".to_owned(),
        producer_version: about.version.clone(),
        doc_string: about.description.clone(),
        graph: Some(graph),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
        metadata_props: metadata.collect(),
    };
    let size = model.encoded_len();
    if size > MOST_BYTES {
        return Err(OnnxError::TooLarge(size));
    }
    Ok(Exported { bytes: model.encode_to_vec(), outputs })
}

/// For each value, whether it has a row per sample: it is computed from an input, or expanded to the number of
/// samples.
fn of_samples(graph: &Graph) -> Vec<bool> {
    let mut of_samples = vec![false; graph.values.len()];
    graph.inputs.iter().for_each(|input| of_samples[input.value.0] = true);
    let samples = graph.inputs.first().and_then(|input| graph.ty(input.value).shape.first());
    for node in &graph.nodes {
        // A formula over constants whose result has a row per sample is expanded to the actual number of samples.
        let expanded = matches!(&node.op, Op::Map(map) if samples.is_some() && map.space.first() == samples);
        let any = expanded || node.inputs.iter().any(|value| of_samples[value.0]);
        node.outputs.iter().for_each(|value| of_samples[value.0] = any);
    }
    of_samples
}

struct Translation<'a> {
    graph: &'a Graph,
    batch: Batch,
    /// For each value, whether it is computed from the samples; all other values are the same for all samples.
    of_samples: Vec<bool>,
    /// Name of each value.
    names: Vec<String>,
    taken: HashSet<String>,
    /// Names of nodes.
    called: HashSet<String>,
    nodes: Vec<NodeMessage>,
    initializers: Vec<Tensor>,
}

impl Translation<'_> {
    /// Names all values. Inputs, variables and outputs have the names of the recipe, all others those of their nodes.
    fn name_values(&mut self) {
        let graph = self.graph;
        let given = graph.inputs.iter().map(|input| (&input.name, input.value));
        let kept = graph.variables.iter().map(|variable| (&variable.name, variable.value));
        for (name, value) in given.chain(kept) {
            self.names[value.0] = self.unique(name);
        }
        for (name, value) in &graph.outputs {
            if self.names[value.0].is_empty() {
                self.names[value.0] = self.output_name(name);
            }
        }
        for node in &graph.nodes {
            for value in &node.outputs {
                if self.names[value.0].is_empty() {
                    self.names[value.0] = self.unique(&node.name);
                }
            }
        }
    }

    /// This name, or the next free name derived from it; reserves it.
    fn unique(&mut self, name: &str) -> String {
        free(&mut self.taken, name)
    }

    /// The name of an output; it is renamed if an input has the same name.
    fn output_name(&mut self, name: &str) -> String {
        if self.taken.contains(name) { self.unique(&format!("{name}_out")) } else { self.unique(name) }
    }

    /// Adds an initializer for each variable that a node reads.
    fn weights(&mut self, values: impl Fn(&str) -> Option<Vec<f32>>) -> Result<(), OnnxError> {
        let graph = self.graph;
        let read: HashSet<ValueId> = graph.nodes.iter().flat_map(|node| node.inputs.iter().copied()).collect();
        for variable in graph.variables.iter().filter(|variable| read.contains(&variable.value)) {
            let shape = &graph.ty(variable.value).shape;
            let numbers = values(&variable.name).filter(|numbers| numbers.len() == shape.numel());
            let numbers = numbers.ok_or_else(|| OnnxError::Variable(variable.name.clone()))?;
            self.initializers.push(constant::floats(self.names[variable.value.0].clone(), shape, &numbers));
        }
        Ok(())
    }

    fn finish(mut self, name: &str) -> GraphMessage {
        let graph = self.graph;
        let input = graph.inputs.iter().map(|input| self.info(&self.names[input.value.0], input.value)).collect();
        let mut output = Vec::new();
        let mut given = HashSet::new();
        for (name, value) in &graph.outputs {
            let mut shown = self.names[value.0].clone();
            // An output that is an input or a weight, or the second output with the same value.
            if !matches!(graph.value(*value).source, Source::Node(..)) || !given.insert(*value) {
                let known = std::mem::replace(&mut shown, self.output_name(name));
                self.push("Identity", name, vec![known], shown.clone(), vec![]);
            }
            output.push(self.info(&shown, *value));
        }
        let Self { nodes, initializers, .. } = self;
        GraphMessage { node: nodes, name: name.to_owned(), initializer: initializers, input, output }
    }

    fn info(&self, name: &str, value: ValueId) -> ValueInfo {
        let shape = &self.graph.ty(value).shape;
        let dimension = |(axis, extent): (usize, &usize)| match (axis, self.batch) {
            (0, Batch::Any) => Dimension { value: None, param: Some("batch".to_owned()) },
            _ => Dimension { value: Some(*extent as i64), param: None },
        };
        let shape = Shape { dim: shape.iter().enumerate().map(dimension).collect() };
        let element = if self.graph.ty(value).dtype.is_float() { Element::F32 } else { Element::I64 };
        let tensor = TensorType { element: element as i32, shape: Some(shape) };
        ValueInfo { name: name.to_owned(), kind: Some(Type { tensor: Some(tensor) }) }
    }

    fn push(&mut self, op: &str, name: &str, input: Vec<String>, output: String, attribute: Vec<Attribute>) {
        // A module that is called several times produces several nodes.
        let (name, op_type) = (free(&mut self.called, name), op.to_owned());
        self.nodes.push(NodeMessage { input, output: vec![output], name, op_type, attribute });
    }

    /// Adds a single ONNX node with the operands of the graph node.
    fn plain(&mut self, node: &Node, op: &str, attributes: Vec<Attribute>) {
        let inputs = self.operands(node);
        self.push(op, &node.name, inputs, self.result(node), attributes);
    }

    fn operands(&self, node: &Node) -> Vec<String> {
        node.inputs.iter().map(|value| self.names[value.0].clone()).collect()
    }

    fn result(&self, node: &Node) -> String {
        node.outputs.first().map(|value| self.names[value.0].clone()).unwrap_or_default()
    }

    /// Adds one of several ONNX nodes for a graph node; returns the name of its result.
    fn part(&mut self, node: &Node, part: &str, op: &str, inputs: Vec<String>, attributes: Vec<Attribute>) -> String {
        let name = self.unique(&format!("{}/{part}", node.name));
        self.push(op, &name, inputs, name.clone(), attributes);
        name
    }

    /// Adds integers as an initializer of a node.
    fn integers(&mut self, node: &Node, what: &str, values: &[i64]) -> String {
        let name = self.unique(&format!("{}/{what}", node.name));
        self.initializers.push(constant::integers(name.clone(), values));
        name
    }

    /// Adds real numbers as an initializer of a node.
    fn floats(&mut self, node: &Node, what: &str, shape: &[usize], values: &[f32]) -> String {
        let name = self.unique(&format!("{}/{what}", node.name));
        self.initializers.push(constant::floats(name.clone(), shape, values));
        name
    }

    /// A shape with a variable batch (0 in ONNX), if the model accepts any batch.
    fn shape(&self, node: &Node, shape: &[usize]) -> Vec<i64> {
        let extents = shape.iter().map(|extent| *extent as i64);
        match self.batch {
            Batch::Any if node.outputs.iter().any(|value| self.of_samples[value.0]) => {
                std::iter::once(0).chain(extents.skip(1)).collect()
            }
            // For parameters and constants, the first dimension is fixed.
            Batch::Any | Batch::Fixed => extents.collect(),
        }
    }

    fn node(&mut self, node: &Node) -> Result<(), OnnxError> {
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
            Op::Sigmoid(_) => self.plain(node, "Sigmoid", vec![]),
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
            Op::MaxPool(pool) => {
                let pads = self.closed_pads(node, &pool.window);
                self.plain(node, "MaxPool", pool_attributes(&pool.window, pads));
            }
            Op::AvgPool(pool) => self.average_pool(node, pool),
            Op::AdaptiveAvgPool(pool) => self.adaptive_pool(node, pool),
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
                let fixed = match &gather.indices {
                    Indices::Operand => None,
                    Indices::Fixed(numbers) => {
                        let numbers: Vec<i64> = numbers.iter().map(|number| i64::from(*number)).collect();
                        Some(self.integers(node, "indices", &numbers))
                    }
                };
                let inputs = self.operands(node).into_iter().chain(fixed).collect();
                self.push("Gather", &node.name, inputs, self.result(node), vec![Attribute::int("axis", 0)]);
            }
            Op::Transpose(transpose) => {
                self.plain(node, "Transpose", vec![Attribute::ints("perm", &transpose.permutation)])
            }
            Op::PairLogSoftmax(_) => self.pair_log_softmax(node),
            Op::DepthwiseCorrelation(_) => self.correlation(node),
            Op::ExtractPatches(_) => return Err(refuse(node, "ONNX has no operator that turns windows into a batch")),
            not_of_inference!() => return Err(refuse(node, "it belongs to training or to a device")),
        }
        Ok(())
    }

    fn conv(&mut self, node: &Node, conv: &Conv2D) -> Result<(), OnnxError> {
        if conv.relu || conv.statistics {
            return Err(refuse(node, "it is fused with its neighbours"));
        }
        let mut attributes = window_attributes(&conv.window, conv.window.pad);
        attributes.push(Attribute::ints("dilations", &conv.window.dilation));
        attributes.push(Attribute::int("group", conv.groups));
        self.plain(node, "Conv", attributes);
        Ok(())
    }

    /// `output` and `input` are the shapes of the output and input of the transposed convolution.
    fn conv_transpose(
        &mut self,
        node: &Node,
        conv: &Conv2D,
        output: &[usize],
        input: &[usize],
    ) -> Result<(), OnnxError> {
        let Window { kernel, stride, pad, dilation, .. } = conv.window;
        // The extent of the windows beyond the output, which ONNX specifies separately.
        let extra: Option<Vec<usize>> = (0..2)
            .map(|axis| {
                let reach =
                    input.get(2 + axis)?.checked_sub(1)? * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1;
                (output.get(2 + axis)? + pad[2 * axis] + pad[2 * axis + 1]).checked_sub(reach)
            })
            .collect();
        let extra = extra.ok_or_else(|| refuse(node, "its output is smaller than the range of its windows"))?;
        let mut attributes = window_attributes(&conv.window, pad);
        attributes.push(Attribute::ints("dilations", &dilation));
        attributes.push(Attribute::int("group", conv.groups));
        attributes.push(Attribute::ints("output_padding", &extra));
        self.plain(node, "ConvTranspose", attributes);
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

    /// Padding with which no window is partial. It makes `ceil_mode` explicit, because runtimes disagree about
    /// windows in the padding.
    fn closed_pads(&self, node: &Node, window: &Window) -> [usize; 4] {
        let mut pads = window.pad;
        let input = node.inputs.first().map(|value| &self.graph.ty(*value).shape);
        let output = node.outputs.first().map(|value| &self.graph.ty(*value).shape);
        if let (Some(input), Some(output), true) = (input, output, window.ceil) {
            for axis in 0..2 {
                let extent = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
                let reach = (output[2 + axis] - 1) * window.stride[axis] + extent;
                let there = input[2 + axis] + pads[2 * axis] + pads[2 * axis + 1];
                pads[2 * axis + 1] += reach.saturating_sub(there);
            }
        }
        pads
    }

    fn average_pool(&mut self, node: &Node, pool: &AvgPool) {
        let pads = self.closed_pads(node, &pool.window);
        if pads == pool.window.pad || !pool.count_include_pad {
            let mut attributes = pool_attributes(&pool.window, pads);
            attributes.push(Attribute::int("count_include_pad", usize::from(pool.count_include_pad)));
            return self.plain(node, "AveragePool", attributes);
        }
        // Padding is included in the divisor, but positions beyond it are not. So the padding becomes part of the
        // map.
        let [top, bottom, left, right] = pool.window.pad.map(|extent| extent as i64);
        let around = self.integers(node, "pads", &[0, 0, top, left, 0, 0, bottom, right]);
        let mut inputs = self.operands(node);
        inputs.push(around);
        let padded = self.part(node, "padded", "Pad", inputs, vec![]);
        let over = [0, pads[1] - pool.window.pad[1], 0, pads[3] - pool.window.pad[3]];
        self.push("AveragePool", &node.name, vec![padded], self.result(node), pool_attributes(&pool.window, over));
    }

    fn adaptive_pool(&mut self, node: &Node, pool: &AdaptiveAvgPool) {
        let shape = self.graph.ty(node.inputs[0]).shape.clone();
        let [h, w] = [shape[2], shape[3]];
        if pool.out == [1, 1] {
            return self.plain(node, "GlobalAveragePool", vec![]);
        }
        if pool.out == [h, w] {
            return self.plain(node, "Identity", vec![]);
        }
        // Windows of different sizes: rows and columns are averaged by one matrix each.
        let rows = self.floats(node, "rows", &[pool.out[0], h], &constant::averages(pool.out[0], h));
        let columns = constant::transposed(&constant::averages(pool.out[1], w), w);
        let columns = self.floats(node, "columns", &[w, pool.out[1]], &columns);
        let x = self.names[node.inputs[0].0].clone();
        let narrow = self.part(node, "narrow", "MatMul", vec![x, columns], vec![]);
        self.push("MatMul", &node.name, vec![rows, narrow], self.result(node), vec![]);
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

    fn resize(&mut self, node: &Node, resize: &Resize) {
        let sizes = self.integers(node, "sizes", &resize.out.map(|extent| extent as i64));
        let x = self.names[node.inputs[0].0].clone();
        let (mode, places) = match resize.interpolation {
            Interpolation::Nearest => ("nearest", "asymmetric"),
            Interpolation::Bilinear { align_corners: true } => ("linear", "align_corners"),
            Interpolation::Bilinear { align_corners: false } => ("linear", "half_pixel"),
        };
        let attributes = vec![
            Attribute::ints("axes", &[2, 3]),
            Attribute::text("mode", mode),
            Attribute::text("coordinate_transformation_mode", places),
            Attribute::text("nearest_mode", "floor"),
        ];
        self.push("Resize", &node.name, vec![x, String::new(), String::new(), sizes], self.result(node), attributes);
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

    /// Reshapes `[n, 2a, h, w]` to `[n, 2, a, h, w]`, applies the softmax over the pair, and moves the pair to the
    /// end.
    fn pair_log_softmax(&mut self, node: &Node) {
        let shape = self.graph.ty(node.inputs[0]).shape.clone();
        let pairs = self.shape(node, &[shape[0], 2, shape[1] / 2, shape[2], shape[3]]);
        let pairs = self.integers(node, "shape", &pairs);
        let x = self.names[node.inputs[0].0].clone();
        let x = self.part(node, "pairs", "Reshape", vec![x, pairs], vec![]);
        let x = self.part(node, "softmax", "LogSoftmax", vec![x], vec![Attribute::int("axis", 1)]);
        let order = Attribute::ints("perm", &[0, 2, 3, 4, 1]);
        self.push("Transpose", &node.name, vec![x], self.result(node), vec![order]);
    }

    /// Writes the correlation as a convolution whose groups are the channels of all samples; the other map is its
    /// weight.
    fn correlation(&mut self, node: &Node) {
        let shapes = [0, 1].map(|index| self.graph.ty(node.inputs[index]).shape.clone());
        let result = self.graph.ty(node.outputs[0]).shape.clone();
        let [x, kernel] = [0, 1].map(|index| self.names[node.inputs[index].0].clone());
        let groups = shapes[0][0] * shapes[0][1];
        let whole = |shape: &[usize]| shape.iter().map(|extent| *extent as i64).collect::<Vec<_>>();
        let flat = self.integers(node, "maps_shape", &whole(&[1, groups, shapes[0][2], shapes[0][3]]));
        let x = self.part(node, "maps", "Reshape", vec![x, flat], vec![]);
        let flat = self.integers(node, "kernels_shape", &whole(&[groups, 1, shapes[1][2], shapes[1][3]]));
        let kernel = self.part(node, "kernels", "Reshape", vec![kernel, flat], vec![]);
        let kernel_shape = Attribute::ints("kernel_shape", &shapes[1][2..]);
        let attributes = vec![kernel_shape, Attribute::int("group", groups)];
        let y = self.part(node, "correlated", "Conv", vec![x, kernel], attributes);
        let shape = self.integers(node, "shape", &whole(&result));
        self.push("Reshape", &node.name, vec![y, shape], self.result(node), vec![]);
    }
}

/// This name, or the next free name derived from it; adds it to `taken`.
fn free(taken: &mut HashSet<String>, name: &str) -> String {
    let mut candidate = name.to_owned();
    let mut number = 1;
    while !taken.insert(candidate.clone()) {
        number += 1;
        candidate = format!("{name}_{number}");
    }
    candidate
}

/// Kernel, strides and pads in ONNX's order: top, left, bottom, right.
fn window_attributes(window: &Window, [top, bottom, left, right]: [usize; 4]) -> Vec<Attribute> {
    vec![
        Attribute::ints("kernel_shape", &window.kernel),
        Attribute::ints("strides", &window.stride),
        Attribute::ints("pads", &[top, left, bottom, right]),
    ]
}

fn pool_attributes(window: &Window, pads: [usize; 4]) -> Vec<Attribute> {
    let mut attributes = window_attributes(window, pads);
    if window.dilation != [1, 1] {
        attributes.push(Attribute::ints("dilations", &window.dilation));
    }
    attributes
}

fn refuse(node: &Node, reason: &str) -> OnnxError {
    OnnxError::Operator {
        node: node.name.clone(),
        operator: node.op.name(),
        reason: reason.to_owned(),
        origin: node.origin.clone(),
    }
}

#[cfg(test)]
mod tests;
