//! Convolutions, pooling and resizing: windows over maps.

use super::{OnnxError, Translation, refuse};
use crate::constant;
use crate::message::Attribute;
use zoo_graph::Node;
use zoo_graph::ops::{AdaptiveAvgPool, AvgPool, Conv2D, Interpolation, Resize, Window};

impl Translation<'_> {
    pub(super) fn conv(&mut self, node: &Node, conv: &Conv2D) -> Result<(), OnnxError> {
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
    pub(super) fn conv_transpose(
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

    /// Padding with which no window is partial. It makes `ceil_mode` explicit, because runtimes disagree about
    /// windows in the padding.
    pub(super) fn closed_pads(&self, node: &Node, window: &Window) -> [usize; 4] {
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

    pub(super) fn average_pool(&mut self, node: &Node, pool: &AvgPool) {
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

    pub(super) fn adaptive_pool(&mut self, node: &Node, pool: &AdaptiveAvgPool) {
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

    pub(super) fn resize(&mut self, node: &Node, resize: &Resize) {
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

    /// Writes the correlation as a convolution whose groups are the channels of all samples; the other map is its
    /// weight.
    pub(super) fn correlation(&mut self, node: &Node) {
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

/// Kernel, strides and pads in ONNX's order: top, left, bottom, right.
fn window_attributes(window: &Window, [top, bottom, left, right]: [usize; 4]) -> Vec<Attribute> {
    vec![
        Attribute::ints("kernel_shape", &window.kernel),
        Attribute::ints("strides", &window.stride),
        Attribute::ints("pads", &[top, left, bottom, right]),
    ]
}

pub(super) fn pool_attributes(window: &Window, pads: [usize; 4]) -> Vec<Attribute> {
    let mut attributes = window_attributes(window, pads);
    if window.dilation != [1, 1] {
        attributes.push(Attribute::ints("dilations", &window.dilation));
    }
    attributes
}
